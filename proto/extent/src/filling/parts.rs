//! The parts of a filling extent and the state of each.
//!
//! ```text
//!          claim               release(finished)
//! EMPTY ──────────▶ WRITING ─────────────────────▶ READY   (for good)
//!   ▲                  │
//!   └──────────────────┘ release(not finished)
//! ```
//!
//! A claim is one compare-and-swap, so a part has one writer. READY is stored with Release and
//! loaded with Acquire, so a thread that sees it also sees the bytes.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::{ExtentError, ExtentLayout};

const EMPTY: u8 = 0;
const WRITING: u8 = 1;
const READY: u8 = 2;

/// A stretch of one region that one writer fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSpec {
    /// Index of the region.
    pub region: usize,
    /// Bytes of the region.
    pub range: Range<u64>,
}

pub(super) struct PartTable {
    /// In the caller's order.
    specs: Box<[PartSpec]>,
    states: Box<[AtomicU8]>,
    /// Indices into `specs`, by region and then by place.
    order: Box<[usize]>,
    /// Where each region's parts begin in `order`; one more entry for the end.
    region_starts: Box<[usize]>,
    missing: AtomicUsize,
}

impl PartTable {
    /// Checks that `specs` tile the regions of `layout`.
    pub(super) fn new(layout: &ExtentLayout, specs: Vec<PartSpec>) -> Result<Self, ExtentError> {
        let mut order: Vec<usize> = (0..specs.len()).collect();
        order.sort_unstable_by_key(|&index| {
            let spec = &specs[index];
            (spec.region, spec.range.start, spec.range.end)
        });
        let mut region_starts = Vec::with_capacity(layout.region_count() + 1);
        let mut sorted = order.iter().map(|&index| &specs[index]).enumerate().peekable();
        let mut seen = 0;
        for region in 0..layout.region_count() {
            region_starts.push(seen);
            let mut at = 0;
            while let Some((index, spec)) = sorted.next_if(|(_, spec)| spec.region == region) {
                if spec.range.start != at || spec.range.end < at {
                    return Err(ExtentError::PartsDoNotTile { region, at });
                }
                at = spec.range.end;
                seen = index + 1;
            }
            if at != layout.region_bytes(region) {
                return Err(ExtentError::PartsDoNotTile { region, at });
            }
        }
        if let Some((_, spec)) = sorted.next() {
            return Err(ExtentError::BadRegion {
                region: spec.region,
                reason: "a part names it, but the layout does not have it",
            });
        }
        region_starts.push(seen);
        Ok(Self {
            states: specs.iter().map(|_| AtomicU8::new(EMPTY)).collect(),
            missing: AtomicUsize::new(specs.len()),
            specs: specs.into(),
            order: order.into(),
            region_starts: region_starts.into(),
        })
    }

    pub(super) fn specs(&self) -> &[PartSpec] {
        &self.specs
    }

    /// Returns the parts of a region by place.
    pub(super) fn of_region(&self, region: usize) -> impl Iterator<Item = &PartSpec> {
        self.order_of(region).iter().map(|&index| &self.specs[index])
    }

    fn order_of(&self, region: usize) -> &[usize] {
        &self.order[self.region_starts[region]..self.region_starts[region + 1]]
    }

    /// Makes the caller the writer of a part, if it has no writer and is not finished.
    pub(super) fn claim(&self, index: usize) -> bool {
        let state = &self.states[index];
        state.compare_exchange(EMPTY, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(super) fn release(&self, index: usize, finished: bool) {
        let state = if finished { READY } else { EMPTY };
        let before = self.states[index].swap(state, Ordering::Release);
        assert_eq!(before, WRITING, "only a claimed part is released");
        if finished {
            self.missing.fetch_sub(1, Ordering::Release);
        }
    }

    /// Returns the number of unfinished parts. A caller that sees 0 also sees the bytes of all
    /// parts.
    pub(super) fn missing(&self) -> usize {
        self.missing.load(Ordering::Acquire)
    }

    /// Returns whether all parts that `range` touches are finished.
    pub(super) fn is_ready(&self, region: usize, range: &Range<u64>) -> bool {
        let order = self.order_of(region);
        let first = order.partition_point(|&index| self.specs[index].range.end <= range.start);
        order[first..]
            .iter()
            .take_while(|&&index| self.specs[index].range.start < range.end)
            .all(|&index| self.states[index].load(Ordering::Acquire) == READY)
    }
}
