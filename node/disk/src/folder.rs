//! The folder of shard files on one disk.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use larder_base::{ShardId, SnapshotId};
use larder_extent::Sealed;
use nix::{
    errno::Errno,
    fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise},
};

use crate::{Missed, PAGE_BYTES, PageBuffer, ShardFile, ShardHeader};

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// The folder of files that have no name of their own yet.
const WRITING: &str = "writing";

/// A shard file by its name and size. Its header is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedShard {
    /// The shard.
    pub shard: ShardId,
    /// Bytes of the file, that of the header included.
    pub file_bytes: u64,
}

/// A folder of shard files. Its owner lets no other process write there.
#[derive(Debug)]
pub struct ShardFolder {
    path: PathBuf,
    is_direct: bool,
}

impl ShardFolder {
    /// Uses a folder. Removes files of ours that were not whole when their writer ended. Leaves all
    /// else alone.
    ///
    /// # Errors
    /// The system's, for example without the right to write there.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let writing = path.join(WRITING);
        make(&writing)?;
        for entry in fs::read_dir(&writing)? {
            let entry = entry?;
            let is_ours = entry.file_name().to_str().is_some_and(|name| shard_of(name).is_some());
            if is_ours && entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
        let is_direct = bears_direct(&writing)?;
        Ok(Self { path, is_direct })
    }

    /// Returns whether reads and writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Writes a shard. A file that has its name is replaced.
    ///
    /// # Errors
    /// The system's, for example that the disk is full. The shard is not there then.
    pub fn write(&self, snapshot: SnapshotId, extent: &Sealed) -> io::Result<()> {
        let shard = ShardId::from_bytes(extent.id().0);
        let (own, whole) = (self.path.join(WRITING).join(shard.to_string()), self.path_of(shard));
        make(whole.parent().expect("it lies in a folder"))?;
        let header = ShardHeader {
            shard,
            snapshot,
            extent_bytes: extent.total_bytes(),
            digest: extent.digest(),
        };
        let written = self.write_new(&own, &header, extent.bytes());
        let named = written.and_then(|()| fs::rename(&own, &whole));
        named.inspect_err(|_| drop(fs::remove_file(&own)))
    }

    fn write_new(&self, path: &Path, header: &ShardHeader, extent: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file =
            self.opened(options.write(true).create(true).truncate(true).mode(0o600), path)?;
        let mut page = PageBuffer::new(PAGE_BYTES);
        page.bytes_mut().copy_from_slice(&header.encode());
        file.write_all_at(page.bytes(), 0)?;
        let mut at = PAGE_BYTES as u64;
        for piece in extent.chunks(WRITE_BYTES) {
            file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        if self.is_direct { Ok(()) } else { uncache(&file) }
    }

    /// Opens a shard with an extent of so many bytes, as the manifest says.
    ///
    /// # Errors
    /// It is not here, or its file can't be that of the shard.
    pub fn read(&self, shard: ShardId, extent_bytes: u64) -> Result<ShardFile, Missed> {
        match self.opened(OpenOptions::new().read(true), &self.path_of(shard)) {
            Ok(file) => ShardFile::check(file, shard, extent_bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Missed::NotThere),
            Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => {
                Err(Missed::Corrupt("it is a link".to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a shard. One that is not there is no error.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, shard: ShardId) -> io::Result<()> {
        match fs::remove_file(self.path_of(shard)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Lists the shards. Leaves out links, and files of other names or places.
    ///
    /// # Errors
    /// The system's.
    pub fn list(&self) -> io::Result<Vec<ListedShard>> {
        let mut found = Vec::new();
        for folder in fs::read_dir(&self.path)? {
            let folder = folder?;
            let name = folder.file_name();
            let is_ours = name.len() == 2 && folder.file_type()?.is_dir();
            let Some(first) = name.to_str().filter(|_| is_ours) else { continue };
            for entry in fs::read_dir(folder.path())? {
                let entry = entry?;
                let name = entry.file_name();
                let name = name.to_str().filter(|name| name.starts_with(first));
                let Some(shard) = name.and_then(shard_of) else { continue };
                let metadata = entry.metadata()?;
                if metadata.is_file() {
                    found.push(ListedShard { shard, file_bytes: metadata.len() });
                }
            }
        }
        Ok(found)
    }

    fn path_of(&self, shard: ShardId) -> PathBuf {
        let name = shard.to_string();
        self.path.join(&name[..2]).join(name)
    }

    fn opened(&self, options: &mut OpenOptions, path: &Path) -> io::Result<File> {
        let direct = if self.is_direct { OFlag::O_DIRECT } else { OFlag::empty() };
        // The open of a pipe would wait for its other end.
        let flags = direct | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        options.custom_flags(flags.bits()).open(path)
    }
}

/// Takes the bytes of a file out of the page cache.
fn uncache(file: &File) -> io::Result<()> {
    // Only pages that are on the disk can leave.
    file.sync_data()?;
    Ok(posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
}

/// The shard in the name of a file.
fn shard_of(name: &str) -> Option<ShardId> {
    // One shard has one name: other digits spell it too, and are not ours.
    name.parse().ok().filter(|shard: &ShardId| shard.to_string() == name)
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Returns whether files in a folder can be written past the page cache: some file systems refuse
/// that at the open, others at the first write.
fn bears_direct(folder: &Path) -> io::Result<bool> {
    let path = folder.join("direct");
    let flags = OFlag::O_DIRECT.bits();
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600);
    let page = PageBuffer::new(PAGE_BYTES);
    let opened = opened.custom_flags(flags).open(&path);
    let written = opened.and_then(|file| file.write_all_at(page.bytes(), 0));
    let removed = fs::remove_file(&path);
    match written {
        Ok(()) => removed.map(|()| true),
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(false),
        Err(error) => Err(error),
    }
}
