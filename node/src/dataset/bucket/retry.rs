//! When a request to the origin is retried, and how many retries a node has.
//!
//! Waits grow, and are drawn at random from their whole range (full jitter), so that parts that
//! failed together do not retry together. All retries of the node share one budget: a share of its
//! first tries, plus a reserve that refills with time. Retries beyond the budget would keep an
//! overloaded origin overloaded. They wait for the longest time and check again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use larder_base::limits;

/// Share of requests to the origin that may be retries, in percent: retries that add load to an
/// overloaded origin keep it overloaded.
const RETRY_BUDGET_PERCENT: u32 = 20;

/// Retries that are always allowed, so that a node with little traffic can still retry.
const RETRY_BUDGET_RESERVE: u32 = 32;

/// The time in which the reserve refills.
const REFILL: Duration = Duration::from_secs(10);

/// Tokens are counted in hundredths, so that percentages need no fractions.
const TOKEN: u64 = 100;

const RESERVE: u64 = RETRY_BUDGET_RESERVE as u64 * TOKEN;

/// A node's budget of retries.
#[derive(Debug)]
pub(crate) struct RetryBudget(Mutex<Bucket>);

#[derive(Debug)]
struct Bucket {
    tokens: u64,
    at: Instant,
}

impl RetryBudget {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(Bucket { tokens: RESERVE, at: now }))
    }

    /// Adds a share of a retry, for one first try.
    pub(crate) fn earn(&self) {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.tokens = (bucket.tokens + u64::from(RETRY_BUDGET_PERCENT)).min(2 * RESERVE);
    }

    /// Takes one retry. Returns false if there is none.
    pub(crate) fn spend(&self, now: Instant) -> bool {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(bucket.at).min(REFILL);
        let refill = RESERVE * millis(passed) / millis(REFILL);
        if refill > 0 {
            bucket.at = now;
            bucket.tokens = bucket.tokens.max((bucket.tokens + refill).min(RESERVE));
        }
        let left = bucket.tokens.checked_sub(TOKEN);
        bucket.tokens = left.unwrap_or(bucket.tokens);
        left.is_some()
    }
}

/// Returns the wait after `tries` tries. `chance` draws from `0..=` its argument.
pub(crate) fn wait_after(tries: u32, chance: impl FnOnce(u64) -> u64) -> Duration {
    let doubled = limits::RETRY_WAIT_MIN.saturating_mul(1_u32 << tries.saturating_sub(1).min(16));
    Duration::from_millis(chance(millis(doubled.min(limits::RETRY_WAIT_MAX))))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn retries_end_with_the_reserve_and_return_with_time() {
        let start = clock::now();
        let budget = RetryBudget::new(start);
        let spent = |now| (0..1_000).take_while(|_| budget.spend(now)).count();
        assert_eq!(spent(start), 32);
        assert!(!budget.spend(start));
        (0..50).for_each(|_| budget.earn());
        assert_eq!(spent(start), 10);
        assert_eq!(spent(start + REFILL / 2), 16);
        assert_eq!(spent(start + REFILL * 100), 32);
    }

    #[test]
    fn waits_grow_to_the_maximum_and_can_be_zero() {
        assert_eq!(wait_after(1, |most| most), limits::RETRY_WAIT_MIN);
        assert_eq!(wait_after(2, |most| most), limits::RETRY_WAIT_MIN * 2);
        assert_eq!(wait_after(1_000, |most| most), limits::RETRY_WAIT_MAX);
        assert_eq!(wait_after(1_000, |_| 0), Duration::ZERO);
    }
}
