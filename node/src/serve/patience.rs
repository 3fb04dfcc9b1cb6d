//! How slowly a peer may take what it is sent.
//!
//! What is sent holds memory that others wait for, so time that passes while a peer is sent to is a
//! debt, which it pays off with the bytes it takes. Who is fast owes nothing, whatever it was sent
//! before; who takes nothing, or too little, owes more and more.
//!
//! Thread rule: a plain value, handed the time that passed.

use std::time::Duration;

use larder_base::limits;

/// What one peer owes, and may.
#[derive(Debug)]
pub(super) struct Patience {
    owed: Duration,
    owed_max: Duration,
    bytes_per_second: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self::new(limits::SEND_STALL_TIMEOUT, limits::SEND_BYTES_PER_SECOND_MIN)
    }
}

impl Patience {
    /// Lasts for so long with a peer that takes nothing, and for ever with one that is so fast.
    pub(super) fn new(owed_max: Duration, bytes_per_second: u64) -> Self {
        Self { owed: Duration::ZERO, owed_max, bytes_per_second }
    }

    /// Whether it lasts after so long a wait, in which so many bytes were taken.
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

    /// The seconds after which patience ends with a peer that takes so many bytes in each.
    fn seconds_with(taken: usize) -> Option<usize> {
        let mut patience = Patience::new(10 * SECOND, 1000);
        (1..1000).find(|_| !patience.lasts_after(SECOND, taken))
    }

    #[test]
    fn who_takes_a_little_now_and_then_is_borne_hardly_longer_than_who_takes_nothing() {
        assert_eq!(seconds_with(0), Some(11));
        assert_eq!(seconds_with(1), Some(11));
        assert_eq!(seconds_with(500), Some(21));
        assert_eq!(seconds_with(1000), None);
    }

    #[test]
    fn who_was_fast_has_nothing_saved() {
        let mut patience = Patience::new(10 * SECOND, 1000);
        assert!(patience.lasts_after(SECOND, usize::MAX));
        assert!(patience.lasts_after(10 * SECOND, 0));
        assert!(!patience.lasts_after(SECOND, 0));
    }

    #[test]
    fn who_was_slow_for_a_while_can_make_up_for_it() {
        let mut patience = Patience::new(10 * SECOND, 1000);
        assert!(patience.lasts_after(9 * SECOND, 0));
        assert!(patience.lasts_after(SECOND, 10_000));
        assert!(patience.lasts_after(10 * SECOND, 0));
    }
}
