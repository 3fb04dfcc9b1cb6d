//! Opens a dataset: finds and reads the manifest that a reference names.

use std::{any::Any, sync::Arc};

use bytes::Bytes;
use larder_base::{SnapshotId, limits};

use crate::{
    DatasetError, DatasetRef, IndexOptions, IndexProgress, Indexed, Leaf, LeafFiles, LeftOut,
    Manifest, ManifestError, ManifestLocation, Origin, OriginError, OriginUri, ReadKeeper,
    Snapshot, WritePolicy,
    home::{cache_home, home_beside, manifest_uri, tag_uri},
    index::{index, read_tag},
};

/// The limits and savings of a process that opens datasets for others. By default nothing is
/// counted or kept.
pub trait OpenBudget: Send + Sync {
    /// Returns the manifest of a snapshot that is open already, so that it need not be read again.
    /// Called after a tag was read.
    fn kept(&self, snapshot: SnapshotId) -> Option<Manifest> {
        let _ = snapshot;
        None
    }

    /// Reserves memory for a manifest of this many bytes, until the returned value is dropped.
    ///
    /// # Errors
    /// Why there is no room, in words.
    fn for_manifest(&self, bytes: u64) -> Result<Box<dyn Any + Send + Sync>, String> {
        let _ = bytes;
        Ok(Box::new(()))
    }

    /// Returns permission to index a prefix, which lasts until the returned value is dropped.
    /// `None` if enough other prefixes are being indexed.
    fn to_index(&self) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(()))
    }

    /// Returns whether an index may write beside the data. `None`: as `LARDER_WRITE` says for this
    /// process.
    fn write_policy(&self) -> Option<WritePolicy> {
        None
    }

    /// Called with the progress of indexing.
    fn indexes(&self, step: IndexProgress) {
        let _ = step;
    }

    /// Returns the taker of what scans of files read while the prefix is indexed.
    fn keeper(&self) -> Option<Arc<dyn ReadKeeper>> {
        None
    }
}

struct Unlimited;

impl OpenBudget for Unlimited {}

/// A manifest as it was read, and the reservation of its memory.
struct Housed {
    bytes: Bytes,
    _room: Box<dyn Any + Send + Sync>,
}

impl AsRef<[u8]> for Housed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An opened dataset.
#[derive(Debug, Clone)]
pub struct OpenedManifest {
    /// The manifest.
    pub manifest: Manifest,
    /// All its leaves, if the prefix was indexed just now.
    pub leaves: Vec<Leaf>,
    /// The files of its leaves.
    pub leaf_files: LeafFiles,
    /// Whether the prefix had no manifest and was indexed just now.
    pub indexed_now: bool,
    /// The place of the manifest.
    pub location: ManifestLocation,
    /// Objects left out, if the prefix was indexed just now.
    pub left_out: Vec<LeftOut>,
}

/// Opens a dataset with an origin of its own. See [`open_with`].
///
/// # Errors
/// As [`Origin::connect`] and [`open_with`].
pub async fn open(
    dataset: &DatasetRef,
    manifest: Option<&OriginUri>,
) -> Result<OpenedManifest, DatasetError> {
    let origin = Origin::connect(dataset.uri()).await?;
    open_with(&origin, dataset, manifest).await
}

/// Opens a dataset: finds the manifest that its tag points to. A tag of 64 hex digits is the id of
/// a snapshot.
///
/// With `manifest` it looks there only; that address may also name one `.manifest` object. Without,
/// it looks beside the data and then in the local cache. If it finds no manifest and the tag is
/// `latest`, it indexes the prefix with the defaults.
///
/// # Errors
/// * There is no such tag, or no manifest under the given address.
/// * The manifest is damaged or describes other data.
/// * The prefix cannot be indexed, or others are.
pub async fn open_with(
    origin: &Origin,
    dataset: &DatasetRef,
    manifest: Option<&OriginUri>,
) -> Result<OpenedManifest, DatasetError> {
    open_in(origin, dataset, manifest, &Unlimited).await
}

/// As [`open_with`], with memory that `room` grants before it is taken.
///
/// # Errors
/// As [`open_with`]; [`OriginError::NoRoom`].
pub async fn open_in(
    origin: &Origin,
    dataset: &DatasetRef,
    manifest: Option<&OriginUri>,
    room: &dyn OpenBudget,
) -> Result<OpenedManifest, DatasetError> {
    if let Some(found) = find_in(origin, dataset, manifest, room).await? {
        return Ok(found);
    }
    // A mistyped address must not become the home of a new index.
    if let Some(home) = manifest {
        return Err(DatasetError::NoManifest { dataset: dataset.clone(), home: home.clone() });
    }
    if dataset.tag() != DatasetRef::TAG_DEFAULT {
        let what = format!("tag or snapshot '{}'", dataset.tag());
        return Err(DatasetError::NoSuchVersion { dataset: dataset.uri().clone(), what });
    }
    let options = IndexOptions { write: room.write_policy(), ..IndexOptions::default() };
    let prefix = dataset.uri();
    let _leave =
        room.to_index().ok_or_else(|| DatasetError::OthersIndexed { prefix: prefix.clone() })?;
    let keeping = origin.keeping(room.keeper());
    let show = |step| room.indexes(step);
    let indexed = Box::pin(index(&keeping, prefix, &options, &show)).await?;
    let Indexed { snapshot: Snapshot { manifest, leaves }, location, left_out } = indexed;
    let leaf_files = LeafFiles::of(origin, &location).await?;
    Ok(OpenedManifest { manifest, leaves, leaf_files, indexed_now: true, location, left_out })
}

/// As [`open_with`], but indexes nothing. `None` if there is no manifest.
///
/// # Errors
/// * The manifest is damaged or describes other data.
/// * The origin's error.
pub async fn find_with(
    origin: &Origin,
    dataset: &DatasetRef,
    manifest: Option<&OriginUri>,
) -> Result<Option<OpenedManifest>, DatasetError> {
    find_in(origin, dataset, manifest, &Unlimited).await
}

async fn find_in(
    origin: &Origin,
    dataset: &DatasetRef,
    manifest: Option<&OriginUri>,
    room: &dyn OpenBudget,
) -> Result<Option<OpenedManifest>, DatasetError> {
    let found = match manifest {
        Some(object) if object.path().ends_with(".manifest") => {
            let there = origin.reach(object).await?;
            let snapshot = named_snapshot(object);
            let location = ManifestLocation::Given(object.clone());
            Some(location.read(&there, dataset, snapshot, room).await?)
        }
        Some(home) => {
            let there = origin.reach(home).await?;
            find(&there, dataset, home, &ManifestLocation::Given, room).await?
        }
        None => find_default(origin, dataset, cache_home(dataset.uri()), room).await?,
    };
    let Some((manifest, location)) = found else {
        return Ok(None);
    };
    let leaf_files = LeafFiles::of(origin, &location).await?;
    let (leaves, left_out) = (Vec::new(), Vec::new());
    Ok(Some(OpenedManifest {
        manifest,
        leaves,
        leaf_files,
        indexed_now: false,
        location,
        left_out,
    }))
}

/// Returns the snapshot in the name of a manifest.
fn named_snapshot(object: &OriginUri) -> Option<SnapshotId> {
    let name = object.path().rsplit('/').next()?;
    name.strip_suffix(".manifest")?.parse().ok()
}

type Found = (Manifest, ManifestLocation);

/// Looks beside the data, then in the local cache.
async fn find_default(
    origin: &Origin,
    dataset: &DatasetRef,
    cache: Option<OriginUri>,
    room: &dyn OpenBudget,
) -> Result<Option<Found>, DatasetError> {
    let beside = home_beside(dataset.uri())?;
    let mut denied = None;
    match find(origin, dataset, &beside, &ManifestLocation::Beside, room).await {
        Ok(Some(found)) => return Ok(Some(found)),
        Ok(None) => {}
        // Without the right to list, S3 answers "denied" for an object that does not exist.
        Err(DatasetError::Origin(error @ OriginError::Denied { .. })) => {
            denied = Some(error.to_string());
        }
        Err(error) => return Err(error),
    }
    let Some(cache) = cache else {
        return Ok(None);
    };
    let local = Origin::connect(&cache).await?;
    let why = denied.unwrap_or_else(|| "the prefix was not written when it was indexed".into());
    let location = |uri| ManifestLocation::LocalCache { uri, why: why.clone() };
    find(&local, dataset, &cache, &location, room).await
}

/// Looks for the tag or snapshot under one home.
async fn find(
    origin: &Origin,
    dataset: &DatasetRef,
    home: &OriginUri,
    location: &(dyn Fn(OriginUri) -> ManifestLocation + Sync),
    room: &dyn OpenBudget,
) -> Result<Option<Found>, DatasetError> {
    let tag = tag_uri(home, dataset.tag())?;
    let (snapshot, named) = match read_tag(origin, &tag).await? {
        Some((found, _)) => (found.snapshot(&tag)?, true),
        None => match dataset.tag().parse() {
            Ok(snapshot) => (snapshot, false),
            Err(_) => return Ok(None),
        },
    };
    let object = manifest_uri(home, snapshot)?;
    if let Some(kept) = room.kept(snapshot).filter(|kept| kept.uri() == dataset.uri()) {
        return Ok(Some((kept, location(object))));
    }
    match location(object).read(origin, dataset, Some(snapshot), room).await {
        Err(DatasetError::Origin(OriginError::NotFound { .. })) if !named => Ok(None),
        other => other.map(Some),
    }
}

impl ManifestLocation {
    /// Reads the manifest and checks its snapshot and its dataset.
    async fn read(
        self,
        origin: &Origin,
        dataset: &DatasetRef,
        snapshot: Option<SnapshotId>,
        room: &dyn OpenBudget,
    ) -> Result<Found, DatasetError> {
        let object = self.uri();
        let take = |bytes| room.for_manifest(bytes);
        let got = origin.get_into(object, limits::MANIFEST_BYTES_MAX, take).await?;
        let (bytes, _, room) = got;
        let manifest = Manifest::over(Arc::new(Housed { bytes, _room: room }))
            .map_err(|source| DatasetError::Manifest { object: object.clone(), source })?;
        if snapshot.is_some_and(|snapshot| snapshot != manifest.snapshot()) {
            let object = object.clone();
            return Err(DatasetError::Manifest { object, source: ManifestError::Damaged });
        }
        if manifest.uri() != dataset.uri() {
            let (indexed, opened) = (manifest.uri().clone(), dataset.uri().clone());
            return Err(DatasetError::Moved { object: object.clone(), indexed, opened });
        }
        Ok((manifest, self))
    }
}
