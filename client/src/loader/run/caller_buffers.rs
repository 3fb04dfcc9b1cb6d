//! Memory that the caller gives for the batches of an epoch, before they are fetched.
//!
//! ```text
//!  handed out |  in flight or ready, and one more  | no memory given yet
//!  0 1 2 3 .. ^ handed_out             ^ next      ^ handed_out + ahead + 1
//! ```
//!
//! The plan gives the size of a batch before any byte of it is fetched, even if rows differ in
//! length. So the caller gives memory of the right size for each batch, by its number. The caller
//! is asked before a thread begins the batch, so the thread finds the memory there.
//!
//! Thread rule: one consumer gives, and threads that fetch take. The lock is held to put or take
//! one entry, and is left alone in a forked child. Non-goals: batches without given memory. They
//! use the loader's pool.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use larder_extent::fork_count;

use crate::{
    Error,
    loader::{batch::BatchFetcher, order::Pass},
};

pub(super) type BytesOf = fn(&BatchFetcher, &Pass, u64) -> Result<usize, Error>;

/// The consumer's end; `M` is memory for one batch.
pub(in crate::loader) struct CallerBuffers<M> {
    pass: Arc<Pass>,
    fetcher: Arc<BatchFetcher>,
    bytes_of: BytesOf,
    given: Arc<GivenBuffers<M>>,
    /// Batches that may be in flight or ready.
    ahead: u64,
    /// The first batch without given memory.
    next: u64,
    /// The [`fork_count`] of the process that created it.
    process: u32,
}

/// Given memory that no thread has taken yet, by batch number. At most one entry more than batches
/// are fetched ahead.
pub(super) struct GivenBuffers<M> {
    memory: Mutex<BTreeMap<u64, M>>,
}

impl<M> CallerBuffers<M> {
    /// Creates the buffers of a pass. `bytes_of` returns the bytes that a batch needs.
    pub(super) fn new(
        pass: Arc<Pass>,
        fetcher: Arc<BatchFetcher>,
        ahead: usize,
        bytes_of: BytesOf,
    ) -> Self {
        let (given, ahead) = (Arc::new(GivenBuffers::new()), ahead as u64);
        Self { pass, fetcher, bytes_of, given, ahead, next: 0, process: fork_count() }
    }

    /// The end that the threads take from.
    pub(super) fn given(&self) -> Arc<GivenBuffers<M>> {
        Arc::clone(&self.given)
    }

    /// The bytes of the next memory to give. `None` if the caller must first wait for another
    /// batch.
    pub(super) fn wanted(&mut self, handed_out: u64) -> Option<usize> {
        while self.is_due(handed_out) {
            match (self.bytes_of)(&self.fetcher, &self.pass, self.next) {
                Ok(bytes) if bytes > 0 => return Some(bytes),
                // An empty batch needs no memory. An error comes up again when the batch is
                // fetched.
                Ok(_) | Err(_) => self.next += 1,
            }
        }
        None
    }

    /// Gives memory for the next batch. Drops it if it is not wanted.
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

    /// Whether batch `next` needs memory now: it is not handed out, and will be fetched soon.
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

impl<M> GivenBuffers<M> {
    fn new() -> Self {
        Self { memory: Mutex::default() }
    }

    pub(super) fn take(&self, batch: u64) -> Option<M> {
        self.lock().remove(&batch)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, M>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
