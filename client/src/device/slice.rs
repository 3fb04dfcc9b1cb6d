//! A range of a block: the bytes of a tensor.
//!
//! Thread rule: plain data, shared and dropped in any thread. Non-goals: type and shape of
//! elements.

use std::{fmt, sync::Arc};

use super::{CallerBlock, ConsumerStream, DeviceBlock};
use crate::Error;

/// Bytes in device memory. They stay while a clone of this lives.
#[derive(Clone)]
pub struct DeviceSlice {
    block: Arc<DeviceBlock>,
    offset: usize,
    bytes: usize,
}

impl DeviceSlice {
    /// The whole block.
    pub(crate) fn whole(block: Arc<DeviceBlock>) -> Self {
        let bytes = block.bytes();
        Self { block, offset: 0, bytes }
    }

    /// A part of it, which keeps the whole block alive.
    ///
    /// # Panics
    /// The part exceeds the slice.
    pub fn part(&self, offset: usize, bytes: usize) -> Self {
        let end = offset.checked_add(bytes).expect("a part that can be addressed");
        assert!(end <= self.bytes, "bytes {offset}..{end} of {} bytes", self.bytes);
        Self { block: Arc::clone(&self.block), offset: self.offset + offset, bytes }
    }

    /// The device address of the first byte.
    pub fn address(&self) -> u64 {
        self.block.address() + self.offset as u64
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The number of its device.
    pub fn ordinal(&self) -> u32 {
        self.block.ordinal()
    }

    /// Makes a stream of the program and the block's own stream wait for the bytes. Then returns
    /// the block to the caller that gave it. `None` if the block is Larder's, or if other slices of
    /// it are alive.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn take_given(self, stream: ConsumerStream) -> Result<Option<Box<dyn CallerBlock>>, Error> {
        self.begin_use(stream)?;
        if let Some(owner) = self.block.owner_stream().filter(|&owner| owner != stream) {
            self.begin_use(owner)?;
        }
        Ok(Arc::into_inner(self.block).and_then(DeviceBlock::release))
    }

    /// Checks that the device is usable in this process.
    ///
    /// # Errors
    /// In a forked child, and after the device was lost.
    pub fn check(&self) -> Result<(), Error> {
        self.block.check()
    }

    /// Makes a stream of the program wait, on the device, for the bytes. For a block of Larder,
    /// each call needs an [`end_use`](Self::end_use).
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn begin_use(&self, stream: ConsumerStream) -> Result<(), Error> {
        self.block.begin_use(stream)
    }

    /// Declares that all uses on this stream are queued. Larder writes to the bytes after the
    /// stream has finished them.
    pub fn end_use(&self, stream: ConsumerStream) {
        self.block.end_use(stream);
    }

    /// Copies the bytes to the host after all uses queued so far. Waits.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Panics
    /// `out` has another length.
    pub fn read(&self, out: &mut [u8]) -> Result<(), Error> {
        assert_eq!(out.len(), self.bytes, "the target is as long as the slice");
        if out.is_empty() { Ok(()) } else { self.block.read(self.offset, out) }
    }
}

impl fmt::Debug for DeviceSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSlice({} bytes at {:#x})", self.bytes, self.address())
    }
}
