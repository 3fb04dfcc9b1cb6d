//! Memory for batches: page-aligned buffers that are reused, or the caller's memory.
//!
//! Fresh memory costs a page fault for every 4 KiB of a batch, which is more than copying the row.
//! Pages of 2 MiB cause few faults, so large buffers ask for them. Also, a dropped [`Buffer`]
//! returns to its [`BufferPool`], and the next batch is written into existing pages. The pool
//! bounds only idle buffers. The buffers in use are bounded by the loader's prefetch and by the
//! batches that the caller keeps. Memory of the caller is dropped with its buffer, and never
//! pooled.
//!
//! Thread rule: shared freely. The only lock is tried a few times and never waited for, because in
//! a forked child a missing thread may hold it forever. A thread that fails to lock allocates or
//! frees instead. Non-goals: page-locking, which callers do for their own memory.

use std::{
    any::Any,
    fmt, hint,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError, TryLockError},
};

use larder_extent::AnonymousMap;

use crate::{Error, ErrorKind};

/// The alignment of pooled buffers and of the tensors in them.
pub(crate) const ALIGNMENT: usize = 4096;

/// Buffers of at least this size ask for huge pages, as numpy's arrays do.
const HUGE_FROM_BYTES: usize = 4 << 20;

/// A result of any size may take a buffer of this size.
const SMALL_BYTES: usize = 64 << 10;

/// How often the lock is tried. Takes a few microseconds, less than the page faults of one new
/// buffer.
const LOCK_TRIES: u32 = 64;

/// Memory that the caller gives for one batch, such as page-locked memory. One thread writes it
/// once, from its beginning, and then only its address is used. Dropped in any thread, once no
/// tensor uses it.
pub trait CallerMemory: Any + Send + Sync {
    /// Its bytes, the same at every call. A batch that does not fit uses other memory. They must be
    /// aligned for every element type.
    fn bytes(&self) -> &[u8];

    /// The same bytes.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Idle buffers, of one size for even batches and of mixed sizes otherwise.
pub(crate) struct BufferPool {
    idle_max: usize,
    idle_bytes_max: usize,
    idle: Mutex<Vec<AlignedBytes>>,
}

/// An allocation, and the offset of its first aligned byte.
struct AlignedBytes {
    bytes: Allocation,
    start: usize,
    /// Usable bytes from there on.
    room: usize,
}

enum Allocation {
    Heap(Vec<u8>),
    /// In huge pages, if the host provides them.
    Mapped(AnonymousMap),
}

/// A buffer in use. Its first contents are unspecified: zeros, or an earlier batch.
pub(crate) struct Buffer {
    bytes: usize,
    home: Home,
}

/// The source of a buffer's memory, to which it returns.
enum Home {
    Pool {
        pool: Arc<BufferPool>,
        memory: Option<AlignedBytes>,
    },
    /// At least as large as the buffer.
    Caller(Box<dyn CallerMemory>),
}

impl BufferPool {
    /// Creates a pool that keeps at most `idle_max` idle buffers.
    pub(crate) fn new(idle_max: usize) -> Arc<Self> {
        Self::within(idle_max, usize::MAX)
    }

    /// Creates a pool that keeps at most `idle_max` idle buffers, of `idle_bytes_max` in sum.
    pub(crate) fn within(idle_max: usize, idle_bytes_max: usize) -> Arc<Self> {
        let idle = Mutex::new(Vec::with_capacity(idle_max));
        Arc::new(Self { idle_max, idle_bytes_max, idle })
    }

    /// Takes a buffer of `bytes` bytes, an idle one if one is large enough.
    ///
    /// # Errors
    /// `ResourceExhausted` if the system has too little memory.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Result<Buffer, Error> {
        // Results of a pool with a limit are kept for long. A small one must not hold a large
        // buffer.
        let room_max = match self.idle_bytes_max {
            usize::MAX => usize::MAX,
            _ => bytes.saturating_mul(4).max(SMALL_BYTES),
        };
        let fits = |idle: &mut Vec<AlignedBytes>| {
            // The buffer that was returned last is the most likely to be in a CPU cache.
            let index =
                idle.iter().rposition(|memory| (bytes..=room_max).contains(&memory.room))?;
            Some(idle.remove(index))
        };
        let idle = self.with_idle(fits).flatten();
        let memory = Some(idle.map_or_else(|| AlignedBytes::new(bytes), Ok)?);
        Ok(Buffer { bytes, home: Home::Pool { pool: Arc::clone(self), memory } })
    }

    /// Keeps the memory. Returns the smallest one if there are too many, or this one if all are
    /// too large.
    fn keep(&self, memory: AlignedBytes) -> Option<AlignedBytes> {
        let room = memory.room;
        let mut memory = Some(memory);
        self.with_idle(|idle| {
            let others = idle.iter().map(|memory| memory.room);
            let sum = others.fold(room, usize::saturating_add);
            if self.idle_max == 0 || sum > self.idle_bytes_max {
                return;
            }
            if idle.len() == self.idle_max {
                let smallest = idle.iter_mut().min_by_key(|memory| memory.room);
                let smaller = smallest
                    .filter(|idle| Some(idle.room) < memory.as_ref().map(|memory| memory.room));
                if let (Some(idle), Some(memory)) = (smaller, &mut memory) {
                    std::mem::swap(idle, memory);
                }
                return;
            }
            idle.extend(memory.take());
        });
        memory
    }

    /// Runs `change` under the lock. `None` if another thread holds the lock for too long.
    fn with_idle<T>(&self, change: impl FnOnce(&mut Vec<AlignedBytes>) -> T) -> Option<T> {
        let mut idle = (0..LOCK_TRIES).find_map(|_| match self.idle.try_lock() {
            Ok(idle) => Some(idle),
            Err(TryLockError::Poisoned(error)) => Some(PoisonError::into_inner(error)),
            Err(TryLockError::WouldBlock) => {
                hint::spin_loop();
                None
            }
        })?;
        Some(change(&mut idle))
    }
}

/// The error for a refused allocation.
pub(crate) fn no_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::ResourceExhausted, format!("there is no memory for {bytes} bytes"))
        .hint("lower the batch size, or read fewer samples at once")
}

impl AlignedBytes {
    /// Allocates zeroed memory, which has no pages until it is written.
    ///
    /// # Errors
    /// `ResourceExhausted` if the system has too little memory.
    fn new(bytes: usize) -> Result<Self, Error> {
        if bytes < HUGE_FROM_BYTES { Self::on_heap(bytes) } else { Self::mapped(bytes) }
    }

    /// Allocating zeros aborts the process if memory is short. So this first tries an allocation
    /// that can fail.
    fn on_heap(bytes: usize) -> Result<Self, Error> {
        let with_room = bytes.saturating_add(ALIGNMENT);
        let mut tried = Vec::<u8>::new();
        tried.try_reserve_exact(with_room).map_err(|_| no_memory(bytes))?;
        drop(hint::black_box(tried));
        let zeroed = vec![0; with_room];
        let start = zeroed.as_ptr().align_offset(ALIGNMENT);
        Ok(Self { bytes: Allocation::Heap(zeroed), start, room: bytes })
    }

    fn mapped(bytes: usize) -> Result<Self, Error> {
        let map = AnonymousMap::new(bytes).map_err(|_| no_memory(bytes))?;
        Ok(Self { bytes: Allocation::Mapped(map), start: 0, room: bytes })
    }
}

impl Deref for Allocation {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

impl DerefMut for Allocation {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

impl Buffer {
    /// A buffer of `bytes` bytes in memory of the caller. `None` if it is too small.
    pub(crate) fn given(memory: Box<dyn CallerMemory>, bytes: usize) -> Option<Self> {
        let fits = memory.bytes().len() >= bytes;
        fits.then(|| Self { bytes, home: Home::Caller(memory) })
    }

    /// The caller's memory, if the buffer is in it.
    pub(crate) fn home(&self) -> Option<&dyn CallerMemory> {
        match &self.home {
            Home::Pool { .. } => None,
            Home::Caller(memory) => Some(&**memory),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.home {
            Home::Pool { memory, .. } => {
                let memory = memory.as_ref().expect("taken only when dropped");
                &memory.bytes[memory.start..][..self.bytes]
            }
            Home::Caller(memory) => &memory.bytes()[..self.bytes],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.home {
            Home::Pool { memory, .. } => {
                let memory = memory.as_mut().expect("taken only when dropped");
                &mut memory.bytes[memory.start..][..self.bytes]
            }
            Home::Caller(memory) => &mut memory.bytes_mut()[..self.bytes],
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Home::Pool { pool, memory } = &mut self.home {
            // Memory that is not kept is freed here, after the lock.
            drop(memory.take().and_then(|memory| pool.keep(memory)));
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CallerMemory for Vec<u8> {
        fn bytes(&self) -> &[u8] {
            self
        }

        fn bytes_mut(&mut self) -> &mut [u8] {
            self
        }
    }

    #[test]
    fn a_buffer_is_aligned_and_as_long_as_asked_for() {
        for bytes in [0, 1, 4095, 4096, 1_000_000, HUGE_FROM_BYTES, 9_999_999] {
            let mut buffer = BufferPool::new(1).take(bytes).unwrap();
            assert_eq!(buffer.len(), bytes);
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
            buffer.fill(7);
        }
    }

    #[test]
    fn allocation_beyond_memory_is_an_error_without_abort() {
        let pool = BufferPool::new(1);
        for bytes in [usize::MAX, isize::MAX.unsigned_abs() - 2 * ALIGNMENT] {
            let error = pool.take(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
            assert!(error.advice_text().unwrap().contains("lower the batch size"), "{error:?}");
        }
    }

    #[test]
    fn reuses_dropped_buffers_and_keeps_at_most_the_idle_limit() {
        let pool = BufferPool::new(2);
        let take = || pool.take(10_000).unwrap();
        let buffers = [take(), take(), take()];
        let addresses = buffers.each_ref().map(|buffer| buffer.as_ptr());
        drop(buffers);
        assert_eq!(pool.idle.lock().unwrap().len(), 2);
        let again = [take(), take()];
        assert!(again.iter().all(|buffer| addresses.contains(&buffer.as_ptr())));
    }

    #[test]
    fn keeps_largest_idle_buffers_and_uses_them_for_small_batches() {
        let pool = BufferPool::new(2);
        drop([pool.take(10).unwrap(), pool.take(20_000).unwrap()]);
        drop(pool.take(500_000).unwrap());
        let mut idle: Vec<usize> =
            pool.idle.lock().unwrap().iter().map(|memory| memory.room).collect();
        idle.sort_unstable();
        assert_eq!(idle, [20_000, 500_000], "the smallest went");
        let small = pool.take(15).unwrap();
        assert_eq!((small.len(), pool.idle.lock().unwrap().len()), (15, 1));
        assert_eq!(pool.take(600_000).unwrap().len(), 600_000);
    }

    #[test]
    fn keeps_no_more_idle_bytes_than_its_limit() {
        let pool = BufferPool::within(8, 30_000);
        drop([pool.take(20_000).unwrap(), pool.take(20_000).unwrap()]);
        drop(pool.take(40_000).unwrap());
        let idle: Vec<usize> = pool.idle.lock().unwrap().iter().map(|idle| idle.room).collect();
        assert_eq!(idle, [20_000]);
        let pool = BufferPool::within(8, 10_000_000);
        drop([pool.take(1_000_000).unwrap(), pool.take(50_000).unwrap()]);
        let (small, large) = (pool.take(10).unwrap(), pool.take(300_000).unwrap());
        assert!(pool.idle.lock().unwrap().is_empty(), "both were reused");
        drop((small, large));
        drop(pool.take(100_000).unwrap());
        assert_eq!(pool.idle.lock().unwrap().len(), 3, "a tenth takes no buffer of another");
    }

    #[test]
    fn uses_memory_of_the_caller_in_place_if_large_enough() {
        let memory = vec![0_u8; 100];
        let at = memory.as_ptr();
        let mut buffer = Buffer::given(Box::new(memory), 60).unwrap();
        assert_eq!((buffer.as_ptr(), buffer.len()), (at, 60));
        buffer.fill(7);
        let whole = buffer.home().unwrap().bytes();
        assert_eq!(whole, [[7; 60].as_slice(), &[0; 40]].concat());
        assert!(Buffer::given(Box::new(vec![0_u8; 59]), 60).is_none());
        assert!(BufferPool::new(1).take(60).unwrap().home().is_none());
    }

    #[test]
    fn locked_pool_does_not_block_take_or_drop() {
        let pool = BufferPool::new(2);
        drop(pool.take(10).unwrap());
        let held = pool.idle.lock().unwrap();
        let buffer = pool.take(10).unwrap();
        assert_eq!(buffer.len(), 10);
        drop(buffer);
        assert_eq!(held.len(), 1);
    }
}
