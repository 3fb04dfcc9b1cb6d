//! The number of requests that may be in flight at a bucket, which follows what the bucket bears.
//!
//! It begins small and doubles while more requests bring more bytes a second. It halves when a
//! request fails in a way that fewer requests may mend: a stall, a timeout, "slow down".
//!
//! A gate also tells a stall from a turn. Some stores, and full lines, serve one request after the
//! other, so that the last of many waits long for its first byte. So a silent request is stalled
//! only if the whole gate is silent, or if a younger request was served before it.
//!
//! Thread rule: all threads use it at once; the lock is held for nanoseconds.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// Requests at first.
const LIMIT_FIRST: usize = 8;

/// More requests must bring this many percent more bytes a second to be kept.
const GAIN_PERCENT: u64 = 5;

/// Rounds without a gain before more requests are tried again.
const ROUNDS_UNTIL_PROBE: u32 = 8;

/// A request that brings fewer bytes in a second than these is as good as silent.
const RATE_MIN: u64 = 1 << 10;

/// Bounds the requests in flight.
#[derive(Debug)]
pub(crate) struct Gate {
    max: usize,
    permits: Semaphore,
    limit: AtomicUsize,
    state: Mutex<State>,
    /// The bytes that came, of all requests.
    came: AtomicU64,
    /// The number of the youngest request that got a byte.
    served: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Permits to withhold when they come back.
    owed: usize,
    /// The number of the next request.
    next: u64,
    /// Requests with smaller numbers began before the last cut. Their failures say no more.
    cut_at: u64,
    round: Option<Round>,
    /// Bytes a second of the round before.
    rate_before: u64,
    rounds_without_gain: u32,
}

/// As many answers as there may be requests.
#[derive(Debug)]
struct Round {
    begun: Instant,
    came: u64,
    answers: usize,
}

/// A request in flight. Drop ends it.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    gate: &'a Gate,
    number: u64,
}

impl Gate {
    pub(crate) fn new(max: usize) -> Self {
        let first = LIMIT_FIRST.min(max);
        Self {
            max,
            permits: Semaphore::new(first),
            limit: AtomicUsize::new(first),
            state: Mutex::default(),
            came: AtomicU64::new(0),
            served: AtomicU64::new(0),
        }
    }

    /// Returns how many requests may be in flight now.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Waits until one more request may be in flight.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        self.permits.acquire().await.expect("the semaphore is never closed").forget();
        let mut state = self.lock();
        state.next += 1;
        Turn { gate: self, number: state.next }
    }

    /// Halves the limit.
    pub(crate) fn cut(&self) {
        let mut state = self.lock();
        state.cut_at = state.next;
        self.resize(&mut state, (self.limit() / 2).max(1));
        (state.rate_before, state.rounds_without_gain) = (u64::MAX, 0);
    }

    fn resize(&self, state: &mut State, limit: usize) {
        let before = self.limit.swap(limit, Ordering::Relaxed);
        state.round = None;
        if limit >= before {
            let more = limit - before;
            let kept = more.min(state.owed);
            state.owed -= kept;
            self.permits.add_permits(more - kept);
        } else {
            let fewer = before - limit;
            state.owed += fewer - self.permits.forget_permits(fewer);
        }
    }

    /// Ends a round, if it is over. Decides the limit of the next one.
    fn count(&self, now: Instant) {
        let mut state = self.lock();
        let (limit, came) = (self.limit(), self.came.load(Ordering::Relaxed));
        let round = state.round.get_or_insert(Round { begun: now, came, answers: 0 });
        round.answers += 1;
        if round.answers <= limit {
            return;
        }
        let micros = u64::try_from(now.duration_since(round.begun).as_micros()).unwrap_or(u64::MAX);
        let rate = (came - round.came).saturating_mul(1_000_000) / micros.max(1);
        let wanted = state.rate_before.saturating_add(state.rate_before / 100 * GAIN_PERCENT);
        let gains = rate >= wanted && state.rate_before != u64::MAX;
        state.rate_before = rate;
        state.rounds_without_gain = if gains { 0 } else { state.rounds_without_gain + 1 };
        if gains || state.rounds_without_gain >= ROUNDS_UNTIL_PROBE {
            state.rounds_without_gain = 0;
            self.resize(&mut state, (limit * 2).min(self.max));
        } else {
            state.round = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Notes bytes that came.
    pub(crate) fn came(&self, bytes: usize) {
        self.gate.came.fetch_add(bytes as u64, Ordering::Relaxed);
        self.gate.served.fetch_max(self.number, Ordering::Relaxed);
    }

    /// Returns the bytes of all requests so far, for [`is_stalled`](Self::is_stalled).
    pub(crate) fn came_to_all(&self) -> u64 {
        self.gate.came.load(Ordering::Relaxed)
    }

    /// Returns whether a request that brought `own` bytes in `waited` is stalled. `before` are the
    /// bytes of all requests when that began.
    pub(crate) fn is_stalled(&self, own: u64, before: u64, waited: Duration) -> bool {
        let least = RATE_MIN * waited.as_secs();
        let was_overtaken = self.gate.served.load(Ordering::Relaxed) > self.number;
        own < least && (was_overtaken || self.came_to_all() - before < least)
    }

    /// Notes a right answer.
    pub(crate) fn succeeded(self, now: Instant) {
        self.gate.count(now);
    }

    /// Notes a failure that fewer requests may mend.
    pub(crate) fn was_too_much(self) {
        if self.number > self.gate.lock().cut_at {
            self.gate.cut();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        match state.owed.checked_sub(1) {
            Some(owed) => state.owed = owed,
            None => self.gate.permits.add_permits(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;
    use crate::clock;

    const SECOND: Duration = Duration::from_secs(1);

    fn turn(gate: &Gate) -> Turn<'_> {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(gate.turn())
    }

    /// Answers a round of requests that bring `bytes` each, in a second.
    fn round(gate: &Gate, bytes: usize, now: &mut Instant) {
        for last in (0..=gate.limit()).rev() {
            let turn = turn(gate);
            if last == 0 {
                *now += SECOND;
            }
            turn.came(bytes);
            turn.succeeded(*now);
        }
    }

    #[test]
    fn limit_rises_with_the_rate_and_stays_without_a_gain() {
        let (gate, mut now) = (Gate::new(32), clock::now());
        assert_eq!(gate.limit(), 8);
        round(&gate, 1000, &mut now);
        round(&gate, 1000, &mut now);
        assert_eq!(gate.limit(), 32, "twice the requests brought twice the bytes");
        let (gate, mut now) = (Gate::new(64), clock::now());
        round(&gate, 1000, &mut now);
        round(&gate, 500, &mut now);
        assert_eq!(gate.limit(), 16, "twice the requests brought as many bytes");
    }

    #[test]
    fn limit_halves_once_for_requests_that_fail_together() {
        let gate = Gate::new(64);
        let turns: Vec<_> = (0..8).map(|_| turn(&gate)).collect();
        turns.into_iter().for_each(Turn::was_too_much);
        assert_eq!((gate.limit(), gate.permits.available_permits()), (4, 4));
        (0..9).for_each(|_| turn(&gate).was_too_much());
        assert_eq!((gate.limit(), gate.permits.available_permits()), (1, 1));
    }

    #[test]
    fn request_that_waits_for_its_turn_is_not_stalled() {
        let gate = Gate::new(64);
        let (first, second, third) = (turn(&gate), turn(&gate), turn(&gate));
        let before = second.came_to_all();
        assert!(second.is_stalled(0, before, SECOND * 10), "no request gets a byte");
        first.came(1 << 20);
        assert!(!second.is_stalled(0, before, SECOND * 10), "the first is served");
        third.came(1 << 20);
        assert!(second.is_stalled(0, before, SECOND * 10), "a younger one was served before it");
        assert!(!second.is_stalled(1 << 20, before, SECOND * 10), "it is served too");
        assert!(second.is_stalled(100, before, SECOND * 10), "it drips");
    }
}
