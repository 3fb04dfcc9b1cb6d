//! Verifies the rows of nodes: one pass of a loader over all samples.

use larder_client::{
    Batch, Dataset, Manifest, Tensor,
    admin::{DatasetRef, FetchError, Origin, OriginUri, PartRead},
    sampler::{Last, Shuffle},
};
use tokio::task::JoinSet;

use super::{Arguments, Problems, VerifyReport};
use crate::{
    commands::dataset::open::{open_through_nodes, read_exact, warn_of_added},
    context::{Context, Nodes},
    error::Failure,
};

/// Wanted bytes of a batch: few gathers, and little memory.
const BATCH_BYTES: u64 = 32 << 20;

pub(super) fn verify(
    context: &Context,
    nodes: &Nodes,
    arguments: &Arguments,
    reference: &DatasetRef,
    manifest: Option<&OriginUri>,
) -> Result<VerifyReport, Failure> {
    let local = !arguments.remote_only;
    let dataset = open_through_nodes(context, nodes, &arguments.reference, manifest, local)?;
    let begun = context.now();
    let mut comparison = match arguments.against_source {
        true => Some(Comparison::begin(context, reference)?),
        false => None,
    };
    let manifest = dataset.manifest().clone();
    let bytes = bytes_of_rows(&manifest);
    let mean = bytes / manifest.samples().max(1);
    let rows = (BATCH_BYTES / mean.max(1)).clamp(1, 4096);
    let rows = u32::try_from(rows).expect("clamped to 4,096");
    let loader = dataset.loader().shuffle(Shuffle::None).last(Last::Uneven).batch_size(rows);
    let mut loader = loader.build()?;
    let progress = context.progress("verifying");
    progress.bytes("verifying", bytes);
    let mut problems = Problems::default();
    for batch in loader.epoch(0)? {
        let batch = batch?;
        if let Some(comparison) = &mut comparison {
            comparison.check(context, &dataset, &batch, &mut problems)?;
        }
        progress.add(batch.sources().bytes);
    }
    if loader.digest() != loader.expected_digest() {
        problems.add("the digest of the samples is not that of each sample once".to_owned());
    }
    let sources = loader.stats().sources;
    Ok(VerifyReport {
        uri: reference.uri().to_string(),
        tag: reference.tag().to_owned(),
        snapshot: manifest.snapshot().to_string(),
        samples: loader.stats().samples,
        shards: manifest.shard_count(),
        bytes: sources.bytes,
        read_from: nodes.read_from(),
        against_source: arguments.against_source,
        checksums: 0,
        rows_local: sources.rows_local,
        rows_remote: sources.rows_remote,
        rows_origin: sources.rows_origin,
        digest: Some(loader.digest().to_string()),
        seconds: begun.elapsed().as_secs_f64(),
        verified: problems.count == 0,
        problems,
        added: warn_of_added(context, &manifest)?,
    })
}

/// Bytes of all rows. For windows that overlap they are more than the bytes of the shards.
fn bytes_of_rows(manifest: &Manifest) -> u64 {
    let of = |tensor: &Tensor| match tensor.is_ragged() {
        false => manifest.samples().saturating_mul(tensor.row_bytes()),
        true => (0..manifest.shard_count()).map(|shard| manifest.region(shard, tensor).bytes).sum(),
    };
    manifest.tensors().iter().map(of).fold(0, u64::saturating_add)
}

/// Compares rows with the origin. Holds the shard of the last compared row.
struct Comparison {
    origin: Origin,
    shard: Option<SourceShard>,
}

impl Comparison {
    fn begin(context: &Context, reference: &DatasetRef) -> Result<Self, Failure> {
        let origin = context.block_on(Origin::connect(reference.uri()))??;
        Ok(Self { origin, shard: None })
    }

    fn check(
        &mut self,
        context: &Context,
        dataset: &Dataset,
        batch: &Batch,
        problems: &mut Problems,
    ) -> Result<(), Failure> {
        let manifest = dataset.manifest();
        for (index, &sample) in batch.samples().iter().enumerate() {
            let (number, row) = manifest.locate(sample).expect("the loader hands out what exists");
            let shard = match self.shard.take() {
                Some(shard) if shard.number == number => shard,
                _ => context.block_on(SourceShard::read(&self.origin, manifest, number))??,
            };
            for (tensor, column) in batch.tensors().enumerate() {
                if column.row(index) != shard.row(manifest, row, tensor) {
                    let name = column.name();
                    problems.add(format!("sample {sample}, tensor '{name}': other bytes came"));
                }
            }
            self.shard = Some(shard);
        }
        Ok(())
    }
}

/// Bytes of one read.
const PART_BYTES: u64 = 8 << 20;
/// Reads in flight.
const PARTS_IN_FLIGHT: usize = 8;

/// All regions of one shard as they lie on the origin, to compare others with.
struct SourceShard {
    number: u32,
    regions: Vec<Vec<u8>>,
}

impl SourceShard {
    async fn read(origin: &Origin, manifest: &Manifest, number: u32) -> Result<Self, FetchError> {
        let plan = manifest.fill_plan(number, PART_BYTES);
        let size = |bytes| usize::try_from(bytes).expect("a shard is at most 1 GiB");
        let mut regions: Vec<Vec<u8>> =
            plan.regions.iter().map(|region| vec![0; size(region.bytes)]).collect();
        for parts in plan.reads.chunks(PARTS_IN_FLIGHT) {
            let mut reads = JoinSet::new();
            for &part in parts {
                let (origin, manifest) = (origin.clone(), manifest.clone());
                reads.spawn(async move { part_bytes(&origin, &manifest, part).await });
            }
            while let Some(read) = reads.join_next().await {
                let (part, bytes) = read.expect("nothing in a read panics")?;
                let at = size(part.region_offset);
                regions[part.tensor][at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        Ok(Self { number, regions })
    }

    fn row(&self, manifest: &Manifest, row: u32, tensor: usize) -> &[u8] {
        let (at, bytes) = manifest.row_in_region(self.number, row, tensor);
        let index = |offset: u64| usize::try_from(offset).expect("the region is in memory");
        &self.regions[tensor][index(at)..index(at + bytes)]
    }
}

async fn part_bytes(
    origin: &Origin,
    manifest: &Manifest,
    part: PartRead,
) -> Result<(PartRead, Vec<u8>), FetchError> {
    Ok((part, read_exact(origin, manifest, &part).await?))
}
