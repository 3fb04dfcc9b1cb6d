//! Rows lent as memory that their holder may write to, and nobody else sees written.
//!
//! A training framework works on tensors in place. So the rows it is given without a copy lie in a
//! second, private mapping of the extent: what is written there changes this process's copy of a
//! page. That leaves the readers of the same process to be protected, by three rules:
//!
//! - This crate reads rows from the shared mapping only.
//! - Bytes are lent to one holder at a time: what overlaps a loan is refused, and so copied by the
//!   caller.
//! - What was lent is lent again only after the kernel said that its pages were not written to. If they
//!   were, they are refused, unless nothing is lent: then the whole mapping is first turned back into
//!   the file.
//!
//! Asking takes some 30 ns a page, which is most of what a view costs. So a loan that is returned is put
//! down, and asked about by whoever wants the same bytes next or has time before
//! ([`Attached::settle_loans`]). Only a few of its pages are looked at when it is returned: whoever
//! works in place writes to all of them, and is found out at once.
//!
//! Once [`WRITTEN_BYTES_MAX`] were found to be written to, nothing is lent until all is returned and the
//! mapping was turned back, which happens as soon as it is. So the copies of pages that a program causes by
//! writing are bounded by what it holds, those bytes an extent, and what was missed in loans that nobody asked
//! about yet: of a program that writes to one page in thirty, which is missed oftenest, 1 % of what it was lent.
//!
//! Thread rule: loans are made and returned by any thread, under a lock that is held for
//! microseconds; whoever asks about returned loans holds another meanwhile. In a forked child nothing is
//! lent, and returning does nothing: the locks may be held for ever there. What the child inherited stays
//! readable and writable, for itself.
//! Non-goals: which rows are worth lending; telling holders of each other.

#![expect(
    unsafe_code,
    reason = "turning a written mapping back; the block names what makes it sound"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::layout::{BLOCK_BYTES, Layout, Region, index, indices};
use crate::map::PrivateMap;
use crate::{Attached, CorruptRow, fork_count, pagemap};

/// Bytes of loans that were written to and are returned, at which nothing more is lent before it was.
const WRITTEN_BYTES_MAX: usize = 16 << 20;

/// Returned loans that nobody asked about: of programs that read row by row there would else be as many as rows.
const RETURNED_MAX: usize = 256;

/// Pages that are looked at when a loan is returned, one in each of as many stretches.
const PAGES_SAMPLED: usize = 32;

/// Bytes of the smallest pages.
const PAGE_BYTES: usize = 4096;

/// The private mapping of an extent, and what of it is lent.
pub(crate) struct Lender {
    map: PrivateMap,
    /// Its [`fork_count`].
    process: u32,
    books: Mutex<Books>,
    /// Held by who asks about returned loans, and never asked for with the books locked.
    asking: Mutex<()>,
    /// By region, a bit for each checksum unit that was found intact. Sealed pages can't change, so
    /// once is enough.
    intact: Box<[Box<[AtomicU64]>]>,
}

#[derive(Default)]
struct Books {
    /// Begin and end of each loan, as offsets in the mapping. They do not overlap.
    lent: BTreeMap<usize, usize>,
    /// Those of them that are returned, and about which nobody asked yet.
    returned: Vec<Range<usize>>,
    /// Bytes of returned loans that were written to, since the mapping was last turned back.
    written: usize,
}

impl Lender {
    pub(crate) fn new(map: PrivateMap, layout: &Layout) -> Self {
        let bits = |units: u64| (0..units.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let intact = layout.placed().iter().map(|placed| bits(placed.units)).collect();
        let (books, asking) = (Mutex::default(), Mutex::default());
        Self { map, process: fork_count(), books, asking, intact }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a loan, if these bytes can be lent.
    fn lend(&self, range: &Range<usize>) -> bool {
        if range.is_empty() || self.process != fork_count() {
            return false;
        }
        if self.may_hang_on_returned_loans(range) {
            self.settle();
        }
        let mut books = self.books();
        if books.overlaps(range) || !self.is_clean(&mut books, range) {
            return false;
        }
        books.lent.insert(range.start, range.end);
        true
    }

    /// Whether loans that are returned, but not settled, may keep this range from being lent: they still count as
    /// lent, by themselves and against turning the mapping back.
    fn may_hang_on_returned_loans(&self, range: &Range<usize>) -> bool {
        let books = self.books();
        books.written > 0 || books.overlaps(range)
    }

    /// Whether nobody has written to the pages of this range, which is not lent, since they were the
    /// file's; after turning them back if that is needed and can be done.
    fn is_clean(&self, books: &mut Books, range: &Range<usize>) -> bool {
        // A page at the border may be a copy, as the neighbour's holder wrote to its part of it: these
        // bytes of the copy are the file's.
        books.written == 0
            || (books.written < WRITTEN_BYTES_MAX && !self.is_written(range))
            || self.turn_back(books)
    }

    /// Makes the mapping show the file again, if nothing is lent: whether it does.
    fn turn_back(&self, books: &mut Books) -> bool {
        // SAFETY: nothing is lent, the books are locked, and this crate reads from the shared
        // mapping only.
        let turned = books.lent.is_empty() && unsafe { self.map.reset() }.is_ok();
        if turned {
            books.written = 0;
        }
        turned
    }

    /// Whether the kernel says that a page of this range was written to. One that does not tell is
    /// taken to say the worst.
    fn is_written(&self, range: &Range<usize>) -> bool {
        let base = self.map.addresses().start;
        pagemap::is_written(&(base + range.start..base + range.end)).unwrap_or(true)
    }

    /// Whether one of a few pages of this range was written to.
    fn seems_written(&self, range: &Range<usize>) -> bool {
        samples(range).any(|at| self.is_written(&(at..at + 1)))
    }

    fn give_back(&self, range: &Range<usize>) {
        if self.process != fork_count() {
            return;
        }
        let due = {
            let mut books = self.books();
            books.returned.push(range.clone());
            books.written > 0 || books.returned.len() >= RETURNED_MAX
        };
        if due || self.seems_written(range) {
            self.settle();
        }
    }

    /// Asks the kernel about the loans that were returned, so that their bytes can be lent again.
    fn settle(&self) {
        if self.process != fork_count() {
            return;
        }
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let returned = mem::take(&mut self.books().returned);
        let written = returned.iter().filter(|range| self.is_written(range));
        let written = written.map(Range::len).sum::<usize>();
        let mut books = self.books();
        for range in returned {
            books.lent.remove(&range.start);
        }
        books.written += written;
        if books.written > 0 {
            self.turn_back(&mut books);
        }
    }
}

/// A byte in each of [`PAGES_SAMPLED`] stretches of a range, not at the same place in each: programs that leave
/// some of each row alone leave the same of each.
fn samples(range: &Range<usize>) -> impl Iterator<Item = usize> {
    /// What spreads consecutive numbers best: 2^64 divided by the golden ratio.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let stretch = (range.len() / PAGES_SAMPLED).max(PAGE_BYTES);
    let place = move |number: u64| {
        let part = u128::from(number.wrapping_mul(SPREAD)) * stretch as u128;
        usize::try_from(part >> 64).expect("a part of a stretch")
    };
    let end = range.end;
    range
        .clone()
        .step_by(stretch)
        .zip(0..)
        .map(move |(start, number)| (start + place(number)).min(end - 1))
}

impl Books {
    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.lent.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lender({} bytes)", self.map.addresses().len())
    }
}

/// Bytes of consecutive rows, lent to be read and written. Dropping it returns them; the extent stays
/// mapped at least until then.
#[derive(Debug)]
pub struct Lent {
    extent: Arc<Attached>,
    /// In the mapping.
    range: Range<usize>,
}

impl Lent {
    /// Where they begin, for [`len`](Self::len) bytes. Nobody else reads or writes there until this
    /// is dropped.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        let base = self.lender().map.base().as_ptr();
        let first = base.wrapping_add(self.range.start);
        NonNull::new(first).expect("within a mapping, which is never at address 0")
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Always false: no loan is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    fn lender(&self) -> &Lender {
        self.extent.lender.as_ref().expect("what was lent has a lender")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.lender().give_back(&self.range);
    }
}

impl Attached {
    /// Consecutive rows of a region, back to back, if they lie so: that is, unless several rows
    /// overlap or have gaps between them.
    ///
    /// Their checksums are compared unless they were before.
    ///
    /// # Errors
    /// The first row found not to be as it was filled.
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn rows_verified(
        &self,
        region: usize,
        rows: Range<u64>,
    ) -> Result<Option<&[u8]>, CorruptRow> {
        let Some(bytes) = self.rows_back_to_back(region, &rows) else {
            return Ok(None);
        };
        let placed = self.placed(region);
        let per_unit = placed.rows_per_unit();
        let units = if placed.units == 0 {
            0..0
        } else {
            rows.start / per_unit..rows.end.div_ceil(per_unit)
        };
        for unit in units {
            if !self.is_intact(region, unit) {
                return Err(CorruptRow { region, row: (unit * per_unit).max(rows.start) });
            }
        }
        Ok(Some(bytes))
    }

    /// As [`rows_verified`](Self::rows_verified), without looking at checksums.
    ///
    /// # Panics
    /// If there are no such rows.
    #[must_use]
    pub fn rows_back_to_back(&self, region: usize, rows: &Range<u64>) -> Option<&[u8]> {
        let (range, offset) = (self.dense(region, rows)?, self.placed(region).offset);
        Some(&self.region(region)[indices(&(range.start - offset..range.end - offset))])
    }

    /// Lends consecutive rows of a region, at no copy, for their holder to read and write.
    ///
    /// `None` if they do not lie back to back, if some are lent already, if an earlier holder wrote
    /// to their pages and that can't be undone now, in a forked child, and if the extent was not
    /// attached by [`Attached::lending`]: they are to be copied then. No checksum is compared.
    ///
    /// # Panics
    /// If there are no such rows.
    #[must_use]
    pub fn lend(self: &Arc<Self>, region: usize, rows: Range<u64>) -> Option<Lent> {
        let lender = self.lender.as_ref()?;
        let range = indices(&self.dense(region, &rows)?);
        lender.lend(&range).then(|| Lent { extent: Arc::clone(self), range })
    }

    /// Asks the kernel whether returned loans were written to, so that nobody who wants them next need wait
    /// for that. For threads that have time: some 30 ns a page.
    pub fn settle_loans(&self) {
        if let Some(lender) = &self.lender {
            lender.settle();
        }
    }

    /// Bytes of a region without rows ([`Region::Blocks`]). The checksums of their blocks are compared
    /// unless they were before.
    ///
    /// # Errors
    /// The first block found not to be as it was filled.
    ///
    /// # Panics
    /// If the region has rows, or has not these bytes.
    pub fn bytes_verified(&self, region: usize, bytes: &Range<u64>) -> Result<&[u8], CorruptRow> {
        let read = self.bytes_of_blocks(region, bytes);
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let mut blocks = if bytes.is_empty() { 0..0 } else { blocks };
        match blocks.find(|&block| !self.is_intact(region, block)) {
            None => Ok(read),
            Some(row) => Err(CorruptRow { region, row }),
        }
    }

    /// As [`bytes_verified`](Self::bytes_verified), without looking at checksums.
    ///
    /// # Panics
    /// As [`bytes_verified`](Self::bytes_verified).
    #[must_use]
    pub fn bytes_of_blocks(&self, region: usize, bytes: &Range<u64>) -> &[u8] {
        let has_rows = matches!(self.placed(region).region, Region::Rows { .. });
        assert!(!has_rows, "region {region} has rows, which are not looked at as bytes");
        &self.region(region)[indices(bytes)]
    }

    /// Lends bytes of a region without rows, as [`lend`](Self::lend) lends rows.
    ///
    /// # Panics
    /// As [`bytes_verified`](Self::bytes_verified).
    #[must_use]
    pub fn lend_bytes(self: &Arc<Self>, region: usize, bytes: &Range<u64>) -> Option<Lent> {
        let _ = self.bytes_of_blocks(region, bytes);
        let (lender, offset) = (self.lender.as_ref()?, self.placed(region).offset);
        let range = indices(&(offset + bytes.start..offset + bytes.end));
        lender.lend(&range).then(|| Lent { extent: Arc::clone(self), range })
    }

    /// Where in the file rows lie, if back to back.
    fn dense(&self, region: usize, rows: &Range<u64>) -> Option<Range<u64>> {
        let placed = self.placed(region);
        let count = placed.region.rows();
        assert!(rows.start < rows.end && rows.end <= count, "rows {rows:?} of {count}");
        if let Region::Rows { row_bytes, stride_bytes, .. } = placed.region
            && row_bytes != stride_bytes
            && rows.end - rows.start > 1
        {
            return None;
        }
        let (first, last) = (placed.row_range(rows.start), placed.row_range(rows.end - 1));
        Some(placed.offset + first.start..placed.offset + last.end)
    }

    fn is_intact(&self, region: usize, unit: u64) -> bool {
        let verify = || self.verify_row(region, unit * self.placed(region).rows_per_unit());
        let Some(lender) = &self.lender else {
            return verify();
        };
        let (word, bit) = (&lender.intact[region][index(unit / 64)], 1 << (unit % 64));
        let known = word.load(Relaxed) & bit != 0;
        if !known && verify() {
            word.fetch_or(bit, Relaxed);
            return true;
        }
        known
    }
}
