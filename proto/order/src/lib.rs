//! The order of samples: which sample comes at which position, how an epoch is cut into batches,
//! how it resumes, and how it is proved complete.
//!
//! A [`View`] says which samples of a snapshot are declared (all, a range, some, a random part, and
//! any of these of another view), a [`PassId`] names one seeded pass over a view, and an [`Order`]
//! turns a *position* of that pass (0, 1, 2, ...) into a sample and back. A [`Mixture`] has one
//! view or more, and a [`JobOrder`] turns a position of its epoch into a source and a sample. It
//! has passes, states and digests as a view has. An order is a pure function of its pass: rank,
//! world size, workers and ring take no part in it, so any process can compute any part of it,
//! ahead of time and without asking. A [`BatchPlan`] cuts positions into global batches and those
//! into shares for ranks; a [`LoaderState`] resumes at a position, also at another world size or
//! batch size; an [`EpochDigest`] proves that every declared sample came exactly once.
//! [`RankHosts`] divides the rows of a global batch by where they are held instead.
//!
//! ```
//! use std::num::NonZeroU32;
//! use larder_order::{
//!     BatchPlan, DatasetShape, Draws, EpochDigest, JobOrder, Last, LoaderState, Mixture, Shuffle,
//!     View,
//! };
//!
//! let shape = DatasetShape::from_rows([1000, 1000, 500])?;
//! let job = Mixture::single(View::all([7; 32], shape));
//! let pass_id = job.pass_id(42, 0, Shuffle::Global);
//! let order = JobOrder::new(pass_id, &job)?;
//!
//! // Rank 1 of 4, 64 samples a rank, from the start of the epoch.
//! let (batch_size, world) = (NonZeroU32::new(64).unwrap(), NonZeroU32::new(4).unwrap());
//! let batches = BatchPlan::new(order.len(), 0, batch_size, world, Last::Pad)?;
//! let (mut digest, mut state) = (EpochDigest::new(pass_id), LoaderState::new(pass_id, 0));
//! for batch in 0..batches.batches_in_epoch() {
//!     let share = batches.share(batch, 1).expect("a batch and a rank of this pass");
//!     let mut draws = Draws::new(pass_id);
//!     order.fill(share.positions(), &mut draws); // without padding
//!     draws.add_to(&mut digest, draws.len());
//!     state = LoaderState::new(pass_id, batches.position_after(batch).expect("as above"));
//! }
//! assert_eq!((digest.count(), state.next_position()), (625, 2500));
//! # Ok::<(), larder_order::Error>(())
//! ```
//!
//! Thread rule: everything here is plain data, computed synchronously; share it by reference or by
//! clone. Non-goals: input and output, the manifest (its row counts are handed in), the places of
//! shards, and prefetching, which uses [`Order::next_use`] and [`Order::shards_from`].

mod batch;
mod digest;
mod error;
mod ids;
mod locality;
mod mixture;
mod order;
mod pass;
mod permutation;
mod shape;
mod shuffle;
mod state;
mod view;

pub use batch::{BatchPlan, BatchRow, Last, Share};
pub use digest::EpochDigest;
pub use error::Error;
pub use ids::{LocalityId, ORDER_VERSION, PASS_ID_BYTES, PassId};
pub use locality::{Division, RankHosts};
pub use mixture::{Draws, JobOrder, Mixture, SourcePlace, Stop};
pub use order::{DeclaredShards, Order, ShardKeys, ShardOrder};
pub use pass::PassName;
pub use permutation::Permutation;
pub use shape::DatasetShape;
pub use shuffle::{Shuffle, WINDOW_SHARDS_DEFAULT};
pub use state::LoaderState;
pub use view::{Selection, Split, SplitSide, View};
