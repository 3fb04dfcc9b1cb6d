//! The mappings of an extent, under types that keep them honest: [`FillMap`] while it is written,
//! [`ReadMap`] once it is sealed.
//!
//! Every mapping is populated when it is made, so that no reader or sender pays for faults, and
//! without `MAP_POPULATE`, which comes before any advice and so forces 4 KiB pages (and, on a
//! private mapping, copies all of it).

#![expect(unsafe_code, reason = "slices of mapped memory; each block names what makes it sound")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use memmap2::{Advice, Mmap, MmapOptions, MmapRaw};

/// Which pages to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PagePreference {
    /// 2 MiB pages where the host gives them, else 4 KiB.
    #[default]
    Auto,
    /// 4 KiB pages even where the host gives others.
    Small,
}

/// The writable mapping of a file that only this process can reach. Three areas, three rules: the
/// header is touched only through `&mut self`, the checksum tables only as atomics, the regions
/// only under the contract of [`FillMap::bytes`] and [`FillMap::bytes_mut`].
pub(crate) struct FillMap {
    map: MmapRaw,
    tables: Range<usize>,
}

impl FillMap {
    /// Maps all of `file`, with its memory taken and faulted in.
    pub(crate) fn new(
        file: &File,
        tables: Range<usize>,
        preference: PagePreference,
    ) -> io::Result<Self> {
        let map = MmapOptions::new().map_raw(file)?;
        // A child forked meanwhile would hold a writable mapping, and sealing is refused as long
        // as there is any.
        map.advise(Advice::DontFork)?;
        // Refused where the kernel was built without huge pages: then small ones it is.
        let _ = map.advise(match preference {
            PagePreference::Auto => Advice::HugePage,
            PagePreference::Small => Advice::NoHugePage,
        });
        map.advise(Advice::PopulateWrite)?;
        assert!(
            tables.start <= tables.end && tables.end <= map.len() && tables.start.is_multiple_of(4)
        );
        Ok(Self { map, tables })
    }

    /// Where the mapping lies, for asking the kernel about it.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.map.as_ptr().addr();
        start..start + self.map.len()
    }

    fn check(&self, range: &Range<usize>) {
        let fits = range.start <= range.end && range.end <= self.map.len();
        assert!(fits && range.start >= self.tables.end, "{range:?} is not within the regions");
    }

    /// Bytes of the regions, to read.
    ///
    /// # Safety
    /// Nobody may write to `range` while the slice lives.
    pub(crate) unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.check(&range);
        // SAFETY: `check` holds the range within the mapping, which lives as long as `self`; the
        // file is ours alone, so it is never shortened and never written to from elsewhere; the
        // caller answers for writers within the process.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(range.start), range.len()) }
    }

    /// Bytes of the regions, to write.
    ///
    /// # Safety
    /// Nobody else may read or write `range` while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "exclusive by the contract: parts are disjoint")]
    pub(crate) unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        self.check(&range);
        // SAFETY: as in `bytes`; the caller answers for there being no other reader or writer.
        unsafe {
            std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(range.start), range.len())
        }
    }

    /// The entry of a checksum table at `offset` of the file.
    pub(crate) fn checksum(&self, offset: usize) -> &AtomicU32 {
        let within = offset >= self.tables.start && offset + 4 <= self.tables.end;
        assert!(within && offset.is_multiple_of(4), "{offset} is not a checksum");
        // SAFETY: the four bytes lie within the mapping and on a multiple of four (mappings begin
        // on a page). The tables are reached through this method alone while the map is shared:
        // `bytes` and `bytes_mut` refuse their range, `write_header` has `&mut self`.
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

/// A readable mapping of all of a sealed file.
pub(crate) enum ReadMap {
    /// Shared and read-only: what is locked, sent from, and registered for DMA.
    Shared(Mmap),
    /// Private and writable: a stray write changes this process's copy of a page and nothing else.
    Private(MmapRaw),
}

impl ReadMap {
    /// The node's own mapping: read-only, and locked in memory if the limits allow. Returns whether
    /// they did.
    pub(crate) fn shared_and_locked(file: &File) -> io::Result<(Self, bool)> {
        let map = MmapOptions::new().map_if_safe(file)?;
        // Locking faults everything in by itself.
        let locked = map.lock().is_ok();
        if !locked {
            map.advise(Advice::PopulateRead)?;
        }
        Ok((Self::Shared(map), locked))
    }

    /// A reader's mapping: read-only, faulted in.
    pub(crate) fn shared(file: &File) -> io::Result<Self> {
        let map = MmapOptions::new().map_if_safe(file)?;
        map.advise(Advice::PopulateRead)?;
        Ok(Self::Shared(map))
    }

    /// Maps a file that was found to be sealed as private memory, faulted in without a copy. Never
    /// locked and never populated for writing: both would copy every page.
    pub(crate) fn private(file: &File) -> io::Result<Self> {
        // SAFETY: the file is sealed against writing and shrinking (`memfd::check_sealed` comes
        // first), so what lies under the mapping neither changes nor goes away.
        let map = unsafe { MmapOptions::new().no_reserve_swap().map_copy(file)? };
        map.advise(Advice::PopulateRead)?;
        Ok(Self::Private(map.into()))
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared(map) => map,
            // SAFETY: the mapping is whole and lives as long as `self`, its file is sealed, and
            // this crate never writes to it. Whoever writes through `base` does so under the
            // contract written there.
            Self::Private(map) => unsafe { std::slice::from_raw_parts(map.as_ptr(), map.len()) },
        }
    }

    /// Where the bytes lie. Writable memory if the mapping is private.
    pub(crate) fn base(&self) -> NonNull<u8> {
        let base = match self {
            Self::Shared(map) => map.as_ptr().cast_mut(),
            Self::Private(map) => map.as_mut_ptr(),
        };
        NonNull::new(base).expect("a mapping is never at address 0")
    }

    /// Where the mapping lies, for asking the kernel about it.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let bytes = self.bytes();
        bytes.as_ptr().addr()..bytes.as_ptr().addr() + bytes.len()
    }
}
