//! The places of a column's buffers in one batch, as a recipe.
//!
//! ```text
//! recipe: compression, then for each node of the tree, parents first:
//!         length, number of buffers, buffers
//! buffer: offset in the block's range, stored bytes, bytes after decompression
//! ```
//!
//! A buffer of bits that would say that all values are there has no bytes.
//!
//! Thread rule: plain values.

use std::{borrow::Cow, ops::Range};

use larder_base::limits;

use super::{schema::Kind, tree::TypeNode};
use crate::{
    Fault,
    block::{Codec, Decompressor, Fields, lz4, malformed, put_integer},
};

/// Largest recipe of one batch.
const RECIPE_BYTES_MAX: usize = 1 << 20;
/// Bytes before a compressed buffer: its size after decompression, or -1 if it is stored as it is.
pub(super) const SIZE_BYTES: u64 = 8;

/// The compression of all buffers of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Lz4,
    Zstd,
}

/// A buffer of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Buffer {
    pub(super) at: u64,
    pub(super) stored: u64,
    pub(super) decoded: u64,
}

/// A node of a batch, and its buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) length: u64,
    pub(super) buffers: Vec<Buffer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) compression: Compression,
    pub(super) nodes: Vec<Place>,
}

impl Buffer {
    pub(super) fn range(&self) -> Range<u64> {
        self.at..self.at.saturating_add(self.stored)
    }

    /// Returns the bytes that decompression takes.
    pub(super) fn scratch_bytes(&self, compression: Compression) -> u64 {
        if compression == Compression::None { 0 } else { self.decoded }
    }
}

impl Places {
    /// Returns all buffers, in the order of their nodes.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.nodes.iter().flat_map(|node| &node.buffers)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut recipe = vec![self.compression as u8];
        for node in &self.nodes {
            put_integer(node.length, &mut recipe);
            put_integer(node.buffers.len() as u64, &mut recipe);
            for buffer in &node.buffers {
                for number in [buffer.at, buffer.stored, buffer.decoded] {
                    put_integer(number, &mut recipe);
                }
            }
        }
        recipe
    }

    /// Reads the places of all nodes of a tree.
    pub(super) fn parse(recipe: &[u8], root: &TypeNode<'_>) -> Result<Self, Fault> {
        if recipe.len() > RECIPE_BYTES_MAX {
            return Err(malformed("is too long"));
        }
        let mut fields = Fields::new(recipe);
        let compression = match fields.integer()? {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            _ => return Err(malformed("has an unknown compression")),
        };
        let mut nodes = Vec::new();
        parse_node(&mut fields, root, &mut nodes)?;
        fields.finish()?;
        Ok(Self { compression, nodes })
    }
}

fn parse_node(
    fields: &mut Fields<'_>,
    node: &TypeNode<'_>,
    nodes: &mut Vec<Place>,
) -> Result<(), Fault> {
    let (length, count) = (fields.integer()?, fields.small::<usize>()?);
    let fits = match node.kind {
        Kind::View(_) => count >= node.kind.buffers(),
        kind => count == kind.buffers(),
    };
    if !fits {
        return Err(malformed("has other buffers than its type"));
    }
    let mut buffers = Vec::new();
    for _ in 0..count {
        let [at, stored, decoded] = [fields.integer()?, fields.integer()?, fields.integer()?];
        buffers.push(Buffer { at, stored, decoded });
    }
    nodes.push(Place { length, buffers });
    node.children.iter().try_for_each(|child| parse_node(fields, child, nodes))
}

/// Returns the size after decompression of a buffer that begins with these bytes.
pub(super) fn decoded_bytes(
    compression: Compression,
    stored: u64,
    head: &[u8],
) -> Result<u64, Fault> {
    if compression == Compression::None || stored == 0 {
        return Ok(stored);
    }
    let size = head.first_chunk().map(|size| i64::from_le_bytes(*size));
    match size {
        Some(-1) => Ok(stored.saturating_sub(SIZE_BYTES)),
        Some(size) => match u64::try_from(size) {
            Ok(size) if size <= limits::SHARD_BYTES_MAX => Ok(size),
            _ => Err(Fault::new("buffer", format!("has {size} bytes after decompression"))),
        },
        None => Err(Fault::new("buffer", "is shorter than its head")),
    }
}

/// Returns the content of a buffer whose stored bytes these are. `left` bounds the memory.
pub(super) fn decompress<'a>(
    compression: Compression,
    buffer: &Buffer,
    stored: &'a [u8],
    left: &mut u64,
) -> Result<Cow<'a, [u8]>, Fault> {
    let fault = |why: String| Fault::new("buffer", why);
    if decoded_bytes(compression, stored.len() as u64, stored)? != buffer.decoded {
        return Err(fault("has another size than when it was indexed".into()));
    }
    if compression == Compression::None || stored.is_empty() {
        return Ok(Cow::Borrowed(stored));
    }
    let (head, content) = stored.split_at(8);
    if head == [0xFF; 8] {
        return Ok(Cow::Borrowed(content));
    }
    let rest = left.checked_sub(buffer.decoded);
    *left = rest.ok_or_else(|| fault("has more bytes than its block says".into()))?;
    let mut target = vec![0; usize::try_from(buffer.decoded).expect("below the limit")];
    let filled = match compression {
        Compression::Lz4 => lz4::decompress(content, &mut target),
        _ => Decompressor::default().fill(Codec::Zstd, content, &mut target).map(|()| target.len()),
    };
    match filled {
        Ok(bytes) if bytes == target.len() => Ok(Cow::Owned(target)),
        Ok(bytes) => Err(fault(format!("has {bytes} bytes where its head says {}", target.len()))),
        Err(why) => Err(fault(why)),
    }
}
