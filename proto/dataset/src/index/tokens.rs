//! Flat files of tokens: a sample is a window over a file, and windows never cross into the next
//! file.
//!
//! Some programs begin a flat file with a header. Those of llm.c are known:
//!
//! ```text
//! offset width
//!      0     4  magic: 20240520 before tokens of GPT-2, 20240801 before those of Llama 3
//!      4     4  version: 1 or 7
//!      8     4  number of tokens
//!     12  1012  0
//! ```
//!
//! For others, the user says where the tokens begin.

use larder_formats::Rows;

use super::{
    LeftOut, LeftOuts, Progress, TokenSpec, extension,
    group::{IndexPlan, object},
    headers::{FileFault, Format, read_all},
    none_usable, npy,
};
use crate::{
    ColumnSpec, DatasetError, Dtype, GroupSpec, Layout, Logical, Manifest, ObjectInfo, Origin,
    OriginUri, RowLocator, TensorSpec,
};

/// The name of the only tensor of such a dataset.
const TENSOR: &str = "tokens";

/// Each known header: its magic and version, and the type of its tokens.
const KNOWN: [(u32, u32, Dtype); 2] = [(20_240_520, 1, Dtype::U16), (20_240_801, 7, Dtype::U32)];
/// Bytes of a known header, and of the part of it that is read.
const HEADER_BYTES: u64 = 1024;
const WORDS_BYTES: u64 = 12;

struct Stream {
    file: ObjectInfo,
    offset: u64,
    tokens: u64,
}

/// Plans the windows over every `.bin` and one-dimensional `.npy` file, in the order of their keys.
pub(super) async fn plan(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    spec: &TokenSpec,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<IndexPlan, DatasetError> {
    let size = spec.dtype.size_bytes();
    let (flat, arrays): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| extension(&file.key) == "bin");

    let mut streams = flat_streams(origin, uri, flat, spec, left_out, progress).await?;
    streams.extend(array_streams(origin, uri, arrays, spec, left_out, progress).await?);
    streams.sort_by(|a, b| a.file.key.cmp(&b.file.key));

    let mut groups = Vec::with_capacity(streams.len());
    for Stream { file, offset, tokens } in streams {
        let Some(after_first) = tokens.checked_sub(spec.window) else {
            let why = format!("holds {tokens} tokens, fewer than a window of {}", spec.window);
            left_out.push(LeftOut::object(&file.key, why));
            continue;
        };
        let rows = after_first / spec.stride + 1;
        let places = Rows::Strided { begin: offset, stride: spec.stride * size };
        let columns = vec![ColumnSpec { object: 0, rows: places }];
        groups.push(GroupSpec { rows, objects: vec![object(&file)], columns });
    }
    if groups.is_empty() {
        return Err(none_usable(uri, left_out));
    }
    let locator =
        RowLocator::Strided { row_bytes: spec.window * size, stride_bytes: spec.stride * size };
    let tensor = TensorSpec {
        name: TENSOR.into(),
        dtype: spec.dtype,
        logical: Logical::of(spec.dtype),
        shape: vec![spec.window],
        locator,
        layout: Layout::Column,
    };
    Ok(IndexPlan { tensors: vec![tensor], groups })
}

/// Returns whether the dataset may be one of windows over tokens.
pub(super) fn may_be_tokens(manifest: &Manifest) -> bool {
    matches!(manifest.tensors(), [only] if only.name() == TENSOR && only.shape().len() == 1)
}

/// Returns whether this many bytes of tokens are at least one window.
pub(super) fn is_long_enough(manifest: &Manifest, bytes: u64) -> bool {
    manifest.tensors().first().is_some_and(|tokens| tokens.row_bytes() <= bytes)
}

/// Returns the files that are tokens from the first byte behind a header to the last.
async fn flat_streams(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    spec: &TokenSpec,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<Vec<Stream>, DatasetError> {
    let Some(offset) = spec.offset else {
        let read = read_all(origin, uri, files, &Flat(spec.dtype), left_out, progress).await?;
        let stream = |(file, (offset, tokens))| Stream { file, offset, tokens };
        return Ok(read.into_iter().map(stream).collect());
    };
    let mut streams = Vec::with_capacity(files.len());
    for mut file in files {
        let object = uri.join(&file.key)?;
        let tokens = whole_tokens(spec.dtype, offset, file.size_bytes);
        let tokens = tokens.map_err(|fault| fault.of(object.clone()))?;
        if file.etag.is_none() {
            file.etag = origin.head(&object).await?.etag;
        }
        streams.push(Stream { file, offset, tokens });
    }
    Ok(streams)
}

/// Returns the number of tokens from `offset` to the end of a file.
fn whole_tokens(dtype: Dtype, offset: u64, size_bytes: u64) -> Result<u64, FileFault> {
    let Some(bytes) = size_bytes.checked_sub(offset) else {
        let why = format!("{size_bytes} bytes are fewer than the offset of {offset}");
        return Err(FileFault::new("size", why));
    };
    if !bytes.is_multiple_of(dtype.size_bytes()) {
        let why = format!(
            "{bytes} bytes are not a whole number of {dtype} tokens: pass the bytes of its header \
             with --offset if it has one"
        );
        return Err(FileFault::new("size", why));
    }
    Ok(bytes / dtype.size_bytes())
}

/// A flat file of tokens of a type, which may begin with a known header.
struct Flat(Dtype);

impl Format for Flat {
    /// The offset of the first token, and the number of tokens.
    type Header = (u64, u64);

    fn header_bytes(&self, _: &[u8], size_bytes: u64) -> Result<u64, FileFault> {
        Ok(WORDS_BYTES.min(size_bytes))
    }

    fn parse(&self, bytes: &[u8], size_bytes: u64) -> Result<(u64, u64), FileFault> {
        let words: Vec<u32> =
            bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let is_known = |known: &&(u32, u32, Dtype)| words.first() == Some(&known.0);
        let Some((magic, version, dtype)) = KNOWN.iter().find(is_known) else {
            return Ok((0, whole_tokens(self.0, 0, size_bytes)?));
        };
        let fault = |why: String| {
            let why = format!("{why}; if the file has no such header, pass --offset 0");
            Err(FileFault::new(format!("header {magic}"), why))
        };
        let [_, found, told] = words[..] else { return fault("is cut off".to_owned()) };
        if found != *version {
            return fault(format!("has version {found}, and only version {version} is known"));
        }
        if *dtype != self.0 {
            let (found, wanted) = (dtype.name(), self.0.name());
            return fault(format!("says that tokens are {found} and not {wanted}"));
        }
        let (told, bytes) = (u64::from(told), size_bytes.saturating_sub(HEADER_BYTES));
        if told * dtype.size_bytes() != bytes {
            return fault(format!("counts {told} tokens where {bytes} bytes follow it"));
        }
        Ok((HEADER_BYTES, told))
    }
}

async fn array_streams(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    spec: &TokenSpec,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<Vec<Stream>, DatasetError> {
    let mut streams = Vec::with_capacity(files.len());
    for (file, array) in npy::arrays(origin, uri, files, left_out, progress).await? {
        let dimensions = array.shape.len();
        if dimensions != 1 {
            let why = format!("has {dimensions} dimensions where a stream of tokens has one");
            left_out.push(LeftOut::object(&file.key, why));
            continue;
        }
        if array.dtype != spec.dtype {
            let (found, wanted) = (array.dtype, spec.dtype);
            let why = format!("is {found} where tokens of {wanted} were asked for");
            return Err(FileFault::new("descr", why).of(uri.join(&file.key)?));
        }
        streams.push(Stream { file, offset: array.offset, tokens: array.shape[0] });
    }
    Ok(streams)
}
