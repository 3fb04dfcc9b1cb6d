//! Flat files of tokens: a sample is a window over a file, and windows never cross into the next
//! file.

use larder_formats::Rows;

use super::{
    LeftOut, Progress, TokenSpec, extension,
    group::{Plan, object},
    headers::Fault,
    none_usable, npy,
};
use crate::{
    ColumnSpec, DatasetError, GroupSpec, Layout, Logical, Manifest, ObjectInfo, Origin, OriginUri,
    RowLocator, TensorSpec,
};

/// The name of the only tensor of such a dataset.
const TENSOR: &str = "tokens";

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
    left_out: &mut Vec<LeftOut>,
    progress: Progress<'_>,
) -> Result<Plan, DatasetError> {
    let size = spec.dtype.size_bytes();
    let (flat, arrays): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| extension(&file.key) == "bin");

    let mut streams = flat_streams(origin, uri, flat, spec).await?;
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
    Ok(Plan { tensors: vec![tensor], groups })
}

/// Returns whether the dataset may be one of windows over tokens.
pub(super) fn may_be_tokens(manifest: &Manifest) -> bool {
    matches!(manifest.tensors(), [only] if only.name() == TENSOR && only.shape().len() == 1)
}

/// Returns whether this many bytes of tokens are at least one window.
pub(super) fn is_long_enough(manifest: &Manifest, bytes: u64) -> bool {
    manifest.tensors().first().is_some_and(|tokens| tokens.row_bytes() <= bytes)
}

/// Returns the files that are tokens from the first byte to the last.
async fn flat_streams(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    spec: &TokenSpec,
) -> Result<Vec<Stream>, DatasetError> {
    let mut streams = Vec::with_capacity(files.len());
    for mut file in files {
        let object = uri.join(&file.key)?;
        let tokens = file.size_bytes / spec.dtype.size_bytes();
        if tokens * spec.dtype.size_bytes() != file.size_bytes {
            let (bytes, dtype) = (file.size_bytes, spec.dtype);
            let why = format!("{bytes} bytes are not a whole number of {dtype} tokens");
            return Err(Fault::new("size", why).of(object));
        }
        if file.etag.is_none() {
            file.etag = origin.head(&object).await?.etag;
        }
        streams.push(Stream { file, offset: 0, tokens });
    }
    Ok(streams)
}

async fn array_streams(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    spec: &TokenSpec,
    left_out: &mut Vec<LeftOut>,
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
            return Err(Fault::new("descr", why).of(uri.join(&file.key)?));
        }
        streams.push(Stream { file, offset: array.offset, tokens: array.shape[0] });
    }
    Ok(streams)
}
