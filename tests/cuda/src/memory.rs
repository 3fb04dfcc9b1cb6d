//! Device memory, page-locked memory and registrations.
//!
//! [`State::place`] says which of them holds an address range. A [`Block`] is memory that the
//! stand-in allocated. A [`Registration`] is memory of the program that the driver may read.
//! Giving either back needs a host wait for every copy that uses it.
//! Thread rule: under the state's mutex. Non-goals: copies.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::codes::{self, Code};
use crate::mistakes;
use crate::pages::{Rights, Twin, rights};
use crate::state::State;
use crate::state::blocks::{Block, Kind, Registration, Unfinished};
use crate::state::uses::Uses;

/// `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTREGISTER_PORTABLE`.
pub(crate) const PORTABLE: u32 = 1;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
pub(crate) const READ_ONLY: u32 = 8;

/// The owner of an address range. The numbers are addresses of blocks and registrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeOwner {
    Device(u64),
    PageLocked(u64),
    Registered(u64),
    /// Memory that the driver does not know.
    Pageable,
    /// Begins or ends outside of the memory that holds its other end.
    Astray {
        on_device: bool,
    },
}

impl State {
    /// Finds the owner of a range.
    pub(crate) fn place(&self, address: u64, bytes: usize) -> RangeOwner {
        let range = address..address.saturating_add(bytes as u64);
        let block = last_before(&self.blocks, &range, |block| block.twin.bytes());
        if let Some((base, block, inside)) = block {
            let on_device = block.kind == Kind::Device;
            return match (inside, on_device) {
                (true, true) => RangeOwner::Device(base),
                (true, false) => RangeOwner::PageLocked(base),
                (false, _) => RangeOwner::Astray { on_device },
            };
        }
        match last_before(&self.registrations, &range, |registration| registration.bytes) {
            Some((base, _, true)) => RangeOwner::Registered(base),
            Some(_) => RangeOwner::Astray { on_device: false },
            None => RangeOwner::Pageable,
        }
    }

    pub(crate) fn allocate(
        &mut self,
        kind: Kind,
        bytes: usize,
        flags: u32,
        device: usize,
    ) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(codes::INVALID_VALUE);
        }
        if kind == Kind::Device && bytes > self.free_bytes(device) {
            return Err(codes::OUT_OF_MEMORY);
        }
        let twin = match kind {
            Kind::Device => Twin::device(bytes),
            Kind::PageLocked => Twin::host(bytes),
        };
        let twin = Arc::new(twin.map_err(|_| codes::OUT_OF_MEMORY)?);
        let (address, uses) = (twin.address(), Uses::default());
        let block = Block { kind, device, flags, twin, uses, unfinished: Unfinished::default() };
        self.blocks.insert(address, block);
        self.retired.remove(&address);
        let bytes = self.allocated_bytes(kind, None);
        let peak = match kind {
            Kind::Device => &mut self.counts.device_bytes_max,
            Kind::PageLocked => &mut self.counts.pinned_bytes_max,
        };
        *peak = bytes.max(*peak);
        Ok(address)
    }

    /// Bytes that a device has left.
    pub(crate) fn free_bytes(&self, device: usize) -> usize {
        let allocated = self.allocated_bytes(Kind::Device, Some(device));
        self.settings.memory_bytes.saturating_sub(allocated)
    }

    fn allocated_bytes(&self, kind: Kind, device: Option<usize>) -> usize {
        let counted =
            |block: &&Block| block.kind == kind && device.is_none_or(|d| d == block.device);
        self.blocks.values().filter(counted).map(|block| block.twin.bytes()).sum()
    }

    /// Frees a block. Queued copies keep the bytes until they have run.
    pub(crate) fn free(&mut self, call: &'static str, kind: Kind, at: u64) -> Result<(), Code> {
        let Some(block) = self.blocks.get(&at).filter(|block| block.kind == kind) else {
            return Err(self.given_back_twice(call, at, codes::INVALID_VALUE));
        };
        let (bytes, copies) = (block.twin.bytes(), block.unfinished.count(&self.host));
        if copies > 0 {
            let detail = format!(
                "{call} frees {bytes} bytes at {at:#x}, and the host has not waited for {copies} \
                 copies or fills of them"
            );
            self.mistake(mistakes::FREED, detail);
        }
        self.blocks.remove(&at);
        self.retired.insert(at);
        Ok(())
    }

    /// Reports a second release, if there was a first one.
    pub(crate) fn given_back_twice(&mut self, call: &'static str, what: u64, code: Code) -> Code {
        if self.retired.contains(&what) {
            let detail = format!("{call} gives {what:#x} back, which was given back before");
            self.mistake(mistakes::DOUBLE_FREE, detail);
        }
        code
    }

    pub(crate) fn register(
        &mut self,
        address: u64,
        bytes: usize,
        flags: u32,
        device: usize,
    ) -> Result<(), Code> {
        let range = address..address.checked_add(bytes as u64).ok_or(codes::INVALID_VALUE)?;
        if range.is_empty() {
            return Err(codes::INVALID_VALUE);
        }
        match self.place(address, bytes) {
            RangeOwner::Pageable => {}
            RangeOwner::Device(_) | RangeOwner::Astray { on_device: true } => {
                return Err(codes::INVALID_VALUE);
            }
            _ => return Err(codes::HOST_MEMORY_ALREADY_REGISTERED),
        }
        let read_only = flags & READ_ONLY != 0;
        if read_only && !self.settings.read_only {
            return Err(codes::NOT_SUPPORTED);
        }
        match rights(&range).map_err(|_| codes::INVALID_VALUE)? {
            Rights::Writable => {}
            Rights::ReadOnly if read_only => {}
            Rights::ReadOnly | Rights::NotMapped => return Err(codes::INVALID_VALUE),
        }
        let registration = Registration { device, flags, bytes, unfinished: Unfinished::default() };
        self.registrations.insert(address, registration);
        let peak = self.counts.registered_bytes_max.max(self.registered_bytes());
        self.counts.registered_bytes_max = peak;
        Ok(())
    }

    pub(crate) fn registered_bytes(&self) -> usize {
        self.registrations.values().map(|registration| registration.bytes).sum()
    }

    pub(crate) fn unregister(&mut self, call: &'static str, address: u64) -> Result<(), Code> {
        let found = self.registrations.remove(&address);
        let registration = found.ok_or(codes::HOST_MEMORY_NOT_REGISTERED)?;
        let copies = registration.unfinished.count(&self.host);
        if copies > 0 {
            let detail = format!(
                "{call} unregisters {} bytes at {address:#x}, and the host has not waited for \
                 {copies} copies of them",
                registration.bytes
            );
            self.mistake(mistakes::UNREGISTERED, detail);
        }
        Ok(())
    }
}

/// The last entry that begins before the range's end and reaches into the range. The flag tells
/// whether the entry holds the whole range. An empty range lies in the entry that holds its start.
fn last_before<'a, T>(
    entries: &'a BTreeMap<u64, T>,
    range: &Range<u64>,
    bytes: impl Fn(&T) -> usize,
) -> Option<(u64, &'a T, bool)> {
    let (base, entry) = entries.range(..range.end.max(range.start + 1)).next_back()?;
    let end = base + bytes(entry) as u64;
    (end > range.start).then_some((*base, entry, *base <= range.start && range.end <= end))
}
