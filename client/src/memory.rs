//! Memory of the host: batches are gathered into it, and tensors of another language lie in it.
//!
//! - [`Memory`]: bytes that are handed to another language: where they lie, and their owner.
//! - [`BufferPool`]: buffers for batches, used again; or memory of the caller ([`CallerMemory`]).
//! - [`CopyStats`]: how often this library copies each byte.
//!
//! A training framework reads and writes tensors in place, under its own rules. So a [`Memory`] is
//! an address and an owner, with no way to the bytes from here: once it is made, this library
//! neither reads nor writes them, until the last clone is dropped.
//!
//! Thread rule: plain data, shared and dropped from any thread.
//! Non-goals: devices; memory that is read-only to its holder.

mod buffer;
mod copy_stats;

use std::{
    any::Any,
    fmt,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicPtr, Ordering::Relaxed},
    },
};

use larder_dataset::Dtype;
use larder_extent::PrivateView;

use crate::Error;

pub use buffer::CallerMemory;
pub(crate) use buffer::{ALIGNMENT, Buffer, BufferPool, no_memory};
pub use copy_stats::CopyStats;

/// Writable bytes that stay where they are as long as a clone of this lives.
#[derive(Clone)]
pub struct Memory {
    block: Arc<Block>,
    offset: usize,
    bytes: usize,
}

struct Block {
    /// Only loaded. Atomic because a bare pointer could not be sent to another thread, which this
    /// one can: nothing is ever read through it here.
    base: AtomicPtr<u8>,
    bytes: usize,
    owner: Owner,
}

/// What keeps the bytes where they are, and is not touched.
enum Owner {
    Buffer(Buffer),
    Extent { _lent: PrivateView },
}

impl Memory {
    /// All of a buffer, which goes back where it came from when the last clone is dropped.
    pub(crate) fn buffer(mut buffer: Buffer) -> Self {
        let (base, bytes) = (buffer.as_mut_ptr(), buffer.len());
        Self::new(base, bytes, Owner::Buffer(buffer))
    }

    /// Rows lent by an extent, which get back to it when the last clone is dropped.
    pub(crate) fn lent(lent: PrivateView) -> Self {
        Self::new(lent.base().as_ptr(), lent.len(), Owner::Extent { _lent: lent })
    }

    /// A copy of some bytes, which begins at a multiple of 4096.
    ///
    /// # Errors
    /// `ResourceExhausted` when this process has no memory for it.
    pub fn copied(bytes: &[u8]) -> Result<Self, Error> {
        let mut buffer = BufferPool::new(0).take(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(Self::buffer(buffer))
    }

    /// `bytes` writable bytes at `base`, which `owner` keeps there and does not touch.
    fn new(base: *mut u8, bytes: usize, owner: Owner) -> Self {
        let block = Arc::new(Block { base: AtomicPtr::new(base), bytes, owner });
        Self { block, offset: 0, bytes }
    }

    /// A part of it, which keeps all of it.
    ///
    /// # Panics
    /// If it reaches beyond the end.
    #[must_use]
    pub fn part(&self, offset: usize, bytes: usize) -> Self {
        let end = offset.checked_add(bytes).expect("a part that can be addressed");
        assert!(end <= self.bytes, "bytes {offset}..{end} of a memory of {} bytes", self.bytes);
        Self { block: Arc::clone(&self.block), offset: self.offset + offset, bytes }
    }

    /// The [`CallerMemory`](crate::CallerMemory) that it is in and at which byte of that it begins,
    /// if it is a part of what the caller gave.
    #[must_use]
    pub fn given(&self) -> Option<(&dyn Any, usize)> {
        match &self.block.owner {
            Owner::Buffer(buffer) => buffer.home().map(|memory| (memory as &dyn Any, self.offset)),
            Owner::Extent { .. } => None,
        }
    }

    /// Where it begins. It may be read and written up to [`len`](Self::len) bytes on, by whoever
    /// keeps this or a clone.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        let base = self.block.base.load(Relaxed).wrapping_add(self.offset);
        NonNull::new(base).expect("memory is never at address 0")
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} of {} bytes)", self.bytes, self.block.bytes)
    }
}

/// A tensor in the memory of this host: elements of `dtype`, little-endian, in C order.
#[derive(Debug, Clone)]
pub struct HostTensor {
    /// Its name in the dataset.
    pub name: Arc<str>,
    /// The type of an element.
    pub dtype: Dtype,
    /// Number of rows, then the shape of one sample. Of a ragged tensor: number of elements of all
    /// rows, then the shape of an element.
    pub shape: Vec<u64>,
    /// Its elements.
    pub memory: Memory,
    /// Of a ragged tensor: row `r` is its elements `offsets[r]` to `offsets[r + 1]`.
    pub offsets: Option<Arc<[i64]>>,
}
