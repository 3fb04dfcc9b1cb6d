//! Memory of the host, for batches and for tensors of another language.
//!
//! - [`Memory`]: bytes handed to another language: their address and their owner.
//! - [`BufferPool`]: reused buffers for batches, or memory of the caller ([`CallerMemory`]).
//! - [`CopyStats`]: how often this library copies each byte.
//!
//! A training framework reads and writes tensors in place, under its own rules. So a [`Memory`]
//! gives no access to the bytes from Rust. This library does not read or write them until the last
//! clone is dropped.
//!
//! Thread rule: plain data, shared and dropped from any thread. Non-goals: devices, and read-only
//! memory.

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

use larder_dataset::{Dtype, Logical};
use larder_extent::PrivateView;

use crate::Error;

pub use buffer::CallerMemory;
pub(crate) use buffer::{ALIGNMENT, Buffer, BufferPool, no_memory};
pub use copy_stats::CopyStats;

/// Writable bytes that stay in place while a clone of this lives.
#[derive(Clone)]
pub struct Memory {
    block: Arc<MemoryBlock>,
    offset: usize,
    bytes: usize,
}

struct MemoryBlock {
    /// Only loaded. Atomic because a bare pointer can't be sent to another thread. That is sound
    /// here: this type never reads through it.
    base: AtomicPtr<u8>,
    bytes: usize,
    owner: Owner,
}

/// Keeps the bytes in place. Never touched.
enum Owner {
    Buffer(Buffer),
    Extent { _lent: PrivateView },
}

impl Memory {
    /// A whole buffer. It returns to its source when the last clone is dropped.
    pub(crate) fn buffer(mut buffer: Buffer) -> Self {
        let (base, bytes) = (buffer.as_mut_ptr(), buffer.len());
        Self::new(base, bytes, Owner::Buffer(buffer))
    }

    /// Rows of a private view. They return to the extent when the last clone is dropped.
    pub(crate) fn lent(lent: PrivateView) -> Self {
        Self::new(lent.base().as_ptr(), lent.len(), Owner::Extent { _lent: lent })
    }

    /// Copies bytes to a multiple of 4096.
    ///
    /// # Errors
    /// `ResourceExhausted` if this process has no memory left.
    pub fn copied(bytes: &[u8]) -> Result<Self, Error> {
        let mut buffer = BufferPool::new(0).take(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(Self::buffer(buffer))
    }

    /// `bytes` writable bytes at `base`. `owner` keeps them in place and does not touch them.
    fn new(base: *mut u8, bytes: usize, owner: Owner) -> Self {
        let block = Arc::new(MemoryBlock { base: AtomicPtr::new(base), bytes, owner });
        Self { block, offset: 0, bytes }
    }

    /// A part of it, which keeps the whole alive.
    ///
    /// # Panics
    /// The part exceeds the memory.
    pub fn part(&self, offset: usize, bytes: usize) -> Self {
        let end = offset.checked_add(bytes).expect("a part that can be addressed");
        assert!(end <= self.bytes, "bytes {offset}..{end} of a memory of {} bytes", self.bytes);
        Self { block: Arc::clone(&self.block), offset: self.offset + offset, bytes }
    }

    /// The [`CallerMemory`](crate::CallerMemory) that contains it, and its offset there. `None` for
    /// memory of the library.
    pub fn given(&self) -> Option<(&dyn Any, usize)> {
        match &self.block.owner {
            Owner::Buffer(buffer) => buffer.home().map(|memory| (memory as &dyn Any, self.offset)),
            Owner::Extent { .. } => None,
        }
    }

    /// Its first byte. The holder of a clone may read and write [`len`](Self::len) bytes from here.
    pub fn base(&self) -> NonNull<u8> {
        let base = self.block.base.load(Relaxed).wrapping_add(self.offset);
        NonNull::new(base).expect("memory is never at address 0")
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
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
    /// The meaning of its values.
    pub logical: Logical,
    /// The number of rows, then the shape of one sample. For a ragged tensor: the number of
    /// elements of all rows, then the shape of an element.
    pub shape: Vec<u64>,
    /// Its elements.
    pub memory: Memory,
    /// For a ragged tensor: row `r` is elements `offsets[r]` to `offsets[r + 1]`.
    pub offsets: Option<Arc<[i64]>>,
}
