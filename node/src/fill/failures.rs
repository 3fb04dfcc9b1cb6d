//! The fills that gave up: what and why, for people to look at, and for a moment for those who ask
//! for the same shard again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use larder_dataset::{OriginUri, ShardId, SnapshotId};
use larder_wire::{Error, limits};

/// A fill that gave up.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The shard.
    pub id: ShardId,
    /// The snapshot it was wanted for.
    pub snapshot: SnapshotId,
    /// Its number in that snapshot.
    pub shard: u32,
    /// What could not be read, where it was one read.
    pub place: Option<Place>,
    /// Why.
    pub why: Arc<Error>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it gave up.
    pub at: Instant,
}

/// A read of the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The object.
    pub object: OriginUri,
    /// Where in the object the read begins.
    pub offset: u64,
    /// How many bytes it was to bring.
    pub bytes: u64,
}

/// The latest failures, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Failures(VecDeque<Failure>);

impl Failures {
    pub(crate) fn add(&mut self, failure: Failure) {
        if self.0.len() == limits::FAILURES_KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(failure);
    }

    /// Why a shard is not to be tried again yet.
    pub(crate) fn held(&self, id: ShardId, now: Instant) -> Option<Arc<Error>> {
        let age = |failure: &&Failure| now.saturating_duration_since(failure.at);
        let mut recent = self.0.iter().rev().take_while(|one| age(one) < limits::FAILURE_HOLD);
        recent.find(|failure| failure.id == id).map(|failure| Arc::clone(&failure.why))
    }

    pub(crate) fn list(&self) -> Vec<Failure> {
        self.0.iter().cloned().collect()
    }
}
