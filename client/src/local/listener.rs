//! Checks the listener of a socket at a path that came from the network.
//!
//! The client maps extents from a node's socket and takes them for rows. So the listener must be
//! the node, and not another user of this host that claimed the path first. Root and this process's
//! user are trusted, and must have given the path to any other listener. The socket's folder then
//! belongs to the listener, or to a trusted user and is not writable by others. No other user can
//! have moved the folder there.
//!
//! Non-goal: telling a node from other programs of the same user.

use std::{
    io,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{self, Path},
    sync::Once,
};

use larder_extent::socket::PeerProcess;
use nix::unistd::geteuid;

const ROOT: u32 = 0;

/// The permission of other users to write. The sticky bit at least stops them from renaming others'
/// files.
const WRITE_OF_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// A folder above a socket.
#[derive(Debug, Clone, Copy)]
struct Owner {
    user: u32,
    mode: u32,
}

/// Checks that root or this user gave `path` to its listener. `socket` is connected to it.
///
/// # Errors
/// The reason, if this can't be proved.
pub(super) fn check(socket: &UnixStream, path: &Path) -> Result<(), String> {
    let own = geteuid().as_raw();
    let listener = PeerProcess::of(socket).map_err(|why| why.to_string())?.uid();
    if is_trusted(listener, own) {
        return Ok(());
    }
    let why = match (chain(path), path.canonicalize().and_then(|path| chain(&path))) {
        (Ok(named), Ok(real)) => {
            judge(listener, own, &named).and_then(|()| judge(listener, own, &real))
        }
        (Err(why), _) | (_, Err(why)) => Err(why.to_string()),
    };
    why.map_err(|why| refused(path, listener, &why))
}

fn refused(path: &Path, listener: u32, why: &str) -> String {
    static WARNED: Once = Once::new();
    let path = path.display();
    let sentence = format!(
        "user {listener} listens at {path}, who may not be the node: {why}; rows come over TCP until the node \
         listens in a folder that root made for its user, such as /run/larder"
    );
    WARNED.call_once(|| tracing::warn!("{sentence}"));
    sentence
}

/// The folders above a path, the nearest first.
fn chain(path: &Path) -> io::Result<Vec<Owner>> {
    let path = path::absolute(path)?;
    let look = |folder: &Path| {
        let found = folder.metadata()?;
        Ok(Owner { user: found.uid(), mode: found.mode() })
    };
    path.ancestors().skip(1).map(look).collect()
}

fn is_trusted(user: u32, own: u32) -> bool {
    user == ROOT || user == own
}

fn judge(listener: u32, own: u32, folders: &[Owner]) -> Result<(), String> {
    let Some((nearest, above)) = folders.split_first() else {
        return Err("its folder is not known".to_owned());
    };
    if nearest.user != listener && !is_trusted(nearest.user, own) {
        return Err(format!("its folder is user {}'s", nearest.user));
    }
    if nearest.user != listener && nearest.mode & WRITE_OF_OTHERS != 0 {
        return Err("others may write to its folder".to_owned());
    }
    let mut below = nearest;
    for folder in above {
        if folder.user != listener && !is_trusted(folder.user, own) {
            return Err(format!("a folder above it is user {}'s", folder.user));
        }
        let stays = folder.mode & STICKY != 0 && is_trusted(below.user, own);
        if folder.mode & WRITE_OF_OTHERS != 0 && !stays {
            return Err("others may write to a folder above it".to_owned());
        }
        below = folder;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const NODE: u32 = 990;
    const OURS: u32 = 1000;
    const OTHER: u32 = 1001;

    /// The judgement of a listener below these folders, the nearest first.
    fn judged(listener: u32, folders: &[(u32, u32)]) -> Result<(), String> {
        let folders: Vec<_> = folders.iter().map(|&(user, mode)| Owner { user, mode }).collect();
        judge(listener, OURS, &folders)
    }

    #[test]
    fn trusts_folder_that_root_or_this_user_gave_to_the_node() {
        let (root, run) = ((ROOT, 0o755), (ROOT, 0o755));
        judged(NODE, &[(NODE, 0o750), run, root]).unwrap();
        judged(NODE, &[(NODE, 0o770), run, root]).unwrap();
        judged(NODE, &[(ROOT, 0o755), run, root]).unwrap();
        judged(NODE, &[(NODE, 0o755), (NODE, 0o755), (ROOT, 0o755), root]).unwrap();
        judged(NODE, &[(NODE, 0o755), (OURS, 0o755), (ROOT, 0o1777), root]).unwrap();
    }

    #[test]
    fn refuses_socket_where_other_users_may_write() {
        let (root, tmp) = ((ROOT, 0o755), (ROOT, 0o1777));
        for (listener, folders, says) in [
            // In /tmp, and in a folder that the listener made there.
            (OTHER, vec![tmp, root], "others may write to its folder"),
            (OTHER, vec![(OTHER, 0o755), tmp, root], "a folder above"),
            // In the node's folder, by another user with write permission.
            (OTHER, vec![(NODE, 0o770), root], "user 990's"),
            (OTHER, vec![(ROOT, 0o775), root], "others may write to its folder"),
            // Below a folder that other users own or can rename entries in.
            (NODE, vec![(NODE, 0o755), (ROOT, 0o777), root], "others may write to a folder above"),
            (NODE, vec![(NODE, 0o755), (OTHER, 0o755), root], "user 1001's"),
        ] {
            let refused = judged(listener, &folders).unwrap_err();
            assert!(refused.contains(says), "{folders:?}: {refused}");
        }
    }

    #[test]
    fn socket_of_the_own_user_is_trusted_in_any_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        check(&UnixStream::connect(&path).unwrap(), &path).unwrap();
        assert_eq!(chain(&path).unwrap().len(), path.ancestors().count() - 1);
    }
}
