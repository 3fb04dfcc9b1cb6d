//! The error of this crate.

use std::fmt::Display;

/// Why a row could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Options that no row can satisfy.
    #[error("{0}")]
    Options(String),
    /// The caller's slice has another length than the options say.
    #[error("the slice has {found} elements where a row has {wanted}: size it by the options")]
    Slice {
        /// Elements of the slice.
        found: usize,
        /// Elements of a row.
        wanted: usize,
    },
    /// Bytes of an unknown format.
    #[error(
        "neither {wanted}: the row has {bytes} bytes and begins with \"{begin}\"; choose the \
         column that holds encoded files, or convert them"
    )]
    Format {
        /// The formats that are decoded.
        wanted: &'static str,
        /// Bytes of the row.
        bytes: usize,
        /// Its first bytes, escaped.
        begin: String,
    },
    /// A file that its decoder rejects.
    #[error(
        "this {format} can't be decoded: {why}; it is damaged, or of a rare kind: write it again, \
         or leave the row out"
    )]
    Damaged {
        /// The format.
        format: &'static str,
        /// The decoder's reason.
        why: String,
    },
    /// A header that promises more than is decoded.
    #[error(
        "this {format} says it has {found} {unit} where at most {limit} are decoded: make it \
         smaller when the dataset is written"
    )]
    TooLarge {
        /// The format.
        format: &'static str,
        /// The number in the header.
        found: u64,
        /// Pixels or frames, in the plural.
        unit: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A picture of 8 bits a channel where 16 are kept.
    #[error(
        "this {format} is no PNG of 16 bits a channel, which 16 bits are asked for: ask for 8 bits"
    )]
    Narrow {
        /// The format.
        format: &'static str,
    },
    /// A sound with another sample rate or number of channels than the options ask for.
    #[error("the sound has {found} {unit} where {wanted} are asked for: {hint}")]
    Sound {
        /// What the sound has.
        found: u32,
        /// What the options ask for.
        wanted: u32,
        /// Hertz or channels.
        unit: &'static str,
        /// A way out.
        hint: &'static str,
    },
}

impl DecodeError {
    pub(crate) fn damaged(format: &'static str, why: &dyn Display) -> Self {
        Self::Damaged { format, why: why.to_string() }
    }

    pub(crate) fn format(wanted: &'static str, encoded: &[u8]) -> Self {
        let begin = encoded[..encoded.len().min(8)].escape_ascii().to_string();
        Self::Format { wanted, bytes: encoded.len(), begin }
    }
}
