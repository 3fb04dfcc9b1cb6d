//! What a gather asks for, checked, and where each of its shards is.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use larder_base::{Error, ErrorKind, ShardId};
use larder_extent::RowSource;
use larder_wire::data::{DistinctShards, Gather, RowRef};

use crate::cache::Priority;
use crate::cache::{Cache, Found};
use crate::dataset::Dataset;
use crate::flight::Waited;
use crate::serve::Context;

/// The rows of a gather and the shards they are in.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) dataset: Arc<Dataset>,
    pub(super) rows: &'a [RowRef],
    cache: &'a Cache,
    /// Each shard once, and which of them each row is in.
    shards: DistinctShards,
    /// What is known of each of them.
    found: Vec<Found>,
}

/// Where rows lie whose shards are resident.
pub(super) struct Resident<'a> {
    shards: &'a DistinctShards,
    /// Of all shards of the plan, the first that `sources` speaks of.
    first: usize,
    sources: Vec<Option<RowSource<'a>>>,
}

impl<'a> Resident<'a> {
    /// The rows that the `index`-th row of the plan is one of, if its shard is resident.
    pub(super) fn source(&self, index: usize) -> Option<&RowSource<'a>> {
        self.sources[self.shards.of_row(index) - self.first].as_ref()
    }
}

impl<'a> Plan<'a> {
    /// Looks every shard up; those that are missing begin to be filled.
    pub(super) fn new(
        context: &'a Context,
        dataset: Arc<Dataset>,
        wanted: &'a Gather,
    ) -> Result<Self, Error> {
        let shared = &context.shared;
        let shards = DistinctShards::of(&wanted.rows);
        check(&dataset, &shards, &wanted.rows)?;
        let found = shared.cache.find(&dataset, shards.shards(), Priority::Demand);
        Ok(Self { dataset, rows: &wanted.rows, cache: &shared.cache, shards, found })
    }

    /// How many rows are in memory, and how many are to come from the origin.
    pub(super) fn rows_by_source(&self) -> (u64, u64) {
        let resident = |&&place: &&u32| matches!(self.found[place as usize], Found::Resident(_));
        let memory = self.shards.of_rows().iter().filter(resident).count();
        (memory as u64, (self.rows.len() - memory) as u64)
    }

    /// Where the `index`-th row is by now.
    pub(super) fn look(&mut self, row: usize) -> &Found {
        self.look_at(self.shards.of_row(row))
    }

    /// Where a shard is by now.
    fn look_at(&mut self, place: usize) -> &Found {
        let sealed = match &self.found[place] {
            Found::InFlight(flight) => match flight.wait_for_all(Duration::ZERO) {
                Waited::Sealed(sealed) => Some(sealed),
                Waited::Ready(_) | Waited::Failed(_) | Waited::TimedOut => None,
            },
            Found::Resident(_) | Found::NotKept => None,
        };
        if let Some(sealed) = sealed {
            self.found[place] = Found::Resident(sealed);
        }
        &self.found[place]
    }

    /// The rows of a tensor in each shard that is resident by now, and is that of one of these
    /// rows.
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

    /// Where the `index`-th row was when it was last looked at.
    pub(super) fn found(&self, row: usize) -> &Found {
        &self.found[self.shards.of_row(row)]
    }

    /// Remembers that the shard of the `index`-th row has come in.
    pub(super) fn came_in(&mut self, row: usize, found: Found) {
        self.found[self.shards.of_row(row)] = found;
    }

    /// The shard of this row holds wrong bytes: it is dropped, and this gather reads its rows by
    /// range.
    pub(super) fn corrupt(&mut self, row: usize) {
        let place = self.shards.of_row(row);
        let id = self.shard_id(self.shards.shards()[place]);
        tracing::error!(shard = %id, "a shard in memory does not have its checksum: dropped");
        self.found[place] = Found::NotKept;
        self.cache.discard(id);
    }

    fn shard_id(&self, shard: u32) -> ShardId {
        self.dataset.manifest().shard(shard).id
    }
}

/// The rows of a tensor in a shard, if that is resident.
fn source(found: &Found, tensor: usize) -> Option<RowSource<'_>> {
    match found {
        Found::Resident(extent) => Some(extent.rows(tensor)),
        Found::InFlight(_) | Found::NotKept => None,
    }
}

/// Whether all shards and rows exist.
fn check(dataset: &Dataset, shards: &DistinctShards, rows: &[RowRef]) -> Result<(), Error> {
    let manifest = dataset.manifest();
    let missing = |what: String| Error::new(ErrorKind::NotFound, what);
    let count = manifest.shard_count();
    if let Some(shard) = shards.shards().iter().find(|&&shard| shard >= count) {
        return Err(missing(format!("shard {shard} of a snapshot of {count} shards")));
    }
    let row_counts: Vec<_> =
        shards.shards().iter().map(|&shard| manifest.shard(shard).rows).collect();
    let mut checked =
        rows.iter().zip(shards.of_rows().iter().map(|&place| row_counts[place as usize]));
    match checked.find(|&(row, count)| row.row >= count) {
        None => Ok(()),
        Some((RowRef { shard, row }, count)) => {
            Err(missing(format!("row {row} of shard {shard}, which has {count} rows")))
        }
    }
}
