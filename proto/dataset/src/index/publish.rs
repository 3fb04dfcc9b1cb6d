//! Writes leaves, a manifest and the tag that points to it, in this order.
//!
//! ```text
//! <home>/<snapshot, 64 hex digits>.manifest
//! <home>/leaves/<SHA-256>                     the leaves of manifests, shared by snapshots
//! <home>/tags/<tag>                           {"snapshot": "<64 hex digits>"}
//! <home>/tags/keys-of-<snapshot>              the same: the manifest with the keys of a snapshot
//! ```
//!
//! `home` is `<prefix>/.larder`, or the caller's choice, or a folder of the local cache if the
//! prefix is not writable or must not be written.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use larder_base::{SnapshotId, limits};
use serde::{Deserialize, Serialize};

use crate::{
    DatasetError, Leaf, Manifest, ManifestLocation, ObjectInfo, Origin, OriginError, OriginUri,
    home::{WriteHome, home_beside, leaf_uri, manifest_uri, tag_uri},
    origin::Put,
};

/// Largest tag object, in bytes: it holds one small JSON object.
const TAG_OBJECT_BYTES_MAX: u64 = 4096;

/// Attempts to move a tag that another process moves at the same time.
const TAG_ATTEMPTS: usize = 5;

/// The remedy where a manifest can be written nowhere.
const NO_CACHE: &str = "set XDG_CACHE_HOME to a folder that this user may write, or index with an \
                        account that may write .larder/* (s3:PutObject)";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Tag {
    snapshot: String,
}

impl Tag {
    fn to(snapshot: SnapshotId) -> Self {
        Self { snapshot: snapshot.to_string() }
    }

    pub(crate) fn snapshot(&self, object: &OriginUri) -> Result<SnapshotId, DatasetError> {
        self.snapshot
            .parse()
            .map_err(|error| DatasetError::Tag { object: object.clone(), why: format!("{error}") })
    }
}

/// Reads a tag. Returns `None` if there is none.
pub(crate) async fn read_tag(
    origin: &Origin,
    object: &OriginUri,
) -> Result<Option<(Tag, ObjectInfo)>, DatasetError> {
    match origin.get(object, TAG_OBJECT_BYTES_MAX).await {
        Ok((bytes, info)) => {
            let tag = serde_json::from_slice(&bytes).map_err(|error| DatasetError::Tag {
                object: object.clone(),
                why: format!("this is not a tag: {error}"),
            })?;
            Ok(Some((tag, info)))
        }
        Err(OriginError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes the leaves, then the manifest, then the tag.
pub(super) async fn publish(
    origin: &Origin,
    manifest: &Manifest,
    leaves: &[Leaf],
    home: &WriteHome,
    tag: &str,
) -> Result<ManifestLocation, DatasetError> {
    match home {
        WriteHome::Given(home) => {
            let there = origin.reach(home).await?;
            Ok(ManifestLocation::Given(write(&there, manifest, leaves, home, tag).await?))
        }
        WriteHome::Cache(cache) => {
            let why = "nothing is to be written beside the data (write=never)".to_owned();
            write_in_cache(origin, manifest, leaves, cache, tag, why).await
        }
        WriteHome::Beside { cache } => {
            let beside = home_beside(manifest.uri())?;
            match (write(origin, manifest, leaves, &beside, tag).await, cache) {
                (Ok(uri), _) => Ok(ManifestLocation::Beside(uri)),
                (Err(DatasetError::Origin(denied @ OriginError::Denied { .. })), Some(cache)) => {
                    write_in_cache(origin, manifest, leaves, cache, tag, denied.to_string()).await
                }
                (Err(DatasetError::Origin(OriginError::Denied { object, why, remedy })), None) => {
                    let remedy = remedy.or(Some(NO_CACHE));
                    Err(OriginError::Denied { object, why, remedy }.into())
                }
                (Err(error), _) => Err(error),
            }
        }
    }
}

/// Writes into the local cache, unless opens would find another snapshot beside the data first.
async fn write_in_cache(
    origin: &Origin,
    manifest: &Manifest,
    leaves: &[Leaf],
    cache: &OriginUri,
    tag: &str,
    why: String,
) -> Result<ManifestLocation, DatasetError> {
    let prefix = manifest.uri();
    let object = tag_uri(&home_beside(prefix)?, tag)?;
    if let Ok(Some((found, _))) = read_tag(origin, &object).await
        && found.snapshot(&object)? != manifest.snapshot()
    {
        return Err(DatasetError::HiddenInCache { tag: object, prefix: prefix.clone() });
    }
    let local = Origin::connect(cache).await?;
    let uri = write(&local, manifest, leaves, cache, tag).await?;
    Ok(ManifestLocation::LocalCache { uri, why })
}

async fn write(
    origin: &Origin,
    manifest: &Manifest,
    leaves: &[Leaf],
    home: &OriginUri,
    tag: &str,
) -> Result<OriginUri, DatasetError> {
    let write_leaf = |leaf: &Leaf| {
        let object = leaf_uri(home, &manifest.leaf_sha256(leaf.number()));
        let bytes = Bytes::from_owner(LeafBytes(leaf.clone()));
        async move { write_file(origin, &object?, bytes).await }
    };
    let writes: Vec<_> = leaves.iter().map(write_leaf).collect();
    let writes = stream::iter(writes).buffer_unordered(limits::HEADERS_IN_FLIGHT);
    writes.try_collect::<()>().await?;
    let object = manifest_uri(home, manifest.snapshot())?;
    write_file(origin, &object, Bytes::from_owner(RootBytes(manifest.clone()))).await?;
    move_tag(origin, &tag_uri(home, tag)?, manifest.snapshot()).await?;
    Ok(object)
}

/// A root as shared bytes.
struct RootBytes(Manifest);

impl AsRef<[u8]> for RootBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A leaf as shared bytes.
struct LeafBytes(Leaf);

impl AsRef<[u8]> for LeafBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Writes a root or a leaf if it does not exist. Its name is its hash, so an object of that name
/// with other bytes is damaged and replaced.
async fn write_file(origin: &Origin, object: &OriginUri, bytes: Bytes) -> Result<(), DatasetError> {
    match origin.put_if_absent(object, bytes.clone()).await {
        Ok(true) => return Ok(()),
        Ok(false) => {
            let there = origin.get(object, bytes.len() as u64).await;
            if there.is_ok_and(|(there, _)| there == bytes) {
                return Ok(());
            }
        }
        // Stores without conditional writes get the same bytes unconditionally.
        Err(OriginError::Unsupported { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(origin.put(object, bytes, Put::Always).await?)
}

/// Points a tag to a snapshot. Creates an absent tag; replaces an existing one on the condition
/// that it did not change since it was read. On a store without conditions (a local folder) the
/// last writer wins.
async fn move_tag(
    origin: &Origin,
    object: &OriginUri,
    snapshot: SnapshotId,
) -> Result<(), DatasetError> {
    let tag = serde_json::to_vec(&Tag::to(snapshot)).expect("a tag is plain JSON");
    let tag = Bytes::from(tag);
    for _ in 0..TAG_ATTEMPTS {
        let put = match read_tag(origin, object).await {
            Ok(Some((there, _))) if there.snapshot(object).is_ok_and(|s| s == snapshot) => {
                return Ok(());
            }
            Ok(Some((_, info))) => Put::Over { etag: info.etag, version: info.version },
            Ok(None) => Put::Absent,
            // A tag that cannot be read is replaced.
            Err(DatasetError::Tag { .. }) => Put::Always,
            Err(error) => return Err(error),
        };
        match origin.put(object, tag.clone(), put).await {
            Ok(()) => return Ok(()),
            Err(OriginError::Conflict { .. }) => {}
            Err(OriginError::Unsupported { .. }) => {
                return Ok(origin.put(object, tag, Put::Always).await?);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(DatasetError::TagContended { object: object.clone(), attempts: TAG_ATTEMPTS })
}
