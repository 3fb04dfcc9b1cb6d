//! Tracks when announcements expire. Pure: `now` is an argument.
//!
//! A process that was stopped, swapped out or paused with its machine heard no renewals. It must
//! not then declare all nodes dead. So a late check lengthens all leases by the delay.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often leases are checked. A check that comes later than this means that the process stood
/// still. Its leases are then lengthened by the delay, because no node could renew them.
pub(super) const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The leases by node id.
#[derive(Debug)]
pub(super) struct Leases {
    ends: BTreeMap<String, Instant>,
    looked: Instant,
}

impl Leases {
    /// Creates an empty set.
    pub(super) fn new(now: Instant) -> Self {
        Self { ends: BTreeMap::new(), looked: now }
    }

    /// Makes the lease of a node last `ttl` from now.
    pub(super) fn renew(&mut self, node_id: &str, now: Instant, ttl: Duration) {
        self.ends.insert(node_id.to_owned(), now + ttl);
    }

    /// Keeps only the leases for which `goes_on` is true.
    pub(super) fn retain(&mut self, goes_on: impl Fn(&str) -> bool) {
        self.ends.retain(|node_id, _| goes_on(node_id));
    }

    /// Returns the nodes with expired leases. Call it every [`LEASE_CHECK_INTERVAL`].
    pub(super) fn over(&mut self, now: Instant) -> Vec<String> {
        let late = now.saturating_duration_since(self.looked).saturating_sub(LEASE_CHECK_INTERVAL);
        self.looked = now;
        if late > LEASE_CHECK_INTERVAL {
            self.ends.values_mut().for_each(|end| *end += late);
        }
        self.ends.iter().filter(|(_, end)| **end <= now).map(|(id, _)| id.clone()).collect()
    }

    /// Returns true if this lease is over.
    pub(super) fn is_over(&self, node_id: &str, now: Instant) -> bool {
        self.ends.get(node_id).is_none_or(|end| *end <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = LEASE_CHECK_INTERVAL;
    const TTL: Duration = Duration::from_secs(2);

    #[test]
    fn lease_lasts_its_ttl_from_the_last_renewal() {
        let start = crate::now();
        let mut leases = Leases::new(start);
        leases.renew("a", start, TTL);
        leases.renew("b", start, TTL);
        let mut now = start;
        let mut over = Vec::new();
        while over.is_empty() {
            now += TICK;
            if now < start + TTL {
                leases.renew("b", now, TTL);
            }
            over = leases.over(now);
        }
        assert_eq!((now, over), (start + TTL, vec!["a".to_owned()]));
        assert!(leases.is_over("a", now) && !leases.is_over("b", now));
        leases.retain(|node_id| node_id != "a");
        assert!(leases.over(now).is_empty());
    }

    #[test]
    fn late_check_extends_all_leases_by_the_delay() {
        let start = crate::now();
        let mut leases = Leases::new(start);
        leases.renew("a", start, TTL);
        let pause = Duration::from_secs(3_600);
        let woken = start + pause;
        assert!(leases.over(woken).is_empty());
        let mut now = woken;
        while leases.over(now).is_empty() {
            now += TICK;
        }
        let lived = now - woken;
        assert!(lived >= TTL - 2 * TICK && lived <= TTL + TICK, "{lived:?}");
    }
}
