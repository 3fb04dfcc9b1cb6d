//! Where the manifests, tags and checksum tables of a dataset lie.

use std::{env, path::PathBuf};

use larder_base::SnapshotId;
use xxhash_rust::xxh3::xxh3_128;

use crate::{DatasetError, OriginUri};

/// Returns the home of manifests beside the data.
pub(crate) fn home_beside(prefix: &OriginUri) -> Result<OriginUri, DatasetError> {
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
