//! Runs and packed bits: the code of levels, of places in a dictionary, and of some booleans.
//!
//! ```text
//! run:    varint (length << 1), the value in whole bytes
//! packed: varint (groups << 1 | 1), groups of 8 values of `width` bits each
//! ```
//!
//! Thread rule: a plain value over borrowed bytes.

use crate::Fault;

/// Reads values of up to 32 bits.
#[derive(Debug)]
pub(super) struct Runs<'a> {
    bytes: &'a [u8],
    width: u32,
    now: LevelRun<'a>,
    /// Values of the run that are to come.
    left: u64,
}

#[derive(Debug, Clone, Copy)]
enum LevelRun<'a> {
    Same(u32),
    /// The bits, and the number of the next value in them.
    Packed(&'a [u8], usize),
}

impl<'a> Runs<'a> {
    /// Begins at values of this many bits.
    pub(super) fn new(bytes: &'a [u8], width: u32) -> Result<Self, Fault> {
        if width > 32 {
            return Err(malformed(&format!("values of {width} bits")));
        }
        Ok(Self { bytes, width, now: LevelRun::Same(0), left: 0 })
    }

    /// Appends the next `count` values.
    pub(super) fn read(&mut self, mut count: usize, out: &mut Vec<u32>) -> Result<(), Fault> {
        while count > 0 {
            if self.left == 0 {
                self.begin_run()?;
            }
            let now = usize::try_from(self.left).unwrap_or(usize::MAX).min(count);
            match &mut self.now {
                LevelRun::Same(value) => out.resize(out.len() + now, *value),
                LevelRun::Packed(bits, at) => {
                    unpack(bits, *at, self.width, now, out)?;
                    *at += now;
                }
            }
            self.left -= now as u64;
            count -= now;
        }
        Ok(())
    }

    /// If the next `count` values are known to be one value, passes over them and returns it.
    pub(super) fn skip_same(&mut self, count: usize) -> Result<Option<u32>, Fault> {
        if self.left == 0 && count > 0 {
            self.begin_run()?;
        }
        match self.now {
            LevelRun::Same(value) if self.left >= count as u64 => {
                self.left -= count as u64;
                Ok(Some(value))
            }
            _ => Ok(None),
        }
    }

    fn begin_run(&mut self) -> Result<(), Fault> {
        let head = varint(&mut self.bytes)?;
        let width_bytes = self.width.div_ceil(8) as usize;
        self.left = head >> 1;
        if head & 1 == 0 {
            let value = cut(&mut self.bytes, width_bytes)?;
            let mut word = [0; 4];
            word[..width_bytes].copy_from_slice(value);
            self.now = LevelRun::Same(u32::from_le_bytes(word));
        } else {
            let bytes = self.left.saturating_mul(self.width.into());
            // Some writers cut the bits behind the last value.
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.bytes.len());
            self.left = self.left.saturating_mul(8);
            self.now = LevelRun::Packed(cut(&mut self.bytes, bytes)?, 0);
        }
        match self.left {
            0 => Err(malformed("a run of no values")),
            _ => Ok(()),
        }
    }
}

/// Appends `count` values of `width` bits, from number `first` on.
fn unpack(
    bits: &[u8],
    first: usize,
    width: u32,
    count: usize,
    out: &mut Vec<u32>,
) -> Result<(), Fault> {
    let width = width as usize;
    let end = first.checked_add(count).and_then(|end| end.checked_mul(width));
    if end.is_none_or(|end| end > bits.len().saturating_mul(8)) {
        return Err(malformed("packed values that end before their last"));
    }
    let mask = (1u64 << width) - 1;
    out.extend((first..first + count).map(|index| {
        let bit = index * width;
        let word = match bits[bit / 8..].first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => short_word(&bits[bit / 8..]),
        };
        u32::try_from((word >> (bit % 8)) & mask).expect("at most 32 bits")
    }));
    Ok(())
}

/// Returns up to eight bytes as an integer.
pub(super) fn short_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Cuts bytes off the front.
pub(super) fn cut<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Fault> {
    let Some((front, rest)) = bytes.split_at_checked(count) else {
        return Err(malformed("values that end before their last"));
    };
    *bytes = rest;
    Ok(front)
}

/// Cuts a varint off the front.
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64, Fault> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = cut(bytes, 1)?[0];
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed("an integer of more than 64 bits"))
}

pub(super) fn malformed(what: &str) -> Fault {
    Fault::new("page", format!("is damaged: it has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], width: u32, count: usize) -> Result<Vec<u32>, Fault> {
        let mut out = Vec::new();
        let mut runs = Runs::new(bytes, width)?;
        for _ in 0..count {
            runs.read(1, &mut out)?;
        }
        let mut at_once = Vec::new();
        Runs::new(bytes, width)?.read(count, &mut at_once)?;
        assert_eq!(out, at_once);
        Ok(out)
    }

    #[test]
    fn runs_and_packed_values_are_read() {
        // The examples of the format's specification: 0 to 7 in three bits, and a run.
        let packed = [3, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(read(&packed, 3, 8), Ok((0..8).collect()));
        assert_eq!(read(&[10, 4, 10, 5], 3, 10), Ok([[4; 5], [5; 5]].concat()));
        assert_eq!(read(&[8], 0, 4), Ok(vec![0; 4]));
    }

    #[test]
    fn values_past_the_end_are_faults() {
        assert!(read(&[3, 0b1000_1000], 3, 8).is_err(), "cut");
        assert_eq!(read(&[3, 0b1000_1000], 3, 2), Ok(vec![0, 1]), "the rest is padding");
        assert!(read(&[0, 1], 8, 1).is_err(), "an empty run");
        assert!(read(&[], 8, 1).is_err());
        assert!(Runs::new(&[], 33).is_err());
    }
}
