//! The rows of a gather, checked, and the state of their shards.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use larder_base::{Error, ErrorKind, RowRef, ShardId};
use larder_dataset::{RowPlaces, Tensor};
use larder_extent::{RegionRows, Sealed};
use larder_wire::data::{DistinctShards, Gather};

use crate::cache::{Cache, FoundShard, Priority, Waited, WantedRow};
use crate::dataset::Dataset;
use crate::serve::Context;
use crate::serve::peer::Peer;

use super::column::Column;
use super::{GatherFailure, while_alive};

/// The rows of a gather and their shards.
#[derive(Debug)]
pub(super) struct GatherRows<'a> {
    pub(super) dataset: Arc<Dataset>,
    pub(super) rows: &'a [RowRef],
    /// The places of the rows in their shards.
    pub(super) places: RowPlaces,
    cache: &'a Cache,
    /// Each distinct shard, and the shard of each row.
    shards: DistinctShards,
    /// The state of each shard.
    found: Vec<FoundShard>,
}

/// The rows of resident shards.
pub(super) struct Resident<'a> {
    shards: &'a DistinctShards,
    /// The first shard of the gather that `sources` covers.
    first: usize,
    sources: Vec<Option<RegionRows<'a>>>,
}

impl<'a> Resident<'a> {
    /// Returns the rows of the shard of the gather's `index`-th row, if that shard is resident.
    pub(super) fn source(&self, index: usize) -> Option<&RegionRows<'a>> {
        self.sources[self.shards.of_row(index) - self.first].as_ref()
    }
}

impl<'a> GatherRows<'a> {
    /// Looks up every shard. Missing shards begin to be filled.
    pub(super) fn new(
        context: &'a Context,
        peer: &Peer,
        request: u64,
        dataset: Arc<Dataset>,
        wanted: &'a Gather,
    ) -> Result<Self, GatherFailure> {
        let shared = &context.shared;
        let shards = DistinctShards::of(&wanted.rows);
        check(&dataset, &shards, &wanted.rows)?;
        let tensors = dataset.manifest().tensors();
        let is_ragged =
            |&tensor: &u16| tensors.get(usize::from(tensor)).is_some_and(Tensor::is_ragged);
        let differ = wanted.tensors.iter().any(is_ragged);
        let places = match shared.leaves.places_here(&dataset, shards.shards(), differ) {
            Some(places) => places,
            None => {
                let asking = shared.leaves.places(&dataset, shards.shards(), differ);
                while_alive(peer, request, || shared.leaves.wait(asking))??
            }
        };
        let found = shared.cache.find(&dataset, shards.shards(), Priority::Demand);
        Ok(Self { dataset, rows: &wanted.rows, places, cache: &shared.cache, shards, found })
    }

    /// Tells the fills which rows of these columns this gather waits for.
    pub(super) fn tell_fills(&self, columns: &[Column]) {
        let in_flight = |found: &FoundShard| matches!(found, FoundShard::InFlight(_));
        if !self.found.iter().any(in_flight) {
            return;
        }
        let reader = self.dataset.bucket().gets.number_reader();
        for (index, &row) in self.rows.iter().enumerate() {
            let FoundShard::InFlight(flight) = self.found(index) else { continue };
            for column in columns {
                let (region, range) = (column.tensor, column.span(&self.places, row).range());
                flight.want(WantedRow { reader, region, range });
            }
        }
    }

    /// Returns how many rows are in memory, and how many must come from the origin.
    pub(super) fn rows_by_source(&self) -> (u64, u64) {
        let resident =
            |&&place: &&u32| matches!(self.found[place as usize], FoundShard::Resident(_));
        let memory = self.shards.of_rows().iter().filter(resident).count();
        (memory as u64, (self.rows.len() - memory) as u64)
    }

    /// Returns the bytes that fills read from the origin, and no earlier gather has reported.
    pub(super) fn filled_bytes(&self) -> u64 {
        let shards = self.shards.shards().iter();
        self.cache.take_origin_bytes(shards.map(|&shard| self.shard_id(shard)))
    }

    /// Returns the current state of the `index`-th row's shard.
    pub(super) fn look(&mut self, row: usize) -> &FoundShard {
        self.look_at(self.shards.of_row(row))
    }

    /// Returns the current state of a shard.
    fn look_at(&mut self, place: usize) -> &FoundShard {
        let sealed = match &self.found[place] {
            FoundShard::InFlight(flight) => match flight.wait_for_all(Duration::ZERO) {
                Waited::Sealed(sealed) => Some(sealed),
                Waited::Ready(_) | Waited::Failed(_) | Waited::TimedOut => None,
            },
            FoundShard::Resident(_) | FoundShard::NotKept => None,
        };
        if let Some(sealed) = sealed {
            self.found[place] = FoundShard::Resident(sealed);
        }
        &self.found[place]
    }

    /// Returns a tensor's rows in each of the given rows' shards that is resident now.
    pub(super) fn resident(&mut self, tensor: usize, rows: Range<usize>) -> Resident<'_> {
        let places = &self.shards.of_rows()[rows];
        let first = places.iter().copied().min().unwrap_or(0) as usize;
        let end = places.iter().copied().max().map_or(0, |place| place as usize + 1);
        for place in first..end {
            self.look_at(place);
        }
        let sources = self.found[first..end].iter().map(|found| source(found, tensor)).collect();
        Resident { shards: &self.shards, first, sources }
    }

    /// Returns the state of the shard of row `row` at the last look.
    pub(super) fn found(&self, row: usize) -> &FoundShard {
        &self.found[self.shards.of_row(row)]
    }

    /// Notes that the shard of row `row` is in.
    pub(super) fn came_in(&mut self, row: usize, sealed: Arc<Sealed>) {
        self.found[self.shards.of_row(row)] = FoundShard::Resident(sealed);
    }

    /// Discards this row's shard, which holds wrong bytes. This gather then reads its rows by
    /// range.
    pub(super) fn corrupt(&mut self, row: usize) {
        let place = self.shards.of_row(row);
        let id = self.shard_id(self.shards.shards()[place]);
        tracing::error!(shard = %id, "a shard in memory does not have its checksum: dropped");
        self.found[place] = FoundShard::NotKept;
        self.cache.discard(id);
    }

    fn shard_id(&self, shard: u32) -> ShardId {
        self.dataset.manifest().shard(shard).id
    }
}

/// Returns the rows of a tensor in a shard, if that is resident.
fn source(found: &FoundShard, tensor: usize) -> Option<RegionRows<'_>> {
    match found {
        FoundShard::Resident(extent) => Some(extent.rows(tensor)),
        FoundShard::InFlight(_) | FoundShard::NotKept => None,
    }
}

/// Checks that all shards and rows exist.
fn check(dataset: &Dataset, shards: &DistinctShards, rows: &[RowRef]) -> Result<(), Error> {
    let manifest = dataset.manifest();
    shards.shards().iter().try_for_each(|&shard| dataset.check_shard(shard))?;
    let row_counts: Vec<_> =
        shards.shards().iter().map(|&shard| manifest.shard(shard).rows).collect();
    let mut checked =
        rows.iter().zip(shards.of_rows().iter().map(|&place| row_counts[place as usize]));
    match checked.find(|&(row, count)| row.row >= count) {
        None => Ok(()),
        Some((RowRef { shard, row }, count)) => {
            let message = format!("row {row} of shard {shard}, which has {count} rows");
            Err(Error::new(ErrorKind::NotFound, message))
        }
    }
}
