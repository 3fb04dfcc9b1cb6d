//! What a gather asks for, checked, and where each of its shards is.

use std::sync::Arc;
use std::time::Duration;

use larder_dataset::ShardId;
use larder_wire::data::{Gather, RowRef};
use larder_wire::{Error, ErrorKind};

use crate::cache::{Cache, Found};
use crate::catalog::Dataset;
use crate::fill::Priority;
use crate::flight::Waited;
use crate::serve::Context;

/// The rows of a gather and the shards they are in.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) dataset: Arc<Dataset>,
    pub(super) rows: &'a [RowRef],
    cache: &'a Cache,
    /// For each row: which of the shards.
    places: Vec<u32>,
    /// Each shard once.
    shards: Vec<u32>,
    found: Vec<Found>,
}

impl<'a> Plan<'a> {
    /// Looks every shard up; those that are missing begin to be filled.
    pub(super) fn new(
        context: &'a Context,
        dataset: Arc<Dataset>,
        wanted: &'a Gather,
    ) -> Result<Self, Error> {
        let shared = &context.shared;
        let mut shards: Vec<_> = wanted.rows.iter().map(|row| row.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let places = places(&dataset, &shards, &wanted.rows)?;
        let found = shared.cache.find(&dataset, &shards, Priority::Demand);
        Ok(Self { dataset, rows: &wanted.rows, cache: &shared.cache, places, shards, found })
    }

    /// How many rows are in memory, and how many are to come from the origin.
    pub(super) fn rows_by_source(&self) -> (u64, u64) {
        let resident = |&&place: &&u32| matches!(self.found[index(place)], Found::Resident(_));
        let memory = self.places.iter().filter(resident).count();
        (memory as u64, (self.places.len() - memory) as u64)
    }

    /// Where the `index`-th row is by now.
    pub(super) fn look(&mut self, row: usize) -> &Found {
        let place = index(self.places[row]);
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

    /// Where the `index`-th row was when it was last looked at.
    pub(super) fn found(&self, row: usize) -> &Found {
        &self.found[index(self.places[row])]
    }

    /// Remembers that the shard of the `index`-th row has come in.
    pub(super) fn came_in(&mut self, row: usize, found: Found) {
        self.found[index(self.places[row])] = found;
    }

    /// The shard of this row holds wrong bytes: it is dropped, and this gather reads its rows by range.
    pub(super) fn corrupt(&mut self, row: usize) {
        let place = index(self.places[row]);
        let id = self.shard_id(self.shards[place]);
        tracing::error!(shard = %id, "a shard in memory does not have its checksum: dropped");
        self.found[place] = Found::NotKept;
        self.cache.discard(id);
    }

    fn shard_id(&self, shard: u32) -> ShardId {
        self.dataset.manifest().shard(shard).id
    }
}

/// For each row its shard's place in `shards`, all of which exist and have these rows.
fn places(dataset: &Dataset, shards: &[u32], rows: &[RowRef]) -> Result<Vec<u32>, Error> {
    let manifest = dataset.manifest();
    let missing = |what: String| Error::new(ErrorKind::NotFound, what);
    let count = manifest.shard_count();
    if let Some(shard) = shards.last().filter(|&&shard| shard >= count) {
        return Err(missing(format!("shard {shard} of a snapshot of {count} shards")));
    }
    let row_counts: Vec<_> = shards.iter().map(|&shard| manifest.shard(shard).rows).collect();
    let place = |row: &RowRef| {
        let place = shards.partition_point(|&shard| shard < row.shard);
        let count = row_counts[place];
        if row.row >= count {
            let RowRef { shard, row } = row;
            return Err(missing(format!("row {row} of shard {shard}, which has {count} rows")));
        }
        Ok(u32::try_from(place).expect("a gather has at most 65,536 rows"))
    };
    rows.iter().map(place).collect()
}

fn index(place: u32) -> usize {
    place as usize
}
