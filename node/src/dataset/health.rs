//! Whether the origin of a dataset answers, as those who read from it find out.
//!
//! A read that used up all its tries while no other got an answer either takes the origin for away.
//! From then on one try is enough: its failure is told at once, so that thousands who wait for cold
//! shards learn of an outage together and not one after the other. The first answer ends that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is known of one origin.
#[derive(Debug, Default)]
pub(crate) struct OriginHealth {
    answers: AtomicU64,
    away: AtomicBool,
}

impl OriginHealth {
    /// How many reads succeeded so far: to be compared by [`gave_up`](Self::gave_up).
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// A read succeeded.
    pub(crate) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.away.store(false, Ordering::Relaxed);
    }

    /// A read gave up that began when there had been so many answers.
    pub(crate) fn gave_up(&self, answers: u64) {
        if self.answers() == answers {
            self.away.store(true, Ordering::Relaxed);
        }
    }

    /// Nobody gets an answer: don't try twice.
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_away_when_a_read_gives_up_and_nobody_else_got_an_answer() {
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
