//! Verifies the rows of nodes: one pass of a loader over all samples.

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_client::{
    Batch, Dataset, Manifest, RowRef, Tensor,
    admin::{DatasetError, DatasetRef, Leaf, LeafFiles, Origin, OriginUri, RegionRef},
    sampler::{Last, Shuffle},
};

use super::{Arguments, Problems, VerifyReport};
use crate::{
    commands::dataset::open::{open_through_nodes, warn_of_added, with_retries},
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
        true => Some(Comparison::begin(context, reference, manifest)?),
        false => None,
    };
    let (given, manifest) = (manifest, dataset.manifest().clone());
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
        added: warn_of_added(context, &manifest, given)?,
    })
}

/// Bytes of all rows. For windows that overlap they are more than the bytes of the shards.
fn bytes_of_rows(manifest: &Manifest) -> u64 {
    let of = |(index, tensor): (usize, &Tensor)| match tensor.is_ragged() {
        false => manifest.samples().saturating_mul(tensor.row_bytes()),
        true => (0..manifest.shard_count()).map(|shard| manifest.region(shard, index).bytes).sum(),
    };
    manifest.tensors().iter().enumerate().map(of).fold(0, u64::saturating_add)
}

/// Compares rows with the origin. Holds the shard of the last compared row.
struct Comparison {
    origin: Origin,
    /// The address of the manifest, if it is not beside the data.
    given: Option<OriginUri>,
    shard: Option<SourceShard>,
}

impl Comparison {
    fn begin(
        context: &Context,
        reference: &DatasetRef,
        given: Option<&OriginUri>,
    ) -> Result<Self, Failure> {
        let origin = context.block_on(Origin::connect(reference.uri()))??;
        Ok(Self { origin, given: given.cloned(), shard: None })
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
            let row = manifest.locate(sample).expect("the loader hands out what exists");
            let shard = match self.shard.take() {
                Some(shard) if shard.number == row.shard => shard,
                other => {
                    let leaf = other.map(|shard| shard.leaf);
                    context.block_on(self.read(manifest, row.shard, leaf))??
                }
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
    leaf: Leaf,
    regions: Vec<Vec<u8>>,
}

impl Comparison {
    /// Reads a shard. `leaf` is that of the shard before.
    async fn read(
        &self,
        manifest: &Manifest,
        number: u32,
        leaf: Option<Leaf>,
    ) -> Result<SourceShard, DatasetError> {
        let leaf = match leaf.filter(|leaf| leaf.shards().contains(&number)) {
            Some(leaf) => leaf,
            None => {
                let given = self.given.as_ref();
                let files = LeafFiles::find(&self.origin, manifest, given).await?;
                files.load(manifest, manifest.leaf_of(number)).await?
            }
        };
        let mut regions = Vec::new();
        for tensor in 0..manifest.tensors().len() {
            let region = RegionRef { shard: number, tensor };
            let end = manifest.region(number, tensor).bytes;
            let part = |begin| {
                let wanted = begin..end.min(begin + PART_BYTES);
                let (origin, manifest, leaf) = (&self.origin, manifest, &leaf);
                with_retries(async move || {
                    origin.read_region(manifest, leaf, region, &wanted).await
                })
            };
            let begins = (0..end).step_by(usize::try_from(PART_BYTES).expect("8 MiB"));
            let parts = stream::iter(begins.map(part)).buffered(PARTS_IN_FLIGHT);
            regions.push(parts.try_concat().await?);
        }
        Ok(SourceShard { number, leaf, regions })
    }
}

impl SourceShard {
    fn row(&self, manifest: &Manifest, row: RowRef, tensor: usize) -> &[u8] {
        let (at, bytes) = manifest.row_in_region(&self.leaf, row, tensor);
        let index = |offset: u64| usize::try_from(offset).expect("the region is in memory");
        &self.regions[tensor][index(at)..index(at + bytes)]
    }
}
