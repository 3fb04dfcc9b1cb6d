//! Shards whose bytes are admitted and whose fill has not begun, most urgent first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use larder_dataset::ShardId;
use larder_store::FillPermit;

use crate::catalog::Dataset;
use crate::flight::Flight;

/// How urgent a fill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for rows of it.
    Demand,
    /// Somebody will want it.
    Prefetch,
}

/// One fill that waits for a worker.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) dataset: Arc<Dataset>,
    /// The number of the shard in that dataset.
    pub(crate) shard: u32,
    pub(crate) flight: Arc<Flight>,
    pub(crate) permit: FillPermit<ShardId>,
}

type Place = (Priority, u64);

/// A queue of at most `limit` fills: in order of priority, then of arrival.
#[derive(Debug)]
pub(crate) struct Queue {
    limit: usize,
    arrivals: u64,
    fills: BTreeMap<Place, Queued>,
    places: HashMap<ShardId, Place>,
}

/// What came of a place in the queue being asked for.
#[derive(Debug)]
pub(crate) enum Pushed {
    /// It has one.
    Queued,
    /// It has the place of this one, which was less urgent.
    Displaced(Queued),
    /// All that wait are at least as urgent.
    Full(Queued),
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            arrivals: 0,
            fills: BTreeMap::new(),
            places: HashMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.fills.len()
    }

    /// Puts a fill in its place. In a full queue, demand displaces the youngest prefetch.
    pub(crate) fn push(&mut self, queued: Queued, priority: Priority) -> Pushed {
        if self.fills.len() < self.limit {
            self.insert(queued, priority);
            return Pushed::Queued;
        }
        match self.fills.last_entry() {
            Some(last) if last.key().0 > priority => {
                let displaced = last.remove();
                self.places.remove(&displaced.flight.id());
                self.insert(queued, priority);
                Pushed::Displaced(displaced)
            }
            _ => Pushed::Full(queued),
        }
    }

    /// Takes back a fill that lost its worker, whether or not the queue is full: there are no more
    /// of these than there are workers.
    pub(crate) fn push_again(&mut self, queued: Queued) {
        self.insert(queued, Priority::Demand);
    }

    /// Somebody waits for it now.
    pub(crate) fn raise(&mut self, id: ShardId) {
        let Some(&place @ (Priority::Prefetch, _)) = self.places.get(&id) else {
            return;
        };
        if let Some(queued) = self.fills.remove(&place) {
            self.insert(queued, Priority::Demand);
        }
    }

    /// The next to be filled.
    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let (_, queued) = self.fills.pop_first()?;
        self.places.remove(&queued.flight.id());
        Some(queued)
    }

    /// All that wait.
    pub(crate) fn into_all(self) -> impl Iterator<Item = Queued> {
        self.fills.into_values()
    }

    fn insert(&mut self, queued: Queued, priority: Priority) {
        self.arrivals += 1;
        let place = (priority, self.arrivals);
        self.places.insert(queued.flight.id(), place);
        self.fills.insert(place, queued);
    }
}
