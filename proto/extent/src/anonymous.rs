//! Memory of this process alone, in huge pages where the host gives them.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

use crate::pages::HUGE_BYTES;

/// Zeroed memory that begins at a multiple of 2 MiB. The kernel takes a page when it is first
/// written.
#[derive(Debug)]
pub struct AnonymousMap {
    map: MmapMut,
    start: usize,
    bytes: usize,
}

impl AnonymousMap {
    /// Reserves address space for `bytes` bytes.
    ///
    /// # Errors
    /// The kernel's, if it cannot promise that much memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let huge = crate::layout::index(HUGE_BYTES);
        let map = MmapMut::map_anon(bytes.saturating_add(huge))?;
        // A kernel without huge pages refuses this; small pages do then.
        let _ = map.advise(Advice::HugePage);
        let start = map.as_ptr().align_offset(huge);
        Ok(Self { map, start, bytes })
    }
}

impl Deref for AnonymousMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[self.start..][..self.bytes]
    }
}

impl DerefMut for AnonymousMap {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..][..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::AnonymousMap;

    #[test]
    fn memory_is_zeroed_aligned_and_of_the_requested_length() {
        for bytes in [0, 1, 4096, 5 << 20] {
            let mut memory = AnonymousMap::new(bytes).unwrap();
            assert_eq!(memory.len(), bytes);
            assert_eq!(memory.as_ptr().align_offset(2 << 20), 0);
            assert!(memory.iter().all(|&byte| byte == 0));
            memory.fill(7);
        }
    }

    #[test]
    fn more_than_can_be_addressed_is_an_error() {
        for bytes in [usize::MAX, isize::MAX.unsigned_abs()] {
            AnonymousMap::new(bytes).unwrap_err();
        }
    }
}
