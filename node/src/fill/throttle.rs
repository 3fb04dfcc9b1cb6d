//! Throttles background transfers. While clients read from this node, transfers use a tenth of the
//! time.
//!
//! A ring change moves a large share of a node's shards. At full speed that takes the network, and
//! on small hosts the processors, from the clients that read meanwhile. So the target asks for such
//! a shard in small pieces. After each piece it pauses for as long as the slower side wants:
//!
//! ```text
//!   source                                         target
//!   recent reads here? how many targets? ────────▶ one piece at a time; then the longer pause of
//!                                 (Part.rests)     the source's wish and its own readers' need
//! ```
//!
//! The pause is a multiple of the time that the piece took. The share of the time is therefore the
//! same on every link that is fast enough for the longest pause. Without readers there are no
//! pauses. A throttled wait ends as soon as a reader waits for the shard.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_base::limits;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time;

use crate::cache::InFlightFill;
use crate::clock;

/// Factor of the pauses in a background transfer. While clients read from either node, the target
/// pauses this many times as long as the piece took, once for each target of the source. So the
/// transfer uses a tenth of the time.
const YIELD_RESTS: u32 = 9;

/// A client that read within this time counts as reading: a training step may take seconds.
const YIELD_READERS_WINDOW: Duration = Duration::from_secs(10);

/// A node that took a piece within this time counts as a target.
const YIELD_TAKERS_WINDOW: Duration = Duration::from_secs(1);

/// Shorter pauses are saved up: timers are not finer.
const REST_MIN: Duration = Duration::from_millis(1);

/// The readers and transfers that one node knows of.
#[derive(Debug)]
pub(crate) struct TransferThrottle {
    state: Mutex<State>,
    /// Held while a piece is transferred, and during the pause after it.
    piece: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    /// Time of the last read here.
    read: Option<Instant>,
    /// Time of the last reply in which a source asked for a pause: clients read there.
    read_there: Option<Instant>,
    /// When each other node last took something from here.
    takers: HashMap<String, Instant>,
    /// Pauses that were too short to be taken.
    owed: Duration,
}

impl Default for TransferThrottle {
    fn default() -> Self {
        Self { state: Mutex::default(), piece: Semaphore::new(1) }
    }
}

impl TransferThrottle {
    /// Notes that a client reads here.
    pub(crate) fn note_read(&self) {
        self.lock().read = Some(clock::now());
    }

    /// Returns how long another node must pause after a piece, as a multiple of the piece's time.
    /// Counts that node, and all others that take pieces, including those that do not pause.
    pub(crate) fn rests_for(&self, taker: &str) -> u32 {
        self.rests_at(taker, clock::now())
    }

    fn rests_at(&self, taker: &str, now: Instant) -> u32 {
        let mut state = self.lock();
        state.takers.retain(|_, at| is_within(YIELD_TAKERS_WINDOW, Some(*at), now));
        state.takers.insert(taker.to_owned(), now);
        let takers = u32::try_from(state.takers.len()).unwrap_or(u32::MAX);
        if state.is_read(now) { YIELD_RESTS.saturating_mul(takers) } else { 0 }
    }

    /// Waits until a piece of this flight may be taken. While clients read, throttled flights take
    /// one piece at a time. A flight with a waiting reader never waits here.
    pub(crate) async fn turn<'a>(&'a self, flight: &'a InFlightFill) -> PieceTurn<'a> {
        let only = if !flight.is_hurried() && self.is_to_yield() {
            tokio::select! {
                permit = self.piece.acquire() => permit.ok(),
                () = flight.until_hurried() => None,
            }
        } else {
            None
        };
        PieceTurn { throttle: self, flight, _only: only }
    }

    fn is_to_yield(&self) -> bool {
        let (now, state) = (clock::now(), self.lock());
        state.is_read(now) || is_within(YIELD_READERS_WINDOW, state.read_there, now)
    }

    /// Notes the pause that a source wants after a piece. Returns how long to pause now.
    fn owe(&self, took: Duration, rests: u32) -> Duration {
        let (now, mut state) = (clock::now(), self.lock());
        if rests > 0 {
            state.read_there = Some(now);
        }
        let own = if state.is_read(now) { YIELD_RESTS } else { 0 };
        state.owed += took.saturating_mul(rests.max(own)).min(limits::YIELD_REST_MAX);
        if state.owed < REST_MIN { Duration::ZERO } else { std::mem::take(&mut state.owed) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_read(&self, now: Instant) -> bool {
        is_within(YIELD_READERS_WINDOW, self.read, now)
    }
}

fn is_within(window: Duration, at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < window)
}

/// One piece that is being taken.
#[derive(Debug)]
pub(crate) struct PieceTurn<'a> {
    throttle: &'a TransferThrottle,
    flight: &'a InFlightFill,
    _only: Option<SemaphorePermit<'a>>,
}

impl PieceTurn<'_> {
    /// Pauses after a piece that took `took`, if the source asks for `rests` times that. A hurried
    /// flight does not pause.
    pub(crate) async fn end(self, took: Duration, rests: u32) {
        if self.flight.is_hurried() {
            return;
        }
        let rest = self.throttle.owe(took, rests);
        if !rest.is_zero() {
            // The pause also ends when the flight becomes hurried.
            let _ = time::timeout(rest, self.flight.until_hurried()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_base::ShardId;
    use tokio::task::yield_now;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn flight() -> InFlightFill {
        InFlightFill::new(ShardId::from_bytes([1; 16]))
    }

    /// Returns true if it still waits after all ready work is done.
    async fn waits(waiting: impl Future<Output = ()>) -> bool {
        let idle = async {
            for _ in 0..10 {
                yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = waiting => false,
            () = idle => true,
        }
    }

    async fn takes_its_turn(throttle: &TransferThrottle, flight: &InFlightFill) {
        throttle.turn(flight).await.end(Duration::ZERO, 0).await;
    }

    #[tokio::test]
    async fn pieces_transfer_in_parallel_without_readers() {
        let (throttle, flights) = (TransferThrottle::default(), [flight(), flight()]);
        assert_eq!(throttle.rests_for("n2"), 0);
        let first = throttle.turn(&flights[0]).await;
        assert!(!waits(takes_its_turn(&throttle, &flights[1])).await);
        // Otherwise the test does not end.
        first.end(HOUR, 0).await;
    }

    #[test]
    fn pauses_grow_with_the_targets_of_one_source() {
        let (throttle, now) = (TransferThrottle::default(), clock::now());
        throttle.lock().read = Some(now);
        assert_eq!(throttle.rests_at("n2", now), YIELD_RESTS);
        assert_eq!(throttle.rests_at("n2", now), YIELD_RESTS);
        assert_eq!(throttle.rests_at("n3", now), 2 * YIELD_RESTS);
        let later = now + YIELD_TAKERS_WINDOW;
        assert_eq!(throttle.rests_at("n3", later), YIELD_RESTS);
        assert_eq!(throttle.rests_at("n3", now + YIELD_READERS_WINDOW), 0);
    }

    #[tokio::test]
    async fn reads_here_or_at_the_source_allow_one_piece_at_a_time() {
        for here in [true, false] {
            let (throttle, flights) = (TransferThrottle::default(), [flight(), flight()]);
            if here {
                throttle.note_read();
            } else {
                throttle.turn(&flights[0]).await.end(Duration::ZERO, 1).await;
            }
            let first = throttle.turn(&flights[0]).await;
            assert!(waits(takes_its_turn(&throttle, &flights[1])).await);
            drop(first);
            assert!(!waits(takes_its_turn(&throttle, &flights[1])).await);
        }
    }

    #[tokio::test]
    async fn hurried_flight_neither_waits_nor_pauses() {
        let (throttle, flights) = (TransferThrottle::default(), [flight(), flight()]);
        throttle.note_read();
        let _first = throttle.turn(&flights[0]).await;
        let second = async {
            let turn = throttle.turn(&flights[1]).await;
            // This pause would be taken if the flight were not in a hurry.
            throttle.lock().owed = HOUR;
            turn.end(HOUR, u32::MAX).await;
        };
        let mut second = std::pin::pin!(second);
        assert!(waits(second.as_mut()).await);
        flights[1].hurry();
        assert!(!waits(second).await);
    }

    #[tokio::test]
    async fn pause_ends_when_a_reader_waits() {
        let (throttle, flight) = (TransferThrottle::default(), flight());
        throttle.lock().owed = HOUR;
        let resting = throttle.turn(&flight).await.end(Duration::ZERO, 0);
        let mut resting = std::pin::pin!(resting);
        assert!(waits(resting.as_mut()).await);
        flight.hurry();
        assert!(!waits(resting).await);
    }

    #[test]
    fn pauses_are_bounded_and_short_ones_add_up() {
        let throttle = TransferThrottle::default();
        assert_eq!(throttle.owe(HOUR, u32::MAX), limits::YIELD_REST_MAX);
        let short = REST_MIN / 2;
        assert_eq!(throttle.owe(short, 1), Duration::ZERO);
        assert_eq!(throttle.owe(short, 1), REST_MIN);
    }
}
