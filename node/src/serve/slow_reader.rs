//! Limits how slowly a client may receive.
//!
//! Unsent data holds memory that other connections wait for. So the time spent sending counts as a
//! debt, which the client pays with the bytes it receives. A fast client owes nothing, and can't
//! save up credit. A client that receives nothing, or too little, owes more and more.
//!
//! Thread rule: a plain value; the elapsed time is an argument.

use std::time::Duration;

use larder_base::limits;

/// The debt of one client, and its limit.
#[derive(Debug)]
pub(super) struct SlowReaderGuard {
    owed: Duration,
    owed_max: Duration,
    bytes_per_second: u64,
}

impl Default for SlowReaderGuard {
    fn default() -> Self {
        Self::new(limits::SEND_STALL_TIMEOUT, limits::SEND_BYTES_PER_SECOND_MIN)
    }
}

impl SlowReaderGuard {
    /// Creates a limit. A client that receives nothing reaches it after `owed_max`, and one at this
    /// rate never.
    pub(super) fn new(owed_max: Duration, bytes_per_second: u64) -> Self {
        Self { owed: Duration::ZERO, owed_max, bytes_per_second }
    }

    /// Adds a wait and the bytes received in it. Returns false once the debt is over the limit.
    pub(super) fn lasts_after(&mut self, waited: Duration, taken: usize) -> bool {
        let nanos = (taken as u64).saturating_mul(1_000_000_000) / self.bytes_per_second;
        self.owed = (self.owed + waited).saturating_sub(Duration::from_nanos(nanos));
        self.owed <= self.owed_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the seconds until the limit for a client that receives so many bytes in each.
    fn seconds_with(taken: usize) -> Option<usize> {
        let mut slow_reader = SlowReaderGuard::new(10 * SECOND, 1000);
        (1..1000).find(|_| !slow_reader.lasts_after(SECOND, taken))
    }

    #[test]
    fn occasional_bytes_hardly_extend_the_limit() {
        assert_eq!(seconds_with(0), Some(11));
        assert_eq!(seconds_with(1), Some(11));
        assert_eq!(seconds_with(500), Some(21));
        assert_eq!(seconds_with(1000), None);
    }

    #[test]
    fn fast_client_saves_no_credit() {
        let mut slow_reader = SlowReaderGuard::new(10 * SECOND, 1000);
        assert!(slow_reader.lasts_after(SECOND, usize::MAX));
        assert!(slow_reader.lasts_after(10 * SECOND, 0));
        assert!(!slow_reader.lasts_after(SECOND, 0));
    }

    #[test]
    fn slow_client_can_catch_up() {
        let mut slow_reader = SlowReaderGuard::new(10 * SECOND, 1000);
        assert!(slow_reader.lasts_after(9 * SECOND, 0));
        assert!(slow_reader.lasts_after(SECOND, 10_000));
        assert!(slow_reader.lasts_after(10 * SECOND, 0));
    }
}
