//! Which sample comes when: the order of an epoch, how it is cut into batches, how it is resumed
//! and how it is proved complete.
//!
//! A [`View`] says which samples of a snapshot are declared, a [`PlanId`] names one seeded pass over
//! a view, and an [`Order`] turns a *position* of that pass (0, 1, 2, ...) into a sample and back. An
//! order is a pure function of its plan: rank, world size, workers and ring take no part in it, so
//! any process can compute any part of it, ahead of time and without asking. A [`BatchPlan`] cuts
//! positions into global batches and those into shares for ranks; a [`LoaderState`] resumes at a
//! position, also at another world size or batch size; an [`EpochDigest`] proves that every declared
//! sample came exactly once.
//!
//! Thread rule: everything here is plain data, computed synchronously; share it by reference or by
//! clone. Non-goals: input and output, the manifest (its row counts are handed in), where a shard
//! lies, and what is fetched when; those ask [`Order::next_use`] and [`Order::shards_from`].

mod batch;
mod digest;
mod error;
mod order;
mod permutation;
mod plan;
mod shape;
mod shuffle;
mod state;
mod text;
mod view;
mod windows;

pub use batch::{BatchPlan, Last, Share, Slot};
pub use digest::EpochDigest;
pub use error::Error;
pub use order::Order;
pub use permutation::Permutation;
pub use plan::{ORDER_VERSION, PLAN_ID_BYTES, PlanId};
pub use shape::DatasetShape;
pub use shuffle::{Shuffle, WINDOW_SHARDS_DEFAULT};
pub use state::LoaderState;
pub use view::{Selection, View};
