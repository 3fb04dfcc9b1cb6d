//! The cache itself: which shards are resident, filling, leased or to be evicted.
//!
//! [`Store`] is a book of accounts. It never touches a shard's bytes: it is generic over the handle
//! of a fill (`F`) and the handle of a resident shard (`R`), and it answers every question with
//! a value that says what its caller may do next. A shard's life:
//!
//! ```text
//!            request: admitted            complete
//!  (absent) ------------------> Filling ------------> Resident
//!      ^                        |   ^ |                   | evicted
//!      |         fail, waiters  |   | | fail, no waiters  |
//!      |         (new permit)   +---+ | or give_up        v
//!      +------------------------------+-----------> Orphaned
//!                       freed: the kernel says that no process maps the bytes
//! ```
//!
//! Four rules hold this together:
//!
//! * **Admission comes before allocation.** [`Store::request`] takes bytes from the [`Budget`]
//!   first and only then lets the caller allocate. Bytes return in one way only: [`Store::freed`],
//!   with the token of an orphan that no process maps any more.
//! * **One fill per shard.** A fill goes with a [`FillPermit`], which can't be copied. Taking a
//!   fill from a filler thought dead makes a new permit, and the old one is refused from then on.
//! * **Groups in use keep their shards.** [`KeepWhatYouHave`] evicts only from groups (snapshots)
//!   without an open session, a lease or recent use, so a scan can't thrash. Only a shard that is
//!   foreseen to be needed takes the room of one that is needed later ([`Store::foresee`]).
//! * **Nothing is dropped in here.** Handles return to the caller. It drops them, or wakes their
//!   waiters, after it has released the lock around the store.
//!
//! ```
//! use larder_store::{Budget, KeepWhatYouHave, Outcome, Store};
//!
//! let mut store = Store::new(Budget::new(64 << 20), KeepWhatYouHave::default(), 64 << 20);
//! let now = std::time::Instant::now();
//! let (shard, snapshot, bytes) = (7_u32, 'a', 16 << 20);
//! let Outcome::Admitted { permit, .. } =
//!     store.request(shard, snapshot, bytes, now, || "fill of 7")
//! else {
//!     panic!("an empty store has room");
//! };
//! let Outcome::InFlight { handle, waiter } =
//!     store.request(shard, snapshot, bytes, now, || "never made")
//! else {
//!     panic!("the first fill is not done");
//! };
//! assert_eq!(handle, "fill of 7");
//! assert_eq!(store.complete(permit, "shard 7", now)?, "fill of 7");
//! store.leave(waiter);
//! assert_eq!(store.get(shard, snapshot, now), Some("shard 7"));
//! # Ok::<(), larder_store::StaleComplete<&str>>(())
//! ```
//!
//! Thread rule: none of it locks, waits or reads a clock. The shell wraps a store in a mutex, holds
//! it for microseconds, and hands in `now`. Non-goals: I/O (but for reading memory limits when
//! a budget is detected), retry counts, priorities, and waking: those are the shell's.

mod budget;
mod entry;
mod evict;
mod group;
mod holder;
mod orphan;
mod store;
mod token;

pub use budget::{Budget, Tally};
pub use evict::{Candidate, Foreseen, GroupUse, KeepWhatYouHave};
pub use holder::HolderId;
pub use orphan::{Evicted, LEAVING_FOR, Orphan};
pub use store::{
    CannotEvict, GroupView, HandOver, HeldShard, HolderView, LeaseRefused, NoRoom, Outcome,
    Released, ShardState, ShardView, StaleComplete, StalePermit, Store, Why,
};
pub use token::{FillPermit, OrphanToken, Waiter};

#[cfg(test)]
mod test_clock {
    use std::time::Instant;

    #[expect(clippy::disallowed_methods, reason = "an `Instant` can be had in no other way")]
    pub(crate) fn start() -> Instant {
        Instant::now()
    }
}
