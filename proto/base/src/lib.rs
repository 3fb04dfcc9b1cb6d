//! The types that every other crate speaks of.
//!
//! - [`limits`]: every bound on a frame, queue, count or wait, with its reason.
//! - [`Error`]: a failure that crosses a process border. Its kind says what the caller should do.
//! - [`ShardId`], [`SnapshotId`]: names that are hashes. [`BootId`], [`Ticket`]: names drawn at
//!   random.
//! - [`ring`]: which members own which shards. Every process computes the same.
//! - [`placement`]: a ring with the exceptions that a plan made to it.
//! - [`parse_size`], [`printable`]: sizes as people type them, and outside text made safe to show.
//!
//! Thread rule: plain values, `Send + Sync`, without locks or globals.
//!
//! Non-goals: no I/O, no runtime, no clock, no network stack.

pub mod codec;
pub mod limits;

mod address;
mod cause;
mod error;
mod id;
mod printable;
mod session;
mod size;

pub mod placement;
pub mod ring;

pub use address::data_address;
pub use cause::root_cause;
pub use error::{Advice, Error, ErrorKind};
pub use id::{IdError, ShardId, SnapshotId};
pub use placement::Placement;
pub use printable::{head, printable, printable_line};
pub use ring::{Member, Ring, Scheme};
pub use session::{BootId, Ticket};
pub use size::{SizeError, parse_size};
