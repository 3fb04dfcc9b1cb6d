//! The fills that gave up. They are listed for operators, and hold off repeated requests for a
//! moment.

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
    /// The snapshot that it was requested for.
    pub snapshot: SnapshotId,
    /// Its index in that snapshot.
    pub shard: u32,
    /// The read that failed, if it was a single read.
    pub place: Option<Place>,
    /// The checksum that the fill failed on, if that was the reason. Snapshots that pin another, or
    /// none, may still get the shard.
    pub pinned: Option<u64>,
    /// The error.
    pub why: Arc<Error>,
    /// Number of tries.
    pub attempts: u32,
    /// When it gave up.
    pub at: Instant,
}

/// A read of the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The object.
    pub object: OriginUri,
    /// The byte of the object at which the read begins.
    pub offset: u64,
    /// Length of the read in bytes.
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

    /// Returns the recent error of a shard, if snapshots with this pin must not retry it yet.
    pub(crate) fn held(
        &self,
        id: ShardId,
        pinned: Option<u64>,
        now: Instant,
    ) -> Option<Arc<Error>> {
        let age = |failure: &&Failure| now.saturating_duration_since(failure.at);
        let mut recent = self.0.iter().rev().take_while(|one| age(one) < limits::FAILURE_HOLD);
        let holds = |failure: &&Failure| {
            failure.id == id && failure.pinned.is_none_or(|over| pinned == Some(over))
        };
        recent.find(holds).map(|failure| Arc::clone(&failure.why))
    }

    pub(crate) fn list(&self) -> Vec<Failure> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use larder_wire::ErrorKind;

    use super::*;
    use crate::clock;

    fn failure(shard: u8, pinned: Option<u64>, at: Instant) -> Failure {
        Failure {
            id: ShardId::from_bytes([shard; 16]),
            snapshot: SnapshotId::from_bytes([9; 16]),
            shard: 0,
            place: None,
            pinned,
            why: Arc::new(Error::new(ErrorKind::DataLoss, "as the test says")),
            attempts: 2,
            at,
        }
    }

    #[test]
    fn checksum_failure_holds_off_only_those_that_pin_it() {
        let (mut failures, now) = (Failures::default(), clock::now());
        let [pinned, plain] = [1, 2].map(|shard| ShardId::from_bytes([shard; 16]));
        failures.add(failure(1, Some(7), now));
        failures.add(failure(2, None, now));
        let holds = |id, pinned, at| failures.held(id, pinned, at).is_some();
        assert_eq!(
            [Some(7), Some(8), None].map(|pin| holds(pinned, pin, now)),
            [true, false, false]
        );
        assert_eq!([Some(7), Some(8), None].map(|pin| holds(plain, pin, now)), [true; 3]);
        assert!(!holds(pinned, Some(7), now + limits::FAILURE_HOLD));
    }
}
