//! How fast shards come and leave that nobody waits for: slowly while somebody reads, so that he hardly notices.
//!
//! A change of the ring moves whole shares of a node. As fast as it goes that takes the network, and on small hosts the
//! processors, from everybody who reads meanwhile. So who takes such a shard asks for it in small pieces, and rests
//! after each for as long as both sides want:
//!
//! ```text
//!   giver                                           taker
//!   who read here lately? who else takes pieces? ─▶ one piece at a time; then the longer of
//!                                   (Part.rests)    that rest and of its own readers'
//! ```
//!
//! The rest is a multiple of what the piece took, so that the share of the time is the same on any link that is fast
//! enough for the longest rest there is. Where nobody reads nothing rests, and all that yielding waits for ends as soon as somebody waits for the shard.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_base::limits;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time;

use crate::clock;
use crate::flight::Flight;

/// Rests shorter than this are saved up: timers are not finer.
const REST_MIN: Duration = Duration::from_millis(1);

/// What one node knows of who reads and who takes.
#[derive(Debug)]
pub(crate) struct Pace {
    state: Mutex<State>,
    /// Held while a piece comes, and during the rest after it.
    piece: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    /// When somebody last read here.
    read: Option<Instant>,
    /// When a giver last wanted to be left alone: somebody reads there.
    read_there: Option<Instant>,
    /// When each other node last took something from here.
    takers: HashMap<String, Instant>,
    /// Rests that were too short to be taken.
    owed: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { state: Mutex::default(), piece: Semaphore::new(1) }
    }
}

impl Pace {
    /// Somebody reads here.
    pub(crate) fn note_read(&self) {
        self.lock().read = Some(clock::now());
    }

    /// How many times as long as a piece took another node is to rest after it. It counts itself, and others that may be
    /// in a hurry and do not rest.
    pub(crate) fn rests_for(&self, taker: &str) -> u32 {
        self.rests_at(taker, clock::now())
    }

    fn rests_at(&self, taker: &str, now: Instant) -> u32 {
        let mut state = self.lock();
        state.takers.retain(|_, at| is_within(limits::YIELD_TAKERS_WINDOW, Some(*at), now));
        state.takers.insert(taker.to_owned(), now);
        let takers = u32::try_from(state.takers.len()).unwrap_or(u32::MAX);
        if state.is_read(now) { limits::YIELD_RESTS.saturating_mul(takers) } else { 0 }
    }

    /// Waits until a piece of this flight may be taken: after those of others, unless nobody reads or somebody is in a
    /// hurry.
    pub(crate) async fn turn<'a>(&'a self, flight: &'a Flight) -> Turn<'a> {
        let only = if !flight.is_hurried() && self.is_to_yield() {
            tokio::select! {
                permit = self.piece.acquire() => permit.ok(),
                () = flight.until_hurried() => None,
            }
        } else {
            None
        };
        Turn { pace: self, flight, _only: only }
    }

    fn is_to_yield(&self) -> bool {
        let (now, state) = (clock::now(), self.lock());
        state.is_read(now) || is_within(limits::YIELD_READERS_WINDOW, state.read_there, now)
    }

    /// Notes what a giver wants after a piece that took so long. Returns for how long to rest now.
    fn owe(&self, took: Duration, rests: u32) -> Duration {
        let (now, mut state) = (clock::now(), self.lock());
        if rests > 0 {
            state.read_there = Some(now);
        }
        let own = if state.is_read(now) { limits::YIELD_RESTS } else { 0 };
        state.owed += took.saturating_mul(rests.max(own)).min(limits::YIELD_REST_MAX);
        if state.owed < REST_MIN { Duration::ZERO } else { std::mem::take(&mut state.owed) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_read(&self, now: Instant) -> bool {
        is_within(limits::YIELD_READERS_WINDOW, self.read, now)
    }
}

fn is_within(window: Duration, at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < window)
}

/// One piece that is being taken.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pace: &'a Pace,
    flight: &'a Flight,
    _only: Option<SemaphorePermit<'a>>,
}

impl Turn<'_> {
    /// Rests after the piece, which took so long and whose giver wants so many rests, unless somebody is in a hurry.
    pub(crate) async fn end(self, took: Duration, rests: u32) {
        if self.flight.is_hurried() {
            return;
        }
        let rest = self.pace.owe(took, rests);
        if !rest.is_zero() {
            // That somebody is in a hurry from now on ends it as well.
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

    fn flight() -> Flight {
        Flight::new(ShardId::from_bytes([1; 16]))
    }

    /// Whether it is still waiting when all that can go on has.
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

    async fn takes_its_turn(pace: &Pace, flight: &Flight) {
        pace.turn(flight).await.end(Duration::ZERO, 0).await;
    }

    #[tokio::test]
    async fn where_nobody_reads_nobody_is_to_rest_and_pieces_come_side_by_side() {
        let (pace, flights) = (Pace::default(), [flight(), flight()]);
        assert_eq!(pace.rests_for("n2"), 0);
        let first = pace.turn(&flights[0]).await;
        assert!(!waits(takes_its_turn(&pace, &flights[1])).await);
        // Else the test would not end.
        first.end(HOUR, 0).await;
    }

    #[test]
    fn all_who_take_from_one_node_share_its_time() {
        let (pace, now) = (Pace::default(), clock::now());
        pace.lock().read = Some(now);
        assert_eq!(pace.rests_at("n2", now), limits::YIELD_RESTS);
        assert_eq!(pace.rests_at("n2", now), limits::YIELD_RESTS);
        assert_eq!(pace.rests_at("n3", now), 2 * limits::YIELD_RESTS);
        let later = now + limits::YIELD_TAKERS_WINDOW;
        assert_eq!(pace.rests_at("n3", later), limits::YIELD_RESTS);
        assert_eq!(pace.rests_at("n3", now + limits::YIELD_READERS_WINDOW), 0);
    }

    #[tokio::test]
    async fn one_piece_comes_at_a_time_where_somebody_reads_here_or_at_the_giver() {
        for here in [true, false] {
            let (pace, flights) = (Pace::default(), [flight(), flight()]);
            if here {
                pace.note_read();
            } else {
                pace.turn(&flights[0]).await.end(Duration::ZERO, 1).await;
            }
            let first = pace.turn(&flights[0]).await;
            assert!(waits(takes_its_turn(&pace, &flights[1])).await);
            drop(first);
            assert!(!waits(takes_its_turn(&pace, &flights[1])).await);
        }
    }

    #[tokio::test]
    async fn whoever_is_in_a_hurry_waits_for_nobody_and_rests_no_more() {
        let (pace, flights) = (Pace::default(), [flight(), flight()]);
        pace.note_read();
        let _first = pace.turn(&flights[0]).await;
        let second = async {
            let turn = pace.turn(&flights[1]).await;
            // A rest, were it not in a hurry.
            pace.lock().owed = HOUR;
            turn.end(HOUR, u32::MAX).await;
        };
        let mut second = std::pin::pin!(second);
        assert!(waits(second.as_mut()).await);
        flights[1].hurry();
        assert!(!waits(second).await);
    }

    #[tokio::test]
    async fn a_rest_ends_when_somebody_is_in_a_hurry() {
        let (pace, flight) = (Pace::default(), flight());
        pace.lock().owed = HOUR;
        let resting = pace.turn(&flight).await.end(Duration::ZERO, 0);
        let mut resting = std::pin::pin!(resting);
        assert!(waits(resting.as_mut()).await);
        flight.hurry();
        assert!(!waits(resting).await);
    }

    #[test]
    fn rests_are_bounded_whatever_a_giver_wants_and_short_ones_add_up() {
        let pace = Pace::default();
        assert_eq!(pace.owe(HOUR, u32::MAX), limits::YIELD_REST_MAX);
        let short = REST_MIN / 2;
        assert_eq!(pace.owe(short, 1), Duration::ZERO);
        assert_eq!(pace.owe(short, 1), REST_MIN);
    }
}
