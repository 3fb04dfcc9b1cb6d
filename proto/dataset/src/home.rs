//! Where the manifests, leaves, tags and checksum tables of a dataset lie.

use std::{env, fmt::Write as _, path::PathBuf};

use larder_base::SnapshotId;
use xxhash_rust::xxh3::xxh3_128;

use crate::{DatasetError, OriginUri};

/// The place of a dataset's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestLocation {
    /// Beside the data, under `<prefix>/.larder`.
    Beside(OriginUri),
    /// At the address that the caller gave.
    Given(OriginUri),
    /// In the local cache, because the prefix is not writable.
    LocalCache {
        /// The manifest.
        uri: OriginUri,
        /// The origin's refusal.
        why: String,
    },
}

impl ManifestLocation {
    /// Returns the address of the manifest.
    pub fn uri(&self) -> &OriginUri {
        match self {
            Self::Beside(uri) | Self::Given(uri) | Self::LocalCache { uri, .. } => uri,
        }
    }
}

/// Returns the home of manifests beside the data.
///
/// # Errors
/// The address is too long.
pub fn home_beside(prefix: &OriginUri) -> Result<OriginUri, DatasetError> {
    Ok(prefix.join(".larder")?)
}

/// Returns the home of manifests in the local cache, for prefixes that are not writable; `None` if
/// this user has no cache.
pub fn cache_home(prefix: &OriginUri) -> Option<OriginUri> {
    let named = |variable| env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache =
        named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")))?;
    let name = format!("{:032x}", xxh3_128(prefix.to_string().as_bytes()));
    let folder = cache.join("larder").join(name);
    OriginUri::parse(&format!("file://{}", folder.to_str()?)).ok()
}

pub(crate) fn manifest_uri(
    home: &OriginUri,
    snapshot: SnapshotId,
) -> Result<OriginUri, DatasetError> {
    Ok(home.join(&format!("{snapshot}.manifest"))?)
}

/// Returns the address of a leaf of a manifest: `leaves/` and its SHA-256.
pub(crate) fn leaf_uri(home: &OriginUri, sha256: &[u8; 32]) -> Result<OriginUri, DatasetError> {
    let mut name = String::from("leaves/");
    // Writing to a string does not fail.
    for byte in sha256 {
        let _ = write!(name, "{byte:02x}");
    }
    Ok(home.join(&name)?)
}

/// Returns the home of manifests that an address means: itself, or the folder of a manifest.
pub fn home_of(manifest: &OriginUri) -> OriginUri {
    let text = manifest.to_string();
    let parent = text.strip_suffix(".manifest").and_then(|_| text.rsplit_once('/'));
    let parent = parent.and_then(|(parent, _)| OriginUri::parse(parent).ok());
    parent.unwrap_or_else(|| manifest.clone())
}

/// Returns the homes where the files of a snapshot may lie. With `given`, only that; otherwise
/// beside the data, then in the local cache.
pub(crate) fn homes(
    prefix: &OriginUri,
    given: Option<&OriginUri>,
) -> Result<Vec<OriginUri>, DatasetError> {
    match given {
        Some(given) => Ok(vec![home_of(given)]),
        None => {
            let homes = [Some(home_beside(prefix)?), cache_home(prefix)];
            Ok(homes.into_iter().flatten().collect())
        }
    }
}

/// Returns the tag of the manifest that has a snapshot's keys. It is no tag of users.
pub fn key_tag(snapshot: SnapshotId) -> String {
    format!("{KEY_TAG}{snapshot}")
}

/// Returns whether a tag is one of [`key_tag`].
pub fn is_key_tag(tag: &str) -> bool {
    tag.strip_prefix(KEY_TAG).is_some_and(|snapshot| snapshot.parse::<SnapshotId>().is_ok())
}

const KEY_TAG: &str = "keys-of-";

pub(crate) fn tag_uri(home: &OriginUri, tag: &str) -> Result<OriginUri, DatasetError> {
    Ok(home.join(&format!("tags/{tag}"))?)
}
