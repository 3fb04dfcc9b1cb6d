//! Ragged tensors: `x` holds the elements of all rows, one after the other. `x.offsets` holds the
//! beginning of each row in `x`, and the end of the last row.
//!
//! The offsets are read here, once, in pieces, and every one is compared with the one before. Only
//! the spans of the rows are kept: the manifest lists them, and readers never need the offsets.
//!
//! Non-goals: other encodings of rows; rows with elements of different shapes.

use std::collections::{HashMap, HashSet};

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_base::limits;
use larder_formats::Spans;

use super::{
    IndexProgress, LeftOut, LeftOuts, Progress,
    group::{Candidate, FoundTensor},
    headers::FileFault,
    shown,
};
use crate::{DatasetError, Dtype, Origin, OriginUri, origin::Target};

/// Bytes of one ranged read of the offsets of ragged rows.
const OFFSETS_PART_BYTES: u64 = 4 << 20;

/// Tensors of offsets read at the same time; memory held is this times the part.
const OFFSETS_IN_FLIGHT: usize = 8;

/// The suffix of a tensor of offsets, after the name of the tensor that it divides.
pub(super) const SUFFIX: &str = ".offsets";

/// The place of a tensor's offsets, and the facts to check them with.
struct Offsets {
    /// The index of the candidate, and of the tensor in it that is divided into rows.
    of: (usize, usize),
    name: String,
    target: Target,
    at: u64,
    dtype: Dtype,
    /// Number of entries: one more than there are samples.
    entries: u64,
    /// Elements of the tensor.
    elements: u64,
    element_bytes: u64,
    /// Offset of the tensor in the object.
    data_at: u64,
}

/// Returns whether a tensor is the offsets of another, or has offsets, among those with these
/// names.
pub(super) fn is_of_pair(name: &str, there: impl Fn(&str) -> bool) -> bool {
    is_offsets(name, &there) || there(&format!("{name}{SUFFIX}"))
}

/// Returns whether a tensor is the offsets of one of those with these names.
pub(super) fn is_offsets(name: &str, there: impl Fn(&str) -> bool) -> bool {
    name.strip_suffix(SUFFIX).is_some_and(there)
}

/// Reads the offsets of the tensors that have some, and removes the offsets from the tensors of the
/// samples. Candidates without samples are left out then.
///
/// # Errors
/// For impossible offsets: the object, the tensor and the mistake.
pub(super) async fn pair(
    origin: &Origin,
    uri: &OriginUri,
    mut candidates: Vec<Candidate>,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<Vec<Candidate>, DatasetError> {
    let mut pairs = Vec::new();
    for (index, candidate) in candidates.iter_mut().enumerate() {
        pairs.extend(take_offsets(uri, index, candidate)?);
    }
    if pairs.is_empty() {
        return Ok(candidates);
    }
    check_rows(uri, &pairs)?;
    let (mut done, total) = (0, pairs.iter().map(Offsets::bytes).sum());
    let read = |offsets: Offsets| async move {
        let spans = read_spans(origin, &offsets).await?;
        Ok::<_, DatasetError>((offsets, spans))
    };
    progress(IndexProgress::Offsets { done, total });
    let mut reads = stream::iter(pairs).map(read).buffered(OFFSETS_IN_FLIGHT);
    while let Some((offsets, spans)) = reads.try_next().await? {
        done += offsets.bytes();
        progress(IndexProgress::Offsets { done, total });
        let (candidate, tensor) = offsets.of;
        candidates[candidate].tensors[tensor].spans = Some(spans);
    }
    drop(reads);
    candidates.retain_mut(|candidate| has_samples(candidate, left_out));
    Ok(candidates)
}

/// Takes the offsets out of a candidate's tensors. The tensors they divide count rows as samples
/// from then on.
fn take_offsets(
    uri: &OriginUri,
    index: usize,
    candidate: &mut Candidate,
) -> Result<Vec<Offsets>, DatasetError> {
    let names: HashSet<String> = candidate.tensors.iter().map(|found| found.name.clone()).collect();
    let is_offsets = |found: &FoundTensor| is_offsets(&found.name, |name| names.contains(name));
    let (offsets, mut tensors): (Vec<FoundTensor>, Vec<FoundTensor>) =
        std::mem::take(&mut candidate.tensors).into_iter().partition(is_offsets);
    let indices = tensors.iter().map(|found| found.name.clone()).zip(0..);
    let indices: HashMap<String, usize> = indices.collect();
    let mut pairs = Vec::with_capacity(offsets.len());
    for found in &offsets {
        let file = &candidate.files[found.file];
        let object = uri.join(&file.key)?;
        let tensor = found.name.strip_suffix(SUFFIX).and_then(|name| indices.get(name).copied());
        let element_bytes = match tensor {
            Some(tensor) => check_shape(found, &tensors[tensor]),
            None => Err(fault(found, "is the offsets of offsets, which have no rows")),
        };
        let element_bytes = element_bytes.map_err(|fault| fault.of(object.clone()))?;
        let tensor = tensor.expect("checked");
        let of = &mut tensors[tensor];
        let (etag, size_bytes) = (file.etag.clone(), file.size_bytes);
        pairs.push(Offsets {
            of: (index, tensor),
            name: found.name.clone(),
            target: Target { object, etag, version: None, size_bytes },
            at: found.offset,
            dtype: found.dtype,
            entries: found.rows,
            elements: of.rows,
            element_bytes,
            data_at: of.offset,
        });
        of.rows = found.rows - 1;
    }
    candidate.tensors = tensors;
    Ok(pairs)
}

/// Checks that a tensor's header fits offsets of `of`. Returns the bytes of an element of `of`.
fn check_shape(offsets: &FoundTensor, of: &FoundTensor) -> Result<u64, FileFault> {
    let name = shown(&of.name);
    let refused = |why: String| {
        let what = format!("it says where the rows of '{name}' begin");
        Err(fault(offsets, &format!("{why}: {what}; call it otherwise if it does not")))
    };
    if ![Dtype::U32, Dtype::U64, Dtype::I32, Dtype::I64].contains(&offsets.dtype) {
        return refused(format!("is {} where U32, U64, I32 or I64 is needed", offsets.dtype));
    }
    if !offsets.shape.is_empty() {
        let dimensions = offsets.shape.len() + 1;
        return refused(format!("has {dimensions} dimensions where one is needed"));
    }
    if offsets.rows == 0 {
        return refused("has no entries where one more than samples are needed".into());
    }
    let element =
        of.shape.iter().try_fold(of.dtype.size_bytes(), |bytes, dim| bytes.checked_mul(*dim));
    let limit = limits::SAMPLE_BYTES_MAX;
    match element.filter(|bytes| (1..=limit).contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => refused(format!("divides a tensor whose elements are not 1 to {limit} bytes long")),
    }
}

fn fault(offsets: &FoundTensor, why: &str) -> FileFault {
    FileFault::new(format!("tensor '{}'", shown(&offsets.name)), why)
}

/// Checks that the manifest has room for the spans of this many rows, before memory is taken.
fn check_rows(uri: &OriginUri, pairs: &[Offsets]) -> Result<(), DatasetError> {
    let rows = pairs.iter().fold(0u64, |sum, offsets| sum.saturating_add(offsets.entries - 1));
    let limit = limits::RAGGED_ROWS_MAX;
    if rows <= limit {
        return Ok(());
    }
    let why = format!(
        "there are {rows} ragged rows where at most {limit} can be indexed: index them under several \
         prefixes"
    );
    Err(DatasetError::Inconsistent { prefix: uri.clone(), why })
}

/// Keeps the tensors that have samples. Returns whether there are any.
fn has_samples(candidate: &mut Candidate, left_out: &mut LeftOuts) -> bool {
    let (tensors, empty): (Vec<FoundTensor>, Vec<FoundTensor>) =
        std::mem::take(&mut candidate.tensors).into_iter().partition(|found| found.rows > 0);
    for found in empty {
        let key = &candidate.files[found.file].key;
        left_out.push(LeftOut::tensor(key, &shown(&found.name), "holds no samples"));
    }
    candidate.tensors = tensors;
    !candidate.tensors.is_empty()
}

/// Reads the offsets. Returns the bytes of each row in the object.
async fn read_spans(origin: &Origin, offsets: &Offsets) -> Result<Spans, DatasetError> {
    let size = offsets.dtype.size_bytes();
    let per_part = OFFSETS_PART_BYTES / size;
    let mut rising = Rising { offsets, before: None, spans: Spans::default() };
    let mut next = 0;
    while next < offsets.entries {
        let count = per_part.min(offsets.entries - next);
        let at = offsets.at + next * size;
        let (bytes, _) = origin.read_header(&offsets.target, at, count * size).await?;
        rising.take(next, &bytes).map_err(|fault| fault.of(offsets.target.object.clone()))?;
        next += count;
    }
    rising.finish().map_err(|fault| fault.of(offsets.target.object.clone()))
}

/// Offsets as they are read, each compared with the one before.
struct Rising<'a> {
    offsets: &'a Offsets,
    before: Option<u64>,
    spans: Spans,
}

impl Rising<'_> {
    /// Adds more offsets; `first` is the index of the first of them.
    fn take(&mut self, first: u64, bytes: &[u8]) -> Result<(), FileFault> {
        let size = usize::try_from(self.offsets.dtype.size_bytes()).expect("a few bytes");
        for (entry, bytes) in (first..).zip(bytes.chunks_exact(size)) {
            let value = self.offsets.value(bytes);
            let value =
                value.map_err(|why| self.offsets.fault(format!("entry {entry} is {why}")))?;
            self.push(entry, value)?;
        }
        Ok(())
    }

    fn push(&mut self, entry: u64, value: u64) -> Result<(), FileFault> {
        let Offsets { elements, element_bytes, data_at, .. } = *self.offsets;
        let fault = |why: String| Err(self.offsets.fault(why));
        if value > elements {
            return fault(format!("entry {entry} is {value} where there are {elements} elements"));
        }
        let Some(before) = self.before.replace(value) else {
            return match value {
                0 => Ok(()),
                _ => fault(format!("the first entry is {value} where it has to be 0")),
            };
        };
        let Some(length) = value.checked_sub(before) else {
            return fault(format!("entry {entry} falls from {before} to {value}"));
        };
        let (bytes, limit) = (length * element_bytes, limits::SAMPLE_BYTES_MAX);
        if bytes > limit {
            let row = entry - 1;
            return fault(format!(
                "row {row} has {bytes} bytes where a sample has at most {limit}"
            ));
        }
        let bytes = u32::try_from(bytes).expect("a sample is below the limit");
        self.spans.push(data_at + before * element_bytes, bytes);
        Ok(())
    }

    fn finish(self) -> Result<Spans, FileFault> {
        let (last, elements) = (self.before.unwrap_or(0), self.offsets.elements);
        if last == elements {
            return Ok(self.spans);
        }
        let why =
            format!("the last entry is {last} where all {elements} elements have to be in rows");
        Err(self.offsets.fault(why))
    }
}

impl Offsets {
    fn bytes(&self) -> u64 {
        self.entries * self.dtype.size_bytes()
    }

    /// Decodes one offset. The error is the negative value.
    fn value(&self, bytes: &[u8]) -> Result<u64, i64> {
        let narrow = |bytes: &[u8]| bytes.try_into().expect("four bytes");
        let wide = |bytes: &[u8]| bytes.try_into().expect("eight bytes");
        let signed = match self.dtype {
            Dtype::U32 => return Ok(u32::from_le_bytes(narrow(bytes)).into()),
            Dtype::I32 => i32::from_le_bytes(narrow(bytes)).into(),
            Dtype::I64 => i64::from_le_bytes(wide(bytes)),
            _ => return Ok(u64::from_le_bytes(wide(bytes))),
        };
        u64::try_from(signed).map_err(|_| signed)
    }

    fn fault(&self, why: String) -> FileFault {
        FileFault::new(format!("tensor '{}'", shown(&self.name)), why)
    }
}
