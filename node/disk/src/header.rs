//! The page of header of a shard file. Little-endian; the table is in the documentation of the
//! crate.

use larder_base::{ShardId, SnapshotId};
use larder_extent::crc::crc32c;

use crate::PAGE_BYTES;

const MAGIC: [u8; 8] = *b"LARDERDK";
const VERSION: u32 = 1;
const CRC_AT: usize = 80;
const USED_BYTES: usize = CRC_AT + 4;

/// The facts of a shard file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardHeader {
    /// The shard.
    pub shard: ShardId,
    /// The snapshot for which it was written. Other snapshots may have the same shard.
    pub snapshot: SnapshotId,
    /// Bytes of the extent, which begins after the page of header.
    pub extent_bytes: u64,
    /// The XXH3-64 of the checksums of all units of the extent.
    pub digest: u64,
}

/// Why a page is no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It has another beginning.
    #[error("this is no shard of Larder")]
    NotAShard,
    /// A later version of the program wrote it.
    #[error("version {0} of shard files is newer than this program")]
    Newer(u32),
    /// Its checksum differs.
    #[error("the header is damaged")]
    Damaged,
}

impl ShardHeader {
    /// Encodes the page.
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        page[..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[16..32].copy_from_slice(self.shard.as_bytes());
        page[32..40].copy_from_slice(&self.extent_bytes.to_le_bytes());
        page[40..48].copy_from_slice(&self.digest.to_le_bytes());
        page[48..CRC_AT].copy_from_slice(self.snapshot.as_bytes());
        let crc = crc32c(&page);
        page[CRC_AT..USED_BYTES].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// Decodes a page.
    ///
    /// # Errors
    /// It is not one that [`encode`](Self::encode) made.
    pub fn decode(page: &[u8; PAGE_BYTES]) -> Result<Self, HeaderError> {
        if page[..8] != MAGIC {
            return Err(HeaderError::NotAShard);
        }
        let version = u32::from_le_bytes(bytes(page, 8));
        if version > VERSION {
            return Err(HeaderError::Newer(version));
        }
        let header = Self {
            shard: ShardId::from_bytes(bytes(page, 16)),
            snapshot: SnapshotId::from_bytes(bytes(page, 48)),
            extent_bytes: u64::from_le_bytes(bytes(page, 32)),
            digest: u64::from_le_bytes(bytes(page, 40)),
        };
        // One comparison checks the checksum, the version and all zeros.
        if header.encode() == *page { Ok(header) } else { Err(HeaderError::Damaged) }
    }
}

fn bytes<const N: usize>(page: &[u8; PAGE_BYTES], at: usize) -> [u8; N] {
    *page[at..].first_chunk().expect("all fields are within the page")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> ShardHeader {
        ShardHeader {
            shard: ShardId::from_bytes([0xab; 16]),
            snapshot: SnapshotId::from_bytes([7; 32]),
            extent_bytes: 3 << 20,
            digest: 0x0123_4567_89ab_cdef,
        }
    }

    #[test]
    fn page_reads_back_and_each_other_bit_is_refused() {
        let page = header().encode();
        assert_eq!(ShardHeader::decode(&page), Ok(header()));
        for bit in 0..8 * PAGE_BYTES {
            let mut other = page;
            other[bit / 8] ^= 1 << (bit % 8);
            let refused = ShardHeader::decode(&other).unwrap_err();
            let expected = match bit / 8 {
                0..8 => HeaderError::NotAShard,
                8..12 => HeaderError::Newer(u32::from_le_bytes(bytes(&other, 8))),
                _ => HeaderError::Damaged,
            };
            // Version 0 is not newer.
            let is_old = expected == HeaderError::Newer(0) && refused == HeaderError::Damaged;
            assert!(refused == expected || is_old, "bit {bit}: {refused}");
        }
    }
}
