//! An extent that is being filled: parts are written side by side, finished ones can be copied out.

mod access;
mod parts;

pub use parts::PartSpec;

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use crate::crc::crc32c;
use crate::layout::{Layout, Placed, encode, index, indices};
use crate::map::FillMap;
use crate::{ExtentError, ExtentId, PagePreference, PageSize, Sealed, memfd};
use parts::PartTable;

/// What became of a copy out of a filling extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// The bytes are in the target.
    Copied,
    /// Some of the bytes are not in yet; the target is as it was.
    NotYet,
    /// The extent is sealed (or its sealing failed): read it there. The target is as it was.
    Sealed,
}

/// The memory of a filling extent.
struct Memory {
    map: FillMap,
    file: File,
}

impl Memory {
    /// Stores the checksum of a unit. Whoever does it twice stores the same again.
    fn store_crc(&self, placed: &Placed, unit: u64, bytes: &[u8]) {
        let slot = self.map.checksum(index(placed.crc_offset + unit * 4));
        slot.store(crc32c(bytes).to_le(), Ordering::Relaxed);
    }
}

/// An extent that is being filled, reachable from this process alone.
///
/// Its regions are cut into parts. A part is written by one [`Part`] at a time, and read by others
/// only once it is finished. When all are, [`seal`](Filling::seal) turns the memory into a
/// [`Sealed`] extent. Dropping the last handle before that frees everything.
///
/// A forked child does not inherit the memory, or its writable mapping would keep the extent from
/// being sealed: there, a `Filling` and its parts must not be touched.
pub struct Filling {
    id: ExtentId,
    layout: Layout,
    parts: PartTable,
    page_size: PageSize,
    /// Taken by `seal`. Copies hold the read lock, so none has the memory unmapped under it; a
    /// [`Part`] has its own handle, and `seal` begins only when no part is held.
    memory: RwLock<Option<Arc<Memory>>>,
}

impl Filling {
    /// Takes and faults in the memory for `layout`, to be filled in `parts`, which must cover every
    /// region exactly once, in any order. Takes up to 0.4 s per GiB.
    ///
    /// # Errors
    /// If the parts do not tile the regions, or the kernel gives no memory.
    pub fn create(
        id: ExtentId,
        layout: Layout,
        parts: Vec<PartSpec>,
        pages: PagePreference,
    ) -> Result<Arc<Self>, ExtentError> {
        let parts = PartTable::new(&layout, parts)?;
        let file = memfd::create(layout.total_bytes())?;
        let map = FillMap::new(&file, indices(&layout.tables()), pages)
            .map_err(ExtentError::os("mapping memory for an extent"))?;
        let page_size = PageSize::of(&map.addresses());
        let memory = RwLock::new(Some(Arc::new(Memory { map, file })));
        Ok(Arc::new(Self { id, layout, parts, page_size, memory }))
    }

    /// The extent's id.
    #[must_use]
    pub fn id(&self) -> ExtentId {
        self.id
    }

    /// Where everything lies.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of memory the extent takes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.layout.total_bytes()
    }

    /// The pages the memory came in.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// The parts, as they were given to [`create`](Filling::create).
    #[must_use]
    pub fn parts(&self) -> &[PartSpec] {
        self.parts.specs()
    }

    /// How many parts are not finished.
    #[must_use]
    pub fn parts_missing(&self) -> usize {
        self.parts.missing()
    }

    /// Takes part `index` to write it. `None` if there is no such part, somebody else is writing
    /// it, or it is finished.
    #[must_use]
    pub fn take_part(self: &Arc<Self>, index: usize) -> Option<Part> {
        let range = self.file_range(self.parts.specs().get(index)?);
        let memory = self.memory();
        let memory = memory.as_ref()?;
        // Claimed first: `seal` relies on there being no handle without a claim.
        self.parts.claim(index).then(|| Part {
            memory: Arc::clone(memory),
            range,
            claim: Claim { filling: Arc::clone(self), index, finished: false },
        })
    }

    /// Whether all bytes of `range` of a region are in.
    ///
    /// # Panics
    /// If the region does not have these bytes.
    #[must_use]
    pub fn is_ready(&self, region: usize, range: Range<u64>) -> bool {
        let bytes = self.layout.region_bytes(region);
        let fits = range.start <= range.end && range.end <= bytes;
        assert!(fits, "{range:?} of a region of {bytes} bytes");
        self.parts.is_ready(region, &range)
    }

    /// Copies `range` of a region to `target` if all of it is in.
    ///
    /// # Panics
    /// If the region does not have these bytes, or `target` has not as many.
    #[must_use]
    pub fn copy(&self, region: usize, range: Range<u64>, target: &mut [u8]) -> CopyOutcome {
        assert_eq!(index(range.end.saturating_sub(range.start)), target.len(), "the target's size");
        let memory = self.memory();
        let Some(memory) = memory.as_ref() else {
            return CopyOutcome::Sealed;
        };
        match self.ready_bytes(memory, region, &range) {
            None => CopyOutcome::NotYet,
            Some(bytes) => {
                target.copy_from_slice(bytes);
                CopyOutcome::Copied
            }
        }
    }

    /// Makes the extent immutable. Blocks copies for a moment.
    ///
    /// # Errors
    /// If a part is not finished; the filling then goes on. Any other error ends it.
    pub fn seal(&self) -> Result<Sealed, ExtentError> {
        if self.parts_missing() > 0 {
            return Err(ExtentError::PartsMissing { missing: self.parts_missing() });
        }
        match self.memory().as_ref() {
            Some(memory) => self.hash_units_across_parts(memory),
            None => return Err(ExtentError::AlreadySealed),
        }
        let memory = self.memory.write().unwrap_or_else(PoisonError::into_inner).take();
        let memory = memory.ok_or(ExtentError::AlreadySealed)?;
        // Finished parts have let go of the memory before they counted as finished, and no part
        // can be taken any more.
        let Memory { mut map, file } =
            Arc::into_inner(memory).expect("no part of a filled extent is held");
        map.write_header(&encode(self.id, &self.layout));
        drop(map);
        Sealed::seal(self.id, self.layout.clone(), file)
    }

    fn memory(&self) -> std::sync::RwLockReadGuard<'_, Option<Arc<Memory>>> {
        // Nothing that panics under the lock leaves the memory half changed.
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_range(&self, part: &PartSpec) -> Range<usize> {
        let offset = self.layout.region_offset(part.region);
        indices(&(offset + part.range.start..offset + part.range.end))
    }

    /// Takes the checksums that no part could take alone.
    fn hash_units_across_parts(&self, memory: &Memory) {
        for (region, placed) in self.layout.placed().iter().enumerate() {
            let mut next = 0;
            for part in self.parts.of_region(region) {
                let within = placed.units_within(&part.range);
                if !within.is_empty() {
                    self.hash_units(memory, region, next..within.start);
                    next = within.end;
                }
            }
            self.hash_units(memory, region, next..placed.units);
        }
    }

    fn hash_units(&self, memory: &Memory, region: usize, units: Range<u64>) {
        let placed = &self.layout.placed()[region];
        for unit in units {
            let bytes = self.ready_bytes(memory, region, &placed.unit_range(unit));
            memory.store_crc(placed, unit, bytes.expect("all parts are finished"));
        }
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

/// The right to write one part of a filling extent: derefs to its bytes.
///
/// [`finish`](Part::finish) lets others read them; dropping it without gives the part back to be
/// taken again, with whatever was written so far.
pub struct Part {
    // Dropped in this order: the memory is let go before the claim is.
    memory: Arc<Memory>,
    range: Range<usize>,
    claim: Claim,
}

impl Part {
    /// Index of the part.
    #[must_use]
    pub fn index(&self) -> usize {
        self.claim.index
    }

    /// Where the part lies.
    #[must_use]
    pub fn spec(&self) -> &PartSpec {
        &self.claim.filling.parts.specs()[self.claim.index]
    }

    /// Takes the checksums of the rows that lie wholly in the part, while its bytes are warm, and
    /// lets others read it.
    pub fn finish(mut self) {
        let spec = self.spec();
        let placed = &self.claim.filling.layout.placed()[spec.region];
        for unit in placed.units_within(&spec.range) {
            let unit_range = placed.unit_range(unit);
            let start = spec.range.start;
            let within = indices(&(unit_range.start - start..unit_range.end - start));
            self.memory.store_crc(placed, unit, &self[within]);
        }
        self.claim.finished = true;
    }
}

/// What says in the table of parts that one is being written; says the rest when dropped.
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
