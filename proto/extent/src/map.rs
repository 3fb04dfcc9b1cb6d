//! The mappings of an extent, under types that keep them honest: [`TableMap`] while it is written,
//! [`ReadMap`] and [`PrivateMap`] once it is sealed.
//!
//! Every mapping but the private one is populated when it is made, so that no reader or sender pays for faults, and
//! without `MAP_POPULATE`, which comes before any advice and so forces 4 KiB pages.

#![expect(unsafe_code, reason = "slices of mapped memory; each block names what makes it sound")]

use std::fs::File;
use std::hint;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use memmap2::{Advice, Mmap, MmapOptions, MmapRaw, UncheckedAdvice};

/// Which pages to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PagePreference {
    /// 2 MiB pages where the host gives them, else 4 KiB.
    #[default]
    Auto,
    /// 4 KiB pages even where the host gives others.
    Small,
}

/// A writable mapping of all of a file that only this process can reach, with its memory taken and
/// faulted in, in the pages that were asked for. What it is for is done once it is made.
pub(crate) struct PopulatedMap(MmapRaw);

impl PopulatedMap {
    pub(crate) fn new(file: &File, preference: PagePreference) -> io::Result<Self> {
        let map = MmapOptions::new().map_raw(file)?;
        keep_from_children(&map)?;
        // Refused where the kernel was built without huge pages: then small ones it is.
        let _ = map.advise(match preference {
            PagePreference::Auto => Advice::HugePage,
            PagePreference::Small => Advice::NoHugePage,
        });
        map.advise(Advice::PopulateWrite)?;
        Ok(Self(map))
    }

    /// Where it lies, for asking the kernel about it.
    pub(crate) fn addresses(&self) -> Range<usize> {
        addresses(self.0.as_ptr(), self.0.len())
    }
}

/// A child forked meanwhile would hold a writable mapping, and sealing is refused as long as there is
/// any.
fn keep_from_children(map: &MmapRaw) -> io::Result<()> {
    map.advise(Advice::DontFork)
}

/// The writable mapping of what comes before the regions, in a file that only this process can reach.
/// Two areas, two rules: the header is touched only through `&mut self`, the checksum tables only as
/// atomics.
pub(crate) struct TableMap {
    map: MmapRaw,
    tables: Range<usize>,
}

impl TableMap {
    /// Maps the file up to the end of its tables.
    pub(crate) fn new(file: &File, tables: Range<usize>) -> io::Result<Self> {
        let map = MmapOptions::new().len(tables.end).map_raw(file)?;
        keep_from_children(&map)?;
        map.advise(Advice::PopulateWrite)?;
        assert!(tables.start <= tables.end && tables.start.is_multiple_of(4));
        Ok(Self { map, tables })
    }

    /// The entry of a checksum table at `offset` of the file.
    pub(crate) fn checksum(&self, offset: usize) -> &AtomicU32 {
        let within = offset >= self.tables.start && offset + 4 <= self.tables.end;
        assert!(within && offset.is_multiple_of(4), "{offset} is not a checksum");
        // SAFETY: the four bytes lie within the mapping and on a multiple of four (mappings begin
        // on a page). The tables are reached through this method alone while the map is shared, for
        // `write_header` has `&mut self`.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }

    /// Writes the bytes before the checksum tables.
    pub(crate) fn write_header(&mut self, header: &[u8]) {
        assert!(header.len() <= self.tables.start, "a header of {} bytes", header.len());
        // SAFETY: `&mut self` means that no slice of this mapping exists; the bytes lie within it.
        let target = unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr(), header.len()) };
        target.copy_from_slice(header);
    }
}

/// The shared, read-only mapping of all of a sealed file: what is locked, sent from, copied from, and
/// registered for DMA.
pub(crate) struct ReadMap(Mmap);

impl ReadMap {
    /// The node's own mapping, locked in memory if the limits allow. Returns whether they did.
    pub(crate) fn shared_and_locked(file: &File) -> io::Result<(Self, bool)> {
        let map = MmapOptions::new().map_if_safe(file)?;
        // Locking faults everything in by itself.
        let locked = map.lock().is_ok();
        if !locked {
            map.advise(Advice::PopulateRead)?;
        }
        Ok((Self(map), locked))
    }

    /// A reader's mapping, faulted in.
    pub(crate) fn shared(file: &File) -> io::Result<Self> {
        let map = MmapOptions::new().map_if_safe(file)?;
        fault_in(&map);
        Ok(Self(map))
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Where the mapping lies, for asking the kernel about it.
    pub(crate) fn addresses(&self) -> Range<usize> {
        addresses(self.0.as_ptr(), self.0.len())
    }
}

/// Bytes that the kernel maps around a page that is touched, unless the host is set otherwise; then the rest
/// is faulted in as it is read.
const FAULT_AROUND_BYTES: usize = 64 << 10;

/// Faults a mapping of a file in that is in memory. Costs 4.2 ms for 64 MiB in 4 KiB pages, where
/// `MADV_POPULATE_READ`, which looks at each page, takes 9.4.
fn fault_in(bytes: &[u8]) {
    // The last byte too: mappings begin anywhere within what is mapped at once.
    for byte in bytes.iter().step_by(FAULT_AROUND_BYTES).chain(bytes.last()) {
        hint::black_box(*byte);
    }
}

/// A private, writable mapping of all of a sealed file: it reads the same pages, and a write changes
/// this process's copy of a page and nothing else. This crate never touches the bytes themselves:
/// whoever is given the address reads and writes them.
pub(crate) struct PrivateMap(MmapRaw);

impl PrivateMap {
    /// Maps a file that was found to be sealed. Costs an entry in the kernel's list of mappings, and
    /// no memory before it is touched. It is not populated: what was read of the shared mapping is in
    /// memory, and the kernel maps 16 pages around one that is touched, which comes to less than
    /// populating all of it. Never locked: that would copy every page.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the file is sealed against writing and shrinking (`memfd::check_sealed` comes
        // first), so what lies under the mapping neither changes nor goes away.
        let map = unsafe { MmapOptions::new().no_reserve_swap().map_copy(file)? };
        Ok(Self(map.into()))
    }

    /// Drops what was written: the mapping shows the file again.
    ///
    /// # Safety
    /// Nobody may be using any part of it.
    pub(crate) unsafe fn reset(&self) -> io::Result<()> {
        // SAFETY: on a private mapping of a file this only drops the process's own copies of pages,
        // of whose bytes nobody holds a view by contract.
        unsafe { self.0.unchecked_advise(UncheckedAdvice::DontNeed) }
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> NonNull<u8> {
        NonNull::new(self.0.as_mut_ptr()).expect("a mapping is never at address 0")
    }

    /// Where it lies, for asking the kernel about it.
    pub(crate) fn addresses(&self) -> Range<usize> {
        addresses(self.0.as_ptr(), self.0.len())
    }
}

fn addresses(base: *const u8, bytes: usize) -> Range<usize> {
    base.addr()..base.addr() + bytes
}
