//! The requests in flight at a bucket: how many there may be, how long each is, and which is next.
//!
//! *How many* follows what the bucket bears. It begins small and doubles while more requests bring
//! more bytes a second. It halves when a request fails in a way that fewer requests may mend: a
//! stall, a timeout, "slow down".
//!
//! *How long* depends on the line. Requests begin short. They grow while they end soon, and
//! shrink when they take long. So on a slow line few bytes stand before those that a reader waits
//! for, and on a fast one a request is worth its latency.
//!
//! *Which*: rows that readers wait for come first, in the order in which readers came. Then come
//! the fills, each after those that are more urgent or began before it.
//!
//! A gate also tells a stall from a turn. Some stores, and full lines, serve one request after the
//! other, so that the last of many waits long for its first byte. So a silent request is stalled
//! only if the whole gate is silent, or if a younger request was served before it.
//!
//! Thread rule: all threads use it at once; the lock is held for microseconds.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use larder_base::limits;
use tokio::sync::oneshot;

use super::urgency::Urgency;
use crate::clock;

/// Requests at first.
const LIMIT_FIRST: usize = 8;

/// More requests must bring this many percent more bytes a second to be kept.
const GAIN_PERCENT: u64 = 5;

/// Rounds without a gain before more requests are tried again.
const ROUNDS_UNTIL_PROBE: u32 = 8;

/// A request that brings fewer bytes in a second than these is as good as silent.
const RATE_MIN: u64 = 1 << 10;

/// A request that takes longer makes the next ones shorter. Above the latency of far stores, so
/// that short requests fill their lines too.
const REQUEST_TIME_MAX: Duration = Duration::from_millis(500);

/// Requests that take less time make the next ones longer: twice, or four times.
const REQUEST_TIME_TWICE: Duration = Duration::from_millis(250);
const REQUEST_TIME_FOUR_TIMES: Duration = Duration::from_millis(62);

/// Bounds the requests in flight.
#[derive(Debug)]
pub(crate) struct Gate {
    max: usize,
    limit: AtomicUsize,
    request_bytes: AtomicU64,
    readers: AtomicU64,
    state: Mutex<State>,
    /// The bytes that came, of all requests.
    came: AtomicU64,
    /// The number of the youngest request that got a byte.
    served: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Turns that no request has.
    free: usize,
    /// Turns to withhold when they come back.
    owed: usize,
    /// Requests that wait for a turn, in any order.
    waiting: Vec<Waiting>,
    /// The number of the last one that began to wait, and of the last fill.
    arrivals: u64,
    fills: u64,
    /// The number of the next request.
    next: u64,
    /// Requests with smaller numbers were as long as before the last change of the length.
    sized_at: u64,
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

/// A request that waits for its turn.
#[derive(Debug)]
struct Waiting {
    arrival: u64,
    urgency: Arc<Urgency>,
    granted: oneshot::Sender<()>,
}

/// A place among those that wait. Drop gives it up.
struct WaitingPlace<'a> {
    gate: &'a Gate,
    arrival: u64,
    granted: oneshot::Receiver<()>,
}

/// A request in flight. Drop ends it.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    gate: &'a Gate,
    number: u64,
    begun: Instant,
    came: AtomicU64,
}

impl Gate {
    pub(crate) fn new(max: usize) -> Self {
        let first = LIMIT_FIRST.min(max);
        Self {
            max,
            limit: AtomicUsize::new(first),
            request_bytes: AtomicU64::new(limits::FILL_PIECE_BYTES),
            readers: AtomicU64::new(0),
            state: Mutex::new(State { free: first, ..State::default() }),
            came: AtomicU64::new(0),
            served: AtomicU64::new(0),
        }
    }

    /// Returns how many requests may be in flight now.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the bytes that a request should have now, as a power of two.
    pub(crate) fn request_bytes(&self) -> u64 {
        self.request_bytes.load(Ordering::Relaxed)
    }

    /// Returns a number for a reader that begins to wait: that of the last one and one more.
    pub(crate) fn number_reader(&self) -> u64 {
        self.readers.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until one more request may be in flight, and this one is the most urgent.
    pub(crate) async fn turn(&self, urgency: &Arc<Urgency>) -> Turn<'_> {
        let place = self.enter(urgency);
        if let Some(mut place) = place {
            (&mut place.granted).await.expect("a place is granted before it is forgotten");
        }
        let number = {
            let mut state = self.lock();
            state.next += 1;
            state.next
        };
        Turn { gate: self, number, begun: clock::now(), came: AtomicU64::new(0) }
    }

    /// Takes a turn if one is free, else a place among those that wait.
    fn enter(&self, urgency: &Arc<Urgency>) -> Option<WaitingPlace<'_>> {
        let mut state = self.lock();
        if urgency.begin(state.fills + 1) {
            state.fills += 1;
        }
        if let Some(free) = state.free.checked_sub(1) {
            state.free = free;
            return None;
        }
        state.arrivals += 1;
        let ((granted, will_be), arrival) = (oneshot::channel(), state.arrivals);
        state.waiting.push(Waiting { arrival, urgency: Arc::clone(urgency), granted });
        Some(WaitingPlace { gate: self, arrival, granted: will_be })
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
            state.grant(more - kept);
        } else {
            let fewer = before - limit;
            let taken = fewer.min(state.free);
            state.free -= taken;
            state.owed += fewer - taken;
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

    /// Makes requests longer that end soon, and shorter that take long.
    fn size(&self, turn: &Turn<'_>, now: Instant) {
        let (bytes, took) = (self.request_bytes(), now.saturating_duration_since(turn.begun));
        let was_full = turn.came.load(Ordering::Relaxed) >= bytes / 2;
        let sized = match took {
            _ if took > REQUEST_TIME_MAX => bytes / 2,
            _ if took < REQUEST_TIME_FOUR_TIMES && was_full => bytes * 4,
            _ if took < REQUEST_TIME_TWICE && was_full => bytes * 2,
            _ => bytes,
        };
        let sized = sized.clamp(limits::FILL_PIECE_BYTES, limits::FILL_PART_BYTES);
        let mut state = self.lock();
        if sized != bytes && turn.number > state.sized_at {
            state.sized_at = state.next;
            self.request_bytes.store(sized, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives so many turns to the most urgent requests.
    fn grant(&mut self, turns: usize) {
        self.free += turns;
        while self.free > 0 {
            let waiting = self.waiting.iter().enumerate();
            let first = waiting.min_by_key(|(_, one)| (one.urgency.rank(), one.arrival));
            let Some((index, _)) = first else { return };
            let first = self.waiting.swap_remove(index);
            if first.granted.send(()).is_ok() {
                self.free -= 1;
            }
        }
    }

    fn give_back(&mut self) {
        match self.owed.checked_sub(1) {
            Some(owed) => self.owed = owed,
            None => self.grant(1),
        }
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.waiting.retain(|one| one.arrival != self.arrival);
        if self.granted.try_recv().is_ok() {
            // It was granted, and nothing came for it.
            state.give_back();
        }
    }
}

impl Turn<'_> {
    /// Notes bytes that came.
    pub(crate) fn came(&self, bytes: usize) {
        self.came.fetch_add(bytes as u64, Ordering::Relaxed);
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
        self.gate.size(&self, now);
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
        self.gate.lock().give_back();
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;
    use crate::dataset::bucket::Need;

    const SECOND: Duration = Duration::from_secs(1);

    fn turn(gate: &Gate) -> Turn<'_> {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(gate.turn(&Arc::default()))
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
        assert_eq!((gate.limit(), gate.lock().free), (4, 4));
        (0..9).for_each(|_| turn(&gate).was_too_much());
        assert_eq!((gate.limit(), gate.lock().free), (1, 1));
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

    /// Begins to wait for a turn, as urgently as told.
    fn place<'a>(gate: &'a Gate, raise: impl Fn(&Urgency)) -> WaitingPlace<'a> {
        let urgency = Arc::default();
        raise(&urgency);
        gate.enter(&urgency).expect("no turn is free")
    }

    #[test]
    fn turns_go_to_readers_as_they_came_then_to_needs_then_to_fills() {
        let gate = Gate::new(1);
        let held = turn(&gate);
        let mut places = [
            place(&gate, |_| {}),
            place(&gate, |once| once.raise(Need::Soon)),
            place(&gate, |once| once.raise(Need::Reader)),
            place(&gate, |once| once.raise(Need::Reader)),
            place(&gate, |once| once.next_for(Some(7))),
            place(&gate, |once| once.next_for(Some(3))),
        ];
        drop(held);
        for next in [5, 4, 2, 3, 1, 0] {
            let granted = places.iter_mut().map(|place| place.granted.try_recv().is_ok());
            let granted: Vec<_> = granted.collect();
            assert!(granted.iter().enumerate().all(|(at, &is)| is == (at == next)), "{granted:?}");
            gate.lock().give_back();
        }
    }

    #[test]
    fn turn_of_a_request_that_waits_no_more_goes_to_the_next() {
        let gate = Gate::new(1);
        let held = turn(&gate);
        let [gone, granted, mut last] = [(); 3].map(|()| place(&gate, |_| {}));
        drop(gone);
        drop(held);
        drop(granted);
        assert!(last.granted.try_recv().is_ok());
        let state = gate.lock();
        assert_eq!((state.waiting.len(), state.free), (0, 0));
    }

    #[test]
    fn requests_grow_if_they_end_soon_and_shrink_if_they_take_long() {
        let gate = Gate::new(8);
        let answer = |bytes: u64, millis| {
            let turn = turn(&gate);
            turn.came(usize::try_from(bytes).unwrap());
            let ended = turn.begun + Duration::from_millis(millis);
            turn.succeeded(ended);
            gate.request_bytes() >> 10
        };
        let sized = [(64, 200), (128, 40), (512, 40), (2048, 40), (8192, 40), (8192, 400)];
        let sizes = sized.map(|(kib, millis)| answer(kib << 10, millis));
        assert_eq!(sizes, [128, 512, 2048, 8192, 8192, 8192]);
        assert_eq!(answer(1 << 10, 600), 4096);
        assert_eq!(answer(8 << 20, 200), 8192);
        assert_eq!(
            [600; 8].map(|millis| answer(1, millis)),
            [4096, 2048, 1024, 512, 256, 128, 64, 64]
        );
        assert_eq!(answer(1 << 10, 20), 64, "a short one says nothing about long ones");
        let (early, late) = (turn(&gate), turn(&gate));
        for one in [early, late] {
            one.came(64 << 10);
            let ended = one.begun + Duration::from_millis(100);
            one.succeeded(ended);
        }
        assert_eq!(gate.request_bytes(), 128 << 10, "both had the same length");
    }
}
