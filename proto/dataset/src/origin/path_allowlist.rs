//! Keeps local files beneath allowed folders, even where links lead out of them.
//!
//! Callers compare addresses with prefixes as text, but a link on the path may lead anywhere the
//! process may read. So this module asks the kernel for the real place of each file that it found.
//! It reads nothing, and writes nothing beside it, unless that place is beneath one of the folders.
//! A folder given by the operator may itself be reached through links.
//!
//! A file is found before it is opened (`O_PATH`). Opening a pipe waits for its writer, without a
//! limit, on a thread that other calls need. The place is checked, and then opened by its
//! handle, so that no other file can take its place in between.
//!
//! Thread rule: calls block for as long as a look at a file takes.

use std::{
    fs::{self, File, FileType, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::{Path as LocalPath, PathBuf},
    sync::Arc,
};

use nix::fcntl::OFlag;
use object_store::path::Path;

use super::{Origin, OriginError, is_unwritable, local::LocalCalls, messages, store_path};
use crate::{OriginUri, Scheme};

/// The folders that local files must lie in.
#[derive(Clone, Debug)]
pub struct PathAllowlist {
    folders: Arc<[PathBuf]>,
}

#[derive(Debug)]
enum Refused {
    /// Its real place is outside of the folders.
    Outside(PathBuf),
    /// A pipe, a socket or a device.
    Special,
    /// The system's reason.
    Io(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl PathAllowlist {
    /// Allows the local ones of these prefixes.
    pub fn new(prefixes: &[OriginUri]) -> Self {
        let local = prefixes.iter().filter(|prefix| prefix.scheme() == Scheme::File);
        Self { folders: local.map(local_path).collect() }
    }

    /// Checks that a found file or folder lies inside.
    fn check(&self, file: &File) -> Result<(), Refused> {
        self.check_real(fs::read_link(handle(file))?)
    }

    /// Checks that a listed object lies inside. `last` is the folder of the object before, if that
    /// object did.
    fn check_listed(&self, object: &OriginUri, last: &mut Option<PathBuf>) -> Result<(), Refused> {
        let path = local_path(object);
        let folder = path.parent().unwrap_or(LocalPath::new("/"));
        if last.as_deref() == Some(folder) && !path.symlink_metadata()?.is_symlink() {
            return Ok(());
        }
        self.check_real(path.canonicalize()?)?;
        self.check_real(folder.canonicalize()?)?;
        *last = Some(folder.to_owned());
        Ok(())
    }

    /// Opens the folder that an object is to be written to. Creates the folder if it does not
    /// exist.
    fn folder_of(&self, object: &OriginUri) -> Result<File, Refused> {
        self.make_folder(local_path(object).parent().unwrap_or(LocalPath::new("/")))
    }

    fn make_folder(&self, path: &LocalPath) -> Result<File, Refused> {
        let folder = match (open_folder(path), path.parent(), path.file_name()) {
            (Err(why), Some(above), Some(name)) if why.kind() == io::ErrorKind::NotFound => {
                let above = self.make_folder(above)?;
                match fs::create_dir(handle(&above).join(name)) {
                    Err(why) if why.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(why.into());
                    }
                    _ => open_folder(path)?,
                }
            }
            (opened, ..) => opened?,
        };
        self.check(&folder)?;
        Ok(folder)
    }

    fn check_real(&self, real: PathBuf) -> Result<(), Refused> {
        // Usually the name is the real path. Then no other folder is looked at: its file system may
        // hang.
        if self.folders.iter().any(|folder| real.starts_with(folder)) {
            return Ok(());
        }
        let mut folders = self.folders.iter().filter_map(|folder| folder.canonicalize().ok());
        if folders.any(|folder| real.starts_with(folder)) {
            Ok(())
        } else {
            Err(Refused::Outside(real))
        }
    }
}

impl Origin {
    /// Returns the path in the store to read `object` from, and the found file to keep until then.
    ///
    /// # Errors
    /// A local file is no regular file, lies outside of the fence, or is not there.
    pub(super) async fn found(
        &self,
        object: &OriginUri,
    ) -> Result<(Path, Option<File>), OriginError> {
        let path = store_path(object)?;
        if object.scheme() != Scheme::File {
            return Ok((path, None));
        }
        let (fence, place) = (self.fence.clone(), local_path(object));
        let look = move || {
            let file = find(&place, OFlag::O_PATH)?;
            if is_special(file.metadata()?.file_type()) {
                return Err(Refused::Special);
            }
            fence.map_or(Ok(()), |fence| fence.check(&file))?;
            Ok(file)
        };
        let file = off_async(&self.local, object, look).await?;
        let path = handle(&file).to_str().and_then(|handle| Path::parse(handle).ok());
        Ok((path.expect("a handle is a number in ASCII"), Some(file)))
    }

    /// Returns the path in the store to write `object` to, and the folder to keep open until then.
    pub(super) async fn place_of(
        &self,
        object: &OriginUri,
    ) -> Result<(Path, Option<File>), OriginError> {
        let path = store_path(object)?;
        let Some(fence) = self.fence.clone().filter(|_| object.scheme() == Scheme::File) else {
            return Ok((path, None));
        };
        let named = object.clone();
        let folder = off_async(&self.local, object, move || fence.folder_of(&named)).await?;
        let place = handle(&folder).join(path.filename().unwrap_or_default());
        let place = place.to_str().map(Path::parse).and_then(Result::ok);
        Ok((place.unwrap_or(path), Some(folder)))
    }

    /// Checks that listed objects may be read. See [`PathAllowlist::check_listed`]. Returns the
    /// folder of the last of them, for the next call.
    pub(super) async fn check_listed(
        &self,
        prefix: &OriginUri,
        found: Vec<OriginUri>,
        mut last: Option<PathBuf>,
    ) -> Result<Option<PathBuf>, OriginError> {
        let Some(fence) = self.fence.clone().filter(|_| prefix.scheme() == Scheme::File) else {
            return Ok(last);
        };
        let look = move || {
            let mut look = |object: &OriginUri| {
                let checked = fence.check_listed(object, &mut last);
                checked.map_err(|refused| refused.into_error(object))
            };
            found.iter().try_for_each(&mut look).map(|()| last)
        };
        self.local.run(prefix, look).await.map_err(|why| why.into_error(prefix))?
    }
}

/// Runs a look at files on a thread that may block.
async fn off_async<T: Send + 'static>(
    calls: &LocalCalls,
    object: &OriginUri,
    look: impl FnOnce() -> Result<T, Refused> + Send + 'static,
) -> Result<T, OriginError> {
    let looked = calls.run(object, look).await.map_err(|why| why.into_error(object))?;
    looked.map_err(|refused| refused.into_error(object))
}

impl Refused {
    fn into_error(self, object: &OriginUri) -> OriginError {
        let object = object.clone();
        match self {
            Self::Outside(real) => {
                let real = real.display();
                let why = format!(
                    "it is reached through a link that leads to {real}, outside of the node's prefixes"
                );
                let remedy = "start the node with --origin for that folder too, or put a copy in \
                              place of the link";
                OriginError::Denied { object, why, remedy: Some(remedy) }
            }
            Self::Special => {
                let why = "it is a pipe, a socket or a device, and no file".to_owned();
                OriginError::Denied { object, why, remedy: None }
            }
            Self::Io(error) => {
                if let Some(why) = messages::lacks_descriptor(&error) {
                    return OriginError::NoDescriptor { object, why };
                }
                let why = error.to_string();
                match error.kind() {
                    io::ErrorKind::NotFound => OriginError::NotFound { object, why },
                    _ if is_unwritable(&error) => OriginError::Denied { object, why, remedy: None },
                    _ => OriginError::Failed { object, why },
                }
            }
        }
    }
}

/// Returns a path to an open file that stays valid when the file is renamed or removed.
fn handle(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn local_path(uri: &OriginUri) -> PathBuf {
    LocalPath::new("/").join(uri.path())
}

fn open_folder(path: &LocalPath) -> io::Result<File> {
    find(path, OFlag::O_DIRECTORY)
}

/// Opens with a flag by which the system never waits for another process.
fn find(path: &LocalPath, how: OFlag) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(how.bits()).open(path)
}

fn is_special(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device()
}

#[cfg(test)]
mod tests;
