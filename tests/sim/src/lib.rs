//! Whole clusters of agents in one thread, from one seed: clock, network, coordinator, origin,
//! caches and clients are simulated; the agents are those that nodes run.
//!
//! After every event the checks of [`checks`](crate) look at what the agents want done, at the
//! record and at what reads got. The same seed leads to the same events in the same order:
//! [`Report::trace`] is a hash over all of them.
//!
//! To see that the checks would notice, a [`Bug`] can be planted: a rule taken from the agents, or
//! a fault in the world around them that its contract excludes.
//!
//! Thread rule: one run, one thread; runs share nothing. Non-goals: how fast anything is; the bytes
//! of shards (a copy here is a version and whether it was checked).

mod bugs;
mod checks;
mod names;
mod placed;
mod report;
mod run;
mod scene;
mod world;

pub use bugs::{ALL, Bug, Mishap, SECOND_BOLTS};
pub use report::Report;
pub use run::{find, run, tell};
pub use scene::Kind;
