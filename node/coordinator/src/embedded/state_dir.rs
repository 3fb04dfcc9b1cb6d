//! The folder that keeps a coordinator's state beyond its process.
//!
//! ```text
//! state   magic 8 | length of the body 8 | xxh3-64 of the body 8 | a `PersistedState` message
//! blobs/  one file per blob, named by its hash
//! lock    held by the process that uses the folder
//! ```
//!
//! Each write replaces a whole file: write beside it, sync, rename, sync the folder. So at any
//! instant of a crash the file is either the old or the new one. A damaged file therefore has
//! another cause. It is refused with a hint, and never taken for empty.
//!
//! Thread rule: blocks. The caller must allow only one change at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_base::{Error, ErrorKind, limits};
use nix::fcntl::{Flock, FlockArg};
use prost::Message;
use xxhash_rust::xxh3::xxh3_64;

use crate::message::PersistedState;
use crate::types::BlobId;

const MAGIC: &[u8; 8] = b"ldr-crd1";
const HEAD_BYTES: usize = 24;
const STATE: &str = "state";
const BLOBS: &str = "blobs";
const UNFINISHED: &str = "tmp";

/// Most bytes of the state: the record and all announcements, as in one message.
const STATE_BYTES_MAX: usize = limits::CONTROL_MESSAGE_BYTES_MAX;

/// A folder that only this process uses.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
    _lock: Flock<File>,
}

/// Why a file was not replaced.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The file is unchanged.
    Unchanged(io::Error),
    /// The file is replaced, but a loss of power may undo that.
    InDoubt(io::Error),
}

impl StateDir {
    /// Locks a folder. Creates it if needed.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |why: io::Error| unusable(path, &why);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let lock = options().open(path.join("lock")).map_err(failed)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, why)| {
            let what = format!(
                "--state {}: another node uses this folder ({why}); give each node its own",
                path.display()
            );
            Error::new(ErrorKind::Unavailable, what)
        })?;
        let folder = Self { path: path.to_owned(), _lock: lock };
        folder.remove_unfinished().map_err(failed)?;
        Ok(folder)
    }

    /// Removes files that a crash left half-written under temporary names.
    fn remove_unfinished(&self) -> io::Result<()> {
        for folder in [self.path.clone(), self.path.join(BLOBS)] {
            let Ok(files) = fs::read_dir(folder) else { continue };
            for file in files {
                let path = file?.path();
                if path.extension().is_some_and(|ending| ending == UNFINISHED) {
                    fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }

    /// Loads the state. Returns `None` for a folder that was never used.
    pub(super) fn load(&self) -> Result<Option<PersistedState>, Error> {
        let path = self.path.join(STATE);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound && !self.is_used() => {
                return Ok(None);
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(&path, "it is missing, though blobs are there"));
            }
            Err(why) => return Err(unusable(&path, &why)),
        };
        let bytes = read_at_most(file, STATE_BYTES_MAX + HEAD_BYTES);
        let bytes = bytes.map_err(|why| unusable(&path, &why))?;
        let body = body(&bytes).map_err(|why| damaged(&path, why))?;
        let kept = PersistedState::decode(body)
            .map_err(|_| damaged(&path, "its message makes no sense"))?;
        Ok(Some(kept))
    }

    /// Removes the state and all blobs. If it is interrupted, call it again.
    pub(super) fn clear(&self) -> Result<(), Error> {
        let gone = |removed: io::Result<()>| match removed {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(unusable(&self.path, &why)),
            _ => Ok(()),
        };
        // The blobs first: without a state, blobs would be damage.
        gone(fs::remove_dir_all(self.path.join(BLOBS)))?;
        gone(fs::remove_file(self.path.join(STATE)))
    }

    fn is_used(&self) -> bool {
        self.path.join(BLOBS).exists()
    }

    /// Replaces the state.
    pub(super) fn save(&self, kept: &PersistedState) -> Result<(), WriteError> {
        let body = kept.encode_to_vec();
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&xxh3_64(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        replace(&self.path, STATE, &bytes)
    }

    /// Keeps a blob.
    pub(super) fn put_blob(&self, id: BlobId, bytes: &[u8]) -> Result<(), WriteError> {
        let folder = self.path.join(BLOBS);
        if folder.join(id.to_string()).exists() {
            return Ok(());
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .and_then(|()| sync_folder(&self.path))
            .map_err(WriteError::Unchanged)?;
        replace(&folder, &id.to_string(), bytes)
    }

    /// Returns a blob, checked against its id.
    pub(super) fn blob(&self, id: BlobId) -> Result<Option<Bytes>, Error> {
        let path = self.path.join(BLOBS).join(id.to_string());
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(unusable(&path, &why)),
        };
        let bytes = read_at_most(file, limits::BLOB_BYTES_MAX);
        let bytes = bytes.map_err(|why| unusable(&path, &why))?;
        if BlobId::of(&bytes) != id {
            return Err(damaged(&path, "its bytes are not those that it is named by"));
        }
        Ok(Some(Bytes::from(bytes)))
    }

    pub(super) fn has_blob(&self, id: BlobId) -> bool {
        self.path.join(BLOBS).join(id.to_string()).exists()
    }

    /// Returns the ids of all blobs.
    pub(super) fn blobs(&self) -> io::Result<Vec<BlobId>> {
        let files = match fs::read_dir(self.path.join(BLOBS)) {
            Ok(files) => files,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(why),
        };
        let mut ids = Vec::new();
        for file in files {
            let name = file?.file_name();
            ids.extend(name.to_str().and_then(|name| name.parse::<BlobId>().ok()));
        }
        Ok(ids)
    }

    pub(super) fn remove_blob(&self, id: BlobId) -> io::Result<()> {
        match fs::remove_file(self.path.join(BLOBS).join(id.to_string())) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
            _ => Ok(()),
        }
    }
}

/// Files only for the owner: the state grants access to the cluster.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

fn replace(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
    let (path, beside) = (folder.join(name), folder.join(format!("{name}.{UNFINISHED}")));
    let written = options().open(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&beside, &path));
    if let Err(why) = renamed {
        // If this fails, the next start removes the file.
        let _ = fs::remove_file(&beside);
        return Err(WriteError::Unchanged(why));
    }
    sync_folder(folder).map_err(WriteError::InDoubt)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Reads a whole file of at most `bytes_max` bytes.
fn read_at_most(file: File, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Returns the body, if head and body are intact.
fn body(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let (head, body) = bytes.split_at_checked(HEAD_BYTES).ok_or("it is cut off")?;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| head[at + index]));
    if &head[..8] != MAGIC {
        return Err("it does not begin as such a file does");
    }
    if number(8) != body.len() as u64 {
        return Err("it is cut off, or has grown");
    }
    if number(16) != xxh3_64(body) {
        return Err("its checksum is wrong");
    }
    Ok(body)
}

fn unusable(path: &Path, why: &io::Error) -> Error {
    let what = format!("--state {}: {why}", path.display());
    Error::new(ErrorKind::Unavailable, what)
}

fn damaged(path: &Path, why: &str) -> Error {
    let what = format!(
        "{}: {why}; put the file back from a backup, or give up this folder: have another node take over \
         (`larder ring takeover`), and start this one with an empty --state and --join",
        path.display()
    );
    Error::new(ErrorKind::DataLoss, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> PersistedState {
        PersistedState {
            generation: 3,
            coordinator: "http://h:1".to_owned(),
            ..PersistedState::default()
        }
    }

    #[test]
    fn saved_state_is_loaded_and_an_unused_folder_is_empty() {
        let home = tempfile::tempdir().unwrap();
        let folder = StateDir::open(&home.path().join("new")).unwrap();
        assert_eq!(folder.load().unwrap(), None);
        folder.save(&kept()).unwrap();
        assert_eq!(folder.load().unwrap(), Some(kept()));
        assert!(
            StateDir::open(&home.path().join("new")).unwrap_err().message().contains("another")
        );
    }

    #[test]
    fn a_state_cut_or_changed_anywhere_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = StateDir::open(home.path()).unwrap();
        folder.save(&kept()).unwrap();
        let path = home.path().join(STATE);
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(folder.load().unwrap_err().kind(), ErrorKind::DataLoss, "{cut} bytes");
            let mut flipped = whole.clone();
            flipped[cut] ^= 1;
            fs::write(&path, flipped).unwrap();
            let why = folder.load().unwrap_err();
            assert!(why.message().contains("takeover"), "byte {cut}: {why}");
        }
        fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
        assert!(folder.load().is_err());
        folder.put_blob(BlobId::of(b"b"), b"b").unwrap();
        fs::remove_file(&path).unwrap();
        assert!(folder.load().unwrap_err().message().contains("missing"));
    }

    #[test]
    fn blobs_are_checked_against_their_names() {
        let home = tempfile::tempdir().unwrap();
        let folder = StateDir::open(home.path()).unwrap();
        let id = BlobId::of(b"plan");
        assert_eq!(folder.blob(id).unwrap(), None);
        folder.put_blob(id, b"plan").unwrap();
        folder.put_blob(id, b"plan").unwrap();
        assert_eq!(folder.blob(id).unwrap().unwrap(), "plan");
        assert_eq!(folder.blobs().unwrap(), [id]);
        fs::write(home.path().join(BLOBS).join(id.to_string()), b"plot").unwrap();
        assert_eq!(folder.blob(id).unwrap_err().kind(), ErrorKind::DataLoss);
        folder.remove_blob(id).unwrap();
        folder.remove_blob(id).unwrap();
        assert!(folder.blobs().unwrap().is_empty());
    }

    #[test]
    fn partial_files_are_removed_and_complete_ones_stay() {
        let home = tempfile::tempdir().unwrap();
        let folder = StateDir::open(home.path()).unwrap();
        folder.save(&kept()).unwrap();
        drop(folder);
        let left = home.path().join("state.tmp");
        fs::write(&left, b"ldr-crd1 half").unwrap();
        let folder = StateDir::open(home.path()).unwrap();
        assert!(!left.exists());
        assert_eq!(folder.load().unwrap(), Some(kept()));
    }
}
