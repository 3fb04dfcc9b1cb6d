//! A batch of one column while its buffers are read: those that must be known to place its rows.
//!
//! Thread rule: a plain value. Memory: the buffers that were asked for.

use std::{borrow::Cow, ops::Range};

use super::{
    array::{Array, Depth, Opening},
    batch::RecordBatch,
    layout::NodeAt,
    places::{Buffer, Compression, Place, Places, SIZE_BYTES, decoded_bytes, decompress},
    schema::Kind,
    tree::TypeNode,
};
use crate::Fault;

/// Most bytes of a batch's column that are read and decoded at once. Eight files are scanned at a
/// time.
const BYTES_MAX: u64 = 256 << 20;

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) rows: u64,
    pub(super) places: Places,
    /// By number. Of a buffer that is not needed, the first bytes.
    parts: Vec<Option<Vec<u8>>>,
    missing: usize,
}

impl Pending {
    /// Takes the nodes and buffers of a batch. Returns the nodes' counts of nulls too.
    pub(super) fn new(
        batch: &RecordBatch<'_>,
        nodes: &[NodeAt],
    ) -> Result<(Self, Vec<u64>), Fault> {
        let (mut places, mut nulls) = (Vec::<Place>::new(), Vec::new());
        for at in nodes {
            let expected = match at.parent {
                Some((parent, times)) => Some(places[parent].length.saturating_mul(times)),
                None if places.is_empty() => Some(batch.rows),
                None => None,
            };
            let node = batch.node(at.node, expected)?;
            let more = match at.kind {
                Kind::View(_) => batch.further(at.views),
                _ => 0,
            };
            let mut buffers = Vec::new();
            for index in 0..at.kind.buffers() + more {
                let range = batch.buffer(at.buffer + index, at.views, None, field(index))?;
                let is_needed = !range.is_empty() && (index > 0 || node.nulls > 0);
                let (at, stored) =
                    if is_needed { (range.start, range.end - range.start) } else { (0, 0) };
                buffers.push(Buffer { at, stored, decoded: stored });
            }
            nulls.push(if at.kind == Kind::Null { node.length } else { node.nulls });
            places.push(Place { length: node.length, buffers });
        }
        let places = Places { compression: batch.compression, nodes: places };
        let parts = places.buffers().map(|_| None).collect();
        Ok((Self { rows: batch.rows, places, parts, missing: 0 }, nulls))
    }

    /// Returns the ranges to read, with the numbers of their buffers: those that `is_needed` names
    /// by number, and by whether it says which values are there.
    pub(super) fn ask(
        &mut self,
        is_needed: impl Fn(usize, bool) -> bool,
    ) -> Result<Vec<(Range<u64>, usize)>, Fault> {
        let is_compressed = self.places.compression != Compression::None;
        let (mut asked, mut number, mut bytes) = (Vec::new(), 0, 0_u64);
        for node in &self.places.nodes {
            for (index, buffer) in node.buffers.iter().enumerate() {
                let is_validity = index == 0;
                let is_whole = is_needed(number, is_validity) || (is_compressed && is_validity);
                let length = match is_whole {
                    true => buffer.stored,
                    false if is_compressed => buffer.stored.min(SIZE_BYTES),
                    false => 0,
                };
                bytes = bytes.saturating_add(length);
                if length > 0 {
                    asked.push((buffer.at..buffer.at + length, number));
                }
                number += 1;
            }
        }
        if bytes > BYTES_MAX {
            return Err(too_large(bytes));
        }
        self.missing = asked.len();
        Ok(asked)
    }

    /// Takes a part. Returns whether it is the last.
    pub(super) fn take(&mut self, number: usize, bytes: &[u8]) -> bool {
        self.parts[number] = Some(bytes.to_vec());
        self.missing -= 1;
        self.missing == 0
    }

    /// Notes the sizes after decompression. Returns the range that holds all buffers. From now on
    /// their places count from its begin.
    pub(super) fn settle(&mut self) -> Result<Range<u64>, Fault> {
        let mut range: Option<Range<u64>> = None;
        let (compression, mut number) = (self.places.compression, 0);
        for node in &mut self.places.nodes {
            for buffer in &mut node.buffers {
                let head = self.parts[number].as_deref().unwrap_or(&[]);
                buffer.decoded = decoded_bytes(compression, buffer.stored, head)?;
                number += 1;
                let own = buffer.range();
                if !own.is_empty() {
                    let wider = |all: Range<u64>| all.start.min(own.start)..all.end.max(own.end);
                    range = Some(range.map_or(own.clone(), wider));
                }
            }
        }
        self.check_decoded()?;
        let range = range.unwrap_or(0..0);
        for node in &mut self.places.nodes {
            for buffer in node.buffers.iter_mut().filter(|buffer| buffer.stored > 0) {
                buffer.at -= range.start;
            }
        }
        Ok(range)
    }

    /// Checks that the buffers that were read may be decoded at once.
    fn check_decoded(&self) -> Result<(), Fault> {
        let is_whole = |part: &Option<Vec<u8>>, buffer: &Buffer| {
            part.as_ref().is_some_and(|part| part.len() as u64 == buffer.stored)
        };
        let read = self.places.buffers().zip(&self.parts);
        let read = read.filter(|(buffer, part)| is_whole(part, buffer));
        let bytes = read.map(|(buffer, _)| buffer.decoded).fold(0, u64::saturating_add);
        if bytes > BYTES_MAX { Err(too_large(bytes)) } else { Ok(()) }
    }

    /// Returns the memory that decompression of all buffers takes.
    pub(super) fn scratch_bytes(&self) -> u64 {
        let of = |buffer: &Buffer| buffer.scratch_bytes(self.places.compression);
        self.places.buffers().map(of).fold(0, u64::saturating_add)
    }

    /// Returns the batch, as far as its buffers were read.
    pub(super) fn open<'a>(
        &'a self,
        root: &'a TypeNode<'a>,
        depth: Depth,
    ) -> Result<Array<'a>, Fault> {
        let mut left = BYTES_MAX;
        let mut load = |number: usize, buffer: &Buffer| {
            let part = self.parts[number].as_deref().unwrap_or(&[]);
            match part.len() as u64 == buffer.stored {
                true => decompress(self.places.compression, buffer, part, &mut left),
                false => Ok(Cow::Borrowed(&[][..])),
            }
        };
        Opening::new(&self.places, &mut load).open(root, depth)
    }
}

fn too_large(bytes: u64) -> Fault {
    let why = format!("has {bytes} bytes where at most {BYTES_MAX} are decoded at once");
    Fault::new("list", format!("{why}: write smaller batches"))
}

fn field(buffer: usize) -> &'static str {
    match buffer {
        0 => "validity",
        1 => "offsets",
        _ => "values",
    }
}
