//! Decimal numbers as text, such as `-12.50`. The file has whole numbers, and for all values of a
//! column the number of digits behind the point.
//!
//! Thread rule: plain values. Non-goals: numbers of more than 16 bytes.

use std::io::Write;

use crate::block::{Decimal, Physical};

/// Most digits of a number of 16 bytes.
pub(super) const DIGITS_MAX: u8 = 38;
/// Most bytes of a number.
const BYTES_MAX: u8 = 16;

impl Decimal {
    /// Returns the bytes of a value in the file, 1 if they are any number. `None` if a column of
    /// this type has no decimals that can be read.
    pub(super) fn stored_bytes(self, physical: Physical) -> Option<u64> {
        let bytes = match physical {
            Physical::Bytes => 1,
            Physical::I32 => 4,
            Physical::I64 => 8,
            Physical::Fixed if (1..=BYTES_MAX).contains(&self.bytes) => self.bytes.into(),
            _ => return None,
        };
        (self.scale <= DIGITS_MAX).then_some(bytes)
    }

    /// Appends the text of a value. `None` if it has too many bytes.
    pub(super) fn put(self, physical: Physical, value: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let big_endian = matches!(physical, Physical::Bytes | Physical::Fixed);
        let number = whole_number(value, big_endian)?;
        let sign = if number < 0 { "-" } else { "" };
        let (digits, scale) = (number.unsigned_abs(), u32::from(self.scale));
        let one = 10u128.checked_pow(scale)?;
        let (whole, rest) = (digits / one, digits % one);
        let written = match scale {
            0 => write!(out, "{sign}{whole}"),
            _ => write!(out, "{sign}{whole}.{rest:0width$}", width = scale as usize),
        };
        written.ok()
    }
}

/// Returns the number in up to 16 bytes.
fn whole_number(value: &[u8], big_endian: bool) -> Option<i128> {
    let highest = if big_endian { value.first() } else { value.last() };
    let sign = if highest.is_some_and(|byte| *byte >= 0x80) { 0xFF } else { 0 };
    let mut bytes = [sign; size_of::<i128>()];
    if big_endian {
        let begin = bytes.len().checked_sub(value.len())?;
        bytes[begin..].copy_from_slice(value);
        return Some(i128::from_be_bytes(bytes));
    }
    bytes.get_mut(..value.len())?.copy_from_slice(value);
    Some(i128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_text_with_all_digits_of_their_scale() {
        let text = |scale, physical, value: &[u8]| {
            let mut out = Vec::new();
            Decimal { scale, bytes: 0 }.put(physical, value, &mut out)?;
            String::from_utf8(out).ok()
        };
        let int = |scale, number: i32| text(scale, Physical::I32, &number.to_le_bytes());
        assert_eq!(int(2, -1250).as_deref(), Some("-12.50"));
        assert_eq!(int(2, 5).as_deref(), Some("0.05"));
        assert_eq!(int(2, -5).as_deref(), Some("-0.05"));
        assert_eq!(int(0, i32::MIN).as_deref(), Some("-2147483648"));
        assert_eq!(text(1, Physical::Bytes, &[0xFF, 0x38]).as_deref(), Some("-20.0"));
        assert_eq!(text(1, Physical::Bytes, &[]).as_deref(), Some("0.0"));
        let least = text(38, Physical::Fixed, &i128::MIN.to_be_bytes());
        assert_eq!(least.as_deref(), Some("-1.70141183460469231731687303715884105728"));
        assert_eq!(text(1, Physical::Bytes, &[0; 17]), None);
    }
}
