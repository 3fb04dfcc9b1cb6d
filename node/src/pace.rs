//! How fast shards come and leave that nobody waits for: slowly while somebody reads, so that he hardly notices.
//!
//! A change of the ring moves whole shares of a node. As fast as it goes that takes the network, and on small hosts the
//! processors, from everybody who reads meanwhile. So who takes such a shard has it in small pieces and rests after
//! each, for as long as both sides ask for:
//!
//! ```text
//!   giver                                          taker
//!   who read here lately? who else takes parts? ─▶ one shard at a time, and of it one part; after each piece
//!                                    (Part.rest)   the longer of that rest and of its own readers'
//! ```
//!
//! The rest is a multiple of what the piece took, so that the share of the time is the same on any link. Where nobody
//! reads nothing rests, and all that yielding waits for ends as soon as somebody waits for the shard.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_wire::limits::{YIELD_REST_MAX, YIELD_RESTS, YIELD_WINDOW};
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
    /// Held by the one fill that yields.
    turn: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    /// When somebody last read here.
    read: Option<Instant>,
    /// When a giver last asked for rests: somebody reads there.
    asked: Option<Instant>,
    /// When each other node last took a part from here.
    takers: HashMap<String, Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { state: Mutex::default(), turn: Semaphore::new(1) }
    }
}

impl Pace {
    /// Somebody reads here.
    pub(crate) fn note_read(&self) {
        self.lock().read = Some(clock::now());
    }

    /// How many times as long as a piece took another node is to rest after it.
    pub(crate) fn rest_for(&self, taker: &str) -> u32 {
        let (now, mut state) = (clock::now(), self.lock());
        state.takers.retain(|_, at| is_lately(Some(*at), now));
        state.takers.insert(taker.to_owned(), now);
        let takers = u32::try_from(state.takers.len()).unwrap_or(u32::MAX);
        if is_lately(state.read, now) { YIELD_RESTS.saturating_mul(takers) } else { 0 }
    }

    /// Begins a fill; waits for those that yield as it does.
    pub(crate) async fn turn<'a>(&'a self, flight: &'a Flight) -> Turn<'a> {
        let yields = !flight.is_hurried() && self.is_to_yield();
        let only = if yields { alone(&self.turn, flight).await } else { None };
        Turn { pace: self, flight, part: Semaphore::new(1), _only: only }
    }

    fn is_read(&self) -> bool {
        is_lately(self.lock().read, clock::now())
    }

    fn is_to_yield(&self) -> bool {
        let (now, state) = (clock::now(), self.lock());
        is_lately(state.read, now) || is_lately(state.asked, now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_lately(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < YIELD_WINDOW)
}

/// One permit of a semaphore that has one; none if somebody is in a hurry before it is free.
async fn alone<'a>(one: &'a Semaphore, flight: &Flight) -> Option<SemaphorePermit<'a>> {
    tokio::select! {
        permit = one.acquire() => permit.ok(),
        () = flight.until_hurried() => None,
    }
}

/// One fill, from its memory to its seal.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pace: &'a Pace,
    flight: &'a Flight,
    /// Held while one of its parts comes.
    part: Semaphore,
    /// No other fill yields beside it.
    _only: Option<SemaphorePermit<'a>>,
}

impl Turn<'_> {
    /// Begins a part; after the others of its fill, unless somebody is in a hurry.
    pub(crate) async fn part(&self) -> PartTurn<'_> {
        let only = alone(&self.part, self.flight).await;
        PartTurn { turn: self, asked: 0, owed: Duration::ZERO, _only: only }
    }
}

/// One part that is being taken.
#[derive(Debug)]
pub(crate) struct PartTurn<'a> {
    turn: &'a Turn<'a>,
    /// What the giver asked for.
    asked: u32,
    /// Rests that were too short to be taken.
    owed: Duration,
    _only: Option<SemaphorePermit<'a>>,
}

impl PartTurn<'_> {
    /// The giver asks for so many rests.
    pub(crate) fn asked(&mut self, rests: u32) {
        self.asked = rests;
        if rests > 0 {
            self.turn.pace.lock().asked = Some(clock::now());
        }
    }

    /// Rests after a piece that took so long, unless somebody is in a hurry.
    pub(crate) async fn rest(&mut self, took: Duration) {
        let Turn { pace, flight, .. } = self.turn;
        if flight.is_hurried() {
            return;
        }
        let own = if pace.is_read() { YIELD_RESTS } else { 0 };
        self.owed += took.saturating_mul(self.asked.max(own)).min(YIELD_REST_MAX);
        if self.owed >= REST_MIN {
            let rest = std::mem::take(&mut self.owed);
            // That somebody is in a hurry now ends it as well.
            let _ = time::timeout(rest, flight.until_hurried()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_dataset::ShardId;
    use tokio::task::yield_now;

    use super::*;

    fn flight() -> Flight {
        Flight::new(ShardId::from_bytes([1; 16]), false)
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

    #[tokio::test]
    async fn where_nobody_reads_nobody_is_asked_to_rest_and_fills_go_side_by_side() {
        let (pace, flights) = (Pace::default(), [flight(), flight()]);
        assert_eq!(pace.rest_for("n2"), 0);
        let _first = pace.turn(&flights[0]).await;
        assert!(!waits(async { drop(pace.turn(&flights[1]).await) }).await);
    }

    #[tokio::test]
    async fn all_who_take_from_one_node_share_its_time() {
        let pace = Pace::default();
        pace.note_read();
        assert_eq!(pace.rest_for("n2"), YIELD_RESTS);
        assert_eq!(pace.rest_for("n2"), YIELD_RESTS);
        assert_eq!(pace.rest_for("n3"), 2 * YIELD_RESTS);
    }

    #[tokio::test]
    async fn one_fill_yields_at_a_time_where_somebody_reads_here_or_at_the_giver() {
        for asked in [false, true] {
            let (pace, flights) = (Pace::default(), [flight(), flight()]);
            if asked {
                pace.turn(&flights[0]).await.part().await.asked(1);
            } else {
                pace.note_read();
            }
            let first = pace.turn(&flights[0]).await;
            assert!(waits(async { drop(pace.turn(&flights[1]).await) }).await);
            drop(first);
            assert!(!waits(async { drop(pace.turn(&flights[1]).await) }).await);
        }
    }

    #[tokio::test]
    async fn whoever_is_in_a_hurry_waits_neither_for_other_fills_nor_for_parts_of_its_own() {
        let (pace, flights) = (Pace::default(), [flight(), flight()]);
        pace.note_read();
        let _first = pace.turn(&flights[0]).await;
        let second = async {
            let turn = pace.turn(&flights[1]).await;
            let _part = turn.part().await;
            drop(turn.part().await);
        };
        let mut second = std::pin::pin!(second);
        assert!(waits(second.as_mut()).await);
        flights[1].hurry();
        assert!(!waits(second).await);
    }

    #[tokio::test]
    async fn parts_of_one_fill_come_one_after_the_other_and_rest_no_longer_than_the_limit() {
        let (pace, flight) = (Pace::default(), flight());
        let turn = pace.turn(&flight).await;
        let mut first = turn.part().await;
        assert!(waits(async { drop(turn.part().await) }).await);
        first.asked(u32::MAX);
        // Else the test would not end.
        first.rest(Duration::from_secs(3600)).await;
    }
}
