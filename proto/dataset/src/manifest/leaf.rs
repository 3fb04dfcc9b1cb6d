//! A leaf: the details of some consecutive shards. Which objects hold their rows, and where.
//!
//! Lookups take the root that the leaf was parsed with, since the root knows tensors and shards.
//!
//! Thread rule: immutable after parsing, a clone is one reference count. Non-goals: keeping leaves
//! in memory, which nodes and clients do by rules of their own.

mod check;

use std::{collections::BTreeMap, fmt, sync::Arc};

use larder_base::{RowRef, SnapshotId};
use larder_formats::Block;

use super::{
    Layout, Manifest, ManifestError, RowLocator,
    format::{
        DIGEST_BYTES, EndRecord, LEAF_HAS_DIGESTS, LeafHeader, LeafTables, ObjectRecord,
        PieceRecord, SpanRecord, ValueRecord,
    },
};
use crate::OriginUri;

/// The details of some consecutive shards. Cheap to clone.
#[derive(Clone)]
pub struct Leaf {
    inner: Arc<LeafParts>,
}

struct LeafParts {
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    header: LeafHeader,
    tables: LeafTables,
    number: u32,
    snapshot: SnapshotId,
    uri: OriginUri,
    columns: Box<[RowTable]>,
}

/// The places of a tensor's rows in the leaf's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowTable {
    /// Where its records begin, one for each row. Of rows of one length, only `Spans` has records.
    records: usize,
    /// Where its values begin, if they are inline.
    values: usize,
    /// The number of tensors with pieces before it.
    rank: u32,
}

/// An object of the origin that holds samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its key, relative to the address of the dataset.
    pub key: &'a str,
    /// The etag it had when it was indexed.
    pub etag: Option<&'a str>,
    /// Its version, if the store keeps versions and lets them be read.
    pub version: Option<&'a str>,
    /// Its size in bytes.
    pub size_bytes: u64,
}

impl Leaf {
    /// Parses leaf `number` of this root, in place. Compares it with the SHA-256 that the root
    /// names, and checks every number in it.
    ///
    /// # Errors
    /// If these are other bytes, or break a rule of the format.
    ///
    /// # Panics
    /// If there is no such leaf.
    pub fn over(
        root: &Manifest,
        number: u32,
        bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    ) -> Result<Self, ManifestError> {
        if super::format::sha256((*bytes).as_ref()) != root.leaf_sha256(number) {
            return Err(ManifestError::Damaged);
        }
        Self::unnamed(root, number, bytes)
    }

    /// Returns its number in the root.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Returns whether it was parsed with this root.
    pub fn is_of(&self, root: &Manifest) -> bool {
        self.inner.snapshot == root.snapshot()
    }

    /// Returns the leaf as it is stored on the origin.
    pub fn as_bytes(&self) -> &[u8] {
        (*self.inner.bytes).as_ref()
    }

    /// Returns the numbers of its shards.
    pub fn shards(&self) -> std::ops::Range<u32> {
        let LeafHeader { first_shard, shard_count, .. } = self.inner.header;
        first_shard..first_shard + shard_count
    }

    /// Returns the number of its objects. Another leaf may list some of them too.
    pub fn object_count(&self) -> u32 {
        self.inner.header.object_count
    }

    /// Returns an object that holds rows of its shards.
    ///
    /// # Panics
    /// If there is no such object.
    pub fn object(&self, object: u32) -> Object<'_> {
        let record = self.object_record(object);
        let at = usize::try_from(record.names_at).expect("checked when the leaf was parsed");
        let names = &self.names()[at..];
        let (key, rest) = names.split_at(record.key_bytes as usize);
        let (etag, rest) = rest.split_at(record.etag_bytes.into());
        let version = &rest[..record.version_bytes.into()];
        let text = |bytes| std::str::from_utf8(bytes).expect("checked when the leaf was parsed");
        let given = |bytes: &'_ [u8]| !bytes.is_empty();
        Object {
            key: text(key),
            etag: given(etag).then(|| text(etag)),
            version: given(version).then(|| text(version)),
            size_bytes: record.size_bytes,
        }
    }

    /// Returns the address of an object.
    ///
    /// # Panics
    /// If there is no such object.
    pub fn object_uri(&self, object: u32) -> OriginUri {
        let key = self.object(object).key;
        self.inner.uri.join(key).expect("keys are checked when the leaf is parsed")
    }

    /// Returns the SHA-256 of a shard's bytes, if the index read the data.
    ///
    /// # Panics
    /// If the leaf does not have this shard.
    pub fn shard_sha256(&self, shard: u32) -> Option<[u8; DIGEST_BYTES]> {
        let LeafParts { header, tables, .. } = &*self.inner;
        (header.flags & LEAF_HAS_DIGESTS != 0).then(|| {
            let at = tables.digests + self.place_of(shard) as usize * DIGEST_BYTES;
            *self.as_bytes()[at..].first_chunk().expect("checked when the leaf was parsed")
        })
    }

    /// Returns the rows that each object has of its shards: of one of the tensors.
    pub(super) fn object_rows(&self, root: &Manifest) -> Vec<(u32, u64)> {
        let mut rows = vec![BTreeMap::new(); self.object_count() as usize];
        for shard in self.shards() {
            for tensor in 0..root.tensors().len() {
                let numbers = self.pieces(shard, tensor);
                for number in numbers.clone() {
                    let piece = self.piece(root, shard, &numbers, number);
                    *rows[piece.object as usize].entry(tensor).or_default() +=
                        u64::from(piece.rows.end - piece.rows.start);
                }
            }
        }
        let most = |of_object: BTreeMap<usize, u64>| of_object.into_values().max().unwrap_or(0);
        (0..).zip(rows.into_iter().map(most)).collect()
    }

    /// Returns the number of a shard, counted in the leaf.
    pub(super) fn place_of(&self, shard: u32) -> u32 {
        assert!(self.shards().contains(&shard), "shard {shard} of a leaf of {:?}", self.shards());
        shard - self.inner.header.first_shard
    }

    fn names(&self) -> &[u8] {
        let tables = &self.inner.tables;
        &self.as_bytes()[tables.names..tables.recipes]
    }

    fn object_record(&self, object: u32) -> ObjectRecord {
        let tables = &self.inner.tables;
        ObjectRecord::at(&self.as_bytes()[tables.objects..tables.pieces], object as usize)
    }

    fn piece_record(&self, piece: u32) -> PieceRecord {
        let tables = &self.inner.tables;
        PieceRecord::at(&self.as_bytes()[tables.pieces..tables.blocks], piece as usize)
    }

    /// Returns the recipes that its blocks refer to.
    pub(super) fn recipes(&self) -> &[u8] {
        let tables = &self.inner.tables;
        &self.as_bytes()[tables.recipes..tables.end]
    }

    /// Returns how the rows of a piece are made. `None` if the bytes say nothing that is known.
    fn parse_block(&self, piece: u32) -> Option<Block> {
        let tables = &self.inner.tables;
        let blocks = &self.as_bytes()[tables.blocks..tables.rows];
        let block = *blocks[piece as usize * Block::BYTES..].first_chunk()?;
        Block::from_bytes(block, self.recipes())
    }

    /// Returns how the rows of a piece of a tensor of [`Layout::Blocks`] are made.
    pub(super) fn block(&self, piece: u32) -> Block {
        self.parse_block(piece).expect("checked when the leaf was parsed")
    }

    /// Returns the number of a shard's row among the rows of the leaf.
    fn row_index(&self, root: &Manifest, shard: u32, row: u32) -> usize {
        debug_assert!(self.is_of(root), "a leaf of another snapshot");
        let first = root.shard_record(shard).first_sample - self.inner.header.first_sample;
        usize::try_from(first + u64::from(row)).expect("the leaf is in memory")
    }

    fn span(&self, tensor: usize, index: usize) -> SpanRecord {
        SpanRecord::at(&self.as_bytes()[self.inner.columns[tensor].records..], index)
    }

    /// Returns the end of the `index`-th row, in the region of its shard, of a ragged tensor of
    /// [`Layout::Blocks`].
    fn row_end(&self, tensor: usize, index: usize) -> u32 {
        EndRecord::at(&self.as_bytes()[self.inner.columns[tensor].records..], index).region_end
    }

    /// Returns the end of the `index`-th row among the inline values of a ragged tensor.
    fn value_end(&self, tensor: usize, index: usize) -> u32 {
        ValueRecord::at(&self.as_bytes()[self.inner.columns[tensor].records..], index).end
    }

    /// Returns the bytes of a ragged row's region up to its begin. For the row after the last, the
    /// end of the region.
    pub(super) fn ragged_begin(&self, root: &Manifest, shard: u32, row: u32, tensor: usize) -> u64 {
        let Some(before) = row.checked_sub(1) else {
            return 0;
        };
        let index = self.row_index(root, shard, before);
        u64::from(match root.tensors()[tensor].layout {
            Layout::Column | Layout::Spans => self.span(tensor, index).region_end,
            Layout::Blocks => self.row_end(tensor, index),
            Layout::Inline => {
                let first = self.row_index(root, shard, 0);
                self.value_end(tensor, index) - self.values_before(tensor, first)
            }
        })
    }

    /// Returns the bytes of a ragged tensor's inline values before the `index`-th row.
    fn values_before(&self, tensor: usize, index: usize) -> u32 {
        index.checked_sub(1).map_or(0, |before| self.value_end(tensor, before))
    }

    /// Returns the inline values of some rows of a shard, back to back.
    pub(super) fn values(
        &self,
        root: &Manifest,
        shard: u32,
        rows: std::ops::Range<u32>,
        tensor: usize,
    ) -> &[u8] {
        let at = |row| -> usize {
            let index = self.row_index(root, shard, row);
            match root.tensors()[tensor].locator {
                RowLocator::Strided { row_bytes, .. } => {
                    index * usize::try_from(row_bytes).expect("checked when the leaf was parsed")
                }
                RowLocator::Ragged => self.values_before(tensor, index) as usize,
            }
        };
        let begin = self.inner.columns[tensor].values;
        &self.as_bytes()[begin + at(rows.start)..begin + at(rows.end)]
    }

    /// Returns the pieces that hold a tensor's rows of a shard: their numbers.
    pub(super) fn pieces(&self, shard: u32, tensor: usize) -> std::ops::Range<u32> {
        let wanted = (self.place_of(shard), tensor as u64);
        let key = |piece| {
            let record = self.piece_record(piece);
            (record.shard, u64::from(record.tensor))
        };
        let count = self.inner.header.piece_count;
        // Where each tensor of each shard has one piece, or as many as every other.
        let each = count / self.inner.header.shard_count;
        let guess = wanted.0.saturating_mul(each).saturating_add(self.inner.columns[tensor].rank);
        let begins = |piece| piece < count && key(piece) == wanted;
        if begins(guess)
            && (guess == 0 || key(guess - 1) < wanted)
            && (guess + 1 == count || key(guess + 1) > wanted)
        {
            return guess..guess + 1;
        }
        first_where(0..count, |piece| key(piece) >= wanted)..first_where(0..count, |piece| {
            key(piece) > wanted
        })
    }

    /// Returns a piece, and its rows. `pieces` are those of the tensor in the shard.
    pub(super) fn piece(
        &self,
        root: &Manifest,
        shard: u32,
        pieces: &std::ops::Range<u32>,
        piece: u32,
    ) -> Piece {
        let record = self.piece_record(piece);
        let end = match piece + 1 < pieces.end {
            true => self.piece_record(piece + 1).first_row,
            false => root.shard_record(shard).rows,
        };
        Piece {
            object: record.object,
            begin: record.begin,
            end: record.end,
            rows: record.first_row..end,
        }
    }

    /// Returns the piece that holds a row of a tensor.
    pub(super) fn piece_of(&self, root: &Manifest, row: RowRef, tensor: usize) -> Piece {
        let (pieces, piece) = self.piece_number(row, tensor);
        self.piece(root, row.shard, &pieces, piece)
    }

    /// Returns the numbers of a tensor's pieces in a shard, and that of the piece with a row.
    pub(super) fn piece_number(
        &self,
        RowRef { shard, row }: RowRef,
        tensor: usize,
    ) -> (std::ops::Range<u32>, u32) {
        let pieces = self.pieces(shard, tensor);
        let after = first_where(pieces.clone(), |piece| self.piece_record(piece).first_row > row);
        (pieces, after - 1)
    }

    /// Returns the range of a row of a tensor of [`Layout::Spans`] in its object.
    pub(super) fn span_range(
        &self,
        root: &Manifest,
        RowRef { shard, row }: RowRef,
        tensor: usize,
        piece: &Piece,
    ) -> std::ops::Range<u64> {
        let index = self.row_index(root, shard, row);
        let span = self.span(tensor, index);
        let before = match row.checked_sub(1) {
            None => 0,
            Some(_) => self.span(tensor, index - 1).region_end,
        };
        let begin = piece.begin + u64::from(span.at);
        begin..begin + u64::from(span.region_end - before)
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf")
            .field("number", &self.number())
            .field("shards", &self.shards())
            .finish_non_exhaustive()
    }
}

/// A stretch of one object that holds some rows of one tensor of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) object: u32,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Counted in the shard.
    pub(super) rows: std::ops::Range<u32>,
}

/// Finds by bisection the first number from which on `holds` is true; the end if it is true for
/// none.
pub(super) fn first_where(numbers: std::ops::Range<u32>, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (numbers.start, numbers.end);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
