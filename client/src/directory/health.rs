//! The health of a member. Atomics only, because every batch checks it.
//!
//! ```text
//!   up ──fail──▶ down until T ──T passes, one caller probes──▶ down until T' (longer) ──▶ ...
//!    ▲                │
//!    └────recover─────┘   a probe was answered
//! ```
//!
//! Waits double from one failure to the next, until a read from the member succeeds. So a member
//! that answers probes but fails reads is asked ever more rarely.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use larder_base::limits;

/// The wait before the first probe. A restarted node is back within about this time.
const PROBE_AFTER_MIN: Duration = Duration::from_millis(250);

/// The health of one member. Times count from any fixed moment.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The time in milliseconds of the next probe. 0 while the member is up.
    probe_at: AtomicU64,
    /// Failures since the last successful read.
    failures: AtomicU32,
}

impl Health {
    pub(crate) fn is_up(&self) -> bool {
        self.probe_at.load(Relaxed) == 0
    }

    /// Notes that the member refused, hung up or was silent. True for the first caller only.
    pub(crate) fn fail(&self, now: Duration) -> bool {
        let failures = self.failures.load(Relaxed).saturating_add(1);
        let noticed =
            self.probe_at.compare_exchange(0, due(now, failures), Relaxed, Relaxed).is_ok();
        if noticed {
            self.failures.store(failures, Relaxed);
        }
        noticed
    }

    /// Whether the caller should probe the member now. True for one caller each time.
    pub(crate) fn claim_probe(&self, now: Duration) -> bool {
        let probe_at = self.probe_at.load(Relaxed);
        if probe_at == 0 || millis(now) < probe_at {
            return false;
        }
        let failures = self.failures.load(Relaxed).saturating_add(1);
        let claimed =
            self.probe_at.compare_exchange(probe_at, due(now, failures), Relaxed, Relaxed).is_ok();
        if claimed {
            self.failures.store(failures, Relaxed);
        }
        claimed
    }

    /// Notes that a probe was answered: the member may be asked again.
    pub(crate) fn recover(&self) {
        self.probe_at.store(0, Relaxed);
    }

    /// Notes a successful read from the member.
    pub(crate) fn succeed(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
            self.recover();
        }
    }
}

fn due(now: Duration, failures: u32) -> u64 {
    let wait = PROBE_AFTER_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    millis(now + wait.min(limits::NODE_RETRY_AFTER)).max(1)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn one_caller_records_a_failure_and_one_probes() {
        let health = Health::default();
        assert!(health.is_up());
        assert!(health.fail(at(0)));
        assert!(!health.fail(at(0)));
        assert!(!health.is_up());
        assert!(!health.claim_probe(at(249)));
        assert!(health.claim_probe(at(250)));
        assert!(!health.claim_probe(at(250)));
        health.recover();
        assert!(health.is_up());
    }

    #[test]
    fn waits_grow_until_something_is_read() {
        let health = Health::default();
        assert!(health.fail(at(0)));
        health.recover();
        assert!(health.fail(at(0)));
        assert!(!health.claim_probe(at(499)));
        assert!(health.claim_probe(at(500)));
        for _ in 0..40 {
            health.recover();
            assert!(health.fail(at(0)));
        }
        assert!(!health.claim_probe(limits::NODE_RETRY_AFTER - at(1)));
        assert!(health.claim_probe(limits::NODE_RETRY_AFTER));
        health.succeed();
        assert!(health.is_up());
        assert!(health.fail(at(0)));
        assert!(health.claim_probe(at(250)));
    }
}
