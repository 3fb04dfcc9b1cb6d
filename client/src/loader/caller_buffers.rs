//! Memory that the caller gives for the batches of an epoch, each before it is fetched.
//!
//! ```text
//!  handed out |  in flight or ready, and one more  | nothing is given for
//!  0 1 2 3 .. ^ handed_out             ^ next      ^ handed_out + ahead + 1
//! ```
//!
//! The plan says how large a batch will be before a byte of it is fetched, also where rows differ
//! in length. So each batch gets memory of its own size, under its own number, and a thread that
//! begins one finds it there: no thread begins a batch for which the consumer was not asked to give
//! before.
//!
//! Thread rule: one consumer gives, threads that fetch take. The lock is held to put or take one,
//! and left alone in a forked child. Non-goals: memory for batches that nobody gave any for: they
//! come in that of the loader's pool.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use larder_extent::fork_count;

use super::{fetch::BatchFetcher, pass::Pass};
use crate::Error;

/// Bytes of the memory that a batch of a pass needs.
pub(super) type BytesOf = fn(&BatchFetcher, &Pass, u64) -> Result<usize, Error>;

/// The consumer's end; `M` is memory for one batch.
pub(super) struct CallerBuffers<M> {
    pass: Arc<Pass>,
    fetcher: Arc<BatchFetcher>,
    bytes_of: BytesOf,
    given: Arc<Given<M>>,
    /// Batches that may be in flight or ready.
    ahead: u64,
    /// The first batch that nothing was given for.
    next: u64,
    /// Its [`fork_count`].
    process: u32,
}

/// What was given and not yet taken, by number of the batch: for one more than are fetched ahead at
/// most.
pub(super) struct Given<M> {
    memory: Mutex<BTreeMap<u64, M>>,
}

impl<M> CallerBuffers<M> {
    /// For a pass. `bytes_of` says how many bytes a batch of it needs.
    pub(super) fn new(
        pass: Arc<Pass>,
        fetcher: Arc<BatchFetcher>,
        ahead: usize,
        bytes_of: BytesOf,
    ) -> Self {
        let (given, ahead) = (Arc::new(Given::new()), ahead as u64);
        Self { pass, fetcher, bytes_of, given, ahead, next: 0, process: fork_count() }
    }

    /// What the threads take from.
    pub(super) fn given(&self) -> Arc<Given<M>> {
        Arc::clone(&self.given)
    }

    /// Bytes of the memory to be given next, if any is to be given before another batch is waited
    /// for.
    pub(super) fn wanted(&mut self, handed_out: u64) -> Option<usize> {
        while self.is_due(handed_out) {
            match (self.bytes_of)(&self.fetcher, &self.pass, self.next) {
                Ok(bytes) if bytes > 0 => return Some(bytes),
                // Of nothing none is needed; and what is wrong is said by who fetches the batch.
                Ok(_) | Err(_) => self.next += 1,
            }
        }
        None
    }

    /// Memory for the next batch; what is not wanted is dropped.
    pub(super) fn give(&mut self, handed_out: u64, memory: M) {
        if self.is_due(handed_out) {
            let mut given = self.given.lock();
            given.insert(self.next, memory);
            let still_useful = given.split_off(&handed_out);
            let too_late = mem::replace(&mut *given, still_useful);
            drop(given);
            drop(too_late);
            self.next += 1;
        }
    }

    /// Whether memory is to be given for batch `next`: one that is not handed out, and is fetched
    /// soon.
    fn is_due(&mut self, handed_out: u64) -> bool {
        self.next = self.next.max(handed_out);
        let end = self.pass.count().min(handed_out + self.ahead + 1);
        self.next < end && self.process == fork_count()
    }
}

impl<M> Drop for CallerBuffers<M> {
    fn drop(&mut self) {
        if self.process == fork_count() {
            let left = mem::take(&mut *self.given.lock());
            drop(left); // after the lock
        }
    }
}

impl<M> Given<M> {
    fn new() -> Self {
        Self { memory: Mutex::default() }
    }

    /// The memory that was given for a batch.
    pub(super) fn take(&self, batch: u64) -> Option<M> {
        self.lock().remove(&batch)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, M>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
