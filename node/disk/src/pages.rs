//! Memory that direct reads and writes accept.

use crate::PAGE_BYTES;

/// A buffer that begins at a page.
#[derive(Debug)]
pub struct PageBuffer {
    memory: Vec<u8>,
    begin: usize,
    bytes: usize,
}

impl PageBuffer {
    /// Makes a buffer of so many bytes, a multiple of [`PAGE_BYTES`].
    ///
    /// # Panics
    /// If it is no multiple.
    pub fn new(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(PAGE_BYTES), "{bytes} bytes are no whole pages");
        let memory = vec![0; bytes + PAGE_BYTES];
        let begin = memory.as_ptr().align_offset(PAGE_BYTES);
        Self { memory, begin, bytes }
    }

    /// Returns the bytes that it holds.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + self.bytes]
    }

    /// Returns the same, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + self.bytes]
    }
}
