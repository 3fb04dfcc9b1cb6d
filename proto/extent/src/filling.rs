//! An extent being filled: several parts are written at once, and finished ones can be copied out.
//!
//! Bytes are written to the file and read from it by system calls. A page that is written as a
//! whole is then neither zeroed first nor faulted in, which would cost more than the copy.

mod hash;
mod parts;

pub use parts::PartSpec;

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use crate::layout::{ExtentLayout, PlacedRegion, encode, index, indices};
use crate::memfd::map::{PopulatedMap, TableMap};
use crate::{ExtentError, ExtentId, PagePreference, Sealed, memfd, pages};
use hash::{UnitHasher, hash_in_pieces};
use parts::PartTable;

/// The result of a copy out of a filling extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// The bytes are in the target.
    Copied,
    /// Some of the bytes are missing; the target is unchanged.
    NotYet,
    /// The extent is sealed (or its sealing failed): read it there. The target is unchanged.
    Sealed,
}

struct FillingMemory {
    tables: TableMap,
    file: File,
}

impl FillingMemory {
    /// Stores the checksum of a unit. Storing it twice is harmless: the value is the same.
    fn store_crc(&self, placed: &PlacedRegion, unit: u64, crc: u32) {
        let slot = self.tables.checksum(index(placed.crc_offset + unit * 4));
        slot.store(crc.to_le(), Ordering::Relaxed);
    }

    /// Computes the checksums of units from the bytes in the file.
    fn hash_units(&self, placed: &PlacedRegion, units: Range<u64>) -> Result<(), ExtentError> {
        let mut piece = Vec::new();
        for unit in units {
            let range = placed.unit_range(unit);
            let read = |at: u64, target: &mut [u8]| self.read(placed.offset + at, target);
            self.store_crc(placed, unit, hash_in_pieces(range, &mut piece, read)?);
        }
        Ok(())
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), ExtentError> {
        let read = self.file.read_exact_at(target, offset);
        read.map_err(ExtentError::os("reading from an extent that is filled"))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), ExtentError> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(ExtentError::os("writing into an extent"))
    }
}

/// An extent being filled, which only this process can reach.
///
/// Its regions are cut into parts. One [`Part`] at a time writes a part, and others can read it
/// only after it is finished. When all parts are, [`seal`](Filling::seal) turns the memory into a
/// [`Sealed`] extent. Dropping the last handle before that frees everything.
///
/// A forked child does not inherit the mapping of the checksums, because it would keep the extent
/// from being sealed. A child must not touch a `Filling` or its parts.
pub struct Filling {
    id: ExtentId,
    layout: ExtentLayout,
    parts: PartTable,
    /// `seal` takes it. Copies hold the read lock, so none has the memory unmapped under it. A
    /// [`Part`] has its own handle, and `seal` begins only when no part is held.
    memory: RwLock<Option<Arc<FillingMemory>>>,
}

impl Filling {
    /// Creates the memory for `layout`. The `parts` must cover every region exactly once, in any
    /// order. Where the host may give huge pages, or `pages` asks for small ones, all memory is
    /// taken now. That takes up to 0.2 s per GiB. Otherwise each page is taken when it is written.
    ///
    /// # Errors
    /// If the parts do not tile the regions, or the kernel gives no memory.
    pub fn create(
        id: ExtentId,
        layout: ExtentLayout,
        parts: Vec<PartSpec>,
        pages: PagePreference,
    ) -> Result<Arc<Self>, ExtentError> {
        let parts = PartTable::new(&layout, parts)?;
        let file = memfd::create(layout.total_bytes())?;
        let taking = || ExtentError::os("mapping memory for an extent");
        // Only a mapping can ask for pages of a size.
        if pages == PagePreference::Small || pages::huge_may_be_given() {
            PopulatedMap::new(&file, pages).map_err(taking())?;
        }
        let tables = TableMap::new(&file, indices(&layout.tables())).map_err(taking())?;
        let memory = RwLock::new(Some(Arc::new(FillingMemory { tables, file })));
        Ok(Arc::new(Self { id, layout, parts, memory }))
    }

    /// Returns the extent's id.
    pub fn id(&self) -> ExtentId {
        self.id
    }

    /// Returns the places of everything in it.
    pub fn layout(&self) -> &ExtentLayout {
        &self.layout
    }

    /// Returns the bytes of memory that the extent takes.
    pub fn total_bytes(&self) -> u64 {
        self.layout.total_bytes()
    }

    /// Returns the parts, as they were given to [`create`](Filling::create).
    pub fn parts(&self) -> &[PartSpec] {
        self.parts.specs()
    }

    /// Returns the number of parts that are not finished.
    pub fn parts_missing(&self) -> usize {
        self.parts.missing()
    }

    /// Takes part `index` to write it. Returns `None` if there is no such part, another writer has
    /// it, or it is finished.
    #[must_use]
    pub fn take_part(self: &Arc<Self>, index: usize) -> Option<Part> {
        let spec = self.parts.specs().get(index)?;
        let hasher = UnitHasher::new(&self.layout.placed()[spec.region], &spec.range);
        let memory = self.memory();
        let memory = memory.as_ref()?;
        // Claimed first: `seal` relies on every handle having a claim.
        self.parts.claim(index).then(|| Part {
            memory: Arc::clone(memory),
            hasher,
            claim: Claim { filling: Arc::clone(self), index, finished: false },
        })
    }

    /// Returns whether all bytes of `range` of a region are written.
    ///
    /// # Panics
    /// If the region does not have these bytes.
    pub fn is_ready(&self, region: usize, range: Range<u64>) -> bool {
        let bytes = self.layout.region_bytes(region);
        let fits = range.start <= range.end && range.end <= bytes;
        assert!(fits, "{range:?} of a region of {bytes} bytes");
        self.parts.is_ready(region, &range)
    }

    /// Copies `range` of a region to `target` if all of it is written.
    ///
    /// # Errors
    /// The kernel's, if it cannot read back pages it swapped out.
    ///
    /// # Panics
    /// If the region does not have these bytes, or `target` has another length.
    pub fn copy(
        &self,
        region: usize,
        range: Range<u64>,
        target: &mut [u8],
    ) -> Result<CopyOutcome, ExtentError> {
        assert_eq!(index(range.end.saturating_sub(range.start)), target.len(), "the target's size");
        let memory = self.memory();
        let Some(memory) = memory.as_ref() else {
            return Ok(CopyOutcome::Sealed);
        };
        if !self.is_ready(region, range.clone()) {
            return Ok(CopyOutcome::NotYet);
        }
        memory.read(self.layout.region_offset(region) + range.start, target)?;
        Ok(CopyOutcome::Copied)
    }

    /// Makes the extent immutable. Blocks copies for a moment.
    ///
    /// # Errors
    /// If a part is not finished; filling can go on then. Any other error ends the filling.
    pub fn seal(&self) -> Result<Sealed, ExtentError> {
        if self.parts_missing() > 0 {
            return Err(ExtentError::PartsMissing { missing: self.parts_missing() });
        }
        match self.memory().as_ref() {
            Some(memory) => self.hash_units_across_parts(memory)?,
            None => return Err(ExtentError::AlreadySealed),
        }
        let memory = self.memory.write().unwrap_or_else(PoisonError::into_inner).take();
        let memory = memory.ok_or(ExtentError::AlreadySealed)?;
        // A part drops its memory before it counts as finished, and no part can be taken any more.
        let FillingMemory { mut tables, file } =
            Arc::into_inner(memory).expect("no part of a filled extent is held");
        tables.write_header(&encode(self.id, &self.layout));
        drop(tables);
        Sealed::seal(self.id, self.layout.clone(), file)
    }

    fn memory(&self) -> std::sync::RwLockReadGuard<'_, Option<Arc<FillingMemory>>> {
        // No panic under the lock leaves the memory half changed.
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes the checksums of units that span several parts.
    fn hash_units_across_parts(&self, memory: &FillingMemory) -> Result<(), ExtentError> {
        for (region, placed) in self.layout.placed().iter().enumerate() {
            let mut next = 0;
            for part in self.parts.of_region(region) {
                let within = placed.units_within(&part.range);
                if !within.is_empty() {
                    memory.hash_units(placed, next..within.start)?;
                    next = within.end;
                }
            }
            memory.hash_units(placed, next..placed.units)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filling")
            .field("id", &self.id)
            .field("bytes", &self.total_bytes())
            .field("parts_missing", &self.parts_missing())
            .finish_non_exhaustive()
    }
}

/// The right to write one part of a filling extent, from its first byte to its last.
///
/// [`finish`](Part::finish) lets others read the part. Dropping it unfinished returns the part, and
/// another writer can take it.
pub struct Part {
    // Dropped in this order: the memory before the claim.
    memory: Arc<FillingMemory>,
    hasher: UnitHasher,
    claim: Claim,
}

impl Part {
    /// Returns the index of the part.
    pub fn index(&self) -> usize {
        self.claim.index
    }

    /// Returns the region and the bytes of the part.
    pub fn spec(&self) -> &PartSpec {
        &self.claim.filling.parts.specs()[self.claim.index]
    }

    /// Returns how many bytes are still to be written.
    pub fn left(&self) -> usize {
        index(self.spec().range.end - self.hasher.at())
    }

    /// Writes the next bytes, and computes the checksums of the rows they complete while the bytes
    /// are in the cache.
    ///
    /// # Errors
    /// The kernel's, if it has no memory.
    ///
    /// # Panics
    /// If the part has fewer bytes left.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ExtentError> {
        let (spec, at) = (self.spec(), self.hasher.at());
        assert!(bytes.len() as u64 <= spec.range.end - at, "more than a part of {:?}", spec.range);
        let placed = &self.claim.filling.layout.placed()[spec.region];
        self.memory.write(placed.offset + at, bytes)?;
        self.hasher.pass(placed, bytes, |unit, crc| self.memory.store_crc(placed, unit, crc));
        Ok(())
    }

    /// Begins again at the first byte.
    pub fn restart(&mut self) {
        let spec = self.spec();
        self.hasher =
            UnitHasher::new(&self.claim.filling.layout.placed()[spec.region], &spec.range);
    }

    /// Returns whether [`finish`](Part::finish) must read rows back to hash them. That may take
    /// seconds: rows that overlap much have many times the bytes of the part.
    pub fn has_rows_to_hash(&self) -> bool {
        !self.hasher.left().is_empty()
    }

    /// Computes the checksums of rows in the part that were not computed during the writes, and
    /// lets others read the part. Bytes that were never written are zeros.
    ///
    /// # Errors
    /// The kernel's; the part is returned then.
    pub fn finish(mut self) -> Result<(), ExtentError> {
        let placed = &self.claim.filling.layout.placed()[self.spec().region];
        self.memory.hash_units(placed, self.hasher.left())?;
        self.claim.finished = true;
        Ok(())
    }
}

/// Marks a part as being written. Dropping it marks the part finished or empty.
struct Claim {
    filling: Arc<Filling>,
    index: usize,
    finished: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.filling.parts.release(self.index, self.finished);
    }
}

#[cfg(test)]
mod tests;
