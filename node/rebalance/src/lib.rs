//! Plans a change of the ring: from the present placement to an even one, with the fewest bytes
//! moved.
//!
//! An operator asks for a [`Change`]: members to add, drain, remove, reweight or replace, any
//! number of them at once, pinned to one version of the ring. [`plan`] takes it with the sizes of
//! the shards and the present [`Placement`]s, and returns a [`Plan`]: the next ring, each
//! snapshot's exceptions to it, and every move. A plan's [`PlanId`] is a hash of its contents, so
//! that the plan applied is the plan shown.
//!
//! **Even** means: no member holds more than 1.10 times its *share* of a snapshot's bytes
//! ([`SKEW_PERCENT_MAX`]). Shares follow the weights, within the bounds that replicas set: no
//! member holds a shard twice, and no zone or host does while there are enough of them. Where
//! shards are too large for their number, the plan comes as near as single moves can
//! ([`Summary::is_even`]).
//!
//! **Ideal** ([`Summary::bytes_ideal`]) is the fewest bytes that a change moves if placement is
//! perfectly even before and after: the growth of all shares that grow, added up. A node that joins
//! `n` equal nodes takes one (n+1)-th of the bytes; one that leaves `n` gives one n-th.
//!
//! Each snapshot is planned by itself. The shard's place and the member's index break all ties:
//!
//! 1. *Keep*: a copy stays, unless its holder leaves or copies would be too close.
//! 2. *Fill*: a copy without a holder goes to the owner by the next ring's walk, while that stays
//!    below 1.05 of its share; else to the emptiest member.
//! 3. *Raise*: a new or heavier member takes shards up to its share. Those that the walk gives it
//!    come first, then shards of the fullest members.
//! 4. *Shed*: a member above 1.10 of its share gives shards away until it is not.
//!
//! So only the fourth step moves shards between members that the change does not name. A change
//! [at once](Change::at_once) leaves out the third and fourth step, as it does not wait for moves:
//! it is as even as fills make it. Of shards that would serve alike, the plan moves those that the
//! walk places elsewhere, so that exceptions heal along the way.
//!
//! Thread rule: pure functions of their arguments. Non-goals: no I/O, clock or randomness; no
//! moving of bytes, and no rates or times; no judgement of which members are alive.
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

pub use change::{Change, Step};
pub use plan::{Move, Plan, PlanId, SnapshotPlan, Summary};
pub use planner::{SizedShard, Snapshot, plan};
pub use shares::shares;

/// Most bytes that a member may hold, in percent of its share.
pub const SKEW_PERCENT_MAX: u64 = 110;
