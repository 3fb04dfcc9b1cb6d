//! When announcements end. Pure: handed the time.
//!
//! A process that stood still (stopped, swapped out, a paused machine) heard no renewal meanwhile.
//! When it goes on it must not declare everybody dead, so a look at the leases that comes late
//! lengthens all of them by as much.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use larder_base::limits;

/// The leases by node id.
#[derive(Debug)]
pub(super) struct Leases {
    ends: BTreeMap<String, Instant>,
    looked: Instant,
}

impl Leases {
    /// None yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { ends: BTreeMap::new(), looked: now }
    }

    /// The lease of a node lasts `ttl` from now.
    pub(super) fn renew(&mut self, node_id: &str, now: Instant, ttl: Duration) {
        self.ends.insert(node_id.to_owned(), now + ttl);
    }

    /// Only these leases go on.
    pub(super) fn retain(&mut self, goes_on: impl Fn(&str) -> bool) {
        self.ends.retain(|node_id, _| goes_on(node_id));
    }

    /// Whose lease is over, at a look that is to come every [`limits::LEASE_CHECK_INTERVAL`].
    pub(super) fn over(&mut self, now: Instant) -> Vec<String> {
        let late =
            now.saturating_duration_since(self.looked).saturating_sub(limits::LEASE_CHECK_INTERVAL);
        self.looked = now;
        if late > limits::LEASE_CHECK_INTERVAL {
            self.ends.values_mut().for_each(|end| *end += late);
        }
        self.ends.iter().filter(|(_, end)| **end <= now).map(|(id, _)| id.clone()).collect()
    }

    /// Whether this one is over.
    pub(super) fn is_over(&self, node_id: &str, now: Instant) -> bool {
        self.ends.get(node_id).is_none_or(|end| *end <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = limits::LEASE_CHECK_INTERVAL;
    const TTL: Duration = Duration::from_secs(2);

    #[test]
    fn a_lease_lasts_its_time_from_the_last_renewal() {
        let start = crate::clock::now();
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
    fn a_keeper_that_stood_still_gives_everybody_the_time_it_missed() {
        let start = crate::clock::now();
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
