//! Columns of a batch in memory: nodes of a tree with their buffers, each checked as it is used.
//!
//! Thread rule: plain values over borrowed or decompressed bytes. Memory: the decompressed buffers.
//! Non-goals: rows as a shard holds them (`rows`, `text`).

pub(super) mod rows;
pub(super) mod text;

use std::{borrow::Cow, ops::Range};

use super::{
    places::{Buffer, Place, Places},
    schema::Kind,
    tree::TypeNode,
};
use crate::Fault;

/// The values of a node in one batch.
#[derive(Debug)]
pub(super) struct Array<'a> {
    pub(super) node: &'a TypeNode<'a>,
    pub(super) length: usize,
    /// One bit each. `None` if all values are there.
    validity: Option<Cow<'a, [u8]>>,
    /// Offsets, views, bits, places in a dictionary, or values of one length.
    first: Cow<'a, [u8]>,
    /// The bytes of texts: one buffer, or those that views refer to.
    texts: Vec<Cow<'a, [u8]>>,
    pub(super) children: Vec<Self>,
}

/// Returns the content of a buffer, given its number.
pub(super) type Load<'l, 'a> = dyn FnMut(usize, &Buffer) -> Result<Cow<'a, [u8]>, Fault> + 'l;

/// The buffers that are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Those that say which rows have a value: of so many structs and of the field in them.
    Validity(usize),
    /// These, and those that tell the length of each row, and of so many lists in it.
    Lengths(usize, usize),
    /// Those that say which values are there, of all nodes.
    AllValidity,
    All,
}

/// Opens the nodes of a batch, parents first.
pub(super) struct Opening<'a, 'l> {
    places: std::slice::Iter<'a, Place>,
    buffer: usize,
    load: &'l mut Load<'l, 'a>,
}

impl<'a, 'l> Opening<'a, 'l> {
    pub(super) fn new(places: &'a Places, load: &'l mut Load<'l, 'a>) -> Self {
        Self { places: places.nodes.iter(), buffer: 0, load }
    }

    /// Opens a node and the nodes below.
    pub(super) fn open(
        &mut self,
        node: &'a TypeNode<'a>,
        depth: Depth,
    ) -> Result<Array<'a>, Fault> {
        let place = self.places.next().ok_or_else(|| fault("nodes", "are too few"))?;
        let length = u32::try_from(place.length).map_err(|_| fault("length", "is too large"))?;
        let number = self.buffer;
        self.buffer += place.buffers.len();
        let mut load = |index: usize| match place.buffers.get(index) {
            Some(buffer) if buffer.stored > 0 => (self.load)(number + index, buffer),
            _ => Ok(Cow::Borrowed(&[][..])),
        };
        let validity = Some(load(0)?).filter(|bits| !bits.is_empty());
        let below = match depth {
            Depth::Validity(path) => path.checked_sub(1).map(Depth::Validity),
            Depth::Lengths(0, lists) => lists.checked_sub(1).map(|lists| Depth::Lengths(0, lists)),
            Depth::Lengths(path, lists) => Some(Depth::Lengths(path - 1, lists)),
            Depth::All | Depth::AllValidity => Some(depth),
        };
        let (mut first, mut texts, mut children) = (Cow::Borrowed(&[][..]), Vec::new(), Vec::new());
        if matches!(depth, Depth::All | Depth::Lengths(0, _)) {
            first = load(1)?;
        }
        if depth == Depth::All {
            texts = (2..place.buffers.len()).map(load).collect::<Result<_, _>>()?;
        }
        if let Some(below) = below {
            for child in &node.children {
                children.push(self.open(child, below)?);
            }
        }
        let array = Array { node, length: length as usize, validity, first, texts, children };
        array.check(depth)?;
        Ok(array)
    }
}

impl<'a> Array<'a> {
    /// Checks that there are as many values as the length says.
    fn check(&self, depth: Depth) -> Result<(), Fault> {
        let bits = |length: usize| length.div_ceil(8) as u64;
        if self.validity.as_ref().is_some_and(|found| (found.len() as u64) < bits(self.length)) {
            return Err(fault("validity", "has fewer bits than there are values"));
        }
        let length = self.length as u64;
        let needed = match self.node.kind {
            _ if !matches!(depth, Depth::All | Depth::Lengths(0, _)) => 0,
            Kind::Null | Kind::Struct | Kind::FixedList(_) => 0,
            Kind::Bool => bits(self.length),
            Kind::Number(dtype, _) | Kind::Dictionary { index: dtype, .. } => {
                length * dtype.size_bytes()
            }
            Kind::FixedBytes(size) => length.saturating_mul(size),
            Kind::View(_) => 16 * length,
            Kind::Text { .. } | Kind::List { .. } | Kind::Map if length == 0 => 0,
            Kind::Text { large, .. } | Kind::List { large } => {
                (length + 1) * if large { 8 } else { 4 }
            }
            Kind::Map => (length + 1) * 4,
            Kind::Union { .. } | Kind::Other(..) => return Err(fault("type", "makes no rows")),
        };
        if (self.first.len() as u64) < needed {
            return Err(fault("values", "have fewer bytes than there are values"));
        }
        let child = match self.node.kind {
            Kind::Struct => Some(length),
            Kind::FixedList(size) => Some(length.saturating_mul(size)),
            _ => None,
        };
        let same = |of: &Self| child.is_none_or(|length| of.length as u64 == length);
        match self.children.iter().all(same) {
            true => Ok(()),
            false => Err(fault("children", "have another length")),
        }
    }

    /// Returns whether any value may be null.
    pub(super) fn has_nulls(&self) -> bool {
        self.validity.is_some() || self.node.kind == Kind::Null
    }

    pub(super) fn is_valid(&self, index: usize) -> bool {
        match &self.validity {
            Some(bits) => bit(bits, index),
            None => self.node.kind != Kind::Null,
        }
    }

    /// Returns the bytes or bits of all values of one length.
    pub(super) fn values(&self) -> &[u8] {
        &self.first
    }

    /// Returns the value of a boolean.
    pub(super) fn boolean(&self, index: usize) -> bool {
        bit(&self.first, index)
    }

    /// Returns the elements of a list, or the bytes of a text among all of them.
    pub(super) fn range(&self, index: usize) -> Result<Range<usize>, Fault> {
        let large =
            matches!(self.node.kind, Kind::Text { large: true, .. } | Kind::List { large: true });
        let offset = |index: usize| match large {
            true => self.first[8 * index..].first_chunk().map(|word| i64::from_le_bytes(*word)),
            false => {
                self.first[4 * index..].first_chunk().map(|word| i32::from_le_bytes(*word).into())
            }
        };
        let offset = |index| offset(index).and_then(|offset| usize::try_from(offset).ok());
        match (offset(index), offset(index + 1)) {
            (Some(begin), Some(end)) if begin <= end => Ok(begin..end),
            _ => Err(fault("offsets", "fall, or are negative")),
        }
    }

    /// Returns these bytes of all texts.
    pub(super) fn bytes(&self, range: Range<usize>) -> Result<&[u8], Fault> {
        let texts = self.texts.first().map_or(&[][..], |texts| &texts[..]);
        texts.get(range).ok_or_else(|| fault("offsets", "lead past the values"))
    }

    /// Returns the length of a text. Needs no bytes of texts.
    pub(super) fn text_bytes(&self, index: usize) -> Result<usize, Fault> {
        match self.node.kind {
            Kind::View(_) => {
                let length = i32::from_le_bytes(*self.view(index).first_chunk().expect("16 bytes"));
                usize::try_from(length).map_err(|_| fault("views", "have a negative length"))
            }
            Kind::Dictionary { .. } => Ok(self.dictionary_value(index)?.len()),
            _ => self.range(index).map(|range| range.len()),
        }
    }

    /// Returns a text.
    pub(super) fn text(&self, index: usize) -> Result<&[u8], Fault> {
        match self.node.kind {
            Kind::View(_) => {
                let (view, length) = (self.view(index), self.text_bytes(index)?);
                if length <= 12 {
                    return Ok(&view[4..4 + length]);
                }
                let word = |at: usize| {
                    i32::from_le_bytes(*view[at..].first_chunk().expect("a word of a view"))
                };
                let place = usize::try_from(word(8)).ok().zip(usize::try_from(word(12)).ok());
                let found =
                    place.and_then(|(buffer, at)| self.texts.get(buffer)?.get(at..)?.get(..length));
                found.ok_or_else(|| fault("views", "lead out of their buffers"))
            }
            Kind::Dictionary { .. } => self.dictionary_value(index),
            _ => self.bytes(self.range(index)?),
        }
    }

    fn view(&self, index: usize) -> &[u8] {
        &self.first[16 * index..][..16]
    }

    /// Returns the value that a place in a dictionary stands for.
    pub(super) fn dictionary_value(&self, index: usize) -> Result<&[u8], Fault> {
        let (Kind::Dictionary { index: dtype, .. }, Some(dictionary)) =
            (self.node.kind, &self.node.dictionary)
        else {
            return Err(fault("dictionary", "is missing"));
        };
        let bytes = usize::try_from(dtype.size_bytes()).expect("at most 8");
        // A negative place is larger than any dictionary.
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&self.first[bytes * index..][..bytes]);
        dictionary.get(usize::try_from(u64::from_le_bytes(word)).unwrap_or(usize::MAX))
    }
}

fn bit(bits: &[u8], index: usize) -> bool {
    bits[index / 8] >> (index % 8) & 1 == 1
}

pub(super) fn fault(field: &str, why: &str) -> Fault {
    Fault::new(field, why)
}
