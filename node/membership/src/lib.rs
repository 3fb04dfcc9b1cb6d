//! Membership and rebalance, as pure state machines.
//!
//! - [`record`]: the one small value that the coordinator keeps, and every step it can take. It
//!   changes only by compare-and-set.
//! - [`plan`]: which shards move when members come and go; the seam to the planner.
//! - [`announcement`]: the few bytes by which a node tells that it lives and how far it has moved.
//! - [`agent`]: the state machine that each node runs. It takes events and returns effects.
//!
//! Safety rests on the record alone: a write succeeds only at the revision that its step was
//! computed from. Agents take turns only to avoid conflicts.
//!
//! Thread rule: plain values, no locks, no globals. Non-goals: no I/O, no clock, no randomness; a
//! [`Now`] is handed in, and outcomes do not depend on the order of any hash map.

pub mod agent;
pub mod announcement;
pub mod plan;
pub mod record;

mod id;
#[cfg(test)]
mod testing;
mod timing;

pub use agent::{Agent, Effect, Event};
pub use announcement::Announcement;
pub use id::Revision;
pub use larder_base::codec::Malformed;
pub use larder_base::{BlobId, BootId};
pub use plan::{Move, PlanBlobs, Planner, RingPlan};
pub use record::Record;
pub use timing::Timing;

/// Time since this process started, by its monotonic clock. Never compared across processes.
pub type Now = std::time::Duration;
