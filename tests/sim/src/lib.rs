//! Simulates whole clusters of agents in one thread, from one seed. Clock, network, coordinator,
//! origin, caches and clients are simulated; the agents are the real ones.
//!
//! After every event the [`checks`](crate) look at the effects that agents want, at the record and
//! at the results of reads. The same seed leads to the same events in the same order:
//! [`Report::trace`] is a hash over all of them.
//!
//! To prove that the checks notice, a [`Bug`] can be planted: a broken rule of the agents, or a
//! fault in their world that its contract excludes.
//!
//! [`run_plans`] simulates the read plans of loaders, in a world of its own.
//!
//! Thread rule: one run, one thread; runs share nothing. Non-goals: performance; the bytes of
//! shards (a copy here is a version, and whether it was checked).

mod bugs;
mod checks;
mod names;
mod placed;
mod plans;
mod report;
mod run;
mod scene;
mod world;

pub use bugs::{ALL, Bug, Mishap, SECOND_BOLTS};
pub use plans::{PLAN_BUGS, PlanBug, PlanReport, find_plans, run_plans};
pub use report::Report;
pub use run::{find, run, tell};
pub use scene::Kind;
