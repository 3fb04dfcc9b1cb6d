//! Where the manifests, leaves, tags and checksum tables of a dataset lie.

use std::{
    env,
    fmt::{self, Write as _},
    io,
    path::{Path, PathBuf},
    str::FromStr,
};

use larder_base::SnapshotId;
use nix::unistd::{AccessFlags, eaccess};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    DatasetError, OriginUri, Scheme,
    run_folder::{WRITE_OF_OTHERS, make_private, open_private, run_folder},
};

/// The folder of manifests in the folder of the run.
const MANIFESTS_OF_RUN: &str = "manifests-of-run";

/// The place of a dataset's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestLocation {
    /// Beside the data, under `<prefix>/.larder`.
    Beside(OriginUri),
    /// At the address that the caller gave.
    Given(OriginUri),
    /// In the local cache, because the prefix is not writable, or must not be written.
    LocalCache {
        /// The manifest.
        uri: OriginUri,
        /// The origin's refusal, or the wish of the user.
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

/// Whether an index may write beside the data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// It writes there, or into the local cache if the origin denies that.
    #[default]
    Auto,
    /// It writes into the local cache.
    Never,
}

impl WritePolicy {
    /// The variable with the policy of a process.
    pub const VARIABLE: &str = "LARDER_WRITE";

    /// Returns the policy of this process: that of [`VARIABLE`](Self::VARIABLE), else `Auto`.
    ///
    /// # Errors
    /// Why its value can't be used.
    pub fn of_process() -> Result<Self, String> {
        let Some(value) = env::var_os(Self::VARIABLE).filter(|value| !value.is_empty()) else {
            return Ok(Self::Auto);
        };
        let value = value.to_string_lossy();
        value.parse().map_err(|why| format!("'{value}' is not known: {why}"))
    }
}

impl fmt::Display for WritePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Never => "never",
        })
    }
}

impl FromStr for WritePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Auto, Self::Never].into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| "it is one of auto, never".to_owned())
    }
}

/// The places where an index may write its files, in their order.
#[derive(Debug, Clone)]
pub(crate) enum WriteHome {
    /// The folder that the caller gave.
    Given(OriginUri),
    /// Beside the data, or in the cache if the origin denies that.
    Beside { cache: Option<OriginUri> },
    /// In the cache.
    Cache(OriginUri),
}

impl WriteHome {
    /// # Errors
    /// Nothing may be written beside the data, and there is no cache.
    pub(crate) fn of(
        prefix: &OriginUri,
        given: Option<&OriginUri>,
        policy: WritePolicy,
    ) -> Result<Self, DatasetError> {
        match (given, make_cache_home(prefix), policy) {
            (Some(given), ..) => Ok(Self::Given(given.clone())),
            (None, cache, WritePolicy::Auto) => Ok(Self::Beside { cache }),
            (None, Some(cache), WritePolicy::Never) => Ok(Self::Cache(cache)),
            (None, None, WritePolicy::Never) => Err(DatasetError::Option {
                option: "write=never",
                why: "this user has no cache folder for the manifest: set XDG_CACHE_HOME to a \
                      folder that this user may write"
                    .to_owned(),
            }),
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

/// Returns the home of manifests in the local cache, for prefixes that are not written. Without a
/// cache folder that this user can use, it is in the folder of the run. `None` if neither exists.
pub fn cache_home(prefix: &OriginUri) -> Option<OriginUri> {
    cache_home_in(prefix, |_| Ok(()))
}

/// As [`cache_home`], and makes the folder of the run if it is needed and missing.
fn make_cache_home(prefix: &OriginUri) -> Option<OriginUri> {
    cache_home_in(prefix, make_private)
}

fn cache_home_in(
    prefix: &OriginUri,
    prepare: impl Fn(&Path) -> io::Result<()>,
) -> Option<OriginUri> {
    let run = || {
        let run = run_folder();
        prepare(&run).ok()?;
        open_private(&run, WRITE_OF_OTHERS).ok()??;
        Some(run)
    };
    let named = |variable| env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")));
    let name = format!("{:032x}", xxh3_128(prefix.to_string().as_bytes()));
    let in_cache = cache.map(|cache| cache.join("larder").join(&name));
    let folder = in_cache
        .filter(|folder| is_usable(folder))
        .or_else(|| Some(run()?.join(MANIFESTS_OF_RUN).join(&name)))?;
    OriginUri::parse(&format!("file://{}", folder.to_str()?)).ok()
}

/// Returns whether this user can read a folder or, if it does not exist, make it.
fn is_usable(folder: &Path) -> bool {
    let may = |path: &Path, access| eaccess(path, access | AccessFlags::X_OK).is_ok();
    let ancestor = folder.ancestors().find(|path| path.exists());
    may(folder, AccessFlags::R_OK) || ancestor.is_some_and(|path| may(path, AccessFlags::W_OK))
}

/// Returns a warning if a manifest lies in the folder of the run, which does not last.
pub fn warning_of_run_folder(manifest: &str) -> Option<String> {
    let uri = OriginUri::parse(manifest).ok().filter(|uri| uri.scheme() == Scheme::File)?;
    uri.path().split('/').any(|part| part == MANIFESTS_OF_RUN).then(|| {
        format!(
            "the manifest is in a temporary folder ({manifest}), because this user can write \
             neither the prefix nor a cache folder; to keep it, set XDG_CACHE_HOME to a folder \
             that lasts, or index with an account that may write .larder/* (s3:PutObject)"
        )
    })
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
