//! Windows over documents: samples of one length over a ragged column of integers, read across its
//! rows and never across the end of a file.
//!
//! The documents are planned first, as a dataset of their own. Then each stretch of them is read
//! for its last elements, which the next windows may begin with. Stretches that must be decoded are
//! read whole. The column `__segments__` has the places in each window where documents begin.

use std::ops::Range;

use larder_base::limits;
use larder_formats::{
    Blocks, Inline, Logical, PlacedBlock, Recipes, Rows, RowsWanted, Spans, Stretch, Windows,
    WindowsBuilder,
};

use super::{
    IndexProgress, LeftOut, Progress, group::IndexPlan, headers::FileFault, none_usable, shown,
};
use crate::{
    ColumnSpec, DatasetError, Dtype, GroupSpec, Layout, ObjectSpec, Origin, OriginUri, RowLocator,
    TensorSpec, origin::Target,
};

/// The name of the column with the places where documents begin.
const SEGMENTS: &str = "__segments__";
/// Bytes of a stretch of documents that lie in a file as they are.
const STRETCH_BYTES: u64 = 16 << 20;

/// How documents become samples: each sample is a window over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowSpec {
    /// The ragged column of integers.
    pub column: String,
    /// Elements of a window.
    pub window: u64,
    /// Elements from the beginning of one window to that of the next.
    pub stride: u64,
    /// The element after each document.
    pub between: Option<i64>,
}

/// Plans the windows over the documents of a plan.
pub(super) async fn plan(
    origin: &Origin,
    uri: &OriginUri,
    documents: IndexPlan,
    spec: &WindowSpec,
    left_out: &mut Vec<LeftOut>,
    progress: Progress<'_>,
) -> Result<IndexPlan, DatasetError> {
    let IndexPlan { tensors, groups } = documents;
    let (column, dtype) = find_column(&tensors, spec)?;
    let windows = windows(spec, dtype)?;
    let total = groups.len() as u64;
    let mut planned = Vec::with_capacity(groups.len());
    progress(IndexProgress::Headers { done: 0, total });
    for (done, mut group) in (1..).zip(groups) {
        let ColumnSpec { object, rows } = group.columns.swap_remove(column);
        let object = group.objects.swap_remove(object as usize);
        let file = Documents { origin, target: target(uri, &object)?, object, windows: &windows };
        match file.group(rows).await? {
            Some(group) => planned.push(group),
            None => {
                let why = format!("holds fewer elements than a window of {}", spec.window);
                left_out.push(LeftOut::object(&file.object.key, why));
            }
        }
        progress(IndexProgress::Headers { done, total });
    }
    if planned.is_empty() {
        return Err(none_usable(uri, left_out));
    }
    let row_bytes = spec.window * dtype.size_bytes();
    let tensors = vec![
        TensorSpec {
            name: spec.column.clone(),
            dtype,
            logical: Logical::Number,
            shape: vec![spec.window],
            locator: RowLocator::Strided { row_bytes, stride_bytes: row_bytes },
            layout: Layout::Blocks,
        },
        TensorSpec {
            name: SEGMENTS.to_owned(),
            dtype: Dtype::I32,
            logical: Logical::Number,
            shape: Vec::new(),
            locator: RowLocator::Ragged,
            layout: Layout::Inline,
        },
    ];
    Ok(IndexPlan { tensors, groups: planned })
}

fn refused<T>(why: String) -> Result<T, DatasetError> {
    Err(DatasetError::Option { option: "column", why })
}

/// Returns the index and the type of the column with documents.
fn find_column(tensors: &[TensorSpec], spec: &WindowSpec) -> Result<(usize, Dtype), DatasetError> {
    let name = &spec.column;
    let Some(index) = tensors.iter().position(|tensor| tensor.name == *name) else {
        let names: Vec<_> = tensors.iter().map(|tensor| &*tensor.name).collect();
        return refused(format!(
            "there is no column '{}'; there are: {}",
            shown(name),
            names.join(", ")
        ));
    };
    let TensorSpec { dtype, shape, locator, logical, .. } = &tensors[index];
    let is_integer = !dtype.name().contains("float") && !dtype.name().contains("complex");
    let is_documents = *locator == RowLocator::Ragged && shape.is_empty();
    if is_documents && is_integer && *logical == Logical::Number {
        return Ok((index, *dtype));
    }
    let rows =
        if *locator == RowLocator::Ragged { "rows of any length" } else { "rows of one length" };
    refused(format!(
        "'{}' has {rows} of {} ({logical}): windows are over a ragged column of integers",
        shown(name),
        dtype.name(),
    ))
}

/// Returns the windows in bytes.
fn windows(spec: &WindowSpec, dtype: Dtype) -> Result<Windows, DatasetError> {
    let element_bytes = dtype.size_bytes();
    let refused = |option, why| Err(DatasetError::Option { option, why });
    let limit = limits::SAMPLE_BYTES_MAX / element_bytes;
    if ![spec.window, spec.stride].iter().all(|count| (1..=limit).contains(count)) {
        let why = format!("window and stride are from 1 to {limit} elements of {}", dtype.name());
        return refused("window", why);
    }
    let between = match spec.between {
        None => Vec::new(),
        Some(element) => {
            let bytes = element.to_le_bytes();
            let own = usize::try_from(element_bytes).expect("at most 8 bytes");
            let is_signed = dtype.name().starts_with("int");
            let fill = if is_signed && bytes[own - 1] >= 0x80 { 0xFF } else { 0 };
            if bytes[own..].iter().any(|&byte| byte != fill) || (element < 0 && !is_signed) {
                return refused("between", format!("{element} is no {}", dtype.name()));
            }
            bytes[..own].to_vec()
        }
    };
    Ok(Windows { element_bytes, window: spec.window, stride: spec.stride, between })
}

fn target(uri: &OriginUri, object: &ObjectSpec) -> Result<Target, DatasetError> {
    Ok(Target {
        object: uri.join(&object.key)?,
        etag: object.etag.clone(),
        version: object.version.clone(),
        size_bytes: object.size_bytes,
    })
}

/// The documents of one file.
struct Documents<'a> {
    origin: &'a Origin,
    target: Target,
    object: ObjectSpec,
    windows: &'a Windows,
}

impl Documents<'_> {
    /// Returns the windows of the file. `None` if it has too few elements for one.
    async fn group(&self, rows: Rows) -> Result<Option<GroupSpec>, DatasetError> {
        let mut builder = WindowsBuilder::new(self.windows).map_err(|fault| self.failed(fault))?;
        let mut segments = Segments::default();
        match &rows {
            Rows::Spans(spans) => {
                for (range, lengths) in stretches(spans) {
                    let tail = self.stored_tail(&range, builder.tail_bytes()).await?;
                    let stretch = Stretch { range, lengths: &lengths, block: None, tail };
                    builder.push(&stretch).map_err(|fault| self.failed(fault))?;
                    segments.push(self.windows, &lengths);
                }
            }
            Rows::Blocks(Blocks { blocks, lengths: Some(lengths), recipes, .. }) => {
                let mut rest = &lengths[..];
                for placed in blocks {
                    let (lengths, behind) = rest.split_at(placed.rows as usize);
                    rest = behind;
                    let tail = self.made_tail(placed, recipes, builder.tail_bytes()).await?;
                    let (range, block) = (placed.range.clone(), Some((placed.block, recipes)));
                    let stretch = Stretch { range, lengths, block, tail };
                    builder.push(&stretch).map_err(|fault| self.failed(fault))?;
                    segments.push(self.windows, lengths);
                }
            }
            _ => return refused("its values stand in the manifest, and have no windows".into()),
        }
        let (rows, blocks, recipes) = builder.finish();
        if rows == 0 {
            return Ok(None);
        }
        let blocks = Rows::Blocks(Blocks { blocks, recipes, ..Blocks::default() });
        let segments = Rows::Inline(segments.of_windows(self.windows, rows));
        let columns = [blocks, segments].map(|rows| ColumnSpec { object: 0, rows }).into();
        Ok(Some(GroupSpec { rows, objects: vec![self.object.clone()], columns }))
    }

    /// Reads the last bytes of a range, at most so many.
    async fn stored_tail(&self, range: &Range<u64>, most: u64) -> Result<Vec<u8>, DatasetError> {
        let bytes = most.min(range.end - range.start);
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let (read, _) = self.origin.read_header(&self.target, range.end - bytes, bytes).await?;
        Ok(read.to_vec())
    }

    /// Makes the documents of a block. Returns their last bytes, at most so many.
    async fn made_tail(
        &self,
        placed: &PlacedBlock,
        recipes: &Recipes,
        most: u64,
    ) -> Result<Vec<u8>, DatasetError> {
        let Range { start, end } = placed.range;
        let (stored, _) = match end - start {
            0 => (Vec::new(), None),
            bytes => self.origin.read_header(&self.target, start, bytes).await?,
        };
        let most = usize::try_from(most).expect("a sample is in memory");
        let mut tail = Vec::new();
        let mut keep = |bytes: &[u8], _: &[u32]| {
            tail.extend_from_slice(&bytes[bytes.len().saturating_sub(most)..]);
            // Cut now and then, so that each byte is moved a few times at most.
            if tail.len() > 2 * most {
                tail.drain(..tail.len() - most);
            }
            Ok(())
        };
        let scalar_bytes = self.windows.element_bytes;
        let wanted = RowsWanted { rows: placed.rows.into(), row_bytes: None, scalar_bytes };
        let made = placed.block.make(wanted, &stored, recipes.as_bytes(), &mut keep);
        made.map_err(|fault| self.failed(fault))?;
        Ok(tail.split_off(tail.len().saturating_sub(most)))
    }

    fn failed(&self, fault: larder_formats::Fault) -> DatasetError {
        FileFault::new(fault.field, fault.why).of(self.target.object.clone())
    }
}

/// Joins rows that touch in a file into ranges of some megabytes, each with its rows' lengths.
fn stretches(spans: &Spans) -> Vec<(Range<u64>, Vec<u32>)> {
    let mut stretches: Vec<(Range<u64>, Vec<u32>)> = Vec::new();
    for (row, span) in spans.iter().enumerate() {
        let length = u32::try_from(spans.bytes(row)).expect("a listed row is short");
        match stretches.last_mut() {
            Some((range, lengths))
                if (span.is_empty() || range.end == span.start)
                    && range.end - range.start + u64::from(length) <= STRETCH_BYTES =>
            {
                range.end += u64::from(length);
                lengths.push(length);
            }
            _ => stretches.push((span, vec![length])),
        }
    }
    stretches
}

/// The places in a stream where documents begin, in elements.
#[derive(Default)]
struct Segments {
    begins: Vec<u64>,
    at: u64,
}

impl Segments {
    /// Adds documents of so many bytes. Empty ones begin nowhere.
    fn push(&mut self, windows: &Windows, lengths: &[u32]) {
        let between = u64::from(!windows.between.is_empty());
        for &bytes in lengths {
            if bytes > 0 {
                self.begins.push(self.at);
            }
            self.at += u64::from(bytes) / windows.element_bytes + between;
        }
    }

    /// Returns the places in each window, counted from its beginning.
    fn of_windows(&self, windows: &Windows, rows: u64) -> Inline {
        let mut values = Inline::default();
        for row in 0..rows {
            let begin = row * windows.stride;
            let first = self.begins.partition_point(|&at| at < begin);
            let own = self.begins[first..].iter().take_while(|&&at| at < begin + windows.window);
            let places = own.map(|&at| i32::try_from(at - begin).expect("a window is below 2 GiB"));
            values.push(&places.flat_map(i32::to_le_bytes).collect::<Vec<_>>());
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(between: Option<i64>) -> WindowSpec {
        WindowSpec { column: "tokens".into(), window: 3, stride: 2, between }
    }

    #[test]
    fn element_between_documents_must_fit_the_type() {
        let between = |element, dtype| windows(&spec(Some(element)), dtype).map(|w| w.between);
        assert_eq!(between(-1, Dtype::I32), Ok(vec![0xFF; 4]));
        assert_eq!(between(65_535, Dtype::U16), Ok(vec![0xFF; 2]));
        assert_eq!(between(i64::MIN, Dtype::I64), Ok(i64::MIN.to_le_bytes().to_vec()));
        for (element, dtype) in
            [(-1, Dtype::U64), (65_536, Dtype::U16), (128, Dtype::I8), (-129, Dtype::I8)]
        {
            assert!(between(element, dtype).is_err(), "{element} {dtype}");
        }
    }

    #[test]
    fn segments_are_the_places_where_documents_begin() {
        let windows = windows(&spec(Some(0)), Dtype::U16).unwrap();
        let mut segments = Segments::default();
        segments.push(&windows, &[4, 0]);
        segments.push(&windows, &[2]);
        // a a 0 0 b 0
        let values = segments.of_windows(&windows, 2);
        let row = |row: usize| values.value(row).chunks(4).map(|b| b[0]).collect::<Vec<_>>();
        assert_eq!((row(0), row(1)), (vec![0], vec![2]));
    }

    #[test]
    fn rows_that_touch_are_one_stretch() {
        let mut spans = Spans::default();
        for (begin, bytes) in [(8, 4), (12, 4), (0, 0), (20, 4)] {
            spans.push(begin, bytes);
        }
        assert_eq!(stretches(&spans), [(8..16, vec![4, 4, 0]), (20..24, vec![4])]);
    }
}
