//! When users are told that something makes them wait.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A shorter wait is not told.
const FIRST_AFTER: Duration = Duration::from_secs(5);

/// Time until a wait is told again.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Decides for all waits of one kind when the next one is told: after five seconds, and once each
/// 30 seconds from then on.
#[derive(Debug, Default)]
pub struct WaitNotice {
    /// The time before which nothing is told, in milliseconds.
    not_before: AtomicU64,
}

impl WaitNotice {
    /// Returns whether to tell now of a wait that has lasted `waited`. `now` is the time since any
    /// fixed moment. Of callers that ask at once, one gets true.
    pub fn is_due(&self, waited: Duration, now: Duration) -> bool {
        if waited < FIRST_AFTER {
            return false;
        }
        let (before, now_millis) = (self.not_before.load(Relaxed), millis(now));
        let next = millis(now + AGAIN_AFTER);
        now_millis >= before
            && self.not_before.compare_exchange(before, next, Relaxed, Relaxed).is_ok()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_told_after_five_seconds_and_each_thirty_seconds() {
        let (notice, start) = (WaitNotice::default(), Duration::from_secs(100));
        let told = (0..=90).filter(|&second| {
            let waited = Duration::from_secs(second);
            notice.is_due(waited, start + waited)
        });
        assert_eq!(told.collect::<Vec<_>>(), [5, 35, 65]);
    }

    #[test]
    fn waits_at_the_same_time_are_told_once() {
        let (notice, now) = (WaitNotice::default(), Duration::from_secs(100));
        assert!(notice.is_due(Duration::from_secs(6), now));
        assert!(!notice.is_due(Duration::from_secs(9), now + Duration::from_secs(1)));
    }
}
