//! Where the states of parts are turned into slices: whoever claimed a part may write it, whoever
//! found it finished may read it.

#![expect(unsafe_code, reason = "the states of parts are what makes these slices sound")]

use std::ops::{Deref, DerefMut, Range};

use super::{Filling, Memory, Part};
use crate::layout::indices;

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the part is claimed, by this value alone, and parts are disjoint: the only
        // writer of these bytes is `deref_mut`, which borrows `self` exclusively.
        unsafe { self.memory.map.bytes(self.range.clone()) }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and readers take only bytes of finished parts, which this one
        // is not.
        unsafe { self.memory.map.bytes_mut(self.range.clone()) }
    }
}

impl Filling {
    /// Bytes of a region in `memory`, which is this filling's, if they lie in finished parts only.
    pub(super) fn ready_bytes<'memory>(
        &self,
        memory: &'memory Memory,
        region: usize,
        range: &Range<u64>,
    ) -> Option<&'memory [u8]> {
        if !self.is_ready(region, range.clone()) {
            return None;
        }
        let offset = self.layout.region_offset(region);
        let range = indices(&(offset + range.start..offset + range.end));
        // SAFETY: the parts these bytes lie in are finished; such a part is never claimed again, so
        // nobody writes to it. Their states were read with Acquire, so what was written is seen.
        Some(unsafe { memory.map.bytes(range) })
    }
}
