//! The types that every other crate speaks of.
//!
//! - [`limits`]: every bound on a frame, queue, count or wait, with its reason.
//! - [`Error`]: a failure that crosses a process border. Its kind says what the caller should do.
//! - [`ShardId`], [`SnapshotId`], [`BlobId`]: names that are hashes. [`BootId`]: a random name.
//! - [`RowRef`], [`RegionRef`]: a row and a region of a snapshot by number.
//! - [`Ticket`], [`is_secret`], [`check_secret_mode`]: the right to read a dataset, and how secrets
//!   are compared and kept.
//! - [`ring`]: which members own which shards. Every process computes the same.
//! - [`placement`]: a ring with the exceptions that a plan made to it.
//! - [`parse_size`], [`Bytes`], [`printable`]: sizes as people type and read them, and outside text
//!   made safe to show.
//! - [`WaitNotice`]: when users are told that they wait.
//!
//! Thread rule: plain values, `Send + Sync`, without locks or globals.
//!
//! Non-goals: no I/O, no runtime, no clock, no network stack.

pub mod codec;
pub mod limits;

mod error;
mod id;
mod notice;
mod printable;
mod refs;
mod secret;
mod size;

pub mod placement;
pub mod ring;

pub use error::{Advice, Error, ErrorKind, root_cause};
pub use id::{BlobId, BootId, IdError, ShardId, SnapshotId};
pub use notice::WaitNotice;
pub use placement::Placement;
pub use printable::{head, printable, printable_line};
pub use refs::{RegionRef, RowRef};
pub use ring::{Member, Ring, Scheme, data_address};
pub use secret::{Ticket, check_secret_mode, is_secret};
pub use size::{Bytes, Counted, SizeError, parse_size};
