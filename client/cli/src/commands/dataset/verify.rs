//! `larder dataset verify`: reads every row and checks it.
//!
//! Without nodes it reads the origin. Objects must have exactly the indexed length and version, and
//! shards with a pinned checksum must have that checksum.
//!
//! Through nodes it reads every row as a training job does, and checks it against the CRC of its
//! fill. The digest of the epoch proves that each sample came once. `--against-source` also
//! compares each row with the origin.

mod through_nodes;

use std::time::Duration;

use clap::Args;
use larder_client::admin::{
    self, DatasetError, DatasetRef, FetchError, Leaf, OpenedManifest, Origin, OriginError,
    OriginUri,
};
use serde::Serialize;

use super::{open, open::warn_of_added, parse_reference};
use crate::{
    context::{Context, NAME_NODES, ReadFrom},
    error::{Exit, Failure},
    output::{Ink, Page, Report, units},
    progress::Bar,
};

/// The most problems that are listed. All are counted.
const PROBLEMS_SHOWN: usize = 20;

/// Reads every row of a dataset and checks it.
///
/// It reads through the cluster of --cluster or LARDER_CLUSTER, else through the node of this host,
/// if it runs, else from the origin.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The dataset: URI, URI@TAG or URI@SNAPSHOT
    #[arg(value_name = "DATASET")]
    reference: String,

    /// Compare the rows of the nodes with the bytes on the origin
    #[arg(long)]
    against_source: bool,

    /// Do not map the memory of nodes on this host: read over the network
    #[arg(long)]
    remote_only: bool,

    /// Place of the manifest if not beside the data
    #[arg(long, value_name = "URI")]
    manifest: Option<String>,
}

#[derive(Debug, Serialize)]
struct VerifyReport {
    uri: String,
    tag: String,
    snapshot: String,
    samples: u64,
    shards: u32,
    /// Bytes of all rows that were read.
    bytes: u64,
    read_from: ReadFrom,
    against_source: bool,
    /// Shards with a pinned checksum that was compared.
    checksums: u32,
    rows_local: u64,
    rows_remote: u64,
    rows_origin: u64,
    /// The epoch's digest, if rows came through nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    seconds: f64,
    problems: Problems,
    /// Objects added since it was indexed. Absent if they could not be counted.
    added: Option<u64>,
    verified: bool,
}

/// The problems of the data.
#[derive(Debug, Default, Serialize)]
struct Problems {
    count: u64,
    first: Vec<String>,
}

impl Problems {
    fn add(&mut self, problem: String) {
        self.count += 1;
        if self.first.len() < PROBLEMS_SHOWN {
            self.first.push(problem);
        }
    }
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let reference = parse_reference(&arguments.reference)?;
    let manifest = arguments.manifest.as_deref().map(OriginUri::parse).transpose()?;
    let report = match context.nodes()? {
        Some(nodes) => {
            through_nodes::verify(context, &nodes, arguments, &reference, manifest.as_ref())?
        }
        None => {
            arguments.check_without_nodes()?;
            verify_origin(context, &reference, manifest.as_ref())?
        }
    };
    context.output.print(&report)?;
    match report.problems.count {
        0 => Ok(()),
        count => {
            let what = format!("{}@{} is not what it should be", report.uri, report.tag);
            Err(Failure::new(Exit::Data, what)
                .why(units::counted(count, "problem"))
                .hint("if the data was changed on purpose, index it again; else restore it"))
        }
    }
}

impl Arguments {
    /// Refuses options that need nodes, because there are no nodes.
    fn check_without_nodes(&self) -> Result<(), Failure> {
        let asked = match (self.against_source, self.remote_only) {
            (true, _) => "--against-source compares what nodes deliver with the origin",
            (false, true) => "--remote-only reads what nodes deliver",
            (false, false) => return Ok(()),
        };
        Err(Failure::new(Exit::Usage, asked)
            .why("there are no nodes to read through")
            .hint(format!("{NAME_NODES}; without the option the origin itself is verified")))
    }
}

impl Report for VerifyReport {
    fn show(&self, page: &mut Page) {
        let time = Duration::from_secs_f64(self.seconds);
        let verdict = match self.verified {
            true => page.ink(Ink::Green, "verified"),
            false => page.ink(Ink::Red, "not verified"),
        };
        page.line(&format!("{verdict} {}@{}", self.uri, self.tag));
        page.line("");
        let mut fields = vec![
            ("snapshot", self.snapshot.clone()),
            (
                "read",
                format!(
                    "{}, {} in {} ({:.2} GiB/s), from {}",
                    units::counted(self.samples, "sample"),
                    units::bytes(self.bytes),
                    units::duration(time),
                    units::gib_per_second(self.bytes, time),
                    self.read_from,
                ),
            ),
        ];
        if self.read_from != ReadFrom::Origin {
            fields.push((
                "rows",
                format!(
                    "{} local, {} remote, {} from the origin",
                    units::count(self.rows_local),
                    units::count(self.rows_remote),
                    units::count(self.rows_origin),
                ),
            ));
        }
        fields.push(("checked", self.checked()));
        if let Some(digest) = &self.digest {
            fields.push(("digest", digest.clone()));
        }
        page.fields(&fields);
        if self.problems.count > 0 {
            page.heading(&format!("Problems ({})", units::count(self.problems.count)));
            self.problems.first.iter().for_each(|problem| page.line(problem));
        }
    }
}

impl VerifyReport {
    /// The checks that were made, in words.
    fn checked(&self) -> String {
        let pinned = match self.checksums {
            0 => "no checksum is pinned (index with --checksum to pin them)".to_owned(),
            some if some == self.shards => "the pinned checksum of every shard".to_owned(),
            some => format!("the pinned checksums of {some} of {} shards", self.shards),
        };
        match (self.read_from, self.against_source) {
            (ReadFrom::Origin, _) => format!("length and version of every object; {pinned}"),
            (_, true) => "every sample exactly once, every byte against the source".to_owned(),
            (_, false) => {
                "every sample exactly once, every row against the CRC of its fill".to_owned()
            }
        }
    }
}

/// Verifies the objects on the origin.
fn verify_origin(
    context: &Context,
    reference: &DatasetRef,
    manifest: Option<&OriginUri>,
) -> Result<VerifyReport, Failure> {
    let (given, (origin, opened)) = (manifest, open(context, reference, manifest)?);
    let manifest = &opened.manifest;
    let begun = context.now();
    let progress = context.progress("verifying");
    progress.bytes("verifying", manifest.total_bytes());
    let checked = context.block_on(Box::pin(check(&origin, &opened, &progress)))?;
    let (problems, checksums) = checked?;
    drop(progress);
    let added = warn_of_added(context, manifest, given)?;
    Ok(VerifyReport {
        uri: reference.uri().to_string(),
        tag: reference.tag().to_owned(),
        snapshot: manifest.snapshot().to_string(),
        samples: manifest.samples(),
        shards: manifest.shard_count(),
        bytes: manifest.total_bytes(),
        read_from: ReadFrom::Origin,
        against_source: false,
        checksums,
        rows_local: 0,
        rows_remote: 0,
        rows_origin: manifest.samples(),
        digest: None,
        seconds: begun.elapsed().as_secs_f64(),
        verified: problems.count == 0,
        problems,
        added,
    })
}

/// Reads every shard. Collects problems of the data; other errors end the check.
async fn check(
    origin: &Origin,
    opened: &OpenedManifest,
    progress: &Bar,
) -> Result<(Problems, u32), Failure> {
    let OpenedManifest { manifest, leaf_files, .. } = opened;
    let (mut problems, mut checksums) = (Problems::default(), 0);
    let mut last: Option<Leaf> = None;
    for number in 0..manifest.shard_count() {
        let shard = manifest.shard(number);
        let read = |bytes| progress.add(bytes);
        let leaf = match last.take().filter(|leaf| leaf.shards().contains(&number)) {
            Some(leaf) => leaf,
            None => leaf_files.load(manifest, manifest.leaf_of(number)).await?,
        };
        let leaf = last.insert(leaf);
        match Box::pin(admin::shard_checksum(origin, manifest, leaf, number, read)).await {
            Ok(found) => {
                if let Some(pinned) = shard.checksum {
                    checksums += 1;
                    if pinned != found {
                        let samples =
                            shard.first_sample..shard.first_sample + u64::from(shard.rows);
                        problems.add(format!(
                            "shard {number} (samples {samples:?}): its checksum is {found:016x} and \
                             was {pinned:016x} when it was indexed"
                        ));
                    }
                }
            }
            Err(DatasetError::Fetch(
                error @ (FetchError::Changed { .. }
                | FetchError::Origin(OriginError::NotFound { .. })),
            )) => problems.add(format!("shard {number}: {error}")),
            Err(error) => return Err(error.into()),
        }
    }
    Ok((problems, checksums))
}
