//! Memory that the caller gives for the batches of an epoch.
//!
//! A framework that copies batches to a device may want them in memory of its own kind
//! (page-locked, say), and must then be the one that knows when such memory can be used again: only
//! it knows which copies still read it. So rows are gathered into what it gave, which goes back to
//! it with the batch, and is written to only once.
//!
//! Thread rule: given by the consumer of an epoch, written by a thread that fetches, dropped by
//! either. Non-goals: allocating; using memory again.

use std::any::Any;

/// Memory for one batch: written from its beginning by one thread, once, and then only lent out by
/// its address. Dropped when nobody has a tensor in it any more, in whichever thread that is.
pub trait CallerMemory: Any + Send + Sync {
    /// Its bytes, the same ones at every call: as many as were wanted, or the batch comes in other
    /// memory. They begin where an element of any type may.
    fn bytes(&self) -> &[u8];

    /// The same bytes.
    fn bytes_mut(&mut self) -> &mut [u8];
}
