//! Reads a sealed extent: rows are found by arithmetic on mapped memory, and every row can be
//! checked.

use std::fmt;
use std::ops::Range;

use crate::layout::{ExtentLayout, PlacedRegion, index, indices};
use crate::memfd::map::ReadMap;
use crate::rows::RegionRows;
use crate::{CorruptRow, ExtentId, PageSize};

/// The contents of a sealed extent, mapped and faulted in. [`Sealed`](crate::Sealed) and
/// [`Attached`](crate::Attached) both deref to it.
///
/// Methods that take a region or row panic if it does not exist, as slices do. Compare indices from
/// outside with [`ExtentView::layout`] first.
pub struct ExtentView {
    id: ExtentId,
    layout: ExtentLayout,
    map: ReadMap,
    page_size: PageSize,
}

impl ExtentView {
    /// Makes the view of a mapped file with the header `layout` came from.
    pub(crate) fn new(id: ExtentId, layout: ExtentLayout, map: ReadMap) -> Self {
        assert_eq!(map.bytes().len(), index(layout.total_bytes()), "the mapping is the file's");
        let page_size = PageSize::of(&map.addresses());
        Self { id, layout, map, page_size }
    }

    /// Returns the extent's id.
    pub fn id(&self) -> ExtentId {
        self.id
    }

    /// Returns the places of everything in it.
    pub fn layout(&self) -> &ExtentLayout {
        &self.layout
    }

    /// Returns the bytes of the whole extent.
    pub fn total_bytes(&self) -> u64 {
        self.layout.total_bytes()
    }

    /// Returns the page size of this mapping.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Returns the offset of a region in the file, for `sendfile`.
    pub fn file_offset(&self, region: usize) -> u64 {
        self.layout.region_offset(region)
    }

    /// Returns the range of a row in the file, for `sendfile`.
    pub fn row_file_range(&self, region: usize, row: u64) -> Range<u64> {
        let placed = self.placed(region);
        let row = placed.row_range(row);
        placed.offset + row.start..placed.offset + row.end
    }

    /// Returns all bytes of the file, for DMA registration.
    pub fn bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    /// Returns all bytes of a region.
    pub fn region(&self, region: usize) -> &[u8] {
        let placed = self.placed(region);
        self.bytes_of(placed, &(0..placed.bytes))
    }

    /// Returns the bytes of a row (of [`Region::Blocks`](crate::Region::Blocks): of a block).
    pub fn row(&self, region: usize, row: u64) -> &[u8] {
        let placed = self.placed(region);
        self.bytes_of(placed, &placed.row_range(row))
    }

    /// Returns where the mapping lies, for registering it and for asking the kernel about it. It
    /// cannot be written to; [`Attached::private_view`](crate::Attached::private_view) gives
    /// writable rows.
    pub fn addresses(&self) -> Range<usize> {
        self.map.addresses()
    }

    /// Looks up a region once, to read many of its rows.
    pub fn rows(&self, region: usize) -> RegionRows<'_> {
        let placed = self.placed(region);
        let table = placed.crc_offset..placed.crc_offset + placed.units * 4;
        let crcs = self.map.bytes()[indices(&table)].as_chunks().0;
        RegionRows::new(region, placed, self.region(region), crcs)
    }

    /// Returns the CRC32C to send along with a row: see [`RegionRows::crc`].
    pub fn row_crc(&self, region: usize, row: u64) -> u32 {
        self.rows(region).crc(row)
    }

    /// Returns whether a row still has the checksum it was filled with.
    pub fn verify_row(&self, region: usize, row: u64) -> bool {
        self.rows(region).verify(row)
    }

    /// Checks every row of every region, at the speed of memory.
    ///
    /// # Errors
    /// The first row that does not have its checksum.
    pub fn verify(&self) -> Result<(), CorruptRow> {
        for region in 0..self.layout.region_count() {
            let rows = self.rows(region);
            if let Some(row) = rows.find_corrupt() {
                return Err(CorruptRow { region, row });
            }
        }
        Ok(())
    }

    /// Copies a row to `target` and checks the copy while it is still in the cache.
    ///
    /// # Errors
    /// If the copy does not have the row's checksum; the bytes in `target` must not be used then.
    ///
    /// # Panics
    /// If `target` is not exactly as long as the row.
    pub fn copy_row_verified(
        &self,
        region: usize,
        row: u64,
        target: &mut [u8],
    ) -> Result<(), CorruptRow> {
        self.rows(region).copy_verified(row, target)
    }

    /// Returns the stored checksums of all units of all regions, in order. A unit is a row, or as
    /// many short rows (under 64 bytes) as fit 4096 bytes, or a block of 4096 bytes.
    pub fn unit_crcs(&self) -> impl Iterator<Item = u32> + '_ {
        let tables = &self.map.bytes()[indices(&self.layout.tables())];
        tables.as_chunks::<4>().0.iter().map(|crc| u32::from_le_bytes(*crc))
    }

    pub(crate) fn placed(&self, region: usize) -> &PlacedRegion {
        &self.layout.placed()[region]
    }

    fn bytes_of(&self, placed: &PlacedRegion, range: &Range<u64>) -> &[u8] {
        &self.map.bytes()[indices(&(placed.offset + range.start..placed.offset + range.end))]
    }
}

impl fmt::Debug for ExtentView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtentView")
            .field("id", &self.id)
            .field("bytes", &self.total_bytes())
            .field("page_size", &self.page_size)
            .finish_non_exhaustive()
    }
}
