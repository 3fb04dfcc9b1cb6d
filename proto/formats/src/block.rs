//! Blocks: rows that must be decoded before they lie as a shard holds them.
//!
//! A [`Block`] says how the rows of one column come out of one range of a file. [`Block::make`]
//! makes them. A block has 16 bytes. If that is not enough, it names two [`Recipes`]: one that all
//! blocks of its column share, such as a tree of types, and one of its own.
//!
//! Thread rule: plain values. Non-goals: the formats themselves.

mod codec;
pub(crate) mod json;
pub(crate) mod lz4;
mod recipe;

use crate::Fault;

pub(crate) use codec::{Codec, Decompressor};
pub use recipe::Recipes;
pub(crate) use recipe::{Fields, malformed, put_bytes, put_integer, recipe};

/// How the rows of a column are made from one range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// Nothing is read. All rows are empty, or zero if they have one length.
    Zeros,
    /// Nothing is read. All rows are one.
    Ones,
    /// The range is one column of a row group of Parquet.
    Chunk(ChunkBlock),
    /// Recipes say how.
    Recipe(RecipeBlock),
}

/// A column of one number or text a row, or of one list of numbers, in a row group of Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkBlock {
    pub(crate) codec: Codec,
    pub(crate) physical: Physical,
    /// How numbers become text, if they are decimals.
    pub(crate) decimal: Option<Decimal>,
    pub(crate) aspect: Aspect,
    /// The level of a value that is there.
    pub(crate) definition_max: u8,
    /// The level from which on a list has elements. 0 if the column has no lists.
    pub(crate) list_definition: u8,
    /// The level from which on a list of lists has elements. 0 if lists hold no lists.
    pub(crate) outer_definition: u8,
    /// Values, with nulls.
    pub(crate) values: u32,
    /// Bytes of all pages after decompression.
    pub(crate) decoded_bytes: u32,
}

impl ChunkBlock {
    /// Returns the level from which on a row has elements. 0 if the column has no lists.
    pub(crate) fn row_definition(&self) -> u8 {
        match self.outer_definition {
            0 => self.list_definition,
            outer => outer,
        }
    }
}

/// Rows that are made by recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecipeBlock {
    pub(crate) aspect: Aspect,
    /// The place of the recipe of all blocks of the column.
    pub(crate) shared: u32,
    /// The place of the recipe of this block.
    pub(crate) own: u32,
    /// Bytes of the range after decompression.
    pub(crate) decoded_bytes: u32,
}

/// Decimals: whole numbers in the file, text in the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decimal {
    /// Digits behind the point.
    pub(crate) scale: u8,
    /// Bytes of a number of [`Physical::Fixed`].
    pub(crate) bytes: u8,
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
    /// A time: nanoseconds of a day in 8 bytes, and the number of the day in 4. Rows have
    /// nanoseconds since 1970.
    I96,
}

/// What of the values a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aspect {
    Values,
    /// Whether a row has a value.
    Validity,
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

/// Numbers of the kinds of blocks in a manifest: the third byte. The first two are those of aspects
/// of [`Block::Chunk`].
const ZEROS: u8 = 2;
const ONES: u8 = 3;
const RECIPE: u8 = 4;

impl Block {
    /// Bytes of an encoded block.
    pub const BYTES: usize = 16;

    /// A block of a file that does not have the column.
    pub const ABSENT: Self = Self::Zeros;

    /// Returns whether the rows need bytes of a file.
    pub fn reads(&self) -> bool {
        !matches!(self, Self::Zeros | Self::Ones)
    }

    /// Returns whether the rows say which rows of another column have a value.
    pub fn is_mask(&self) -> bool {
        match self {
            Self::Zeros => false,
            Self::Ones => true,
            Self::Chunk(block) => block.aspect == Aspect::Validity,
            Self::Recipe(block) => block.aspect == Aspect::Validity,
        }
    }

    /// Encodes the block for a manifest.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        match self {
            Self::Zeros => bytes[2] = ZEROS,
            Self::Ones => bytes[2] = ONES,
            Self::Chunk(chunk) => {
                bytes[0] = chunk.codec.code();
                bytes[1] = chunk.physical as u8;
                bytes[2] = chunk.aspect as u8;
                (bytes[3], bytes[4]) = (chunk.definition_max, chunk.list_definition);
                bytes[7] = chunk.outer_definition;
                if let Some(decimal) = chunk.decimal {
                    (bytes[5], bytes[6]) = (decimal.scale.saturating_add(1), decimal.bytes);
                }
                bytes[8..12].copy_from_slice(&chunk.values.to_le_bytes());
                bytes[12..].copy_from_slice(&chunk.decoded_bytes.to_le_bytes());
            }
            Self::Recipe(block) => {
                (bytes[2], bytes[3]) = (RECIPE, block.aspect as u8);
                bytes[4..8].copy_from_slice(&block.shared.to_le_bytes());
                bytes[8..12].copy_from_slice(&block.own.to_le_bytes());
                bytes[12..].copy_from_slice(&block.decoded_bytes.to_le_bytes());
            }
        }
        bytes
    }

    /// Decodes a block whose recipes are among these. `None` if the bytes are none.
    pub fn from_bytes(bytes: [u8; Self::BYTES], recipes: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let block = match bytes[2] {
            ZEROS => Self::Zeros,
            ONES => Self::Ones,
            RECIPE => {
                let aspect = *Aspect::ALL.get(usize::from(bytes[3]))?;
                let (shared, own) = (number(4), number(8));
                recipe(recipes, shared).and(recipe(recipes, own))?;
                Self::Recipe(RecipeBlock { aspect, shared, own, decoded_bytes: number(12) })
            }
            aspect => Self::Chunk(ChunkBlock {
                codec: Codec::from_code(bytes[0])?,
                physical: Physical::from_code(bytes[1])?,
                decimal: match bytes[5] {
                    0 => None,
                    more => Some(Decimal { scale: more - 1, bytes: bytes[6] }),
                },
                aspect: *Aspect::ALL.get(usize::from(aspect))?,
                definition_max: bytes[3],
                list_definition: bytes[4],
                outer_definition: bytes[7],
                values: number(8),
                decoded_bytes: number(12),
            }),
        };
        let holds = match block {
            Self::Chunk(chunk) => {
                let list = chunk.list_definition;
                list <= chunk.definition_max && chunk.outer_definition <= list.saturating_sub(1)
            }
            _ => true,
        };
        (holds && block.to_bytes() == bytes).then_some(block)
    }

    /// Returns the same block with its recipes among others, to which they are added.
    ///
    /// # Errors
    /// If there is no room for them.
    pub fn moved(self, from: &[u8], to: &mut Recipes) -> Result<Self, Fault> {
        let Self::Recipe(block) = self else { return Ok(self) };
        let mut put = |at: u32| to.put(recipe(from, at).unwrap_or_default());
        Ok(Self::Recipe(RecipeBlock { shared: put(block.shared)?, own: put(block.own)?, ..block }))
    }

    /// Returns the block's recipes: the shared one, and its own.
    pub fn recipes(self, recipes: &[u8]) -> Option<[&[u8]; 2]> {
        let Self::Recipe(block) = self else { return None };
        Some([recipe(recipes, block.shared)?, recipe(recipes, block.own)?])
    }

    /// Returns the same block without the places of its recipes.
    #[must_use]
    pub fn without_places(self) -> Self {
        match self {
            Self::Recipe(block) => Self::Recipe(RecipeBlock { shared: 0, own: 0, ..block }),
            other => other,
        }
    }
}

impl Physical {
    const ALL: [Self; 8] = [
        Self::Bool,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
        Self::Bytes,
        Self::Fixed,
        Self::I96,
    ];

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the type with this number in a Parquet file.
    pub(crate) fn of_parquet(number: i64) -> Option<Self> {
        Some(match number {
            0 => Self::Bool,
            1 => Self::I32,
            2 => Self::I64,
            3 => Self::I96,
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
            Self::I96 => Some(12),
            Self::Fixed => Some(scalar_bytes),
        }
    }
}

impl Aspect {
    const ALL: [Self; 2] = [Self::Values, Self::Validity];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_survive_their_encoding_and_nothing_else_does() {
        let block = Block::Chunk(ChunkBlock {
            codec: Codec::Zstd,
            physical: Physical::Fixed,
            decimal: Some(Decimal { scale: 2, bytes: 16 }),
            aspect: Aspect::Validity,
            definition_max: 3,
            list_definition: 2,
            outer_definition: 1,
            values: 7,
            decoded_bytes: 1 << 30,
        });
        for block in [block, Block::Zeros, Block::Ones] {
            assert_eq!(Block::from_bytes(block.to_bytes(), &[]), Some(block));
        }
        for (at, bad) in [(0, 99), (1, 8), (2, 3), (2, 5), (4, 4), (5, 0), (7, 2)] {
            let mut bytes = block.to_bytes();
            bytes[at] = bad;
            assert_eq!(Block::from_bytes(bytes, &[]), None, "byte {at}");
        }
    }

    #[test]
    fn a_block_finds_its_recipes_wherever_they_lie() {
        let (mut from, mut to) = (Recipes::default(), Recipes::default());
        from.put(b"other").unwrap();
        let (shared, own) = (from.put(b"shared").unwrap(), from.put(b"own").unwrap());
        let block = RecipeBlock { aspect: Aspect::Values, shared, own, decoded_bytes: 7 };
        let block = Block::Recipe(block);
        assert_eq!(Block::from_bytes(block.to_bytes(), from.as_bytes()), Some(block));
        assert_eq!(Block::from_bytes(block.to_bytes(), &from.as_bytes()[..12]), None);
        let moved = block.moved(from.as_bytes(), &mut to).unwrap();
        let again = block.moved(from.as_bytes(), &mut to).unwrap();
        assert_eq!(moved, again, "equal recipes are kept once");
        assert_eq!(moved.recipes(to.as_bytes()), Some([&b"shared"[..], &b"own"[..]]));
    }
}
