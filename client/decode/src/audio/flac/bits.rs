//! Bits of a byte slice, the highest bit of each byte first.
//!
//! Thread rule: plain data. Non-goals: readers other than a slice.

use super::Damage;

/// The error if a frame needs more bits than the file has.
const CUT_OFF: Damage = "it is cut off";

/// A place in a slice of bytes.
#[derive(Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The next byte that `cache` does not count.
    next: usize,
    /// The next bits, from the highest on. Bits behind `count` are zeros, or those that follow.
    cache: u64,
    /// Bits of the cache that count: 63 at most.
    count: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, next: 0, cache: 0, count: 0 }
    }

    /// Bytes before the place, rounded up to whole bytes.
    pub(super) fn bytes_read(&self) -> usize {
        self.next - (self.count / 8) as usize
    }

    /// Fills the cache to 56 bits and more, or with all bits that are left.
    fn refill(&mut self) {
        if let Some(bytes) = self.bytes.get(self.next..).and_then(|rest| rest.first_chunk()) {
            self.cache |= u64::from_be_bytes(*bytes) >> self.count;
            let taken = (63 - self.count) / 8;
            self.next += taken as usize;
            self.count += taken * 8;
            return;
        }
        while self.count < 56 && self.next < self.bytes.len() {
            self.cache |= u64::from(self.bytes[self.next]) << (56 - self.count);
            self.next += 1;
            self.count += 8;
        }
    }

    fn skip(&mut self, count: u32) {
        self.cache <<= count;
        self.count -= count;
    }

    /// The next bits as a number: 56 bits at most.
    #[inline]
    pub(super) fn unsigned(&mut self, count: u32) -> Result<u64, Damage> {
        if self.count < count {
            self.refill();
            if self.count < count {
                return Err(CUT_OFF);
            }
        }
        // Two shifts, since one by 64 is none.
        let value = self.cache >> 1 >> (63 - count);
        self.skip(count);
        Ok(value)
    }

    /// The next bits as a small number: 32 bits at most.
    pub(super) fn small(&mut self, count: u32) -> Result<u32, Damage> {
        debug_assert!(count <= 32);
        self.unsigned(count).map(|value| u32::try_from(value).expect("32 bits at most"))
    }

    /// The next bits as a number in two's complement: 56 bits at most.
    #[inline]
    pub(super) fn signed(&mut self, count: u32) -> Result<i64, Damage> {
        let value = self.unsigned(count)?;
        let unused = 63 - count;
        Ok((value << 1 << unused).cast_signed() >> unused >> 1)
    }

    /// The number of zeros before the next one.
    #[inline]
    pub(super) fn unary(&mut self) -> Result<u64, Damage> {
        let mut zeros = 0;
        loop {
            let here = self.cache.leading_zeros();
            if here < self.count {
                self.skip(here + 1);
                return Ok(zeros + u64::from(here));
            }
            zeros += u64::from(self.count);
            self.skip(self.count);
            self.refill();
            if self.count == 0 {
                return Err(CUT_OFF);
            }
        }
    }
}
