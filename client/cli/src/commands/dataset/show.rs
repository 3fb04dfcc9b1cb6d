//! `larder dataset show`.

use std::collections::BTreeMap;

use clap::Args;
use larder_client::{
    admin::{Manifest, ManifestLocation, OriginUri},
    columns_left_out,
};
use serde::Serialize;

use super::{describe::Description, open, open::warn_of_added, parse_reference};
use crate::{
    context::Context,
    error::Failure,
    output::{Ink, Page, Report, units},
};

/// Shows the tensors, shards and size of a dataset, from its manifest on the origin.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The dataset: URI, URI@TAG or URI@SNAPSHOT
    #[arg(value_name = "DATASET")]
    reference: String,

    /// Place of its manifest if not beside the data
    #[arg(long, value_name = "URI")]
    manifest: Option<String>,
}

#[derive(Debug, Serialize)]
struct ShowReport {
    uri: String,
    tag: String,
    #[serde(flatten)]
    description: Description,
    /// The columns that the index left out, each with the reason.
    left_out: BTreeMap<String, String>,
    objects: u64,
    manifest_bytes: u64,
    /// Shards with a pinned checksum.
    checksums: u32,
    indexed_now: bool,
    /// Objects added since it was indexed. Absent if they could not be counted.
    added: Option<u64>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let reference = parse_reference(&arguments.reference)?;
    let given = arguments.manifest.as_deref().map(OriginUri::parse).transpose()?;
    let (_, opened) = open(context, &reference, given.as_ref())?;
    if let ManifestLocation::LocalCache { why, .. } = &opened.location {
        context.output.note(&format!("the manifest is in this user's cache: {why}"));
    }
    let manifest = &opened.manifest;
    context.output.print(&ShowReport {
        uri: reference.uri().to_string(),
        tag: reference.tag().to_owned(),
        description: Description::new(manifest, &opened.location),
        left_out: columns_left_out(manifest),
        objects: manifest.object_count(),
        manifest_bytes: manifest.as_bytes().len() as u64,
        checksums: pinned(manifest),
        indexed_now: opened.indexed_now,
        added: warn_of_added(context, manifest, given.as_ref())?,
    })
}

/// The count of shards with a checksum that indexing pinned.
pub(super) fn pinned(manifest: &Manifest) -> u32 {
    let pinned = (0..manifest.shard_count()).filter(|&s| manifest.shard(s).checksum.is_some());
    u32::try_from(pinned.count()).expect("no more than there are shards")
}

impl Report for ShowReport {
    fn show(&self, page: &mut Page) {
        let mut fields = vec![("dataset", format!("{}@{}", self.uri, self.tag))];
        fields.extend(self.description.fields());
        if let Some((_, location)) = fields.last_mut() {
            location.push_str(&format!(" ({})", units::bytes(self.manifest_bytes)));
        }
        fields.push(("objects", units::count(self.objects)));
        fields.push((
            "checksums",
            match self.checksums {
                0 => "not pinned".to_owned(),
                all if all == self.description.shards => "pinned".to_owned(),
                some => format!("pinned for {some} shards"),
            },
        ));
        page.fields(&fields);
        page.line("");
        self.description.show_tensors(page);
        if !self.left_out.is_empty() {
            page.heading(&format!("Left out ({})", self.left_out.len()));
        }
        for (name, why) in &self.left_out {
            page.line(&format!("{name}  {}", page.ink(Ink::Dim, why)));
        }
    }
}
