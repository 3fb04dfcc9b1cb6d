//! Checksums of rows, kept beside the manifest, so that a few rows can be checked without the rest
//! of their shard. The shard checksum that a manifest pins is a hash of them.
//!
//! A checksum unit (CRC32C) is a row. Rows of fewer than 64 bytes share a unit: as many as fit 4
//! KiB. Where rows differ in length, a unit is a block of 4 KiB. A shard's checksum is the xxh3-64
//! over the little-endian values of all its units, tensor by tensor. A table of units therefore
//! needs no further trust: it is right if it hashes to the value that the manifest pins.
//!
//! ```text
//! <home>/checksums/<name>    u32 of every unit: 64 shards one after the other, tensor by tensor
//! ```
//!
//! The name is a hash of the ids of the shards in it: snapshots that share shards share tables.
//!
//! Non-goals: caching (the reader's choice).

use std::ops::Range;

use bytes::Bytes;
use crc_fast::CrcAlgorithm::Crc32Iscsi;
use larder_base::ShardId;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::{
    DatasetError, FetchError, Manifest, Origin, OriginError, OriginUri, RegionPlan, Snapshot,
    home::{WriteHome, home_beside, homes},
    origin::{Put, Target},
};

/// Rows shorter than this share a unit.
const ROW_BYTES_ALONE: u64 = 64;
/// Bytes of rows that share a unit.
const UNIT_BYTES: u64 = 4096;
/// Shards that share a table object: few objects, and indexing can hold each table in memory.
const TABLE_SHARDS: u32 = 64;

/// The division of a region into units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitPlan {
    /// Rows, or blocks where rows differ in length.
    rows: u64,
    rows_per_unit: u64,
    row_bytes: u64,
    stride_bytes: u64,
    bytes: u64,
}

impl UnitPlan {
    /// Computes the units of a region.
    pub fn new(region: &RegionPlan) -> Self {
        let RegionPlan { rows, row_bytes, stride_bytes, bytes } = *region;
        if row_bytes == 0 {
            let rows = bytes.div_ceil(UNIT_BYTES);
            let (row_bytes, stride_bytes) = (UNIT_BYTES, UNIT_BYTES);
            return Self { rows, rows_per_unit: 1, row_bytes, stride_bytes, bytes };
        }
        let shared = row_bytes < ROW_BYTES_ALONE;
        let rows_per_unit = if shared { UNIT_BYTES / row_bytes } else { 1 };
        Self { rows, rows_per_unit, row_bytes, stride_bytes, bytes }
    }

    /// Returns the number of units.
    pub fn count(&self) -> u64 {
        self.rows.div_ceil(self.rows_per_unit)
    }

    /// Returns the bytes of the region that a unit covers.
    pub fn bytes_of(&self, unit: u64) -> Range<u64> {
        let first = unit * self.rows_per_unit;
        let last = (first + self.rows_per_unit).min(self.rows) - 1;
        first * self.stride_bytes..(last * self.stride_bytes + self.row_bytes).min(self.bytes)
    }

    /// Returns the units that together cover a row at these bytes of the region.
    pub fn covering(&self, bytes: &Range<u64>) -> Range<u64> {
        let first = bytes.start / self.stride_bytes / self.rows_per_unit;
        // Rows may overlap, so the next may begin within this row; blocks never overlap.
        let last = match self.stride_bytes {
            UNIT_BYTES if self.row_bytes == UNIT_BYTES => {
                bytes.end.saturating_sub(1).max(bytes.start) / UNIT_BYTES
            }
            _ => first,
        };
        first..last + 1
    }
}

/// Computes the CRC32C of each unit of a region with these bytes.
pub(crate) fn unit_crcs(region: &RegionPlan, bytes: &[u8]) -> impl Iterator<Item = u32> {
    let plan = UnitPlan::new(region);
    (0..plan.count()).map(move |unit| {
        let Range { start, end } = plan.bytes_of(unit);
        let at = |offset: u64| usize::try_from(offset).expect("the region is in memory");
        crc(&bytes[at(start)..at(end)])
    })
}

fn crc(bytes: &[u8]) -> u32 {
    u32::try_from(crc_fast::checksum(Crc32Iscsi, bytes)).expect("a CRC32C has 32 bits")
}

/// Computes the checksum of a shard from the checksums of its units, in order.
pub(crate) fn sum_up(table: &[u32]) -> u64 {
    let mut state = Xxh3Default::new();
    table.iter().for_each(|crc| state.update(&crc.to_le_bytes()));
    state.digest()
}

/// The checksums of the units of one shard. They hash to the value that its manifest pins.
#[derive(Debug, Clone)]
pub struct ShardChecksums {
    crcs: Vec<u32>,
    /// Of each tensor: its units, and the index of its first checksum.
    tensors: Vec<(UnitPlan, usize)>,
}

impl ShardChecksums {
    /// Returns the units of a tensor.
    pub fn units(&self, tensor: usize) -> &UnitPlan {
        &self.tensors[tensor].0
    }

    /// Returns whether these bytes have the checksum of a unit of a tensor.
    pub fn holds(&self, tensor: usize, unit: u64, bytes: &[u8]) -> bool {
        let begin = self.tensors[tensor].1;
        crc(bytes) == self.crcs[begin + usize::try_from(unit).expect("a unit in memory")]
    }

    /// Returns the bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        self.crcs.len() * size_of::<u32>() + self.tensors.len() * size_of::<(UnitPlan, usize)>()
    }
}

/// The checksum tables of a snapshot.
#[derive(Debug, Clone)]
pub struct RowChecksums {
    origin: Origin,
    home: OriginUri,
}

impl RowChecksums {
    /// Looks for the tables of a snapshot where its manifest may lie. With `given` it looks there
    /// only; otherwise beside the data and then in the local cache. Returns `None` if the snapshot
    /// was indexed without checksums or no table is found.
    ///
    /// # Errors
    /// If the origin cannot be asked.
    pub async fn find(
        origin: &Origin,
        manifest: &Manifest,
        given: Option<&OriginUri>,
    ) -> Result<Option<Self>, DatasetError> {
        if manifest.shard_count() == 0 || manifest.shard(0).checksum.is_none() {
            return Ok(None);
        }
        for home in homes(manifest.uri(), given)? {
            let there =
                if origin.serves(&home) { origin.clone() } else { Origin::connect(&home).await? };
            match there.head(&table_uri(&home, manifest, 0)?).await {
                Ok(_) => return Ok(Some(Self { origin: there, home })),
                // Without the right to list, S3 answers "denied" for an object that does not exist.
                Err(OriginError::NotFound { .. } | OriginError::Denied { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Reads the checksums of one shard.
    ///
    /// # Errors
    /// If they cannot be read, or do not hash to the value that the manifest pins.
    ///
    /// # Panics
    /// If there is no such shard.
    pub async fn shard(
        &self,
        manifest: &Manifest,
        shard: u32,
    ) -> Result<ShardChecksums, DatasetError> {
        let object = table_uri(&self.home, manifest, shard)?;
        let first = shard / TABLE_SHARDS * TABLE_SHARDS;
        let units = |shard| -> u64 { plans(manifest, shard).map(|plan| plan.count()).sum() };
        let before: u64 = (first..shard).map(units).sum();
        let after: u64 = (shard + 1..table_end(manifest, first)).map(units).sum();
        let own = units(shard);
        let target = Target {
            object: object.clone(),
            etag: None,
            version: None,
            size_bytes: (before + own + after) * 4,
        };
        let (bytes, _) = self.origin.read_header(&target, before * 4, own * 4).await?;
        if Some(xxh3_64(&bytes)) != manifest.shard(shard).checksum {
            let why = format!("it is not what the manifest pins for shard {shard}");
            return Err(FetchError::NotAsAsked { object, why }.into());
        }
        let crcs =
            bytes.chunks_exact(4).map(|crc| u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]]));
        let mut begin = 0;
        let tensors = plans(manifest, shard).map(|plan| {
            let at = begin;
            begin += usize::try_from(plan.count()).expect("they are in memory");
            (plan, at)
        });
        Ok(ShardChecksums { tensors: tensors.collect(), crcs: crcs.collect() })
    }
}

/// Writes tables while a dataset is indexed, each as soon as its shards were read.
pub(crate) struct TableWriter<'a> {
    origin: Origin,
    snapshot: &'a Snapshot,
    home: OriginUri,
    /// The second choice, if the home is not writable.
    cache: Option<OriginUri>,
    table: Vec<u8>,
    /// The ids that the shards of the table have once their checksums are pinned.
    ids: Vec<ShardId>,
}

impl<'a> TableWriter<'a> {
    /// Chooses the place of the tables, as `publish` does for the manifest.
    pub(crate) async fn new(
        origin: &Origin,
        snapshot: &'a Snapshot,
        home: &WriteHome,
    ) -> Result<Self, DatasetError> {
        let (home, cache) = match home.clone() {
            WriteHome::Given(home) | WriteHome::Cache(home) => (home, None),
            WriteHome::Beside { cache } => (home_beside(snapshot.manifest.uri())?, cache),
        };
        let origin =
            if origin.serves(&home) { origin.clone() } else { Origin::connect(&home).await? };
        Ok(Self { origin, snapshot, home, cache, table: Vec::new(), ids: Vec::new() })
    }

    /// Adds the checksums of a shard's units. The caller pushes shards in order.
    pub(crate) async fn push(&mut self, shard: u32, crcs: &[u32]) -> Result<(), DatasetError> {
        self.table.extend(crcs.iter().flat_map(|crc| crc.to_le_bytes()));
        let (manifest, leaf) = (&self.snapshot.manifest, self.snapshot.leaf_of(shard));
        self.ids.push(manifest.compute_shard_id(leaf, shard, Some(sum_up(crcs))));
        let first = shard / TABLE_SHARDS * TABLE_SHARDS;
        if shard + 1 < table_end(manifest, first) {
            return Ok(());
        }
        let table = Bytes::from(std::mem::take(&mut self.table));
        let ids = std::mem::take(&mut self.ids);
        match self.write(&ids, table.clone()).await {
            Err(DatasetError::Origin(OriginError::Denied { .. })) if self.cache.is_some() => {
                self.home = self.cache.take().expect("just looked");
                self.origin = Origin::connect(&self.home).await?;
                self.write(&ids, table).await
            }
            written => written,
        }
    }

    async fn write(&self, ids: &[ShardId], table: Bytes) -> Result<(), DatasetError> {
        let object = table_of(&self.home, ids.iter().copied())?;
        // The name determines the contents, so any other contents there are damaged.
        Ok(self.origin.put(&object, table, Put::Always).await?)
    }
}

fn table_end(manifest: &Manifest, first: u32) -> u32 {
    manifest.shard_count().min(first.saturating_add(TABLE_SHARDS))
}

fn table_uri(home: &OriginUri, manifest: &Manifest, shard: u32) -> Result<OriginUri, DatasetError> {
    let first = shard / TABLE_SHARDS * TABLE_SHARDS;
    table_of(home, (first..table_end(manifest, first)).map(|shard| manifest.shard(shard).id))
}

/// Returns the address of the table of these shards.
fn table_of(
    home: &OriginUri,
    shards: impl Iterator<Item = ShardId>,
) -> Result<OriginUri, DatasetError> {
    let mut name = Xxh3Default::new();
    shards.for_each(|id| name.update(id.as_bytes()));
    Ok(home.join(&format!("checksums/{:032x}", name.digest128()))?)
}

/// Returns the units of every tensor of a shard.
fn plans(manifest: &Manifest, shard: u32) -> impl Iterator<Item = UnitPlan> {
    (0..manifest.tensors().len()).map(move |tensor| UnitPlan::new(&manifest.region(shard, tensor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(rows: u64, row_bytes: u64, stride_bytes: u64) -> RegionPlan {
        RegionPlan { rows, row_bytes, stride_bytes, bytes: (rows - 1) * stride_bytes + row_bytes }
    }

    #[test]
    fn crc32c_matches_the_standard() {
        assert_eq!(crc(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn long_rows_are_units_of_their_own_even_where_they_overlap() {
        let bytes: Vec<u8> = (0..=255).collect();
        let overlapping = region(3, 100, 50);
        let found: Vec<u32> = unit_crcs(&overlapping, &bytes[..200]).collect();
        assert_eq!(found, [crc(&bytes[0..100]), crc(&bytes[50..150]), crc(&bytes[100..200])]);
        let plan = UnitPlan::new(&overlapping);
        assert_eq!((plan.covering(&(50..150)), plan.bytes_of(1)), (1..2, 50..150));
    }

    #[test]
    fn short_rows_share_units_and_the_last_is_shorter() {
        let bytes = vec![7; 3 * 1500];
        let short = region(1500, 3, 3);
        let found: Vec<u32> = unit_crcs(&short, &bytes).collect();
        assert_eq!(found, [crc(&bytes[..1365 * 3]), crc(&bytes[..135 * 3])]);
        let plan = UnitPlan::new(&short);
        assert_eq!(
            (plan.covering(&(1364 * 3..1365 * 3)), plan.covering(&(4095..4098))),
            (0..1, 1..2)
        );
        assert_eq!(plan.bytes_of(1), 4095..4500);
    }

    #[test]
    fn rows_of_any_length_lie_in_blocks() {
        let plan =
            UnitPlan::new(&RegionPlan { rows: 9, row_bytes: 0, stride_bytes: 0, bytes: 10_000 });
        assert_eq!((plan.count(), plan.bytes_of(2)), (3, 8192..10_000));
        assert_eq!((plan.covering(&(4000..9000)), plan.covering(&(5000..5000))), (0..3, 1..2));
    }
}
