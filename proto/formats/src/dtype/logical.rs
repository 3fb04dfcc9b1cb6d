//! The meanings of a column's values, beside the type of their bytes.
//!
//! A column has two types. Its [`Dtype`] says how many bytes a value takes. Its [`Logical`] type
//! says what these bytes mean: milliseconds or days, text or the bytes of a picture. Files agree on
//! a column only if both types agree.

use std::fmt;

use crate::Dtype;

/// The meaning of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Logical {
    /// Numbers, of which the file says no more.
    Number,
    /// True or false.
    Boolean,
    /// Text in UTF-8.
    Text,
    /// JSON documents in UTF-8.
    Json,
    /// Bytes, of which the file says no more.
    Bytes,
    /// Encoded pictures.
    Image,
    /// Encoded sound.
    Sound,
    /// Decimal numbers as text, such as `-12.50`.
    Decimal,
    /// Days since 1970-01-01.
    Date,
    /// Time since 1970-01-01T00:00.
    Timestamp(TimeUnit),
    /// Time since midnight.
    Time(TimeUnit),
    /// A stretch of time.
    Duration(TimeUnit),
}

/// The unit of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum TimeUnit {
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};

/// Each type, its number in a manifest, and its name. Numbers are never reused.
const TABLE: [(Logical, u16, &str); 21] = [
    (Logical::Number, 0, "number"),
    (Logical::Boolean, 1, "boolean"),
    (Logical::Text, 2, "text"),
    (Logical::Json, 3, "json"),
    (Logical::Bytes, 4, "bytes"),
    (Logical::Image, 5, "image"),
    (Logical::Sound, 6, "sound"),
    (Logical::Decimal, 7, "decimal"),
    (Logical::Date, 8, "date"),
    (Logical::Timestamp(Second), 9, "timestamp[s]"),
    (Logical::Timestamp(Millisecond), 10, "timestamp[ms]"),
    (Logical::Timestamp(Microsecond), 11, "timestamp[us]"),
    (Logical::Timestamp(Nanosecond), 12, "timestamp[ns]"),
    (Logical::Time(Second), 13, "time[s]"),
    (Logical::Time(Millisecond), 14, "time[ms]"),
    (Logical::Time(Microsecond), 15, "time[us]"),
    (Logical::Time(Nanosecond), 16, "time[ns]"),
    (Logical::Duration(Second), 17, "duration[s]"),
    (Logical::Duration(Millisecond), 18, "duration[ms]"),
    (Logical::Duration(Microsecond), 19, "duration[us]"),
    (Logical::Duration(Nanosecond), 20, "duration[ns]"),
];

/// Extensions of encoded pictures.
const PICTURES: &[&str] = &["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"];
/// Extensions of encoded sound.
const SOUNDS: &[&str] = &["wav", "flac", "mp3", "ogg", "opus"];
/// Extensions of text, as webdataset decodes them.
const TEXTS: &[&str] = &["txt", "text", "transcript"];

impl Logical {
    /// Returns the type of values of which nothing more is known.
    pub fn of(dtype: Dtype) -> Self {
        if dtype == Dtype::Bool { Self::Boolean } else { Self::Number }
    }

    /// Returns the type of files with this extension in lower case, and of such members of a tar.
    pub fn of_extension(extension: &str) -> Self {
        match extension {
            picture if PICTURES.contains(&picture) => Self::Image,
            sound if SOUNDS.contains(&sound) => Self::Sound,
            text if TEXTS.contains(&text) => Self::Text,
            "json" | "jsn" => Self::Json,
            _ => Self::Bytes,
        }
    }

    /// Returns whether values of this type can have these bytes.
    pub fn fits(self, dtype: Dtype) -> bool {
        match self {
            Self::Number => dtype != Dtype::Bool,
            Self::Boolean => dtype == Dtype::Bool,
            Self::Text | Self::Json | Self::Bytes | Self::Image | Self::Sound | Self::Decimal => {
                dtype == Dtype::U8
            }
            Self::Date | Self::Time(_) => matches!(dtype, Dtype::I32 | Dtype::I64),
            Self::Timestamp(_) | Self::Duration(_) => dtype == Dtype::I64,
        }
    }

    /// Returns the name, such as `text` or `timestamp[ms]`.
    pub fn name(self) -> &'static str {
        self.entry().2
    }

    /// Returns the number that stands for this type in a manifest.
    pub fn code(self) -> u16 {
        self.entry().1
    }

    /// Returns the type that `code` stands for in a manifest.
    pub fn from_code(code: u16) -> Option<Self> {
        TABLE.iter().find(|entry| entry.1 == code).map(|entry| entry.0)
    }

    fn entry(self) -> &'static (Self, u16, &'static str) {
        TABLE.iter().find(|entry| entry.0 == self).expect("every type has its line in the table")
    }
}

impl fmt::Display for Logical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_its_number_and_has_a_name_of_its_own() {
        let mut names: Vec<&str> = TABLE.iter().map(|entry| entry.2).collect();
        for (logical, code, name) in TABLE {
            assert_eq!(Logical::from_code(code), Some(logical));
            assert_eq!((logical.code(), logical.name()), (code, name));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        assert_eq!(Logical::from_code(21), None);
    }
}
