//! Gives out rows as memory that their holder may write to. No other reader sees the writes.
//!
//! Training frameworks work on tensors in place. So rows given without a copy lie in a second,
//! private mapping of the extent, where a write changes only this process's copy of a page. Three
//! rules protect the other readers of the same process:
//!
//! - This crate reads rows from the shared mapping only.
//! - A byte is in one view at a time. A request that overlaps a view is refused, and the caller
//!   copies the rows.
//! - Returned bytes are given out again only after the kernel said that their pages were not
//!   written to. If they were, requests for them are refused until no view is left. Then the whole
//!   mapping is first reset to the file.
//!
//! Asking the kernel takes about 30 ns a page, most of a view's cost. So a returned view is only
//! noted down. The next request for the same bytes asks, or a thread with time to spare
//! ([`crate::Attached::settle_views`]). At its return only a few of its pages are checked. That is
//! enough to notice a program that works in place, because it writes to all of them.
//!
//! When [`WRITTEN_BYTES_MAX`] were found written, no view is given out until all views are returned
//! and the mapping is reset, which happens at once then. So three terms bound the page copies that
//! a program causes:
//!
//! - the views it holds;
//! - [`WRITTEN_BYTES_MAX`] for each extent;
//! - the writes missed in returned views. A program that writes to one page in thirty is missed
//!   most often: 1 % of the bytes of its views.
//!
//! Thread rule: any thread takes and returns views, under a lock held for microseconds. Asking
//! about returned views holds a second lock meanwhile. A forked child takes no views, and returning
//! does nothing there, because the locks may be held for ever. Views that the child inherited stay
//! readable and writable for it alone. Non-goals: choosing rows; telling holders of each other.

#![expect(
    unsafe_code,
    reason = "turning a written mapping back; the block names what makes it sound"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::pagemap;
use crate::fork_count;
use crate::layout::ExtentLayout;
use crate::memfd::map::PrivateMap;

/// Bytes found written in returned views at which no view is given out before the mapping is reset.
const WRITTEN_BYTES_MAX: usize = 16 << 20;

/// The most returned views that are noted before the kernel is asked. A program that reads row by
/// row would otherwise leave as many as it has rows.
const RETURNED_MAX: usize = 256;

/// Pages checked when a view is returned, one in each of as many stretches.
const PAGES_SAMPLED: usize = 32;

const PAGE_BYTES: usize = 4096;

/// The private mapping of an extent, and the views in it.
pub(crate) struct PrivateViews {
    pub(crate) map: PrivateMap,
    /// The [`fork_count`] of the process that made it.
    process: u32,
    views: Mutex<Views>,
    /// Held while the kernel is asked about returned views; never taken with the views locked.
    asking: Mutex<()>,
    /// By region, a bit for each checksum unit found intact. Sealed pages cannot change, so one
    /// check is enough.
    pub(crate) intact: Box<[Box<[AtomicU64]>]>,
}

#[derive(Default)]
struct Views {
    /// Begin and end of each view, as offsets in the mapping. They do not overlap.
    taken: BTreeMap<usize, usize>,
    /// The returned ones of them, not yet checked for writes.
    returned: Vec<Range<usize>>,
    /// Bytes of returned views that were written to, since the mapping was last reset.
    written: usize,
}

impl PrivateViews {
    pub(crate) fn new(map: PrivateMap, layout: &ExtentLayout) -> Self {
        let bits = |units: u64| (0..units.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let intact = layout.placed().iter().map(|placed| bits(placed.units)).collect();
        let (views, asking) = (Mutex::default(), Mutex::default());
        Self { map, process: fork_count(), views, asking, intact }
    }

    fn views(&self) -> MutexGuard<'_, Views> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a view of these bytes. Returns whether that was possible.
    pub(crate) fn take(&self, range: &Range<usize>) -> bool {
        if range.is_empty() || self.process != fork_count() {
            return false;
        }
        if self.may_depend_on_returned_views(range) {
            self.settle();
        }
        let mut views = self.views();
        if views.overlaps(range) || !self.is_clean(&mut views, range) {
            return false;
        }
        views.taken.insert(range.start, range.end);
        true
    }

    /// Returns whether returned but unsettled views may be the obstacle to a view of this range.
    /// They still count as taken: they overlap requests and keep the mapping from being reset.
    fn may_depend_on_returned_views(&self, range: &Range<usize>) -> bool {
        let views = self.views();
        views.written > 0 || views.overlaps(range)
    }

    /// Returns whether the pages of this range, which is in no view, still show the file. Resets
    /// the mapping first if that is needed and possible.
    fn is_clean(&self, views: &mut Views, range: &Range<usize>) -> bool {
        // A page at the border may be a copy, made by a write to the neighbouring view. The bytes
        // of this range in that copy are still the file's.
        views.written == 0
            || (views.written < WRITTEN_BYTES_MAX && !self.is_written(range))
            || self.reset(views)
    }

    /// Resets the mapping to the file if there is no view. Returns whether it did.
    fn reset(&self, views: &mut Views) -> bool {
        // SAFETY: there is no view, the views are locked, and this crate reads from the shared
        // mapping only.
        let done = views.taken.is_empty() && unsafe { self.map.reset() }.is_ok();
        if done {
            views.written = 0;
        }
        done
    }

    /// Returns whether the kernel says that a page of this range was written to. A kernel that
    /// gives no answer counts as a yes.
    fn is_written(&self, range: &Range<usize>) -> bool {
        let base = self.map.addresses().start;
        pagemap::is_written(&(base + range.start..base + range.end)).unwrap_or(true)
    }

    /// Returns whether one of a few pages of this range was written to.
    fn seems_written(&self, range: &Range<usize>) -> bool {
        samples(range).any(|at| self.is_written(&(at..at + 1)))
    }

    pub(crate) fn give_back(&self, range: &Range<usize>) {
        if self.process != fork_count() {
            return;
        }
        let due = {
            let mut views = self.views();
            views.returned.push(range.clone());
            views.written > 0 || views.returned.len() >= RETURNED_MAX
        };
        if due || self.seems_written(range) {
            self.settle();
        }
    }

    /// Asks the kernel about the returned views, so that their bytes can be given out again.
    pub(crate) fn settle(&self) {
        if self.process != fork_count() {
            return;
        }
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let returned = mem::take(&mut self.views().returned);
        let written = returned.iter().filter(|range| self.is_written(range));
        let written = written.map(Range::len).sum::<usize>();
        let mut views = self.views();
        for range in returned {
            views.taken.remove(&range.start);
        }
        views.written += written;
        if views.written > 0 {
            self.reset(&mut views);
        }
    }
}

/// Returns an offset in each of [`PAGES_SAMPLED`] stretches of a range, at a different place in
/// each. A program that leaves a part of each row alone leaves the same part in every row.
fn samples(range: &Range<usize>) -> impl Iterator<Item = usize> {
    /// 2^64 divided by the golden ratio, which spreads consecutive numbers best.
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

impl Views {
    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.taken.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }
}

impl fmt::Debug for PrivateViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateViews({} bytes)", self.map.addresses().len())
    }
}
