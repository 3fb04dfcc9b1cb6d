//! Windows over documents: rows of one length over the values of a ragged column, read across its
//! rows in their order.
//!
//! A file is one *stream*: the values of its documents, with an element after each of them if the
//! user wants that. Row `r` is the stream's elements from `r * stride` on. [`WindowsBuilder`] takes
//! the file's stretches in their order, each one range of the file. It returns a block for each
//! stretch in which a window ends. The block's recipe has the *carry*: the elements before its
//! stretch that its first window begins with. So each block is made from one range.
//!
//! ```text
//! stream    |---- stretch 0 ----|---- stretch 1 ----|
//! windows   [  0  ][  1  ][  2  ][  3  ][  4  ]         2 ends in stretch 1, and is made there
//! carry                   [-----]
//!
//! shared recipe: kind, bytes of an element and of a stride, element between documents or none
//! own recipe:    bytes to skip, carry, source
//! source:        0, and if there is an element between documents, the bytes of each
//!                1, number of documents, block (16 bytes), its shared recipe, its own recipe
//! ```
//!
//! Thread rule: plain values. Memory: some windows and a piece of the stretch. Non-goals: reading.

use std::ops::Range;

use crate::{
    Block, Fault, PlacedBlock, Recipes, RowsWanted,
    block::{Aspect, Fields, Put, RecipeBlock, malformed, put_bytes, put_integer},
};

/// The kind of recipe that these are.
pub(crate) const WINDOWS: u64 = 1;

/// Bytes of stored elements that are taken at once.
const PIECE_BYTES: usize = 64 << 10;

/// The windows to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    /// Bytes of an element.
    pub element_bytes: u64,
    /// Elements of a window.
    pub window: u64,
    /// Elements from the beginning of one window to that of the next.
    pub stride: u64,
    /// The element after each document, little-endian. Empty for none.
    pub between: Vec<u8>,
}

/// A stretch of documents that lies in one range of a file.
#[derive(Debug, Clone)]
pub struct Stretch<'a> {
    /// The range.
    pub range: Range<u64>,
    /// The bytes of each document.
    pub lengths: &'a [u32],
    /// The block that makes the documents, with the recipes it refers to. `None` if they lie in the
    /// range as they are.
    pub block: Option<(Block, &'a Recipes)>,
    /// The last bytes of the documents, as many as [`WindowsBuilder::tail_bytes`] or all.
    pub tail: Vec<u8>,
}

/// The windows of one file while its stretches come.
#[derive(Debug)]
pub struct WindowsBuilder<'a> {
    windows: &'a Windows,
    recipes: Recipes,
    shared: u32,
    blocks: Vec<PlacedBlock>,
    /// Bytes of the stream so far.
    at: u64,
    /// The beginning of the next window, in bytes of the stream.
    next: u64,
    /// The bytes of the stream from `next` on.
    carry: Vec<u8>,
}

impl Windows {
    fn window_bytes(&self) -> u64 {
        self.window * self.element_bytes
    }

    fn stride_bytes(&self) -> u64 {
        self.stride * self.element_bytes
    }

    /// Returns the bytes of a stream of these documents.
    pub fn stream_bytes(&self, lengths: &[u32]) -> u64 {
        let between = self.between.len() as u64;
        lengths.iter().map(|&length| u64::from(length) + between).sum()
    }
}

impl<'a> WindowsBuilder<'a> {
    /// Begins a file.
    ///
    /// # Errors
    /// None for a new file; as [`push`](Self::push).
    pub fn new(windows: &'a Windows) -> Result<Self, Fault> {
        let mut recipe = Vec::new();
        for number in [WINDOWS, windows.element_bytes, windows.stride_bytes()] {
            put_integer(number, &mut recipe);
        }
        put_bytes(&windows.between, &mut recipe);
        let mut recipes = Recipes::default();
        let shared = recipes.put(&recipe)?;
        let (blocks, carry) = (Vec::new(), Vec::new());
        Ok(Self { windows, recipes, shared, blocks, at: 0, next: 0, carry })
    }

    /// Returns how many of the last bytes of a stretch the next one may begin with.
    pub fn tail_bytes(&self) -> u64 {
        self.windows.window_bytes() - self.windows.element_bytes
    }

    /// Adds the next stretch. Its lengths are whole elements.
    ///
    /// # Errors
    /// If there are more rows, bytes or recipes than a block may have.
    pub fn push(&mut self, stretch: &Stretch<'_>) -> Result<(), Fault> {
        let windows = self.windows;
        let (window, stride) = (windows.window_bytes(), windows.stride_bytes());
        let end = self.at + windows.stream_bytes(stretch.lengths);
        let rows = match end.checked_sub(self.next.saturating_add(window)) {
            Some(more) => more / stride + 1,
            None => 0,
        };
        if rows > 0 {
            let block = self.block(stretch)?;
            let rows = u32::try_from(rows).map_err(|_| too_many(rows))?;
            self.blocks.push(PlacedBlock { range: stretch.range.clone(), rows, block });
        }
        self.next += rows * stride;
        let mut tail = windows.woven_tail(stretch, self.tail_bytes());
        if self.next < self.at {
            // The stretch is short: the next window still begins before it.
            let kept = self.carry.split_off(self.carry.len() - usize_of(self.at - self.next));
            self.carry = kept;
            self.carry.append(&mut tail);
        } else {
            let kept = usize_of(end.saturating_sub(self.next)).min(tail.len());
            self.carry = tail.split_off(tail.len() - kept);
        }
        self.at = end;
        Ok(())
    }

    /// Returns the number of windows, their blocks and the blocks' recipes.
    pub fn finish(self) -> (u64, Vec<PlacedBlock>, Recipes) {
        let rows = self.blocks.iter().map(|block| u64::from(block.rows)).sum();
        (rows, self.blocks, self.recipes)
    }

    fn block(&mut self, stretch: &Stretch<'_>) -> Result<Block, Fault> {
        let mut own = Vec::new();
        put_integer(self.next.saturating_sub(self.at), &mut own);
        put_bytes(&self.carry, &mut own);
        let scratch = match stretch.block {
            None => {
                put_integer(0, &mut own);
                if !self.windows.between.is_empty() {
                    stretch.lengths.iter().for_each(|&bytes| put_integer(bytes.into(), &mut own));
                }
                0
            }
            Some((block, recipes)) => {
                put_integer(1, &mut own);
                put_integer(stretch.lengths.len() as u64, &mut own);
                own.extend_from_slice(&block.without_places().to_bytes());
                let none: [&[u8]; 2] = [&[], &[]];
                for recipe in block.recipes(recipes.as_bytes()).unwrap_or(none) {
                    put_bytes(recipe, &mut own);
                }
                // Documents may wait for their lengths.
                let waiting =
                    if self.windows.between.is_empty() { 0 } else { block.scratch_bytes() };
                block.scratch_bytes().saturating_add(waiting)
            }
        };
        let decoded = scratch.saturating_add(2 * self.windows.window_bytes());
        let decoded_bytes = u32::try_from(decoded).map_err(|_| too_many(decoded))?;
        let (aspect, shared) = (Aspect::Values, self.shared);
        let own = self.recipes.put(&own)?;
        Ok(Block::Recipe(RecipeBlock { aspect, shared, own, decoded_bytes }))
    }
}

impl Windows {
    /// Returns the last bytes of a stretch's stream, at most so many.
    fn woven_tail(&self, stretch: &Stretch<'_>, most: u64) -> Vec<u8> {
        let (most, between) = (usize_of(most), &self.between);
        let (mut pieces, mut bytes, mut left) = (Vec::new(), 0, &stretch.tail[..]);
        for &length in stretch.lengths.iter().rev() {
            if bytes >= most {
                break;
            }
            let (before, document) = left.split_at(left.len().saturating_sub(length as usize));
            left = before;
            bytes += document.len() + between.len();
            pieces.extend([&between[..], document]);
        }
        let woven: Vec<u8> = pieces.into_iter().rev().flatten().copied().collect();
        woven[woven.len().saturating_sub(most)..].to_vec()
    }
}

fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).expect("windows and stretches are in memory")
}

fn too_many(count: u64) -> Fault {
    Fault::new("windows", format!("are or take {count}: at most {} fit one block", u32::MAX))
}

/// Makes the windows of a block.
pub(crate) fn make(
    block: &RecipeBlock,
    mut shared: Fields<'_>,
    own: &[u8],
    wanted: RowsWanted,
    stored: &[u8],
    put: &mut Put<'_>,
) -> Result<(), Fault> {
    let (element, stride) = (shared.integer()?, shared.integer()?);
    let between = shared.bytes()?;
    shared.finish()?;
    let window = wanted.row_bytes.ok_or_else(|| malformed("makes rows of one length"))?;
    let is_element = between.is_empty() || between.len() as u64 == element;
    if element != wanted.scalar_bytes || window == 0 || stride == 0 || !is_element {
        return Err(malformed("has windows of another size than the rows"));
    }
    if 2 * window > block.decoded_bytes.into() {
        return Err(malformed("takes more memory than it says"));
    }
    let mut own = Fields::new(own);
    let skip = own.integer()?;
    let pending = own.bytes()?.to_vec();
    let mut cutter = Cutter { window, stride, skip, pending, at: 0, left: wanted.rows, put };
    match own.integer()? {
        0 if between.is_empty() => {
            own.finish()?;
            stored.chunks(PIECE_BYTES).try_for_each(|piece| cutter.take(piece))?;
        }
        0 => {
            let mut rest = stored;
            while !rest.is_empty() || !own.is_finished() {
                let cut = rest.split_at_checked(own.small()?);
                let (document, behind) = cut.ok_or_else(|| malformed("has longer documents"))?;
                document.chunks(PIECE_BYTES).try_for_each(|piece| cutter.take(piece))?;
                cutter.take(between)?;
                rest = behind;
            }
        }
        1 => {
            let rows = own.integer()?;
            let (block, recipes) = inner(&mut own, block)?;
            let wanted = RowsWanted { rows, row_bytes: None, scalar_bytes: element };
            let mut weaver = Weaver { cutter: &mut cutter, between, open: Vec::new() };
            let mut weave = |bytes: &[u8], lengths: &[u32]| weaver.take(bytes, lengths);
            block.make(wanted, stored, recipes.as_bytes(), &mut weave)?;
        }
        _ => return Err(malformed("has an unknown source")),
    }
    match cutter.left {
        0 => Ok(()),
        left => Err(Fault::new("documents", format!("end {left} windows too early"))),
    }
}

/// Reads the block that makes the documents. It may not be one of windows.
fn inner(own: &mut Fields<'_>, outer: &RecipeBlock) -> Result<(Block, Recipes), Fault> {
    let bytes = own.array()?;
    let (shared, own_recipe) = (own.bytes()?, own.bytes()?);
    (*own).finish()?;
    let mut recipes = Recipes::default();
    // Equal recipes have one place, and the place of the first is 0.
    let places = (recipes.put(shared)?, recipes.put(own_recipe)?);
    let block = Block::from_bytes(bytes, recipes.as_bytes());
    let block = match block.ok_or_else(|| malformed("has no block of documents"))? {
        Block::Recipe(inner) if Fields::new(shared).integer()? != WINDOWS => {
            Block::Recipe(RecipeBlock { shared: places.0, own: places.1, ..inner })
        }
        Block::Recipe(_) => return Err(malformed("has windows over windows")),
        other => other,
    };
    if block.scratch_bytes() > outer.decoded_bytes.into() {
        return Err(malformed("takes more memory than it says"));
    }
    Ok((block, recipes))
}

/// Cuts a stream into windows.
struct Cutter<'a, 'b> {
    window: u64,
    stride: u64,
    /// Bytes of the stream before the next window.
    skip: u64,
    /// The stream from some place on.
    pending: Vec<u8>,
    /// The beginning of the next window in `pending`.
    at: usize,
    /// Windows to make.
    left: u64,
    put: &'a mut Put<'b>,
}

impl Cutter<'_, '_> {
    fn take(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let skipped = bytes.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
        self.skip -= skipped as u64;
        if self.left == 0 {
            return Ok(());
        }
        self.pending.extend_from_slice(&bytes[skipped..]);
        let (window, stride) = (usize_of(self.window), self.stride);
        while self.left > 0 && self.pending.len() - self.at >= window {
            (self.put)(&self.pending[self.at..self.at + window], &[])?;
            self.left -= 1;
            let rest = (self.pending.len() - self.at) as u64;
            self.at += usize_of(stride.min(rest));
            self.skip = stride.saturating_sub(rest);
        }
        self.pending.drain(..self.at);
        self.at = 0;
        Ok(())
    }
}

/// Puts an element after each document.
struct Weaver<'a, 'b, 'c> {
    cutter: &'a mut Cutter<'b, 'c>,
    between: &'a [u8],
    /// The bytes of documents whose lengths did not come yet.
    open: Vec<u8>,
}

impl Weaver<'_, '_, '_> {
    fn take(&mut self, bytes: &[u8], lengths: &[u32]) -> Result<(), Fault> {
        if self.between.is_empty() {
            return self.cutter.take(bytes);
        }
        self.open.extend_from_slice(bytes);
        let mut rest = &self.open[..];
        for &length in lengths {
            let cut = rest.split_at_checked(length as usize);
            let (document, behind) = cut.ok_or_else(|| malformed("has longer documents"))?;
            self.cutter.take(document)?;
            self.cutter.take(self.between)?;
            rest = behind;
        }
        let taken = self.open.len() - rest.len();
        self.open.drain(..taken);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
