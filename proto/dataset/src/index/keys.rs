//! Makes the key table of a dataset: reads one column, and finds keys that two samples share.

use larder_base::{RegionRef, RowRef, limits};

use super::{IndexProgress, Progress, checksum::read_region};
use crate::{
    DatasetError, Leaf, Manifest, Origin, Snapshot, Tensor,
    manifest::{Key, KeyKind, keys_max, parts, record},
};

/// Returns a copy of the manifest with the keys of a column. Takes 16 bytes of memory a sample, and
/// the column of one shard.
///
/// # Errors
/// - There is no such column, or it can't hold keys.
/// - Two samples have one key, or a key is too long.
/// - The samples are more than a table can have.
/// - An object changed, is gone, or cannot be read after a few tries.
pub(super) async fn table(
    origin: &Origin,
    snapshot: &Snapshot,
    column: &str,
    progress: Progress<'_>,
) -> Result<Manifest, DatasetError> {
    let manifest = &snapshot.manifest;
    let (tensor, kind) = find_column(manifest, column)?;
    let (samples, max) = (manifest.samples(), keys_max(manifest));
    if samples > max {
        return refused(format!(
            "the dataset has {samples} samples, a key table has at most {max}"
        ));
    }
    let mut records = Vec::with_capacity(usize::try_from(samples).expect("below the limit"));
    progress(IndexProgress::Keys { done: 0, total: samples });
    for shard in 0..manifest.shard_count() {
        let leaf = snapshot.leaf_of(shard);
        let bytes = read_region(origin, manifest, leaf, RegionRef { shard, tensor }).await?;
        let first = manifest.shard(shard).first_sample;
        for row in 0..manifest.shard(shard).rows {
            let sample = first + u64::from(row);
            let row = RowRef { shard, row };
            let key = kind.read(row_of(manifest, leaf, row, tensor, &bytes));
            check_length(column, sample, key)?;
            let fingerprint = key.fingerprint(kind).expect("a key of this column");
            records.push(record(fingerprint, sample));
        }
        progress(IndexProgress::Keys { done: records.len() as u64, total: samples });
    }
    records.sort_unstable();
    if let Some((one, other)) = first_twins(&records) {
        let row = manifest.locate(other).expect("a sample of the table");
        let (leaf, region) = (snapshot.leaf_of(row.shard), RegionRef { shard: row.shard, tensor });
        let bytes = read_region(origin, manifest, leaf, region).await?;
        let key = kind.read(row_of(manifest, leaf, row, tensor, &bytes));
        return refused(format!(
            "samples {one} and {other} both have {key} in '{column}', and a key names one sample"
        ));
    }
    let build = |source| DatasetError::Build { prefix: manifest.uri().clone(), source };
    manifest.with_keys(tensor, &records).map_err(build)
}

fn find_column(manifest: &Manifest, column: &str) -> Result<(usize, KeyKind), DatasetError> {
    let Some(index) = manifest.tensor_index(column) else {
        let names: Vec<_> = manifest.tensors().iter().map(Tensor::name).collect();
        return refused(format!(
            "the dataset has no column '{column}'; it has: {}",
            names.join(", ")
        ));
    };
    let tensor = &manifest.tensors()[index];
    let Some(kind) = KeyKind::of(tensor) else {
        let (dtype, shape) = (tensor.dtype().name(), tensor.shape());
        let max = limits::KEY_BYTES_MAX;
        return refused(format!(
            "'{column}' is {dtype} of shape {shape:?}; keys are one integer a sample, or at most \
             {max} bytes of uint8"
        ));
    };
    Ok((index, kind))
}

/// The bytes of a row in its region.
fn row_of<'a>(
    manifest: &Manifest,
    leaf: &Leaf,
    row: RowRef,
    tensor: usize,
    region: &'a [u8],
) -> &'a [u8] {
    let (begin, bytes) = manifest.row_in_region(leaf, row, tensor);
    let at = |offset| usize::try_from(offset).expect("a shard fits memory");
    &region[at(begin)..at(begin + bytes)]
}

fn check_length(column: &str, sample: u64, key: Key<'_>) -> Result<(), DatasetError> {
    match key {
        Key::Text(text) if text.len() as u64 > limits::KEY_BYTES_MAX => refused(format!(
            "sample {sample} has {} bytes in '{column}', a key has at most {}",
            text.len(),
            limits::KEY_BYTES_MAX
        )),
        _ => Ok(()),
    }
}

/// The first sample whose key an earlier sample has, with the earlier one before it.
fn first_twins(records: &[u128]) -> Option<(u64, u64)> {
    let pairs = records.windows(2).filter_map(|pair| {
        let ((key, sample), (next, other)) = (parts(pair[0]), parts(pair[1]));
        (key == next).then_some((sample, other))
    });
    pairs.min_by_key(|&(_, other)| other)
}

fn refused<T>(why: String) -> Result<T, DatasetError> {
    Err(DatasetError::Option { option: "key", why })
}
