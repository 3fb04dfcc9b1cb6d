//! ETags: the MD5 of a file's content, computed once for each version of the file.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use s3s::crypto::{Checksum, Md5};

/// The number of files in the cache. Past it the cache is emptied.
const FILES_MAX: usize = 100_000;
/// A file changed this recently may change again under the same time stamp, so its hash is not
/// kept.
const SETTLED_AFTER: Duration = Duration::from_millis(50);

/// The metadata that distinguishes one version of a file from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    bytes: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified_ns: (metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// ETags of the known files.
#[derive(Debug, Default)]
pub(super) struct ETags(Mutex<HashMap<PathBuf, (Version, String)>>);

impl ETags {
    /// Returns the ETag of `file`, which is open at its start and has the path `path`. Hashes a
    /// version that it has not seen.
    pub(super) fn of(
        &self,
        path: &Path,
        file: &mut File,
        metadata: &Metadata,
    ) -> io::Result<String> {
        let version = Version::of(metadata);
        let known = self
            .lock()
            .get(path)
            .filter(|(seen, _)| *seen == version)
            .map(|(_, etag)| etag.clone());
        if let Some(etag) = known {
            return Ok(etag);
        }
        let etag = md5_hex(file)?;
        if settled(metadata) {
            let mut files = self.lock();
            if files.len() >= FILES_MAX {
                files.clear();
            }
            files.insert(path.to_owned(), (version, etag.clone()));
        }
        Ok(etag)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, (Version, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "compared with file times, which are wall clock too")]
fn settled(metadata: &Metadata) -> bool {
    let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_some_and(|age| age > SETTLED_AFTER)
}

fn md5_hex(file: &mut File) -> io::Result<String> {
    let mut hash = Md5::new();
    let mut piece = vec![0; 256 * 1024];
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            break;
        }
        hash.update(&piece[..count]);
    }
    Ok(hash.finalize().as_ref().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes any text");
        hex
    }))
}
