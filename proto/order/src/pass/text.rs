//! Reading the compact texts of passes, states and digests: fields parted by `/`.

use std::str::{FromStr, Split};

use crate::{Error, Last, Shuffle, WINDOW_SHARDS_DEFAULT};

/// Characters of a refused text that an error repeats.
const QUOTED_CHARS_MAX: usize = 120;

/// The fields of one text, taken in order; every failure names the whole text and its form.
pub(crate) struct Fields<'a> {
    text: &'a str,
    wanted: &'static str,
    rest: Split<'a, char>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(text: &'a str, wanted: &'static str) -> Self {
        Self { text, wanted, rest: text.split('/') }
    }

    /// The next field as it stands.
    pub(crate) fn word(&mut self) -> Result<&'a str, Error> {
        self.rest.next().ok_or_else(|| self.error())
    }

    /// Whether there is a next field.
    pub(crate) fn has_more(&self) -> bool {
        self.rest.clone().next().is_some()
    }

    /// The next field, which must be exactly `expected`.
    pub(crate) fn literal(&mut self, expected: &str) -> Result<(), Error> {
        if self.word()? == expected { Ok(()) } else { Err(self.error()) }
    }

    /// The next field in the one form [`number`] knows.
    pub(crate) fn number<T: FromStr>(&mut self) -> Result<T, Error> {
        let field = self.word()?;
        number(field).ok_or_else(|| self.error())
    }

    /// The next field as 32 lower-case hex digits.
    pub(crate) fn hex(&mut self) -> Result<u128, Error> {
        let field = self.word()?;
        let canonical = field.len() == 32
            && field.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match u128::from_str_radix(field, 16) {
            Ok(value) if canonical => Ok(value),
            _ => Err(self.error()),
        }
    }

    /// Refuses any further field.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        if self.rest.next().is_none() { Ok(()) } else { Err(self.error()) }
    }

    pub(crate) fn error(&self) -> Error {
        refused(self.wanted, self.text)
    }
}

/// A decimal number without sign or leading zeros, so that one value has one text.
pub(super) fn number<T: FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    if digits && !padded { text.parse().ok() } else { None }
}

/// The error for `text`, which is not `wanted`.
pub(super) fn refused(wanted: &'static str, text: &str) -> Error {
    Error::Text { wanted, text: text.chars().take(QUOTED_CHARS_MAX).collect() }
}

impl FromStr for Shuffle {
    type Err = Error;

    /// Reads `none`, `global`, `window` (of the default size) or `window:SHARDS`.
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "none" => Ok(Self::None),
            "global" => Ok(Self::Global),
            "window" => Ok(Self::Window { shards: WINDOW_SHARDS_DEFAULT }),
            _ => text
                .strip_prefix("window:")
                .and_then(number)
                .map(|shards| Self::Window { shards })
                .ok_or_else(|| refused("a shuffle: none, window, window:SHARDS or global", text)),
        }
    }
}

impl FromStr for Last {
    type Err = Error;

    /// Reads `drop`, `pad` or `uneven`.
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "drop" => Ok(Self::Drop),
            "pad" => Ok(Self::Pad),
            "uneven" => Ok(Self::Uneven),
            _ => Err(refused("the treatment of a last batch: drop, pad or uneven", text)),
        }
    }
}
