//! Makes the rows of a block. The same bytes always give the same rows, on every node and client.
//! Decoding is lossless.
//!
//! Thread rule: all calls are synchronous, and nothing is shared. Memory: one page of the block,
//! its dictionary, and some rows. Non-goals: I/O; decoding of pictures and sound.

mod windows;

use crate::{
    Block, Fault, RowsWanted,
    arrow::{self, ARROW},
    block::{Fields, Put, malformed, recipe},
    mds::{self, MDS},
    parquet::{self, NESTED},
};
use windows::WINDOWS;
pub use windows::{Stretch, Windows, WindowsBuilder};

/// Bound of the memory for a recipe itself, and for rows on their way.
const SCRATCH_BYTES: u64 = 1 << 20;

impl Block {
    /// Returns a bound of the memory that [`make`](Self::make) takes beside the stored bytes.
    pub fn scratch_bytes(&self) -> u64 {
        match self {
            Self::Zeros | Self::Ones => 0,
            Self::Chunk(chunk) => parquet::scratch_bytes(chunk.decoded_bytes.into()),
            Self::Recipe(block) => u64::from(block.decoded_bytes) + SCRATCH_BYTES,
        }
    }

    /// Makes the rows from the stored bytes. `recipes` are those that the block refers to.
    ///
    /// # Errors
    /// The stored bytes are not the rows that are wanted, or the first error of `put`.
    pub fn make(
        &self,
        wanted: RowsWanted,
        stored: &[u8],
        recipes: &[u8],
        put: &mut Put<'_>,
    ) -> Result<(), Fault> {
        match self {
            Self::Zeros => put_same(0, wanted, put),
            Self::Ones => put_same(1, wanted, put),
            Self::Chunk(chunk) => parquet::make(chunk, wanted, stored, put),
            Self::Recipe(block) => {
                let named = |at| recipe(recipes, at).ok_or_else(|| malformed("is missing"));
                let (shared, own) = (named(block.shared)?, named(block.own)?);
                let mut shared = Fields::new(shared);
                match shared.integer()? {
                    ARROW => arrow::make(block, shared, own, wanted, stored, put),
                    WINDOWS => windows::make(block, shared, own, wanted, stored, put),
                    MDS => mds::make(block, shared, own, wanted, stored, put),
                    NESTED => parquet::make_texts(block, shared, own, wanted, stored, put),
                    kind => Err(malformed(&format!("has the unknown kind {kind}"))),
                }
            }
        }
    }
}

/// Makes rows of this byte, or empty rows if they differ in length.
fn put_same(byte: u8, wanted: RowsWanted, put: &mut Put<'_>) -> Result<(), Fault> {
    let mut left = wanted.rows;
    let at_once = wanted.row_bytes.map_or(8192, |bytes| (65_536 / bytes.max(1)).max(1));
    while left > 0 {
        let rows = usize::try_from(left.min(at_once)).expect("few rows");
        match wanted.row_bytes {
            Some(bytes) => {
                let bytes = usize::try_from(bytes).expect("a row is in memory");
                put(&vec![byte; rows * bytes], &[])?;
            }
            None => put(&[], &vec![0; rows])?,
        }
        left -= rows as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_rows_are_zero_or_empty() {
        let mut made = (0, 0);
        let mut put = |bytes: &[u8], lengths: &[u32]| {
            assert!(bytes.iter().all(|&byte| byte == 0) && lengths.iter().all(|&row| row == 0));
            made = (made.0 + bytes.len(), made.1 + lengths.len());
            Ok(())
        };
        let even = RowsWanted { rows: 100_000, row_bytes: Some(8), scalar_bytes: 8 };
        Block::ABSENT.make(even, &[], &[], &mut put).unwrap();
        let ragged = RowsWanted { row_bytes: None, ..even };
        Block::ABSENT.make(ragged, &[], &[], &mut put).unwrap();
        assert_eq!(made, (800_000, 100_000));
    }
}
