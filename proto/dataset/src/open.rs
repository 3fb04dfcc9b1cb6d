//! Opening a dataset: from a reference to its manifest.

use crate::{
    DatasetError, DatasetRef, IndexOptions, LeftOut, Manifest, ManifestLocation, Origin,
    OriginError, OriginUri, SnapshotId,
    index::{cache_home, home_beside, index, manifest_uri, read_tag, tag_uri},
    limits,
};

/// An opened dataset.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The manifest.
    pub manifest: Manifest,
    /// Whether there was none, so that the prefix was indexed just now.
    pub indexed_now: bool,
    /// Where the manifest lies.
    pub location: ManifestLocation,
    /// What was left out, if the prefix was indexed just now.
    pub left_out: Vec<LeftOut>,
}

/// Opens a dataset with an origin of its own. See [`open_with`].
///
/// # Errors
/// As [`Origin::connect`] and [`open_with`].
pub async fn open(
    dataset: &DatasetRef,
    manifest: Option<&OriginUri>,
) -> Result<Opened, DatasetError> {
    let origin = Origin::connect(dataset.uri()).await?;
    open_with(&origin, dataset, manifest).await
}

/// Opens a dataset: finds the manifest its tag points to, beside the data, or in the local cache, or
/// under `manifest` if that is given (which may also name one `.manifest` object). A tag of 32 hex
/// digits is the id of a snapshot. A prefix that was never indexed is indexed now, with the defaults.
///
/// # Errors
/// When there is no such tag, the manifest is damaged or of another dataset, or the prefix can't be
/// indexed.
pub async fn open_with(
    origin: &Origin,
    dataset: &DatasetRef,
    manifest: Option<&OriginUri>,
) -> Result<Opened, DatasetError> {
    let found = match manifest {
        Some(object) if object.path().ends_with(".manifest") => {
            let there = origin.reach(object).await?;
            Some(ManifestLocation::Given(object.clone()).read(&there, dataset, None).await?)
        }
        Some(home) => {
            let there = origin.reach(home).await?;
            find(&there, dataset, home, &ManifestLocation::Given).await?
        }
        None => find_default(origin, dataset, cache_home(dataset.uri())).await?,
    };
    if let Some((manifest, location)) = found {
        return Ok(Opened { manifest, indexed_now: false, location, left_out: Vec::new() });
    }
    if dataset.tag() != DatasetRef::TAG_DEFAULT {
        let what = format!("tag or snapshot '{}'", dataset.tag());
        return Err(DatasetError::NoSuchVersion { dataset: dataset.uri().clone(), what });
    }
    let options = IndexOptions { manifest: manifest.cloned(), ..IndexOptions::default() };
    let indexed = Box::pin(index(origin, dataset.uri(), &options, &|_| {})).await?;
    let (manifest, location) = (indexed.manifest, indexed.location);
    Ok(Opened { manifest, indexed_now: true, location, left_out: indexed.left_out })
}

type Found = (Manifest, ManifestLocation);

/// Looks beside the data, then in the local cache.
async fn find_default(
    origin: &Origin,
    dataset: &DatasetRef,
    cache: Option<OriginUri>,
) -> Result<Option<Found>, DatasetError> {
    let beside = home_beside(dataset.uri())?;
    let mut denied = None;
    match find(origin, dataset, &beside, &ManifestLocation::Beside).await {
        Ok(Some(found)) => return Ok(Some(found)),
        Ok(None) => {}
        // Without the right to list, S3 answers "denied" for what is not there.
        Err(DatasetError::Origin(error @ OriginError::Denied { .. })) => {
            denied = Some(error.to_string());
        }
        Err(error) => return Err(error),
    }
    let Some(cache) = cache else {
        return Ok(None);
    };
    let local = Origin::connect(&cache).await?;
    let why = denied.unwrap_or_else(|| "it was not writable when it was indexed".into());
    let location = |uri| ManifestLocation::LocalCache { uri, why: why.clone() };
    find(&local, dataset, &cache, &location).await
}

/// Looks for the tag or snapshot under one home.
async fn find(
    origin: &Origin,
    dataset: &DatasetRef,
    home: &OriginUri,
    location: &(dyn Fn(OriginUri) -> ManifestLocation + Sync),
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
    match location(object).read(origin, dataset, Some(snapshot)).await {
        Err(DatasetError::Origin(OriginError::NotFound { .. })) if !named => Ok(None),
        other => other.map(Some),
    }
}

impl ManifestLocation {
    /// Reads the manifest and checks that it is the one that was meant.
    async fn read(
        self,
        origin: &Origin,
        dataset: &DatasetRef,
        snapshot: Option<SnapshotId>,
    ) -> Result<Found, DatasetError> {
        let object = self.uri();
        let (bytes, _) = origin.get(object, limits::MANIFEST_BYTES_MAX).await?;
        let manifest = Manifest::parse(bytes)
            .map_err(|source| DatasetError::Manifest { object: object.clone(), source })?;
        let refused = |why| Err(DatasetError::Tag { object: object.clone(), why });
        if snapshot.is_some_and(|snapshot| snapshot != manifest.snapshot()) {
            return refused(format!("it holds the snapshot {}", manifest.snapshot()));
        }
        if manifest.uri() != dataset.uri() {
            return refused(format!(
                "it is the manifest of {}, not of {}",
                manifest.uri(),
                dataset.uri()
            ));
        }
        Ok((manifest, self))
    }
}
