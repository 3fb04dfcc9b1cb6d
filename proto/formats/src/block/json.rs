//! JSON texts, as the rows of a column: written value after value.
//!
//! The text of a value is always the same: no blanks, keys in the order of the schema, and the
//! shortest digits that give the number back. Strings have no escapes but those that JSON requires.
//!
//! Thread rule: belongs to one thread. Memory: some kibibytes, whatever the length of a row.
//! Non-goals: parsing.

use std::io::Write;

use larder_base::limits;

use super::Put;
use crate::{Dtype, Fault, Logical, TimeUnit};

/// Bytes that are kept before they are handed over.
const HELD_BYTES: usize = 64 << 10;
/// Lengths of rows that are kept.
const HELD_ROWS: usize = 8192;

/// Collects the texts of rows.
pub(crate) struct Texts<'a, 'p> {
    /// `None` if only lengths are wanted.
    with_bytes: bool,
    put: &'a mut Put<'p>,
    out: Vec<u8>,
    lengths: Vec<u32>,
    /// Bytes of the row that were handed over, and where its others begin.
    moved: u64,
    begin: usize,
}

impl<'a, 'p> Texts<'a, 'p> {
    pub(crate) fn new(with_bytes: bool, put: &'a mut Put<'p>) -> Self {
        let (out, lengths) = (Vec::new(), Vec::new());
        Self { with_bytes, put, out, lengths, moved: 0, begin: 0 }
    }

    /// Appends bytes of JSON.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends a string.
    pub(crate) fn string(&mut self, text: &[u8]) -> Result<(), Fault> {
        let text =
            str::from_utf8(text).map_err(|_| Fault::new("list", "has text that is not UTF-8"))?;
        serde_json::to_writer(&mut self.out, text).expect("a vector takes all bytes");
        self.flush_if_full()
    }

    /// Appends a number, or the text of a time, from its bytes.
    pub(crate) fn number(
        &mut self,
        dtype: Dtype,
        logical: Logical,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let value =
            Value::of(dtype, bytes).ok_or_else(|| Fault::new("list", "has values of no type"))?;
        match (value, logical) {
            (Value::Signed(value), Logical::Date | Logical::Timestamp(_) | Logical::Time(_)) => {
                self.time(value, logical);
            }
            (Value::Signed(value), _) => write!(self.out, "{value}").expect("a vector"),
            (Value::Unsigned(value), _) => write!(self.out, "{value}").expect("a vector"),
            (Value::Float(value), _) => {
                serde_json::to_writer(&mut self.out, &value).expect("a vector takes all bytes");
            }
        }
        self.flush_if_full()
    }

    pub(crate) fn boolean(&mut self, value: bool) -> Result<(), Fault> {
        self.raw(if value { b"true" } else { b"false" });
        self.flush_if_full()
    }

    pub(crate) fn null(&mut self) -> Result<(), Fault> {
        self.raw(b"null");
        self.flush_if_full()
    }

    /// Appends a date or time as ISO 8601 has it.
    fn time(&mut self, value: i64, logical: Logical) {
        let (per_second, digits) = match logical {
            Logical::Timestamp(unit) | Logical::Time(unit) => match unit {
                TimeUnit::Second => (1, 0),
                TimeUnit::Millisecond => (1_000, 3),
                TimeUnit::Microsecond => (1_000_000, 6),
                TimeUnit::Nanosecond => (1_000_000_000, 9),
            },
            _ => (1, 0),
        };
        let (seconds, part) = (value.div_euclid(per_second), value.rem_euclid(per_second));
        let (days, second) = match logical {
            Logical::Date => (value, 0),
            _ => (seconds.div_euclid(86_400), seconds.rem_euclid(86_400)),
        };
        self.raw(b"\"");
        if !matches!(logical, Logical::Time(_)) {
            let (year, month, day) = civil(days);
            write!(self.out, "{year:04}-{month:02}-{day:02}").expect("a vector");
        }
        if matches!(logical, Logical::Timestamp(_)) {
            self.raw(b"T");
        }
        if !matches!(logical, Logical::Date) {
            let (hour, minute) = (second / 3600, second / 60 % 60);
            write!(self.out, "{hour:02}:{minute:02}:{:02}", second % 60).expect("a vector");
            if part != 0 {
                write!(self.out, ".{part:0digits$}").expect("a vector");
            }
        }
        self.raw(b"\"");
    }

    /// Ends a row. A row without any bytes stands for a row without a value.
    pub(crate) fn end_row(&mut self) -> Result<(), Fault> {
        let length = self.row_bytes()?;
        self.lengths.push(length);
        (self.moved, self.begin) = (0, self.out.len());
        if self.lengths.len() == HELD_ROWS { self.flush() } else { self.flush_if_full() }
    }

    fn row_bytes(&self) -> Result<u32, Fault> {
        let bytes = self.moved + (self.out.len() - self.begin) as u64;
        match u32::try_from(bytes) {
            Ok(small) if bytes <= limits::SAMPLE_BYTES_MAX => Ok(small),
            _ => {
                Err(Fault::new("list", "has a row whose text is larger than the limit of a sample"))
            }
        }
    }

    fn flush_if_full(&mut self) -> Result<(), Fault> {
        if self.out.len() < HELD_BYTES { Ok(()) } else { self.flush() }
    }

    /// Hands over all bytes that are left.
    pub(crate) fn flush(&mut self) -> Result<(), Fault> {
        self.moved = self.row_bytes()?.into();
        (self.put)(if self.with_bytes { &self.out } else { &[] }, &self.lengths)?;
        self.begin = 0;
        self.out.clear();
        self.lengths.clear();
        Ok(())
    }
}

/// Returns a name as the key of an object, with the colon.
pub(crate) fn key(name: &str) -> Vec<u8> {
    let mut key = serde_json::to_vec(name).expect("a text has a form in JSON");
    key.push(b':');
    key
}

enum Value {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

impl Value {
    /// Reads a value. `None` if it has another size, or JSON has no such numbers.
    fn of(dtype: Dtype, bytes: &[u8]) -> Option<Self> {
        Some(match (dtype, bytes) {
            (Dtype::I8, [byte]) => Self::Signed(byte.cast_signed().into()),
            (Dtype::U8, [byte]) => Self::Unsigned((*byte).into()),
            (Dtype::I16, _) => Self::Signed(i16::from_le_bytes(bytes.try_into().ok()?).into()),
            (Dtype::U16, _) => Self::Unsigned(u16::from_le_bytes(bytes.try_into().ok()?).into()),
            (Dtype::I32, _) => Self::Signed(i32::from_le_bytes(bytes.try_into().ok()?).into()),
            (Dtype::U32, _) => Self::Unsigned(u32::from_le_bytes(bytes.try_into().ok()?).into()),
            (Dtype::I64, _) => Self::Signed(i64::from_le_bytes(bytes.try_into().ok()?)),
            (Dtype::U64, _) => Self::Unsigned(u64::from_le_bytes(bytes.try_into().ok()?)),
            (Dtype::F16, _) => Self::Float(half(u16::from_le_bytes(bytes.try_into().ok()?))),
            (Dtype::F32, _) => Self::Float(f32::from_le_bytes(bytes.try_into().ok()?).into()),
            (Dtype::F64, _) => Self::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
            _ => return None,
        })
    }
}

/// Returns the value of a float of 16 bits.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1F), f64::from(bits & 0x3FF));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// Returns year, month and day of a number of days since 1970-01-01. Years are counted from March,
/// in spans of 400 years of 146,097 days.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = i128::from(days) + 719_468;
    let (span, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = span * 400 + year + i128::from(month <= 2);
    let small = |number: i128| i64::try_from(number).expect("fewer years than days");
    (small(year), small(month), small(day))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Texts<'_, '_>)) -> String {
        let mut bytes = Vec::new();
        let mut put = |more: &[u8], _: &[u32]| {
            bytes.extend_from_slice(more);
            Ok(())
        };
        let mut texts = Texts::new(true, &mut put);
        write(&mut texts);
        texts.end_row().unwrap();
        texts.flush().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn number(dtype: Dtype, logical: Logical, bytes: &[u8]) -> String {
        written(|texts| texts.number(dtype, logical, bytes).unwrap())
    }

    #[test]
    fn numbers_have_the_shortest_digits_that_give_them_back() {
        let float = |value: f64| number(Dtype::F64, Logical::Number, &value.to_le_bytes());
        let found = [0.1, 1.0, 1e16, 1e-7, -0.0, f64::MAX, f64::NAN, f64::INFINITY].map(float);
        let expected =
            ["0.1", "1.0", "1e+16", "1e-7", "-0.0", "1.7976931348623157e+308", "null", "null"];
        assert_eq!(found, expected);
        // A float of 32 bits is the double that it equals.
        let single = number(Dtype::F32, Logical::Number, &0.1_f32.to_le_bytes());
        assert_eq!(single, "0.10000000149011612");
        for (bits, text) in [(0x3C00_u16, "1.0"), (0xC000, "-2.0"), (1, "5.960464477539063e-8")] {
            assert_eq!(number(Dtype::F16, Logical::Number, &bits.to_le_bytes()), text);
        }
        assert_eq!(number(Dtype::U64, Logical::Number, &[255; 8]), u64::MAX.to_string());
        assert_eq!(number(Dtype::I8, Logical::Number, &[255]), "-1");
    }

    #[test]
    fn times_are_those_of_iso_8601() {
        let time = |value: i64, logical| number(Dtype::I64, logical, &value.to_le_bytes());
        assert_eq!(time(20_590, Logical::Date), "\"2026-05-17\"");
        assert_eq!(time(-1, Logical::Date), "\"1969-12-31\"");
        assert_eq!(time(11_016, Logical::Date), "\"2000-02-29\"");
        let milliseconds = Logical::Timestamp(TimeUnit::Millisecond);
        assert_eq!(time(1_778_987_045_000, milliseconds), "\"2026-05-17T03:04:05\"");
        assert_eq!(time(-1, milliseconds), "\"1969-12-31T23:59:59.999\"");
        assert_eq!(
            time(11_045_000_001, Logical::Time(TimeUnit::Microsecond)),
            "\"03:04:05.000001\""
        );
        for extreme in [i64::MIN, i64::MAX] {
            assert!(time(extreme, Logical::Date).len() > 20);
        }
    }

    #[test]
    fn strings_are_escaped_where_json_requires_it() {
        let text = "a\"\\/\u{8}\n\u{1f}\u{7f}ü\u{2028}😀";
        let found = written(|texts| texts.string(text.as_bytes()).unwrap());
        assert_eq!(found, "\"a\\\"\\\\/\\b\\n\\u001f\u{7f}ü\u{2028}😀\"");
        assert_eq!(serde_json::from_str::<String>(&found).unwrap(), text);
    }

    #[test]
    fn a_row_may_be_longer_than_the_memory_for_it() {
        let (mut bytes, mut lengths) = (0, Vec::new());
        let mut put = |more: &[u8], rows: &[u32]| {
            assert!(more.len() <= 2 * HELD_BYTES);
            bytes += more.len();
            lengths.extend_from_slice(rows);
            Ok(())
        };
        let mut texts = Texts::new(true, &mut put);
        for values in [40_000, 0, 1] {
            for _ in 0..values {
                texts.null().unwrap();
            }
            texts.end_row().unwrap();
        }
        texts.flush().unwrap();
        assert_eq!((bytes, lengths), (160_004, vec![160_000, 0, 4]));
    }
}
