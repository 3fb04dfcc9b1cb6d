//! Blocks: rows that must be decoded before they lie as a shard holds them.
//!
//! A [`Block`] says how the rows of one column come out of one range of a file. [`Block::make`]
//! makes them.
//!
//! Thread rule: plain values. Non-goals: the formats themselves.

mod codec;

use crate::Fault;

pub(crate) use codec::{Codec, Decompressor};

/// How the rows of a column are made from one range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub(crate) codec: Codec,
    pub(crate) physical: Physical,
    pub(crate) aspect: Aspect,
    /// The level of a value that is there.
    pub(crate) definition_max: u8,
    /// The level from which on a list has elements. 0 if the column has no lists.
    pub(crate) list_definition: u8,
    /// Values, with nulls.
    pub(crate) values: u32,
    /// Bytes of all pages after decompression.
    pub(crate) decoded_bytes: u32,
}

/// The type of a value in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Physical {
    Bool,
    I32,
    I64,
    F32,
    F64,
    /// Bytes of any length.
    Bytes,
    /// As many bytes as an element of the column.
    Fixed,
}

/// What of the values a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aspect {
    Values,
    /// Whether a row has a value.
    Validity,
    /// The file does not have the column. All rows are empty, or zero if they have one length.
    Absent,
}

/// The rows that a block must make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsWanted {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of a row. `None` if rows differ in length.
    pub row_bytes: Option<u64>,
    /// Bytes of a scalar of the column's type.
    pub scalar_bytes: u64,
}

/// Takes the next bytes of the rows, and the lengths of the rows that end in them. There are no
/// lengths if all rows have one.
pub type Put<'a> = dyn FnMut(&[u8], &[u32]) -> Result<(), Fault> + 'a;

impl Block {
    /// Bytes of an encoded block.
    pub const BYTES: usize = 16;

    /// A block of a file that does not have the column.
    pub const ABSENT: Self = Self {
        codec: Codec::None,
        physical: Physical::Bool,
        aspect: Aspect::Absent,
        definition_max: 0,
        list_definition: 0,
        values: 0,
        decoded_bytes: 0,
    };

    /// Returns whether the rows need bytes of a file.
    pub fn reads(&self) -> bool {
        self.aspect != Aspect::Absent
    }

    /// Encodes the block for a manifest.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = self.codec.code();
        bytes[1] = self.physical as u8;
        bytes[2] = self.aspect as u8;
        (bytes[3], bytes[4]) = (self.definition_max, self.list_definition);
        bytes[8..12].copy_from_slice(&self.values.to_le_bytes());
        bytes[12..].copy_from_slice(&self.decoded_bytes.to_le_bytes());
        bytes
    }

    /// Decodes a block. `None` if the bytes are none.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let block = Self {
            codec: Codec::from_code(bytes[0])?,
            physical: *Physical::ALL.get(usize::from(bytes[1]))?,
            aspect: *Aspect::ALL.get(usize::from(bytes[2]))?,
            definition_max: bytes[3],
            list_definition: bytes[4],
            values: number(8),
            decoded_bytes: number(12),
        };
        let holds = block.list_definition <= block.definition_max && block.to_bytes() == bytes;
        holds.then_some(block)
    }
}

impl Physical {
    const ALL: [Self; 7] =
        [Self::Bool, Self::I32, Self::I64, Self::F32, Self::F64, Self::Bytes, Self::Fixed];

    /// Returns the type with this number in a Parquet file.
    pub(crate) fn of_parquet(number: i64) -> Option<Self> {
        Some(match number {
            0 => Self::Bool,
            1 => Self::I32,
            2 => Self::I64,
            4 => Self::F32,
            5 => Self::F64,
            6 => Self::Bytes,
            7 => Self::Fixed,
            _ => return None,
        })
    }

    /// Returns the bytes of a value in the file. `None` if it is a bit or of any length.
    pub(crate) fn bytes(self, scalar_bytes: u64) -> Option<u64> {
        match self {
            Self::Bool | Self::Bytes => None,
            Self::I32 | Self::F32 => Some(4),
            Self::I64 | Self::F64 => Some(8),
            Self::Fixed => Some(scalar_bytes),
        }
    }
}

impl Aspect {
    const ALL: [Self; 3] = [Self::Values, Self::Validity, Self::Absent];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_survive_their_encoding_and_nothing_else_does() {
        let block = Block {
            codec: Codec::Zstd,
            physical: Physical::Fixed,
            aspect: Aspect::Validity,
            definition_max: 3,
            list_definition: 2,
            values: 7,
            decoded_bytes: 1 << 30,
        };
        assert_eq!(Block::from_bytes(block.to_bytes()), Some(block));
        assert_eq!(Block::from_bytes(Block::ABSENT.to_bytes()), Some(Block::ABSENT));
        for (at, bad) in [(0, 99), (1, 7), (2, 3), (4, 4), (5, 1)] {
            let mut bytes = block.to_bytes();
            bytes[at] = bad;
            assert_eq!(Block::from_bytes(bytes), None, "byte {at}");
        }
    }
}
