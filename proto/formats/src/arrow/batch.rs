//! One record batch: its rows, nodes and buffers, each checked as a column asks for it.
//!
//! Each constant is the number of a field in the format's `Message.fbs`.
//!
//! Thread rule: plain values over borrowed bytes. Non-goals: bytes of the body.

use std::ops::Range;

use super::{flat::FlatTable, layout::Counts, message::unsigned, places::Compression};
use crate::Fault;

mod in_batch {
    pub(super) const LENGTH: usize = 0;
    pub(super) const NODES: usize = 1;
    pub(super) const BUFFERS: usize = 2;
    pub(super) const COMPRESSION: usize = 3;
    pub(super) const VIEWS: usize = 4;
}

/// Nodes (length, nulls) and buffers (offset, length) are both pairs of signed 64-bit numbers.
const PAIR_BYTES: usize = 16;

pub(super) struct RecordBatch<'a> {
    pub(super) rows: u64,
    pub(super) compression: Compression,
    nodes: &'a [u8],
    buffers: &'a [u8],
    /// The further buffers before each field that has some, and before the end.
    views: Vec<usize>,
    body: Range<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct FieldNode {
    pub(super) length: u64,
    pub(super) nulls: u64,
}

impl<'a> RecordBatch<'a> {
    /// Reads a batch of a schema with `counts` nodes and buffers. `body` is its range in the file.
    pub(super) fn parse(
        table: FlatTable<'a>,
        counts: Counts,
        body: Range<u64>,
    ) -> Result<Self, Fault> {
        let compression = match table.table(in_batch::COMPRESSION)? {
            None => Compression::None,
            Some(compression) => match compression.u8(0)? {
                0 => Compression::Lz4,
                1 => Compression::Zstd,
                other => {
                    let why = format!("is compressed with the unknown codec {other}");
                    return Err(Fault::new("body", why));
                }
            },
        };
        let rows = unsigned(table.i64(in_batch::LENGTH)?, "length")?;
        let nodes = table.vector(in_batch::NODES, PAIR_BYTES)?;
        let buffers = table.vector(in_batch::BUFFERS, PAIR_BYTES)?;
        let views = views(table, counts.views)?;
        let further = views.last().copied().unwrap_or(0);
        at_least(nodes.len() / PAIR_BYTES, counts.nodes, "nodes")?;
        at_least(buffers.len() / PAIR_BYTES, counts.buffers.saturating_add(further), "buffers")?;
        Ok(Self { rows, compression, nodes, buffers, views, body })
    }

    /// Returns a node, which must have `length` entries if that is known.
    pub(super) fn node(&self, index: usize, length: Option<u64>) -> Result<FieldNode, Fault> {
        let (found, nulls) = pair(self.nodes, index);
        let node =
            FieldNode { length: unsigned(found, "length")?, nulls: unsigned(nulls, "nulls")? };
        if length.is_some_and(|length| length != node.length) {
            let why = format!("is {found} where the batch needs {}", length.unwrap_or(0));
            return Err(Fault::new("length", why));
        }
        if node.nulls > node.length {
            return Err(Fault::new("nulls", format!("are {nulls} of {found} values")));
        }
        Ok(node)
    }

    /// Returns the range of a buffer in the file, which must have `bytes` bytes. `views` is the
    /// number of fields with further buffers before it.
    pub(super) fn buffer(
        &self,
        index: usize,
        views: usize,
        bytes: Option<u64>,
        field: &str,
    ) -> Result<Range<u64>, Fault> {
        let (offset, length) = pair(self.buffers, index + self.views[views]);
        let (offset, length) = (unsigned(offset, field)?, unsigned(length, field)?);
        if let Some(bytes) = bytes.filter(|bytes| *bytes > length) {
            let why = format!("have {length} bytes where the rows need {bytes}");
            return Err(Fault::new(field, why));
        }
        let begin = self.body.start.checked_add(offset);
        let end = begin.and_then(|begin| begin.checked_add(length));
        match (begin, end) {
            (Some(begin), Some(end)) if end <= self.body.end => Ok(begin..end),
            _ => {
                let body = self.body.end - self.body.start;
                let why = format!("at {offset} with {length} bytes leave the body of {body}");
                Err(Fault::new(field, why))
            }
        }
    }
}

impl RecordBatch<'_> {
    /// Returns the number of further buffers of the field with so many views before it.
    pub(super) fn further(&self, views: usize) -> usize {
        self.views[views + 1] - self.views[views]
    }
}

fn views(table: FlatTable<'_>, count: usize) -> Result<Vec<usize>, Fault> {
    let counts = table.vector(in_batch::VIEWS, 8)?;
    at_least(counts.len() / 8, count, "counts of further buffers")?;
    let mut before = vec![0];
    for bytes in counts.chunks_exact(8).take(count) {
        let further = i64::from_le_bytes(bytes.try_into().expect("a chunk has 8 bytes"));
        let further = usize::try_from(unsigned(further, "count of further buffers")?);
        let last = before[before.len() - 1];
        before.push(further.unwrap_or(usize::MAX).saturating_add(last));
    }
    Ok(before)
}

fn at_least(count: usize, needed: usize, what: &str) -> Result<(), Fault> {
    if count < needed {
        return Err(Fault::new(what, format!("are {count} where the schema needs {needed}")));
    }
    Ok(())
}

fn pair(pairs: &[u8], index: usize) -> (i64, i64) {
    let bytes = &pairs[index * PAIR_BYTES..][..PAIR_BYTES];
    let (first, second) = bytes.split_at(8);
    let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("half of a pair"));
    (number(first), number(second))
}
