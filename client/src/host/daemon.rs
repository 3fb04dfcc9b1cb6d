//! The node of this host that an administrator started: a daemon on its default socket.
//!
//! The socket proves the node's place and its user. A port would not: any user may listen there.

use std::{
    env,
    path::{Path, PathBuf},
};

use larder_base::ErrorKind;
use larder_wire::data::DEFAULT_SOCKET;
use nix::{
    errno::Errno,
    unistd::{AccessFlags, access},
};

use crate::{Error, local::Lease};

/// The sockets on which a daemon listens: that of `LARDER_SOCKET`, else the default ones, for a
/// daemon of this user and for one of the system.
pub fn daemon_sockets() -> Vec<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(socket) = set("LARDER_SOCKET") {
        return vec![socket];
    }
    let folders = set("XDG_RUNTIME_DIR").into_iter().chain([PathBuf::from("/run")]);
    folders.map(|folder| folder.join(DEFAULT_SOCKET)).collect()
}

/// The control address of the daemon of this host, `http://host:port`. `None` if none answers.
///
/// # Errors
/// `PermissionDenied` if this user may not open its socket.
pub fn daemon_address() -> Result<Option<String>, Error> {
    first_address(&daemon_sockets())
}

fn first_address(sockets: &[PathBuf]) -> Result<Option<String>, Error> {
    let mut denied = None;
    for socket in sockets {
        if access(socket, AccessFlags::W_OK) == Err(Errno::EACCES) {
            denied.get_or_insert_with(|| closed(socket));
            continue;
        }
        match Lease::take(socket).and_then(|mut lease| lease.admit_all(&[], &[])) {
            Ok(admitted) => return Ok(Some(admitted.control)),
            Err(failure) => tracing::debug!(?socket, ?failure, "no daemon answers here"),
        }
    }
    denied.map_or(Ok(None), Err)
}

fn closed(socket: &Path) -> Error {
    let what = format!("the socket {} of this host's node can't be opened", socket.display());
    Error::new(ErrorKind::PermissionDenied, what)
        .because("this user may not use it")
        .hint("join the group of its --socket-group, or say --cluster http://host:port")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn dead_and_missing_sockets_are_no_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let dead = folder.path().join("dead.sock");
        drop(UnixListener::bind(&dead).unwrap());
        let missing = folder.path().join("missing.sock");
        assert_eq!(first_address(&[dead, missing]).unwrap(), None);
    }

    #[test]
    fn socket_of_a_closed_folder_is_refused_with_a_hint() {
        let refused = closed(Path::new("/run/larder/larder.sock"));
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert!(refused.advice_text().is_some_and(|hint| hint.contains("--socket-group")));
    }
}
