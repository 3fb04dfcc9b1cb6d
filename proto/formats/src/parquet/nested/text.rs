//! Rows in JSON out of the chunks of a nested field.
//!
//! ```text
//! own recipe: for each leaf: offset of its chunk in the block's range, stored bytes, compression,
//!             values
//! ```
//!
//! The levels of the first leaf below a node tell whether there is a value, and whether a list goes
//! on. Each leaf has one entry for each value that is null above it.
//!
//! Thread rule: plain functions. Memory: the decompressed pages of all leaves.

use super::{
    super::levels::malformed,
    FieldTree, Kind,
    leaf::{Cursor, Levels, Pages},
};
use crate::{
    Fault, RowsWanted,
    block::{Aspect, Codec, Fields, Put, RecipeBlock, json::Texts, put_integer},
};

/// The chunk of one leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::parquet) struct LeafChunk {
    /// From the begin of the block's range.
    pub(in crate::parquet) at: u64,
    pub(in crate::parquet) stored: u64,
    pub(in crate::parquet) codec: Codec,
    pub(in crate::parquet) values: u64,
}

/// Makes the rows of a block.
pub(crate) fn make(
    block: &RecipeBlock,
    shared: Fields<'_>,
    own: &[u8],
    wanted: RowsWanted,
    stored: &[u8],
    put: &mut Put<'_>,
) -> Result<(), Fault> {
    let root = FieldTree::parse(shared)?;
    let chunks = parse_chunks(own, root.leaves.len())?;
    let mut left = block.decoded_bytes.into();
    match block.aspect {
        Aspect::Values => {
            let pages = open(&root, &chunks, stored, &mut left)?;
            texts(&root, &pages, wanted.rows, &mut Texts::new(true, put))
        }
        Aspect::Validity => {
            let pages = open(&root, &chunks[..1], stored, &mut left)?;
            validity(&root, &pages[0], wanted.rows, put)
        }
    }
}

pub(in crate::parquet) fn encode_chunks(chunks: &[LeafChunk]) -> Vec<u8> {
    let mut recipe = Vec::new();
    for chunk in chunks {
        for number in [chunk.at, chunk.stored, chunk.codec.code().into(), chunk.values] {
            put_integer(number, &mut recipe);
        }
    }
    recipe
}

fn parse_chunks(recipe: &[u8], leaves: usize) -> Result<Vec<LeafChunk>, Fault> {
    let (mut fields, mut chunks) = (Fields::new(recipe), Vec::new());
    for _ in 0..leaves {
        let (at, stored, codec) = (fields.integer()?, fields.integer()?, fields.small()?);
        let codec = Codec::from_code(codec).ok_or_else(|| malformed("an unknown compression"))?;
        chunks.push(LeafChunk { at, stored, codec, values: fields.integer()? });
    }
    fields.finish()?;
    Ok(chunks)
}

/// Opens the chunks of the first leaves. `left` bounds the memory.
pub(in crate::parquet) fn open<'a>(
    root: &FieldTree,
    chunks: &[LeafChunk],
    stored: &'a [u8],
    left: &mut u64,
) -> Result<Vec<Pages<'a>>, Fault> {
    let leaves = root.leaf_levels();
    let opened = chunks.iter().zip(leaves).map(|(chunk, (leaf, definition, repetition))| {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = stored.get(at(chunk.at)..at(chunk.at.saturating_add(chunk.stored)));
        let bytes = bytes.ok_or_else(|| Fault::new("chunk", "lies outside its block"))?;
        let levels = Levels { leaf, definition, repetition };
        Pages::open(levels, chunk.codec, chunk.values, bytes, left)
    });
    opened.collect()
}

/// Appends the texts of all rows.
pub(in crate::parquet) fn texts(
    root: &FieldTree,
    pages: &[Pages<'_>],
    rows: u64,
    texts: &mut Texts<'_, '_>,
) -> Result<(), Fault> {
    let mut leaves: Vec<Cursor<'_>> = pages.iter().map(Pages::cursor).collect();
    for _ in 0..rows {
        let (definition, repetition) = next(&mut leaves, 0)?;
        if repetition != 0 {
            return Err(malformed("a row that goes on before it begins"));
        }
        match definition < root.definition.into() {
            true => skip(root, &mut leaves)?,
            false => value(root, &mut leaves, texts)?,
        }
        texts.end_row()?;
    }
    for leaf in &mut leaves {
        if leaf.peek()?.is_some() {
            return Err(malformed("more values than rows"));
        }
    }
    texts.flush()
}

/// Hands over which rows have a value.
fn validity(
    root: &FieldTree,
    pages: &Pages<'_>,
    rows: u64,
    put: &mut Put<'_>,
) -> Result<(), Fault> {
    let (mut leaf, mut out, mut found) = (pages.cursor(), Vec::new(), 0);
    while let Some((definition, repetition)) = leaf.peek()? {
        if repetition == 0 {
            out.push(u8::from(definition >= root.definition.into()));
            found += 1;
        }
        leaf.pass();
        if out.len() == 8192 {
            put(&out, &[])?;
            out.clear();
        }
    }
    if found != rows {
        return Err(malformed("another number of rows"));
    }
    put(&out, &[])
}

/// Returns the number of rows without a value.
pub(in crate::parquet) fn nulls(root: &FieldTree, pages: &Pages<'_>) -> Result<u64, Fault> {
    let (mut leaf, mut nulls) = (pages.cursor(), 0);
    while let Some((definition, repetition)) = leaf.peek()? {
        nulls += u64::from(repetition == 0 && definition < root.definition.into());
        leaf.pass();
    }
    Ok(nulls)
}

fn next(leaves: &mut [Cursor<'_>], leaf: usize) -> Result<(u32, u32), Fault> {
    // A struct without fields has no leaf.
    let leaf = leaves.get_mut(leaf).ok_or_else(|| malformed("a value without a leaf"))?;
    leaf.peek()?.ok_or_else(|| malformed("fewer values than rows"))
}

fn skip(node: &FieldTree, leaves: &mut [Cursor<'_>]) -> Result<(), Fault> {
    let leaves = leaves.get_mut(node.leaves.clone());
    let leaves = leaves.ok_or_else(|| malformed("a value without a leaf"))?;
    leaves.iter_mut().try_for_each(Cursor::skip)
}

/// Appends a value.
fn value(
    node: &FieldTree,
    leaves: &mut [Cursor<'_>],
    texts: &mut Texts<'_, '_>,
) -> Result<(), Fault> {
    let (definition, _) = next(leaves, node.leaves.start)?;
    if definition < node.definition.into() {
        texts.null()?;
        return skip(node, leaves);
    }
    match node.kind {
        Kind::Leaf(_) => leaves[node.leaves.start].write(texts),
        Kind::Struct => {
            for (index, child) in node.children.iter().enumerate() {
                texts.raw(if index == 0 { b"{" } else { b"," });
                texts.raw(&child.key);
                value(child, leaves, texts)?;
            }
            texts.raw(b"}");
            Ok(())
        }
        Kind::List => elements(node, leaves, texts, [b"[", b"]"]),
        Kind::Map if node.has_whole_text_keys() => elements(node, leaves, texts, [b"{", b"}"]),
        Kind::Map => elements(node, leaves, texts, [b"[", b"]"]),
    }
}

/// Appends the elements of a list or map between these brackets.
fn elements(
    node: &FieldTree,
    leaves: &mut [Cursor<'_>],
    texts: &mut Texts<'_, '_>,
    [open, close]: [&[u8]; 2],
) -> Result<(), Fault> {
    texts.raw(open);
    let first = node.leaves.start;
    if next(leaves, first)?.0 < node.elements.into() {
        skip(node, leaves)?;
        texts.raw(close);
        return Ok(());
    }
    let repetition = u32::from(node.repetition);
    loop {
        match &node.children[..] {
            [element] => value(element, leaves, texts)?,
            [key, of] => {
                let is_object = open == b"{";
                if !is_object {
                    texts.raw(b"[");
                }
                value(key, leaves, texts)?;
                texts.raw(if is_object { b":" } else { b"," });
                value(of, leaves, texts)?;
                if !is_object {
                    texts.raw(b"]");
                }
            }
            _ => return Err(malformed("a list of no elements")),
        }
        match leaves[first].peek()? {
            Some((_, level)) if level == repetition => texts.raw(b","),
            Some((_, level)) if level > repetition => {
                return Err(malformed("a list that goes on before it begins"));
            }
            _ => break,
        }
    }
    texts.raw(close);
    Ok(())
}
