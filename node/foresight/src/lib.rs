//! Which shards a node should hold: the offline optimum over the announced future of its readers.
//!
//! Readers announce in which order they read shards, and how far they are: a [`ReadPlan`]. Its uses
//! say when each shard is needed. [`schedule`] runs L. Belady's MIN over these uses (*A Study of
//! Replacement Algorithms for a Virtual-Storage Computer*, 1966): a shard that must come takes the
//! room of the shard with the farthest next use. It returns what to fetch, and which held shards to
//! give up: those that MIN evicts before their next use.
//!
//! A node may do both early, as P. Cao, E. Felten, A. Karlin and K. Li have it (*A Study of
//! Integrated Prefetching and Caching Strategies*, SIGMETRICS 1995). One rule keeps the optimum: a
//! fetch takes the room of a shard that is given up, never of one that is kept. Any shard that is
//! given up will do, not only the one that MIN evicts for this fetch.
//!
//! ```
//! use larder_foresight::{Fetch, Shard, Use, schedule};
//!
//! // Room for two shards of three. Shards 0 and 1 are held.
//! let shards = [Shard::held(1), Shard::held(1), Shard::absent(1)];
//! let uses = [(0, 10), (2, 20), (0, 30), (1, 40)];
//! let uses = uses.map(|(shard, begin)| Use::new(shard, begin..begin + 10));
//! let schedule = schedule(2, &shards, &uses);
//! assert_eq!(schedule.given_up, [1], "its next use is the farthest");
//! let fetches = [(2, 20), (1, 40)].map(|(shard, deadline)| Fetch { shard, deadline });
//! assert_eq!(schedule.fetches, fetches);
//! ```
//!
//! An [`Outlook`] turns this into the next steps of a node: the fetches that it has room for, and
//! the maps that clients are to return. [`jobs`] joins the loaders of a job, which announce it
//! each. [`Evidence`] finds plans that no reader follows.
//!
//! Thread rule: pure functions of plain data; `now` is handed in. Non-goals: networks, and the
//! books of the cache, which `larder-store` keeps.

mod evidence;
mod jobs;
mod outlook;
mod plan;
mod schedule;

pub use evidence::{Evidence, SET_ASIDE};
pub use jobs::{Job, Loader, jobs};
pub use outlook::{Due, InMemory, Looked, Otherwise, Outlook, OwnShard, Reads};
pub use plan::{ReadPlan, joined};
pub use schedule::{Fetch, Schedule, Shard, Use, schedule};
