//! Plans a change of the ring: from what is in place to an even placement, with the fewest bytes
//! moved.
//!
//! An operator asks for a [`Change`]: members that are added, drained, removed, weighted or placed
//! anew, any number of them at once, pinned to the version of the ring that they were looked at on.
//! [`plan`] turns it, with the sizes of the shards and the present [`Placement`]s, into a [`Plan`]:
//! the next ring, for each snapshot the exceptions to it, and every move. A plan is known by its
//! [`PlanId`], a hash of all it says, so that what is applied is what was shown.
//!
//! **Even** means: no member holds more than 1.10 times its *share* of a snapshot's bytes
//! ([`SKEW_PERCENT_MAX`]). Shares follow the weights, within what copies allow: nobody holds a
//! shard twice, nor does a zone or a host while there are enough of them. Where shards are too
//! large for their number the plan comes as near as single moves do, and says so
//! ([`Summary::is_even`]).
//!
//! **Ideal** ([`Summary::bytes_ideal`]) is what a change must move when placement is perfectly even
//! before and after it: the sum, over the members whose share grows, of what it grows by. One node
//! joining `n` equal ones: one (n+1)-th of the bytes; leaving `n`: one n-th.
//!
//! How a plan is made, of each snapshot by itself, all ties broken by the shard's place and the
//! member's index:
//!
//! 1. *Keep*: what is in place stays, unless its holder goes or copies would stand too close.
//! 2. *Fill*: a copy without a holder goes to where the next ring's walk says, while that leaves it
//!    below 1.05; else to the emptiest member.
//! 3. *Raise*: a member that is new or was given more weight takes up to its share, first what the
//!    walk gives it, from the fullest; then from whoever is fullest.
//! 4. *Shed*: a member above 1.10 gives away until it is not.
//!
//! So between members that the change does not name, only the fourth step moves anything. A change
//! that takes effect [at once](Change::at_once) leaves the third and fourth step out: nobody waits
//! for moves then, and the plan is as even as fills make it. Of shards that would serve alike,
//! those move that the walk wants moved, so that exceptions heal along the way.
//!
//! Thread rule: pure functions of their arguments. Non-goals: no I/O, clock or randomness; no
//! moving of bytes, nor rates and times of it; no judgement of who is alive.
//!
//! [`Placement`]: larder_base::Placement

mod change;
mod draft;
mod drain_overfull;
mod fill;
mod fill_underfull;
mod keep;
mod outcome;
mod plan;
mod planner;
mod shares;
mod summary;

pub use change::{Change, Step};
pub use plan::{Move, Plan, PlanId, SnapshotPlan};
pub use planner::{SizedShard, Snapshot, plan};
pub use shares::shares;
pub use summary::Summary;

/// The most that a member may hold of its share, in percent.
pub const SKEW_PERCENT_MAX: u64 = 110;
