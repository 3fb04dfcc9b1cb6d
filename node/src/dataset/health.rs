//! Tracks whether the origin of a dataset answers, as its reads find out.
//!
//! If a read fails in all its tries, and no other read got an answer meanwhile, the origin counts
//! as away. From then on one try is enough, and its failure is reported at once. So thousands of
//! readers of cold shards learn of an outage together. The first answer ends this state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The known state of one origin.
#[derive(Debug, Default)]
pub(crate) struct OriginHealth {
    answers: AtomicU64,
    away: AtomicBool,
}

impl OriginHealth {
    /// Returns the number of successful reads so far, for [`gave_up`](Self::gave_up).
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Notes a successful read.
    pub(crate) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.away.store(false, Ordering::Relaxed);
    }

    /// Notes a failed read. `answers` is the number of successful reads when it began.
    pub(crate) fn gave_up(&self, answers: u64) {
        if self.answers() == answers {
            self.away.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true while no read gets an answer: try only once.
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_away_when_a_read_gives_up_without_any_answer() {
        let health = OriginHealth::default();
        let begun = health.answers();
        health.answered();
        health.gave_up(begun);
        assert!(!health.is_away(), "another read succeeded meanwhile");
        health.gave_up(health.answers());
        assert!(health.is_away());
        health.answered();
        assert!(!health.is_away());
    }
}
