//! The file of the unix socket, and its permissions.

use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind as IoErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use larder_base::{Error, ErrorKind, root_cause};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Group, chown};
use std::os::fd::AsRawFd;

use crate::config::SocketConfig;

/// The kernel's limit on the path of a unix socket, without the zero at its end.
const PATH_BYTES_MAX: usize = 107;

/// The file, removed when the node stops.
#[derive(Debug)]
pub(in crate::serve) struct SocketFile {
    path: PathBuf,
    /// Device and inode, so that it never removes another node's file.
    identity: Option<(u64, u64)>,
    /// Its folder, if it was created for the socket.
    folder: Option<PathBuf>,
}

impl SocketFile {
    /// Creates the socket. Creates its folder if needed, for the owner only (and the group).
    ///
    /// # Errors
    /// Another node answers there, a file that is no socket has the name, or the system refuses.
    pub(in crate::serve) fn bind(config: &SocketConfig) -> Result<(Self, UnixListener), Error> {
        let path = &config.path;
        let failed = |why: std::io::Error| failed(path, why);
        let group = config.group.as_deref().map(group_named).transpose()?;
        let folder = make_folder(path, group).map_err(failed)?;
        remove_stale(path)?;
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        let listener = bind_with_mode(path, mode).map_err(|errno| failed(errno.into()))?;
        if group.is_some() {
            chown(path, None, group).map_err(|errno| failed(errno.into()))?;
        }
        let identity = identity(path);
        Ok((Self { path: path.clone(), identity, folder }, listener))
    }

    pub(in crate::serve) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file if it is still this node's. Removes the folder that was created for it, if
    /// that is empty.
    pub(in crate::serve) fn remove(&self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
            let _ = self.folder.as_ref().map(fs::remove_dir);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

fn failed(path: &Path, why: std::io::Error) -> Error {
    let hint = match why.kind() {
        IoErrorKind::PermissionDenied | IoErrorKind::ReadOnlyFilesystem => {
            let (user, folder) = (nix::unistd::geteuid(), nearest_folder(path));
            format!(
                "user {user} may not make it in {}: choose a folder it may write to",
                folder.display()
            )
        }
        IoErrorKind::InvalidFilename => {
            format!("a socket's path has at most {PATH_BYTES_MAX} bytes: choose a shorter one")
        }
        _ => "choose another path".to_owned(),
    };
    let message = format!("--socket {}: {}; {hint}", path.display(), root_cause(&why));
    Error::new(ErrorKind::Unavailable, message).with_source(why)
}

/// Returns the nearest existing folder above the path.
fn nearest_folder(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(Path::new("/"))
}

fn group_named(name: &str) -> Result<Gid, Error> {
    let found = Group::from_name(name).ok().flatten();
    found.map(|group| group.gid).ok_or_else(|| {
        let message = format!("--socket-group {name}: there is no such group on this host");
        Error::new(ErrorKind::InvalidArgument, message)
    })
}

/// Creates the folder. Returns it if it was created now.
fn make_folder(path: &Path, group: Option<Gid>) -> std::io::Result<Option<PathBuf>> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(None);
    };
    if folder.is_dir() {
        return Ok(None);
    }
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != IoErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if group.is_some() {
        chown(folder, None, group)?;
        fs::set_permissions(folder, Permissions::from_mode(0o750))?;
    }
    Ok(Some(folder.to_owned()))
}

/// Removes the socket of a node that crashed: a socket that no process answers on.
fn remove_stale(path: &Path) -> Result<(), Error> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        let taken = std::io::Error::new(IoErrorKind::AlreadyExists, "a file that is not a socket");
        return Err(failed(path, taken));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == IoErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|why| failed(path, why))
        }
        _ => {
            let taken =
                std::io::Error::new(IoErrorKind::AddrInUse, "another process answers there");
            Err(failed(path, taken))
        }
    }
}

/// Binds with its final mode from the start, so that other users can never connect.
fn bind_with_mode(path: &Path, mode: u32) -> nix::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // The file takes the mode of the socket, less the bits of the umask.
    fchmod(&socket, Mode::from_bits_truncate(mode))?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    nix::sys::stat::fchmodat(
        nix::fcntl::AT_FDCWD,
        path,
        Mode::from_bits_truncate(mode),
        nix::sys::stat::FchmodatFlags::FollowSymlink,
    )?;
    listen(&socket, Backlog::MAXCONN)?;
    Ok(UnixListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(path: PathBuf) -> SocketConfig {
        SocketConfig { path, group: None }
    }

    #[test]
    fn socket_and_folder_are_private() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("larder/larder.sock");
        let (file, _listener) = SocketFile::bind(&config(path.clone())).expect("bound");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().expect("a folder")), 0o700);
        file.remove();
        assert!(!path.parent().expect("a folder").exists(), "it was made for the socket");
        assert!(root.path().exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("larder.sock");
        let (_first, listener) = SocketFile::bind(&config(path.clone())).expect("bound");
        let refused = SocketFile::bind(&config(path.clone())).expect_err("one answers there");
        assert!(refused.message().contains("another process answers"), "{refused}");
        drop(listener);
        SocketFile::bind(&config(path)).expect("nobody answers any more");
    }

    #[test]
    fn a_path_that_is_too_long_is_refused_with_the_limit() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("x".repeat(120));
        let refused = SocketFile::bind(&config(path)).expect_err("too long");
        assert!(refused.message().contains("107 bytes"), "{refused}");
    }

    #[test]
    fn file_that_is_not_a_socket_is_kept() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("larder.sock");
        fs::write(&path, "mine").expect("written");
        SocketFile::bind(&config(path.clone())).expect_err("refused");
        assert_eq!(fs::read(&path).expect("still there"), b"mine");
    }

    #[test]
    fn a_node_does_not_remove_the_socket_of_its_successor() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("larder.sock");
        let (first, listener) = SocketFile::bind(&config(path.clone())).expect("bound");
        drop(listener);
        let _second = SocketFile::bind(&config(path.clone())).expect("bound");
        // The inode number may have been reused at once, and then the two can't be told apart.
        if identity(&path) != first.identity {
            first.remove();
            assert!(path.exists());
        }
    }
}
