//! Lists the tags and snapshots of a prefix, on the origin and in this user's cache.

use larder_client::admin::{Origin, OriginUri, SnapshotId, cache_home, is_key_tag};
use serde::{Deserialize, Serialize};

use crate::{
    context::Context,
    error::{Exit, Failure},
    output::{Page, Report, TextTable, units},
};

/// The most tags that are read: each costs a request.
const TAGS_MAX: usize = 1000;
/// The most bytes of a tag, which is one small JSON object.
const TAG_BYTES_MAX: u64 = 4096;

#[derive(Debug, Serialize)]
struct TagsReport {
    uri: String,
    tags: Vec<Tag>,
    snapshots: Vec<Snapshot>,
}

#[derive(Debug, Serialize)]
struct Tag {
    tag: String,
    /// Absent if the tag can't be read.
    snapshot: Option<String>,
    lies: ManifestHome,
}

#[derive(Debug, Serialize)]
struct Snapshot {
    snapshot: String,
    manifest_bytes: u64,
    lies: ManifestHome,
}

/// The place of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ManifestHome {
    /// Under the prefix.
    Beside,
    /// At the address of `--manifest`.
    Given,
    /// In the user's cache, for prefixes that can't be written to.
    Cache,
}

/// The content of a tag object.
#[derive(Debug, Deserialize)]
struct TagObject {
    snapshot: String,
}

pub(super) fn run(
    context: &Context,
    prefix: &OriginUri,
    manifest: Option<&str>,
) -> Result<(), Failure> {
    let homes = homes(prefix, manifest)?;
    let progress = context.progress(&format!("listing {}", homes[0].1));
    let report = context.block_on(Box::pin(list_all(prefix, &homes)))??;
    drop(progress);
    if report.snapshots.is_empty() && report.tags.is_empty() {
        let places: Vec<_> = homes.iter().map(|(_, home)| home.to_string()).collect();
        return Err(Failure::new(Exit::NotFound, format!("{prefix} is not indexed"))
            .why(format!("there is nothing under {}", places.join(" or ")))
            .hint(format!("larder dataset index {prefix}")));
    }
    context.output.print(&report)
}

/// The possible places of the prefix's manifests, in the order of the search.
fn homes(
    prefix: &OriginUri,
    manifest: Option<&str>,
) -> Result<Vec<(ManifestHome, OriginUri)>, Failure> {
    if let Some(text) = manifest {
        return Ok(vec![(ManifestHome::Given, OriginUri::parse(text)?)]);
    }
    let beside = (ManifestHome::Beside, prefix.join(".larder")?);
    let cache = cache_home(prefix).map(|home| (ManifestHome::Cache, home));
    Ok([beside].into_iter().chain(cache).collect())
}

/// Lists all places. A place that may not be listed is an error only if the others have nothing.
async fn list_all(
    prefix: &OriginUri,
    homes: &[(ManifestHome, OriginUri)],
) -> Result<TagsReport, Failure> {
    let (tags, snapshots) = (Vec::new(), Vec::new());
    let mut report = TagsReport { uri: prefix.to_string(), tags, snapshots };
    let mut denied = None;
    for (place, home) in homes {
        match list(home, *place, &mut report).await {
            Err(failure) if failure.exit == Exit::Denied => denied = denied.or(Some(failure)),
            listed => listed?,
        }
    }
    match denied {
        Some(failure) if report.snapshots.is_empty() => Err(failure),
        _ => Ok(report),
    }
}

async fn list(
    home: &OriginUri,
    lies: ManifestHome,
    report: &mut TagsReport,
) -> Result<(), Failure> {
    let origin = Origin::connect(home).await?;
    // Key tables are part of a snapshot, though each lies in a manifest with a tag of its own.
    let mut of_keys = Vec::new();
    for object in origin.list(home).await? {
        if let Some(tag) = object.key.strip_prefix("tags/") {
            if is_key_tag(tag) {
                of_keys.extend(read(&origin, home, tag).await?);
            } else if report.tags.len() < TAGS_MAX {
                let (tag, snapshot) = (tag.to_owned(), read(&origin, home, tag).await?);
                report.tags.push(Tag { tag, snapshot, lies });
            }
        } else if let Some(name) = object.key.strip_suffix(".manifest")
            && name.parse::<SnapshotId>().is_ok()
        {
            let (snapshot, manifest_bytes) = (name.to_owned(), object.size_bytes);
            report.snapshots.push(Snapshot { snapshot, manifest_bytes, lies });
        }
    }
    report.snapshots.retain(|listed| !of_keys.contains(&listed.snapshot));
    Ok(())
}

async fn read(origin: &Origin, home: &OriginUri, tag: &str) -> Result<Option<String>, Failure> {
    let object = home.join(&format!("tags/{tag}"))?;
    let (bytes, _) = origin.get(&object, TAG_BYTES_MAX).await?;
    Ok(serde_json::from_slice(&bytes).ok().map(|tag: TagObject| tag.snapshot))
}

impl ManifestHome {
    fn words(self) -> &'static str {
        match self {
            Self::Beside => "beside the data",
            Self::Given => "where you said",
            Self::Cache => "in this user's cache",
        }
    }
}

impl Report for TagsReport {
    fn show(&self, page: &mut Page) {
        let mut table = TextTable::new("TAG | SNAPSHOT | >MANIFEST | LIES");
        let size = |snapshot: &str, lies: ManifestHome| {
            let mut all = self.snapshots.iter();
            let found = all.find(|one| one.snapshot == snapshot && one.lies == lies);
            found.map_or("missing".to_owned(), |one| units::bytes(one.manifest_bytes))
        };
        let mut row = |tag: &str, snapshot: &str, lies: ManifestHome| {
            let words = lies.words().to_owned();
            table.row([tag.to_owned(), snapshot.to_owned(), size(snapshot, lies), words]);
        };
        for tag in &self.tags {
            row(&tag.tag, tag.snapshot.as_deref().unwrap_or("unreadable"), tag.lies);
        }
        let is_of = |tag: &Tag, one: &Snapshot| {
            tag.lies == one.lies && tag.snapshot.as_deref() == Some(one.snapshot.as_str())
        };
        for one in &self.snapshots {
            if !self.tags.iter().any(|tag| is_of(tag, one)) {
                row("(none)", &one.snapshot, one.lies);
            }
        }
        page.table(&table);
    }
}
