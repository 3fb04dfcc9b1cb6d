//! Reads one shard file.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt};

use larder_base::ShardId;

use crate::{HeaderError, PAGE_BYTES, PageBuffer, ShardHeader};

/// Why a shard can't be read from a disk.
#[derive(Debug, thiserror::Error)]
pub enum Missed {
    /// There is no file.
    #[error("the disk does not have it")]
    NotThere,
    /// The file is not that of the shard, or it is damaged.
    #[error("its file is unusable: {0}")]
    Corrupt(String),
    /// The system refused.
    #[error("the disk fails: {0}")]
    Io(#[from] io::Error),
}

impl From<HeaderError> for Missed {
    fn from(error: HeaderError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// An open shard file with the header of its shard.
#[derive(Debug)]
pub struct ShardFile {
    file: File,
    header: ShardHeader,
}

impl ShardFile {
    /// Reads and checks the header. The manifest gives `extent_bytes`.
    pub(crate) fn check(file: File, shard: ShardId, extent_bytes: u64) -> Result<Self, Missed> {
        let metadata = file.metadata()?;
        let bytes = extent_bytes + PAGE_BYTES as u64;
        if !metadata.is_file() || metadata.len() != bytes {
            let found = metadata.len();
            return Err(Missed::Corrupt(format!("it has {found} bytes in place of {bytes}")));
        }
        let mut page = PageBuffer::new(PAGE_BYTES);
        file.read_exact_at(page.bytes_mut(), 0)?;
        let page = page.bytes().first_chunk().expect("a buffer of one page");
        let header = ShardHeader::decode(page)?;
        if (header.shard, header.extent_bytes) != (shard, extent_bytes) {
            let ShardHeader { shard, extent_bytes, .. } = header;
            let why = format!("it says that it is shard {shard} with {extent_bytes} bytes");
            return Err(Missed::Corrupt(why));
        }
        Ok(Self { file, header })
    }

    /// Returns the header.
    pub fn header(&self) -> &ShardHeader {
        &self.header
    }

    /// Reads the pages with a range of the extent into `buffer`, and returns the range. A longer
    /// range than the buffer takes is cut.
    ///
    /// # Errors
    /// The system's. A range beyond the extent is `UnexpectedEof`.
    pub fn read<'a>(&self, range: Range<u64>, buffer: &'a mut PageBuffer) -> io::Result<&'a [u8]> {
        const PAGE: u64 = PAGE_BYTES as u64;
        if range.end > self.header.extent_bytes || range.start > range.end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let first = range.start / PAGE * PAGE;
        let capacity = buffer.bytes().len() as u64;
        let pages = (range.end.next_multiple_of(PAGE) - first).min(capacity);
        let target = &mut buffer.bytes_mut()[..usize(pages)];
        self.file.read_exact_at(target, PAGE + first)?;
        let end = (range.end - first).min(pages);
        Ok(&buffer.bytes()[usize(range.start - first)..usize(end)])
    }
}

fn usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("no more than the buffer holds")
}
