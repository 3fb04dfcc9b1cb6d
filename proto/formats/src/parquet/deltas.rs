//! Packed differences (`DELTA_BINARY_PACKED`): integers, and the lengths of texts.
//!
//! ```text
//! head:  varint block size, varint miniblocks in a block, varint values, zigzag first value
//! block: zigzag least difference, a width of bits for each miniblock, then the miniblocks
//! ```
//!
//! Each value is the one before, plus the least difference, plus the packed bits.
//!
//! Thread rule: a plain value over borrowed bytes.

use super::{
    levels::{cut, malformed, short_word, varint},
    thrift::unzigzag,
};
use crate::Fault;

/// Most miniblocks of a block. Writers have 4 or 8.
const MINIBLOCKS_MAX: u64 = 512;

#[derive(Debug)]
pub(super) struct Deltas<'a> {
    /// Bytes that belong to no miniblock yet.
    rest: &'a [u8],
    miniblock_values: usize,
    miniblocks: usize,
    /// Values that are to come.
    left: u64,
    next: i64,
    least: i64,
    widths: &'a [u8],
    bits: &'a [u8],
    width: usize,
    /// Values of the miniblock that are to come.
    packed: usize,
}

impl<'a> Deltas<'a> {
    pub(super) fn new(mut bytes: &'a [u8]) -> Result<Self, Fault> {
        let (block, miniblocks) = (varint(&mut bytes)?, varint(&mut bytes)?);
        let (left, next) = (varint(&mut bytes)?, unzigzag(varint(&mut bytes)?));
        let each = block.checked_div(miniblocks).unwrap_or(0);
        let holds = miniblocks <= MINIBLOCKS_MAX
            && each > 0
            && each.is_multiple_of(8)
            && each <= u64::from(u32::MAX);
        if !holds {
            return Err(malformed("differences in blocks of an unknown size"));
        }
        let size = |count| usize::try_from(count).expect("compared");
        Ok(Self {
            rest: bytes,
            miniblock_values: size(each),
            miniblocks: size(miniblocks),
            left,
            next,
            least: 0,
            widths: &[],
            bits: &[],
            width: 0,
            packed: 0,
        })
    }

    /// Returns the number of values that are to come.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Returns the bytes behind the last value. Call it after the last value.
    pub(super) fn behind(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn next(&mut self) -> Result<i64, Fault> {
        self.left = self.left.checked_sub(1).ok_or_else(|| malformed("too few values"))?;
        let value = self.next;
        if self.left > 0 {
            let more = self.next_bits()?;
            self.next = value.wrapping_add(self.least).wrapping_add(more.cast_signed());
        }
        Ok(value)
    }

    /// Returns the packed bits of the next difference.
    fn next_bits(&mut self) -> Result<u64, Fault> {
        if self.packed == 0 {
            self.begin_miniblock()?;
        }
        let bit = (self.miniblock_values - self.packed) * self.width;
        self.packed -= 1;
        if self.width == 0 {
            return Ok(0);
        }
        let bytes = &self.bits[bit / 8..];
        let shift = bit % 8;
        let low = match bytes.first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => short_word(bytes),
        } >> shift;
        // A value of more than 56 bits may end in a ninth byte.
        let ninth = if shift + self.width > 64 { u64::from(bytes[8]) << (64 - shift) } else { 0 };
        let mask = u64::MAX >> (64 - self.width);
        Ok((low | ninth) & mask)
    }

    fn begin_miniblock(&mut self) -> Result<(), Fault> {
        if self.widths.is_empty() {
            self.least = unzigzag(varint(&mut self.rest)?);
            self.widths = cut(&mut self.rest, self.miniblocks)?;
        }
        let width = usize::from(cut(&mut self.widths, 1)?[0]);
        if width > 64 {
            return Err(malformed(&format!("differences of {width} bits")));
        }
        self.width = width;
        self.bits = cut(&mut self.rest, self.miniblock_values / 8 * width)?;
        self.packed = self.miniblock_values;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_the_specification_are_read() {
        // 1 to 5: all differences are one.
        let bytes = [0x80, 1, 4, 5, 2, 2, 0, 0, 0, 0, 0xAB];
        let mut deltas = Deltas::new(&bytes).unwrap();
        assert_eq!(deltas.left(), 5);
        let values: Result<Vec<i64>, Fault> = (0..5).map(|_| deltas.next()).collect();
        assert_eq!(values, Ok(vec![1, 2, 3, 4, 5]));
        assert_eq!(deltas.behind(), [0xAB]);
        assert!(deltas.next().is_err());
    }

    #[test]
    fn blocks_of_no_size_are_faults() {
        assert!(Deltas::new(&[0, 4, 5, 2]).is_err());
        assert!(Deltas::new(&[0x80, 1, 0, 5, 2]).is_err());
        let mut wide = Deltas::new(&[0x80, 1, 4, 5, 2, 2, 65, 0, 0, 0]).unwrap();
        assert!(wide.next().is_err());
    }
}
