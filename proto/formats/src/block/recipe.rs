//! Recipes: byte strings of any length that blocks refer to, each kept once.
//!
//! ```text
//! recipe: u32 length, bytes
//! ```
//!
//! A recipe consists of integers, as varints, and of byte strings with their lengths before them.
//! All come from a manifest, so a reader compares each number with the bytes and with limits.
//!
//! Thread rule: plain values. Non-goals: the meaning of the bytes, which formats know.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::Fault;

/// Most bytes of the recipes of one column or leaf.
const RECIPES_BYTES_MAX: usize = 512 << 20;

/// The recipes of some blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recipes {
    bytes: Vec<u8>,
    /// The place of a recipe with this hash.
    known: HashMap<u64, u32>,
}

impl Recipes {
    /// Adds a recipe, unless it is there. Returns its place.
    ///
    /// # Errors
    /// If there is no room.
    pub fn put(&mut self, added: &[u8]) -> Result<u32, Fault> {
        let mut hasher = DefaultHasher::new();
        added.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(&at) = self.known.get(&hash)
            && recipe(&self.bytes, at) == Some(added)
        {
            return Ok(at);
        }
        if self.bytes.len() + added.len() > RECIPES_BYTES_MAX {
            let why = format!("take more than {RECIPES_BYTES_MAX} bytes: write larger batches");
            return Err(Fault::new("recipes", why));
        }
        let small = |size: usize| u32::try_from(size).expect("below the limit");
        let at = small(self.bytes.len());
        self.bytes.extend_from_slice(&small(added.len()).to_le_bytes());
        self.bytes.extend_from_slice(added);
        self.known.insert(hash, at);
        Ok(at)
    }

    /// Returns the bytes of all of them, as a manifest keeps them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the recipe at this place.
pub(crate) fn recipe(recipes: &[u8], at: u32) -> Option<&[u8]> {
    let (length, rest) = recipes.get(at as usize..)?.split_first_chunk()?;
    rest.get(..u32::from_le_bytes(*length) as usize)
}

/// Appends an integer to a recipe.
pub(crate) fn put_integer(mut value: u64, recipe: &mut Vec<u8>) {
    while value >= 0x80 {
        recipe.push(0x80 | (value & 0x7F) as u8);
        value >>= 7;
    }
    recipe.push((value & 0x7F) as u8);
}

/// Appends bytes to a recipe.
pub(crate) fn put_bytes(bytes: &[u8], recipe: &mut Vec<u8>) {
    put_integer(bytes.len() as u64, recipe);
    recipe.extend_from_slice(bytes);
}

/// The fields of a recipe that are to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(recipe: &'a [u8]) -> Self {
        Self(recipe)
    }

    pub(crate) fn integer(&mut self) -> Result<u64, Fault> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let Some((byte, rest)) = self.0.split_first() else { break };
            self.0 = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("has an integer that does not end"))
    }

    /// Reads an integer that the type holds.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Fault> {
        T::try_from(self.integer()?).map_err(|_| malformed("has an integer that is too large"))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.small()?;
        let cut = self.0.split_at_checked(length);
        let (bytes, rest) = cut.ok_or_else(|| malformed("has bytes that do not end"))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let cut = self.0.split_first_chunk();
        let (bytes, rest) = cut.ok_or_else(|| malformed("has bytes that do not end"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that there are no more fields.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        match self.0 {
            [] => Ok(()),
            _ => Err(malformed("goes on behind its end")),
        }
    }
}

pub(crate) fn malformed(why: &str) -> Fault {
    Fault::new("recipe", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_put() {
        let mut recipe = Vec::new();
        for value in [0, 127, 128, u64::from(u32::MAX), u64::MAX] {
            put_integer(value, &mut recipe);
        }
        put_bytes(b"abc", &mut recipe);
        let mut fields = Fields::new(&recipe);
        for value in [0, 127, 128, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(fields.integer(), Ok(value));
        }
        assert_eq!(fields.bytes(), Ok(&b"abc"[..]));
        assert_eq!(fields.finish(), Ok(()));
        for end in 0..recipe.len() {
            let mut fields = Fields::new(&recipe[..end]);
            while fields.integer().is_ok() {}
            assert!(fields.bytes().is_err(), "{end}");
        }
    }
}
