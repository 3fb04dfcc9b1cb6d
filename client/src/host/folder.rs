//! The folder in which the processes of a user find their node, and its lock.
//!
//! The folder is in that of this user's run ([`run_folder`]), and used only if this user owns it
//! and no other user may write there.

use std::{
    fs::{File, Metadata, TryLockError},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use larder_base::ErrorKind;
use larder_dataset::{WRITE_OF_OTHERS, make_private, open_private, run_folder};

use super::{
    HostOptions,
    settings::{self, Salt},
};
use crate::Error;

/// The most letters of a node's name. The path of its socket must fit an address of 108 bytes.
const NAME_BYTES_MAX: usize = 32;

/// The permission of other users to do anything.
const ANYTHING_OF_OTHERS: u32 = 0o077;

/// The folder of one node.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder, created if it is missing.
    pub(super) fn make(options: &HostOptions) -> Result<Self, Error> {
        let base = make_base()?;
        let salt = settings::make_salt(&base).map_err(|why| unusable(&base, why))?;
        let path = base.join(folder_name(options, &salt)?);
        make(&path)?;
        open_if_there(&path, ANYTHING_OF_OTHERS)?;
        Ok(Self { path })
    }

    /// The folder, if it exists.
    pub(super) fn find(options: &HostOptions) -> Result<Option<Self>, Error> {
        let base = run_folder();
        if open_if_there(&base, WRITE_OF_OTHERS)?.is_none() {
            return Ok(None);
        }
        let salt = settings::find_salt(&base).map_err(|why| unusable(&base, why))?;
        let Some(salt) = salt else { return Ok(None) };
        let path = base.join(folder_name(options, &salt)?);
        let there = open_if_there(&path, ANYTHING_OF_OTHERS)?;
        Ok(there.map(|_| Self { path }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the node's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("larder.sock")
    }

    /// The path of the node's log. It is beside the folder, and stays when the node ends.
    pub(super) fn log(&self) -> PathBuf {
        self.path.with_extension("log")
    }

    /// Takes the lock if it is free. The lock is held until the last process with this file ends.
    ///
    /// A node that ends removes its folder while it holds the lock. So this makes the folder again,
    /// and takes no lock on a folder that is no longer at the path.
    pub(super) fn try_lock(&self) -> Result<Option<File>, Error> {
        make(&self.path)?;
        let Some(file) = open_if_there(&self.path, ANYTHING_OF_OTHERS)? else { return Ok(None) };
        match file.try_lock() {
            Ok(()) => Ok(self.is_at_path(&file).then_some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(why)) => Err(unusable(&self.path, why)),
        }
    }

    fn is_at_path(&self, folder: &File) -> bool {
        let identity = |found: Metadata| (found.dev(), found.ino());
        let at_path = self.path.symlink_metadata().map(identity);
        matches!((folder.metadata().map(identity), at_path), (Ok(ours), Ok(there)) if ours == there)
    }
}

/// The folder of all nodes of this user, created if it is missing.
pub(super) fn make_base() -> Result<PathBuf, Error> {
    let base = run_folder();
    make(&base)?;
    open(&base, WRITE_OF_OTHERS)?;
    Ok(base)
}

fn folder_name(options: &HostOptions, salt: &Salt) -> Result<String, Error> {
    let Some(name) = settings::text(options.name.clone(), "LARDER_HOST_NODE")? else {
        return Ok(format!("host-{}", settings::fingerprint(salt)));
    };
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
        let what = format!("{name:?} can't be the name of a node of this host");
        let hint = format!(
            "use at most {NAME_BYTES_MAX} letters, digits, '-' and '_' in LARDER_HOST_NODE"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, what).hint(hint));
    }
    Ok(format!("host-{name}-{}", settings::fingerprint(salt)))
}

/// Makes a folder for this user only, unless it exists.
fn make(path: &Path) -> Result<(), Error> {
    make_private(path).map_err(|why| unusable(path, why))
}

/// As [`open_if_there`], for a folder that must exist.
fn open(path: &Path, refused_mode: u32) -> Result<File, Error> {
    let there = open_if_there(path, refused_mode)?;
    there.ok_or_else(|| unusable(path, "it does not exist"))
}

/// Opens a folder that this user owns and that gives other users none of these permissions.
fn open_if_there(path: &Path, refused_mode: u32) -> Result<Option<File>, Error> {
    open_private(path, refused_mode).map_err(|why| unusable(path, why))
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> Error {
    let what = format!("the folder {} can't be used for the cache of this host", path.display());
    Error::new(ErrorKind::PermissionDenied, what)
        .because(why)
        .hint("remove it, or set XDG_RUNTIME_DIR to a folder that is yours alone")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use nix::unistd::geteuid;

    use super::*;

    #[test]
    fn creates_private_folder_and_refuses_a_shared_one() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("own");
        make(&path).unwrap();
        make(&path).unwrap();
        open(&path, ANYTHING_OF_OTHERS).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o711)).unwrap();
        open(&path, WRITE_OF_OTHERS).unwrap();
        let refused = open(&path, ANYTHING_OF_OTHERS).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("711"), "{refused}");
    }

    #[test]
    fn lock_is_taken_on_the_folder_at_the_path_only() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder { path: root.path().join("own") };
        let ending = folder.try_lock().unwrap().unwrap();
        let starter = open(folder.path(), ANYTHING_OF_OTHERS).unwrap();
        assert!(folder.is_at_path(&starter));
        // The node that ends removes its folder.
        fs::remove_dir(folder.path()).unwrap();
        drop(ending);
        assert!(!folder.is_at_path(&starter));
        let _lock = folder.try_lock().unwrap().expect("a new folder is made and locked");
        assert!(folder.path().is_dir() && !folder.is_at_path(&starter));
    }

    #[test]
    fn a_link_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (real, link) = (root.path().join("real"), root.path().join("link"));
        make(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        make(&link).unwrap();
        open(&link, ANYTHING_OF_OTHERS).unwrap_err();
    }

    #[test]
    fn folder_of_another_user_is_refused_and_its_owner_named() {
        // The root folder belongs to the superuser. For the superuser, the test uses another user's
        // folder.
        let somebody = if geteuid().is_root() {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join("theirs");
            make(&path).unwrap();
            nix::unistd::chown(&path, Some(65534.into()), None).unwrap();
            let refused = open(&path, ANYTHING_OF_OTHERS).unwrap_err();
            assert!(refused.advice_text().is_some_and(|hint| hint.contains("XDG_RUNTIME_DIR")));
            (refused, "65534")
        } else {
            (open(Path::new("/"), WRITE_OF_OTHERS).unwrap_err(), "user 0")
        };
        assert!(somebody.0.to_string().contains(somebody.1), "{}", somebody.0);
    }

    #[test]
    fn lock_is_held_until_its_last_descriptor_closes() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let folder = Folder { path };
        let lock = folder.try_lock().unwrap().expect("free");
        let inherited = lock.try_clone().unwrap();
        assert!(folder.try_lock().unwrap().is_none());
        drop(lock);
        assert!(folder.try_lock().unwrap().is_none(), "who inherited it holds it");
        drop(inherited);
        assert!(folder.try_lock().unwrap().is_some());
    }
}
