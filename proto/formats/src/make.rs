//! Makes the rows of a block. The same bytes always give the same rows, on every node and client.
//! Decoding is lossless.
//!
//! Thread rule: all calls are synchronous, and nothing is shared. Memory: one page of the block,
//! its dictionary, and some rows. Non-goals: I/O; decoding of pictures and sound.

use crate::{
    Block, Fault, RowsWanted,
    block::{Aspect, Put},
    parquet,
};

impl Block {
    /// Returns a bound of the memory that [`make`](Self::make) takes beside the stored bytes.
    pub fn scratch_bytes(&self) -> u64 {
        parquet::scratch_bytes(self.decoded_bytes.into())
    }

    /// Makes the rows from the stored bytes.
    ///
    /// # Errors
    /// The stored bytes are not the rows that are wanted, or the first error of `put`.
    pub fn make(&self, wanted: RowsWanted, stored: &[u8], put: &mut Put<'_>) -> Result<(), Fault> {
        match self.aspect {
            Aspect::Absent => put_zeros(wanted, put),
            Aspect::Values | Aspect::Validity => parquet::make(self, wanted, stored, put),
        }
    }
}

fn put_zeros(wanted: RowsWanted, put: &mut Put<'_>) -> Result<(), Fault> {
    let mut left = wanted.rows;
    let at_once = wanted.row_bytes.map_or(8192, |bytes| (65_536 / bytes.max(1)).max(1));
    while left > 0 {
        let rows = usize::try_from(left.min(at_once)).expect("few rows");
        match wanted.row_bytes {
            Some(bytes) => {
                let bytes = usize::try_from(bytes).expect("a row is in memory");
                put(&vec![0; rows * bytes], &[])?;
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
        Block::ABSENT.make(even, &[], &mut put).unwrap();
        let ragged = RowsWanted { row_bytes: None, ..even };
        Block::ABSENT.make(ragged, &[], &mut put).unwrap();
        assert_eq!(made, (800_000, 100_000));
    }
}
