//! The tags and snapshots of a prefix, as they lie on the origin.

use larder_client::admin::{Origin, OriginUri, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::{
    context::Context,
    error::{Exit, Failure},
    output::{Align, Page, Report, Table, units},
};

/// Tags that are read: each costs a request.
const TAGS_MAX: usize = 1000;
/// Bytes of a tag, which is one small JSON object.
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
    /// Absent where the tag can't be read.
    snapshot: Option<String>,
}

#[derive(Debug, Serialize)]
struct Snapshot {
    snapshot: String,
    manifest_bytes: u64,
}

/// What a tag object holds.
#[derive(Debug, Deserialize)]
struct TagObject {
    snapshot: String,
}

pub(super) fn run(
    context: &Context,
    prefix: &OriginUri,
    manifest: Option<&str>,
) -> Result<(), Failure> {
    let home = match manifest {
        Some(text) => OriginUri::parse(text)?,
        None => prefix.join(".larder")?,
    };
    let progress = context.progress(&format!("listing {home}"));
    let report = context.block_on(Box::pin(list(prefix, &home)))??;
    drop(progress);
    if report.snapshots.is_empty() && report.tags.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("{prefix} is not indexed"))
            .why(format!("there is nothing under {home}"))
            .hint(format!("larder dataset index {prefix}")));
    }
    context.output.print(&report)
}

async fn list(prefix: &OriginUri, home: &OriginUri) -> Result<TagsReport, Failure> {
    let origin = Origin::connect(home).await?;
    let (mut tags, mut snapshots) = (Vec::new(), Vec::new());
    for object in origin.list(home).await? {
        if let Some(tag) = object.key.strip_prefix("tags/") {
            if tags.len() < TAGS_MAX {
                let tag = tag.to_owned();
                tags.push(Tag { snapshot: read(&origin, home, &tag).await?, tag });
            }
        } else if let Some(name) = object.key.strip_suffix(".manifest")
            && name.parse::<SnapshotId>().is_ok()
        {
            let (snapshot, manifest_bytes) = (name.to_owned(), object.size_bytes);
            snapshots.push(Snapshot { snapshot, manifest_bytes });
        }
    }
    Ok(TagsReport { uri: prefix.to_string(), tags, snapshots })
}

async fn read(origin: &Origin, home: &OriginUri, tag: &str) -> Result<Option<String>, Failure> {
    let object = home.join(&format!("tags/{tag}"))?;
    let (bytes, _) = origin.get(&object, TAG_BYTES_MAX).await?;
    Ok(serde_json::from_slice(&bytes).ok().map(|tag: TagObject| tag.snapshot))
}

impl Report for TagsReport {
    fn show(&self, page: &mut Page) {
        let mut table = Table::new(&[
            ("TAG", Align::Left),
            ("SNAPSHOT", Align::Left),
            ("MANIFEST", Align::Right),
        ]);
        let size = |snapshot: &str| {
            let found = self.snapshots.iter().find(|one| one.snapshot == snapshot);
            found.map_or("missing".to_owned(), |one| units::bytes(one.manifest_bytes))
        };
        for tag in &self.tags {
            let snapshot = tag.snapshot.as_deref().unwrap_or("unreadable");
            table.row([tag.tag.clone(), snapshot.to_owned(), size(snapshot)]);
        }
        let tagged = |one: &&Snapshot| {
            self.tags.iter().any(|tag| tag.snapshot.as_deref() == Some(one.snapshot.as_str()))
        };
        for one in self.snapshots.iter().filter(|one| !tagged(one)) {
            table.row(["(none)".to_owned(), one.snapshot.clone(), size(&one.snapshot)]);
        }
        page.table(table);
    }
}
