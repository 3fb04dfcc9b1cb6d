//! Memory for batches: aligned to pages, and used again instead of being given back.
//!
//! Memory fresh from the system costs a page fault for every 4 KiB that a batch writes, which is more
//! than copying the row. So a [`Buffer`] returns to its [`BufferPool`] when it is dropped, and the
//! next batch is written into pages that are already there. The pool bounds only what lies idle: how
//! many buffers are in use is bounded by how far the loader fetches ahead, and by how many batches
//! the caller keeps.
//!
//! Thread rule: shared freely. The one lock is only ever tried, never waited for: in a forked child
//! it may be held for ever by a thread that the child does not have. Who can't have it allocates, or
//! frees.
//! Non-goals: page-locking; buffers of several sizes in one pool.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError, TryLockError},
};

/// What buffers, and the tensors in them, are aligned to.
pub(crate) const ALIGNMENT: usize = 4096;

/// Buffers of one size.
pub(crate) struct BufferPool {
    buffer_bytes: usize,
    idle_max: usize,
    idle: Mutex<Vec<Memory>>,
}

/// An allocation, and where in it the first aligned byte is.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

/// A buffer in use. What it holds at first is unspecified: zeros, or an earlier batch.
pub(crate) struct Buffer {
    pool: Arc<BufferPool>,
    /// Taken when dropped.
    memory: Option<Memory>,
}

impl BufferPool {
    /// A pool of buffers of `buffer_bytes` bytes, of which it keeps `idle_max` for later use.
    pub(crate) fn new(buffer_bytes: usize, idle_max: usize) -> Arc<Self> {
        let idle = Mutex::new(Vec::with_capacity(idle_max));
        Arc::new(Self { buffer_bytes, idle_max, idle })
    }

    /// A buffer, an idle one if there is any.
    pub(crate) fn take(self: &Arc<Self>) -> Buffer {
        let idle = self.with_idle(Vec::pop).flatten();
        let memory = idle.unwrap_or_else(|| Memory::new(self.buffer_bytes));
        Buffer { pool: Arc::clone(self), memory: Some(memory) }
    }

    /// Keeps the memory, or hands it back if there is enough already.
    fn keep(&self, memory: Memory) -> Option<Memory> {
        let mut memory = Some(memory);
        self.with_idle(|idle| {
            if idle.len() < self.idle_max {
                idle.extend(memory.take());
            }
        });
        memory
    }

    /// `None` when the lock is held by somebody else.
    fn with_idle<T>(&self, change: impl FnOnce(&mut Vec<Memory>) -> T) -> Option<T> {
        let mut idle = match self.idle.try_lock() {
            Ok(idle) => idle,
            Err(TryLockError::Poisoned(error)) => PoisonError::into_inner(error),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(change(&mut idle))
    }
}

impl Memory {
    /// Zeroed, and so without pages until it is written.
    fn new(bytes: usize) -> Self {
        let bytes = vec![0; bytes + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let memory = self.memory.as_ref().expect("taken only when dropped");
        &memory.bytes[memory.start..][..self.pool.buffer_bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let memory = self.memory.as_mut().expect("taken only when dropped");
        &mut memory.bytes[memory.start..][..self.pool.buffer_bytes]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // What is not kept is freed here, after the lock.
        drop(self.memory.take().and_then(|memory| self.pool.keep(memory)));
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.pool.buffer_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_as_long_as_asked_for() {
        for bytes in [0, 1, 4095, 4096, 1_000_000] {
            let mut buffer = BufferPool::new(bytes, 1).take();
            assert_eq!(buffer.len(), bytes);
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
            buffer.fill(7);
        }
    }

    #[test]
    fn a_dropped_buffer_is_used_again_and_no_more_are_kept_than_may_lie_idle() {
        let pool = BufferPool::new(10_000, 2);
        let buffers = [pool.take(), pool.take(), pool.take()];
        let addresses = buffers.each_ref().map(|buffer| buffer.as_ptr());
        drop(buffers);
        assert_eq!(pool.idle.lock().unwrap().len(), 2);
        let again = [pool.take(), pool.take()];
        assert!(again.iter().all(|buffer| addresses.contains(&buffer.as_ptr())));
    }

    #[test]
    fn a_lock_that_nobody_will_ever_release_holds_nobody_up() {
        let pool = BufferPool::new(10, 2);
        drop(pool.take());
        let held = pool.idle.lock().unwrap();
        let buffer = pool.take();
        assert_eq!(buffer.len(), 10);
        drop(buffer);
        assert_eq!(held.len(), 1);
    }
}
