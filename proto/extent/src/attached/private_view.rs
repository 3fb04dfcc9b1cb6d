//! Reads consecutive rows of an attached extent as one slice, or gives them out as a view that its
//! holder may write to.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Attached;
use super::private_views::PrivateViews;
use crate::CorruptRow;
use crate::layout::{BLOCK_BYTES, Region, index, indices};

/// Bytes of consecutive rows, to be read and written. Dropping it returns them. The extent stays
/// mapped at least until then.
#[derive(Debug)]
pub struct PrivateView {
    extent: Arc<Attached>,
    /// In the mapping.
    range: Range<usize>,
}

impl PrivateView {
    /// Returns where they begin, for [`len`](Self::len) bytes. Only the holder reads or writes
    /// there until this is dropped.
    pub fn base(&self) -> NonNull<u8> {
        let base = self.private_views().map.base().as_ptr();
        let first = base.wrapping_add(self.range.start);
        NonNull::new(first).expect("within a mapping, which is never at address 0")
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns false: no view is empty.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    fn private_views(&self) -> &PrivateViews {
        self.extent.private_views.as_ref().expect("a view lies in a private mapping")
    }
}

impl Drop for PrivateView {
    fn drop(&mut self) {
        self.private_views().give_back(&self.range);
    }
}

impl Attached {
    /// Returns consecutive rows of a region as one slice. Returns `None` for several rows that
    /// overlap or have gaps between them.
    ///
    /// Compares their checksums unless an earlier call did.
    ///
    /// # Errors
    /// The first row that does not have its checksum.
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
    pub fn rows_back_to_back(&self, region: usize, rows: &Range<u64>) -> Option<&[u8]> {
        let (range, offset) = (self.dense(region, rows)?, self.placed(region).offset);
        Some(&self.region(region)[indices(&(range.start - offset..range.end - offset))])
    }

    /// Gives out consecutive rows of a region, without a copy, for their holder to read and write.
    /// Compares no checksum.
    ///
    /// Returns `None`, and the caller must copy the rows, if one of these holds:
    ///
    /// * The rows do not lie back to back.
    /// * Some of them are in another view.
    /// * An earlier holder wrote to their pages, and the mapping cannot be reset now.
    /// * This process is a forked child.
    /// * The extent was not attached by [`Attached::with_private_views`].
    ///
    /// # Panics
    /// If there are no such rows.
    #[must_use]
    pub fn private_view(self: &Arc<Self>, region: usize, rows: Range<u64>) -> Option<PrivateView> {
        let private_views = self.private_views.as_ref()?;
        let range = indices(&self.dense(region, &rows)?);
        private_views.take(&range).then(|| PrivateView { extent: Arc::clone(self), range })
    }

    /// Asks the kernel whether returned views were written to, so that the next request for them
    /// need not wait. For threads with time to spare: some 30 ns a page.
    pub fn settle_views(&self) {
        if let Some(private_views) = &self.private_views {
            private_views.settle();
        }
    }

    /// Returns bytes of a region without rows ([`Region::Blocks`]). Compares the checksums of their
    /// blocks unless an earlier call did.
    ///
    /// # Errors
    /// The first block that does not have its checksum.
    ///
    /// # Panics
    /// If the region has rows, or does not have these bytes.
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
    pub fn bytes_of_blocks(&self, region: usize, bytes: &Range<u64>) -> &[u8] {
        let has_rows = matches!(self.placed(region).region, Region::Rows { .. });
        assert!(!has_rows, "region {region} has rows, which are not looked at as bytes");
        &self.region(region)[indices(bytes)]
    }

    /// Gives out bytes of a region without rows, as [`private_view`](Self::private_view) gives out
    /// rows.
    ///
    /// # Panics
    /// As [`bytes_verified`](Self::bytes_verified).
    pub fn private_view_bytes(
        self: &Arc<Self>,
        region: usize,
        bytes: &Range<u64>,
    ) -> Option<PrivateView> {
        let _ = self.bytes_of_blocks(region, bytes);
        let (private_views, offset) = (self.private_views.as_ref()?, self.placed(region).offset);
        let range = indices(&(offset + bytes.start..offset + bytes.end));
        private_views.take(&range).then(|| PrivateView { extent: Arc::clone(self), range })
    }

    /// Returns the range of the file that holds the rows, if they lie back to back.
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
        let Some(private_views) = &self.private_views else {
            return verify();
        };
        let (word, bit) = (&private_views.intact[region][index(unit / 64)], 1 << (unit % 64));
        let known = word.load(Relaxed) & bit != 0;
        if !known && verify() {
            word.fetch_or(bit, Relaxed);
            return true;
        }
        known
    }
}
