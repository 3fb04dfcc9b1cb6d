//! Flat files of tokens: a sample is a window over a file, and windows never cross into the next.

use super::{
    LeftOut, Progress, TokenSpec, extension,
    group::{Plan, object},
    headers::{Fault, read_all},
    leave_out, npy,
};
use crate::{DatasetError, GroupSpec, ObjectInfo, Origin, OriginUri, RowLocator, TensorSpec};

/// The name of the one tensor of such a dataset.
const TENSOR: &str = "tokens";

/// The tokens of one file.
struct Stream {
    file: ObjectInfo,
    offset: u64,
    tokens: u64,
}

/// The windows over every `.bin` and one-dimensional `.npy` file, in the order of their keys.
pub(super) async fn plan(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    spec: &TokenSpec,
    left_out: &mut Vec<LeftOut>,
    progress: Progress<'_>,
) -> Result<Plan, DatasetError> {
    let size = spec.dtype.size_bytes();
    let (flat, other): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| extension(&file.key) == "bin");
    let (arrays, other): (Vec<_>, Vec<_>) =
        other.into_iter().partition(|file| extension(&file.key) == "npy");
    leave_out(other, "is neither a .bin nor a .npy file", left_out);

    let mut streams = Vec::new();
    for mut file in flat {
        let object = uri.join(&file.key)?;
        if file.size_bytes % size != 0 {
            let why = format!(
                "{} bytes are not a whole number of {} tokens",
                file.size_bytes, spec.dtype
            );
            return Err(Fault::new("size", why).of(object));
        }
        if file.etag.is_none() {
            file.etag = origin.head(&object).await?.etag;
        }
        let tokens = file.size_bytes / size;
        streams.push((file, 0, tokens));
    }
    for (file, array) in read_all(origin, uri, arrays, &npy::Npy, progress).await? {
        if array.shape.len() != 1 {
            let why =
                format!("has {} dimensions where a stream of tokens has one", array.shape.len());
            left_out.push(LeftOut::object(&file.key, why));
        } else if array.dtype != spec.dtype {
            let why = format!("is {} where tokens of {} were asked for", array.dtype, spec.dtype);
            return Err(Fault::new("descr", why).of(uri.join(&file.key)?));
        } else {
            streams.push((file, array.offset, array.shape[0]));
        }
    }
    streams.sort_by(|a, b| a.0.key.cmp(&b.0.key));

    let mut groups = Vec::with_capacity(streams.len());
    for Stream { file, offset, tokens } in streams {
        let Some(after_first) = tokens.checked_sub(spec.window) else {
            let why = format!("holds {tokens} tokens, fewer than a window of {}", spec.window);
            left_out.push(LeftOut::object(&file.key, why));
            continue;
        };
        let rows = after_first / spec.stride + 1;
        groups.push(GroupSpec {
            rows,
            objects: vec![object(&file, vec![offset])],
            spans: Vec::new(),
        });
    }
    if groups.is_empty() {
        let why = "there is no .bin or .npy file with at least one window of tokens".into();
        return Err(DatasetError::NothingToIndex { prefix: uri.clone(), why });
    }
    let locator =
        RowLocator::Strided { row_bytes: spec.window * size, stride_bytes: spec.stride * size };
    let tensor = TensorSpec {
        name: TENSOR.into(),
        dtype: spec.dtype,
        shape: vec![spec.window],
        slot: 0,
        locator,
    };
    Ok(Plan { tensors: vec![tensor], groups })
}
