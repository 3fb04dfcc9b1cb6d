//! Finds objects that were added under a prefix after it was indexed. Reads one listing, and the
//! headers of a few of the new files. It tells the user to index again, and changes nothing.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time;

use super::{
    extension,
    formats::{Format, format_of},
    group::{Candidate, FoundTensor},
    left_out::{LeftOuts, damaged_files},
    npy, safetensors,
    selection::{self, Include},
    tokens,
};
use crate::{
    DatasetError, LeafFiles, Manifest, ObjectInfo, Origin, OriginError, OriginUri, Tensor,
};

/// Most objects that are listed to count those added since a prefix was indexed: 100 requests to
/// S3, and some 20 MB. A larger prefix is not checked.
const ADDED_LISTED_MAX: u32 = 100_000;

/// Most leaves of a manifest that are read to compare its objects with a listing.
const ADDED_LEAVES_MAX: u32 = 16;

/// Headers of new files that are read for that count. If an index takes all of these, it takes the
/// other new files too.
const ADDED_HEADERS_MAX: usize = 64;

/// Timeout of that count. Its result is a hint only.
const ADDED_TIMEOUT: Duration = Duration::from_secs(30);

/// Counts the objects under the prefix that are not in the manifest and that an index would take:
/// files of the same kind with a tensor of the samples. Reads the headers of
/// [`ADDED_HEADERS_MAX`] of them at most; if all of these count, all others count too.
/// `given` is the address of the manifest, if it is neither beside the data nor in the cache.
///
/// # Errors
/// * The origin's error, or none of its answers within [`ADDED_TIMEOUT`].
/// * There are more than [`ADDED_LISTED_MAX`] objects, or more than
///   [`ADDED_LEAVES_MAX`] leaves, which would all be read for the names of the objects.
/// * The header of a new file is damaged.
pub async fn count_added(
    origin: &Origin,
    manifest: &Manifest,
    given: Option<&OriginUri>,
) -> Result<u64, DatasetError> {
    let counting = Box::pin(count(origin, manifest, given));
    time::timeout(ADDED_TIMEOUT, counting).await.unwrap_or_else(|_| {
        let seconds = ADDED_TIMEOUT.as_secs();
        let why = format!("it was not listed within {seconds} s");
        Err(OriginError::Failed { object: manifest.uri().clone(), why }.into())
    })
}

/// Returns the warning about this many added objects.
pub fn added_warning(uri: &OriginUri, objects: u64) -> String {
    let were = if objects == 1 { "object was" } else { "objects were" };
    format!(
        "{objects} {were} added under {uri} after it was indexed; to include new objects: \
         larder dataset index {uri}"
    )
}

async fn count(
    origin: &Origin,
    manifest: &Manifest,
    given: Option<&OriginUri>,
) -> Result<u64, DatasetError> {
    let (uri, limit) = (manifest.uri(), ADDED_LISTED_MAX);
    if manifest.object_count() > limit.into() {
        let prefix = uri.clone();
        return Err(OriginError::TooMany { prefix, limit: limit.into() }.into());
    }
    let (leaves, most) = (manifest.leaf_count(), ADDED_LEAVES_MAX);
    if leaves > most {
        let why = format!("its manifest has {leaves} leaves, and at most {most} are read for this");
        return Err(OriginError::Failed { object: uri.clone(), why }.into());
    }
    let files = LeafFiles::find(origin, manifest, given).await?;
    let snapshot = Box::pin(files.snapshot(manifest)).await?;
    let mut files = origin.list_all(uri, limit).await?.objects;
    let damaged = damaged_files(manifest);
    let known: HashSet<&str> = snapshot.keys().collect();
    let mut kinds: HashSet<&str> = known.iter().map(|key| extension(key)).collect();
    if tokens::may_be_tokens(manifest) {
        kinds.extend(["bin", "npy"]);
    }
    let include = Include::of(manifest);
    files.retain(|file| {
        selection::may_be_data(file, include.as_ref())
            && kinds.contains(extension(&file.key))
            && !known.contains(&*file.key)
            && !damaged.contains(&file.key)
    });
    let all = files.len();
    files.truncate(ADDED_HEADERS_MAX);
    let (read, taken) = (files.len(), taken(origin, manifest, files).await?);
    Ok(if taken == read { all } else { taken } as u64)
}

/// Counts the files that an index of the same kind takes.
async fn taken(
    origin: &Origin,
    manifest: &Manifest,
    files: Vec<ObjectInfo>,
) -> Result<usize, DatasetError> {
    let (uri, quiet) = (manifest.uri(), &|_| {});
    let of_kind = |kind| files.iter().filter(move |file| extension(&file.key) == kind);
    let streams = of_kind("bin").filter(|file| tokens::is_long_enough(manifest, file.size_bytes));
    // Files of all other kinds are taken whatever they hold.
    let has_tensors = |file: &&ObjectInfo| format_of(&file.key) == Some(Format::Tensors);
    let others = files.iter().filter(|file| !has_tensors(file));
    let mut taken = streams.count() + others.count();
    let (safetensors, npy) =
        (of_kind("safetensors").cloned().collect(), of_kind("npy").cloned().collect());
    let left_out = &mut LeftOuts::default();
    let mut found = safetensors::candidates(origin, uri, safetensors, left_out, quiet).await?;
    found.extend(npy::candidates(origin, uri, npy, left_out, quiet).await?);
    for Candidate { tensors, .. } in found {
        let files: HashSet<usize> =
            tensors.iter().filter(|tensor| belongs(manifest, tensor)).map(|t| t.file).collect();
        taken += files.len();
    }
    Ok(taken)
}

/// Returns whether this is a tensor of the samples, or a stream of tokens for windows over it.
fn belongs(manifest: &Manifest, tensor: &FoundTensor) -> bool {
    let alike = |known: &Tensor| {
        (known.name(), known.dtype(), known.shape())
            == (tensor.name.as_str(), tensor.dtype, tensor.shape.as_slice())
    };
    let is_stream = tensor.shape.is_empty() && tokens::may_be_tokens(manifest);
    manifest.tensors().iter().any(alike)
        || is_stream && tokens::is_long_enough(manifest, tensor.bytes)
}
