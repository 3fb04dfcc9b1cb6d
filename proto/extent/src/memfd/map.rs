//! The mappings of an extent: [`TableMap`] and [`PopulatedMap`] while it is filled, [`ReadMap`] and
//! [`PrivateMap`] after sealing.
//!
//! Every mapping except the private one is populated at creation, so that no reader or sender pays
//! for page faults. `MAP_POPULATE` is not used: it runs before any advice and so forces 4 KiB
//! pages.

#![expect(unsafe_code, reason = "slices of mapped memory; each block names what makes it sound")]

use std::fs::File;
use std::hint;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use memmap2::{Advice, Mmap, MmapOptions, MmapRaw, UncheckedAdvice};

/// The page size to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PagePreference {
    /// 2 MiB pages where the host gives them, else 4 KiB.
    #[default]
    Auto,
    /// 4 KiB pages even where the host gives others.
    Small,
}

/// A writable mapping of all of a file that only this process can reach. Creating it takes the
/// memory and faults it in, in pages of the preferred size; the mapping has no other use.
pub(crate) struct PopulatedMap(MmapRaw);

impl PopulatedMap {
    pub(crate) fn new(file: &File, preference: PagePreference) -> io::Result<Self> {
        let map = MmapOptions::new().map_raw(file)?;
        keep_from_children(&map)?;
        // A kernel without huge pages refuses this; small pages do then.
        let _ = map.advise(match preference {
            PagePreference::Auto => Advice::HugePage,
            PagePreference::Small => Advice::NoHugePage,
        });
        map.advise(Advice::PopulateWrite)?;
        Ok(Self(map))
    }

    /// Returns where it lies, for asking the kernel about it.
    pub(crate) fn addresses(&self) -> Range<usize> {
        addresses(self.0.as_ptr(), self.0.len())
    }
}

/// Excludes a mapping from forked children. A child would hold a writable mapping, and the kernel
/// refuses to seal while any exists.
fn keep_from_children(map: &MmapRaw) -> io::Result<()> {
    map.advise(Advice::DontFork)
}

/// The writable mapping of the header and the checksum tables, in a file that only this process can
/// reach. The header is written only through `&mut self`, the tables only as atomics.
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

    /// Returns the entry of a checksum table at `offset` of the file.
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

/// The shared, read-only mapping of all of a sealed file. It is locked, sent from, copied from and
/// registered for DMA.
pub(crate) struct ReadMap(Mmap);

impl ReadMap {
    /// Makes the node's own mapping, locked in memory if the limits allow. Returns whether they
    /// did.
    pub(crate) fn shared_and_locked(file: &File) -> io::Result<(Self, bool)> {
        let map = MmapOptions::new().map_if_safe(file)?;
        // Locking faults everything in by itself.
        let locked = map.lock().is_ok();
        if !locked {
            map.advise(Advice::PopulateRead)?;
        }
        Ok((Self(map), locked))
    }

    /// Makes a reader's mapping, faulted in.
    pub(crate) fn shared(file: &File) -> io::Result<Self> {
        let map = MmapOptions::new().map_if_safe(file)?;
        fault_in(&map);
        Ok(Self(map))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns where the mapping lies, for asking the kernel about it.
    pub(crate) fn addresses(&self) -> Range<usize> {
        addresses(self.0.as_ptr(), self.0.len())
    }
}

/// Bytes that the kernel by default maps around a touched page. If the host sets less, the rest is
/// faulted in as it is read.
const FAULT_AROUND_BYTES: usize = 64 << 10;

/// Faults in a mapping of a file that is in memory. Takes 4.2 ms for 64 MiB in 4 KiB pages.
/// `MADV_POPULATE_READ`, which looks at each page, takes 9.4 ms.
fn fault_in(bytes: &[u8]) {
    // The last byte too: the mapping may begin anywhere within the kernel's 64 KiB windows.
    for byte in bytes.iter().step_by(FAULT_AROUND_BYTES).chain(bytes.last()) {
        hint::black_box(*byte);
    }
}

/// A private, writable mapping of all of a sealed file. It reads the same pages, and a write
/// changes only this process's copy of a page. This crate never touches the bytes: only the holder
/// of a view reads and writes them.
pub(crate) struct PrivateMap(MmapRaw);

impl PrivateMap {
    /// Maps a sealed file. Costs an entry in the kernel's list of mappings, and no memory before it
    /// is touched. It is not populated: the pages are in memory already. The kernel maps 16 pages
    /// around a touched one, which costs less than populating all. Never locked: locking would copy
    /// every page.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the file is sealed against writing and shrinking (`memfd::check_sealed` comes
        // first), so the bytes under the mapping neither change nor go away.
        let map = unsafe { MmapOptions::new().no_reserve_swap().map_copy(file)? };
        Ok(Self(map.into()))
    }

    /// Drops everything written: the mapping shows the file again.
    ///
    /// # Safety
    /// No thread may use any part of the mapping.
    pub(crate) unsafe fn reset(&self) -> io::Result<()> {
        // SAFETY: on a private mapping of a file this only drops the process's own copies of pages.
        // By contract no view of those bytes exists.
        unsafe { self.0.unchecked_advise(UncheckedAdvice::DontNeed) }
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        NonNull::new(self.0.as_mut_ptr()).expect("a mapping is never at address 0")
    }

    /// Returns where it lies, for asking the kernel about it.
    pub(crate) fn addresses(&self) -> Range<usize> {
        addresses(self.0.as_ptr(), self.0.len())
    }
}

fn addresses(base: *const u8, bytes: usize) -> Range<usize> {
    base.addr()..base.addr() + bytes
}
