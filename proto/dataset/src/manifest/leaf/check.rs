//! Parses a leaf that may be hostile. Takes one pass over its objects, pieces and rows.

use std::sync::Arc;

use larder_base::limits;

use super::{Leaf, LeafParts, Piece, RowTable};
use crate::{
    manifest::{
        Layout, Manifest, ManifestError, RowLocator, Tensor,
        format::{
            EndRecord, LEAF_HAS_BLOCKS, LEAF_HAS_DIGESTS, LEAF_MAGIC, LeafHeader, PieceRecord,
            SpanRecord, VERSION, ValueRecord,
        },
        parse::{Result, check, malformed, text},
    },
    uri::check_path,
};

/// Most runs of rows of one shard: each takes 100 bytes in the plan of a fill.
const SHARD_RUNS_MAX: u64 = 1 << 17;

impl Leaf {
    /// Parses a leaf without comparing its hash, for the builder, which computes it next.
    pub(in crate::manifest) fn unnamed(
        root: &Manifest,
        number: u32,
        bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    ) -> Result<Self> {
        let view = (*bytes).as_ref();
        let header = check_frame(root, number, view)?;
        let tables = header.tables().expect("checked with the frame");
        let samples = usize::try_from(header.samples).expect("they have tables in memory");
        let (mut records, mut values, mut rank) = (tables.rows, tables.values, 0);
        let mut columns = Vec::with_capacity(root.tensors().len());
        for (index, tensor) in (0u64..).zip(root.tensors()) {
            let column = RowTable { records, values, rank };
            let end = |at: usize, count: usize, bytes| count.checked_mul(bytes)?.checked_add(at);
            let ends = end(records, samples, record_bytes(tensor))
                .filter(|end| *end <= tables.values)
                .and_then(|records| {
                    let last = inline_bytes(tensor, view, &column, samples)?;
                    let values = end(values, last, 1).filter(|end| *end <= tables.names)?;
                    Some((records, values))
                });
            let Some(ends) = ends else {
                return malformed("tensor", index, "has rows out of bounds of the leaf");
            };
            (records, values) = ends;
            rank += u32::from(tensor.layout != Layout::Inline);
            columns.push(column);
        }
        let full = records == tables.values && values == tables.names;
        check(full, "leaf", number, "has tables that do not fill it")?;
        let (snapshot, uri) = (root.snapshot(), root.uri().clone());
        let columns = columns.into();
        let inner = LeafParts { bytes, header, tables, number, snapshot, uri, columns };
        let leaf = Self { inner: Arc::new(inner) };
        (0..header.object_count).try_for_each(|object| leaf.check_object(object))?;
        leaf.check_order()?;
        leaf.shards().try_for_each(|shard| leaf.check_shard(root, shard))?;
        Ok(leaf)
    }

    fn check_object(&self, index: u32) -> Result<()> {
        let record = self.object_record(index);
        let names = self.names();
        // Each part must end where a character ends, so each is checked as text of its own.
        let mut at = record.names_at;
        let mut next = |bytes: u64| {
            let part = text(names, at, bytes, "object", index)?;
            at = at.saturating_add(bytes);
            Ok(part)
        };
        let key = next(record.key_bytes.into())?;
        check(check_path(key).is_ok(), "object", index, "has a key that is not a plain path")?;
        next(record.etag_bytes.into())?;
        next(record.version_bytes.into())?;
        Ok(())
    }

    /// Checks that the pieces are sorted, and lie in objects.
    fn check_order(&self) -> Result<()> {
        let mut before = None;
        for index in 0..self.inner.header.piece_count {
            let field = |holds, why| check(holds, "piece", index, why);
            let piece @ PieceRecord { shard, tensor, first_row, .. } = self.piece_record(index);
            field(shard < self.inner.header.shard_count, "is of a shard of another leaf")?;
            field((tensor as usize) < self.inner.columns.len(), "is of no tensor")?;
            let place = Some((shard, tensor, first_row));
            field(before < place, "is out of order")?;
            before = place;
            field(piece.object < self.object_count(), "lies in no object")?;
            let size = self.object_record(piece.object).size_bytes;
            field(piece.begin <= piece.end && piece.end <= size, "ends after its object")?;
        }
        Ok(())
    }

    /// Checks that every row of a shard has a place, and that its regions and samples have the
    /// sizes that the root says.
    fn check_shard(&self, root: &Manifest, shard: u32) -> Result<()> {
        let field = |holds, why| check(holds, "shard", shard, why);
        let rows = root.shard_record(shard).rows;
        let mut samples =
            vec![root.sample_sums().0; if has_ragged(root) { rows as usize } else { 0 }];
        let mut runs = 0u64;
        for (index, tensor) in root.tensors().iter().enumerate() {
            runs += match tensor.layout {
                Layout::Inline => 0,
                Layout::Column => self.check_column(root, shard, index)?,
                Layout::Spans => self.check_spans(root, shard, index)?,
                Layout::Blocks => self.check_blocks(root, shard, index)?,
            };
            if !tensor.is_ragged() {
                let pieces = self.pieces(shard, index);
                field(tensor.layout != Layout::Inline || pieces.is_empty(), "has pieces inline")?;
                continue;
            }
            self.check_lengths(root, shard, index, &mut samples)?;
        }
        let largest = samples.iter().max().is_none_or(|bytes| *bytes <= limits::SAMPLE_BYTES_MAX);
        field(largest, "has a sample that is larger than the limit")?;
        field(runs <= SHARD_RUNS_MAX, "has rows in too many places: put them side by side")
    }

    /// Checks the lengths of a ragged tensor's rows, and adds them to those of the samples.
    fn check_lengths(
        &self,
        root: &Manifest,
        shard: u32,
        index: usize,
        samples: &mut [u64],
    ) -> Result<()> {
        let field = |holds, why| check(holds, "shard", shard, why);
        let tensor = &root.tensors()[index];
        let (first, element) = (self.row_index(root, shard, 0), tensor.element_bytes());
        let inline = tensor.layout == Layout::Inline;
        let before = if inline { self.values_before(index, first) } else { 0 };
        let mut end = before;
        for (row, sample) in (first..).zip(samples) {
            let next = match tensor.layout {
                Layout::Inline => self.value_end(index, row),
                Layout::Blocks => self.row_end(index, row),
                Layout::Column | Layout::Spans => self.span(index, row).region_end,
            };
            let Some(bytes) = next.checked_sub(end).map(u64::from) else {
                return malformed("shard", shard, "has rows that end before they begin");
            };
            field(bytes.is_multiple_of(element), "has a row of no whole elements")?;
            let short = !inline || bytes <= limits::INLINE_ROW_BYTES_MAX;
            field(short, "has an inline row that is too long")?;
            *sample = sample.saturating_add(bytes);
            end = next;
        }
        let region = root.region(shard, index).bytes;
        field(u64::from(end - before) == region, "has another size than its rows")
    }

    /// Checks that the pieces of a tensor cover a shard's rows. Returns them.
    fn check_pieces(&self, root: &Manifest, shard: u32, tensor: usize) -> Result<Vec<Piece>> {
        let numbers = self.pieces(shard, tensor);
        let piece = |number| self.piece(root, shard, &numbers, number);
        let pieces: Vec<Piece> = numbers.clone().map(piece).collect();
        let whole = pieces.first().is_some_and(|piece| piece.rows.start == 0)
            && pieces.iter().all(|piece| !piece.rows.is_empty());
        check(whole, "shard", shard, "has rows in no object")?;
        Ok(pieces)
    }

    /// Checks the rows of a column. Returns the number of its pieces.
    fn check_column(&self, root: &Manifest, shard: u32, index: usize) -> Result<u64> {
        let field = |holds, why| check(holds, "shard", shard, why);
        let (tensor, pieces) = (&root.tensors()[index], self.check_pieces(root, shard, index)?);
        let RowLocator::Strided { row_bytes, stride_bytes } = tensor.locator else {
            return malformed("tensor", index as u64, "is a column of rows of different lengths");
        };
        field(pieces.len() == 1 || tensor.rows_touch(), "joins rows that do not lie side by side")?;
        for piece in &pieces {
            let end = u64::from(piece.rows.end - piece.rows.start - 1)
                .checked_mul(stride_bytes)
                .and_then(|bytes| bytes.checked_add(row_bytes)?.checked_add(piece.begin));
            field(end == Some(piece.end), "has a piece of another size than its rows")?;
        }
        Ok(pieces.len() as u64)
    }

    /// Checks the blocks of a tensor. Returns their number.
    fn check_blocks(&self, root: &Manifest, shard: u32, tensor: usize) -> Result<u64> {
        let field = |holds, why| check(holds, "shard", shard, why);
        let numbers = self.pieces(shard, tensor);
        for (number, piece) in numbers.zip(self.check_pieces(root, shard, tensor)?) {
            let Some(block) = self.parse_block(number) else {
                return malformed("piece", number, "is made in a way that is not known");
            };
            field(block.reads() || piece.begin == piece.end, "reads bytes that make no rows")?;
            let bytes = piece.end - piece.begin;
            field(bytes <= limits::SHARD_BYTES_MAX, "has a block that is larger than the limit")?;
        }
        Ok(self.pieces(shard, tensor).len() as u64)
    }

    /// Checks the spans of a tensor. Returns the number of runs that a fill reads them in.
    fn check_spans(&self, root: &Manifest, shard: u32, index: usize) -> Result<u64> {
        let field = |holds, why| check(holds, "shard", shard, why);
        let (tensor, first) = (&root.tensors()[index], self.row_index(root, shard, 0));
        let (mut runs, mut region_end) = (0, 0u32);
        for piece in self.check_pieces(root, shard, index)? {
            let mut run_end = None;
            for row in piece.rows.clone() {
                let span = self.span(index, first + row as usize);
                let Some(bytes) = span.region_end.checked_sub(region_end).map(u64::from) else {
                    return malformed("shard", shard, "has rows that end before they begin");
                };
                region_end = span.region_end;
                let even = tensor.is_ragged() || bytes == tensor.row_bytes();
                field(even, "has a row of another size than its shape")?;
                let begin = piece.begin + u64::from(span.at);
                field(begin + bytes <= piece.end, "has a row that ends after its object")?;
                let near = |end: u64| begin >= end && begin - end <= limits::READ_GAP_BYTES_MAX;
                runs += u64::from(!run_end.is_some_and(near));
                run_end = Some(begin + bytes);
            }
        }
        let region = root.region(shard, index).bytes;
        field(u64::from(region_end) == region, "has another size than its rows")?;
        Ok(runs)
    }
}

fn has_ragged(root: &Manifest) -> bool {
    root.tensors().iter().any(Tensor::is_ragged)
}

/// Returns the bytes of a tensor's record of one row.
pub(in crate::manifest) fn record_bytes(tensor: &Tensor) -> usize {
    match (tensor.layout, tensor.is_ragged()) {
        (Layout::Spans, _) => SpanRecord::BYTES,
        (Layout::Inline, true) => ValueRecord::BYTES,
        (Layout::Blocks, true) => EndRecord::BYTES,
        (Layout::Inline | Layout::Blocks, false) | (Layout::Column, _) => 0,
    }
}

/// Returns the bytes of a tensor's inline values. `None` if they overflow. Its records are in
/// bounds.
fn inline_bytes(tensor: &Tensor, leaf: &[u8], column: &RowTable, samples: usize) -> Option<usize> {
    match (tensor.layout, tensor.locator) {
        (Layout::Column | Layout::Spans | Layout::Blocks, _) => Some(0),
        (Layout::Inline, RowLocator::Strided { row_bytes, .. }) => {
            samples.checked_mul(usize::try_from(row_bytes).ok()?)
        }
        (Layout::Inline, RowLocator::Ragged) => {
            let last = samples.checked_sub(1)?;
            usize::try_from(ValueRecord::at(&leaf[column.records..], last).end).ok()
        }
    }
}

/// Checks the header, which must hold before any other part of the leaf is looked at.
fn check_frame(root: &Manifest, number: u32, bytes: &[u8]) -> Result<LeafHeader> {
    if bytes.len() < LeafHeader::BYTES || !bytes.starts_with(&LEAF_MAGIC) {
        return Err(ManifestError::NotAManifest);
    }
    let header = LeafHeader::at(bytes, 0);
    if header.version != VERSION {
        return Err(ManifestError::Version { found: header.version });
    }
    let field = |holds, why| check(holds, "leaf", number, why);
    let record = root.leaf_record(number);
    field(usize::try_from(header.header_bytes) == Ok(LeafHeader::BYTES), "has another header")?;
    let place = (header.first_shard, header.shard_count, header.first_sample);
    field(place == (record.first_shard, record.shards, record.first_sample), "is of other shards")?;
    let end = record.first_shard + record.shards;
    let end = match end < root.shard_count() {
        true => root.shard_record(end).first_sample,
        false => root.samples(),
    };
    field(header.samples == end - record.first_sample, "counts other samples than its shards")?;
    let known = LEAF_HAS_DIGESTS | LEAF_HAS_BLOCKS;
    field(header.flags & !known == 0, "has unknown flags")?;
    let has_blocks = root.tensors().iter().any(|tensor| tensor.layout == Layout::Blocks);
    let says_blocks = header.flags & LEAF_HAS_BLOCKS != 0;
    field(says_blocks == has_blocks, "has blocks where its tensors have none, or the reverse")?;
    let end = header.tables().map(|tables| tables.end);
    field(end == Some(bytes.len()), "has tables that do not fill it")?;
    field(bytes.len() as u64 == u64::from(record.file_bytes), "has another size than it has")?;
    Ok(header)
}
