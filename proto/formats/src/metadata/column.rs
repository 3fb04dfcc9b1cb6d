//! A column that gets its type from its values.

use std::borrow::Cow;

use crate::{Dtype, Inline, shown};

/// Most bytes of a text: a long caption has some 1,000.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// 2^53: below it, each integer has a float of its own.
const FLOAT_INTEGERS_END: f64 = 9_007_199_254_740_992.0;

/// A value of each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataColumn {
    /// The name.
    pub name: String,
    /// `Bool`, `I64` or `F64`; `U8` for text.
    pub dtype: Dtype,
    /// Whether the values are text.
    pub ragged: bool,
    /// The values, little-endian. Absent ones are zero, or empty if the values are text.
    pub values: Inline,
    /// The rows without a value, in ascending order.
    pub absent: Vec<u64>,
}

/// One value of a file.
pub(super) enum Cell<'a> {
    Absent,
    Bool(&'a str),
    /// A number, if it reads as one.
    Number(&'a str),
    Text(Cow<'a, str>),
    /// A list or an object of JSON.
    Nested(&'a str),
}

/// A column while its values come.
pub(super) struct Growing {
    name: String,
    texts: Inline,
    absent: Vec<u64>,
    /// Whether all values so far are of this type.
    bools: bool,
    integers: bool,
    floats: bool,
}

impl Growing {
    /// Begins a column that is absent from the first rows.
    pub(super) fn new(name: &str, rows: usize) -> Self {
        let mut column = Self {
            name: name.into(),
            texts: Inline::default(),
            absent: Vec::new(),
            bools: true,
            integers: true,
            floats: true,
        };
        (0..rows).for_each(|_| column.push_absent());
        column
    }

    pub(super) fn rows(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn push_absent(&mut self) {
        self.absent.push(self.rows() as u64);
        self.texts.push(b"");
    }

    pub(super) fn push(&mut self, cell: &Cell<'_>) -> Result<(), String> {
        let (text, is_bool, is_integer, is_float) = match cell {
            Cell::Absent => {
                self.push_absent();
                return Ok(());
            }
            Cell::Bool(text) => (*text, true, false, false),
            Cell::Number(text) => (*text, false, integer(text).is_some(), float(text).is_some()),
            Cell::Text(text) => (&**text, false, false, false),
            Cell::Nested(text) => (*text, false, false, false),
        };
        if text.len() > TEXT_BYTES_MAX {
            let (bytes, begin) = (text.len(), shown(text));
            return Err(format!("has {bytes} bytes, over {TEXT_BYTES_MAX}: '{begin}'"));
        }
        self.bools &= is_bool;
        self.integers &= is_integer;
        self.floats &= is_float;
        self.texts.push(text.as_bytes());
        Ok(())
    }

    pub(super) fn finish(self) -> MetadataColumn {
        let Self { name, texts, absent, .. } = self;
        let (dtype, values) = if absent.len() == texts.len() {
            (Dtype::U8, texts)
        } else if self.bools {
            (Dtype::Bool, converted(&texts, |text| [u8::from(text == "true")]))
        } else if self.integers {
            (Dtype::I64, converted(&texts, |text| integer(text).unwrap_or(0).to_le_bytes()))
        } else if self.floats {
            (Dtype::F64, converted(&texts, |text| float(text).unwrap_or(0.0).to_le_bytes()))
        } else {
            (Dtype::U8, texts)
        };
        MetadataColumn { name, dtype, ragged: dtype == Dtype::U8, values, absent }
    }
}

fn converted<const N: usize>(texts: &Inline, value: impl Fn(&str) -> [u8; N]) -> Inline {
    let mut values = Inline::default();
    for row in 0..texts.len() {
        values.push(&value(str::from_utf8(texts.value(row)).expect("pushed as text")));
    }
    values
}

fn integer(text: &str) -> Option<i64> {
    text.parse().ok().filter(|_| !is_padded(text))
}

/// Parses a number that keeps all its digits before the point as a float.
fn float(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let is_integer = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let is_kept = if is_integer {
        value.abs() < FLOAT_INTEGERS_END
    } else {
        value.is_finite() || !text.contains(|c: char| c.is_ascii_digit())
    };
    (is_kept && !is_padded(text)).then_some(value)
}

/// Returns whether a number would lose characters, as the ids `007` and `+49` would.
fn is_padded(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    matches!(digits, [b'+', ..] | [b'0', b'0'..=b'9', ..])
}
