//! The fills that gave up. They are listed for operators, and hold off repeated requests for a
//! moment.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use larder_base::{Error, ShardId, SnapshotId, limits};
use larder_dataset::OriginUri;

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
    pub place: Option<FailedRead>,
    /// Why.
    pub why: Arc<Error>,
    /// Number of tries.
    pub attempts: u32,
    /// When it gave up.
    pub at: Instant,
}

/// A read of the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRead {
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

    /// Why a shard is not tried again yet.
    pub(crate) fn held(&self, id: ShardId, now: Instant) -> Option<Arc<Error>> {
        let age = |failure: &&Failure| now.saturating_duration_since(failure.at);
        let mut recent = self.0.iter().rev().take_while(|one| age(one) < limits::FAILURE_HOLD);
        recent.find(|failure| failure.id == id).map(|failure| Arc::clone(&failure.why))
    }

    pub(crate) fn list(&self) -> Vec<Failure> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use larder_base::ErrorKind;

    use super::*;
    use crate::clock;

    #[test]
    fn failure_applies_to_its_shard_for_a_short_time() {
        let (mut failures, now) = (Failures::default(), clock::now());
        let [failed, other] = [1, 2].map(|shard| ShardId::from_bytes([shard; 16]));
        failures.add(Failure {
            id: failed,
            snapshot: SnapshotId::from_bytes([9; 16]),
            shard: 0,
            place: None,
            why: Arc::new(Error::new(ErrorKind::DataLoss, "as the test says")),
            attempts: 2,
            at: now,
        });
        assert!(failures.held(failed, now).is_some());
        assert!(failures.held(other, now).is_none());
        assert!(failures.held(failed, now + limits::FAILURE_HOLD).is_none());
    }
}
