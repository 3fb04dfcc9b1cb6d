//! Arithmetic on a parsed root: from a sample to its shard, from a shard to its leaf and regions.
//! It allocates nothing. Bounds were checked when the manifest was parsed.

use larder_base::{RowRef, ShardId};

use super::{
    Manifest, RegionPlan, RowLocator, Shard, Tensor,
    format::{LeafRecord, RootTables, SHARD_HAS_CHECKSUM, ShardRecord},
};

/// Finds the shards of many samples faster than [`Manifest::locate`] if most shards have as many
/// rows as the first, as they do for an even dataset.
#[derive(Debug, Clone, Copy)]
pub struct SampleLocator<'a> {
    manifest: &'a Manifest,
    /// Of the first shard.
    rows: u64,
}

impl SampleLocator<'_> {
    /// As [`Manifest::locate`].
    pub fn locate(&self, sample: u64) -> Option<RowRef> {
        let place = u32::try_from(sample / self.rows).ok();
        let place = place.filter(|&shard| shard < self.manifest.shard_count());
        let found = place.and_then(|shard| {
            let record = self.manifest.shard_record(shard);
            let row = u32::try_from(sample.checked_sub(record.first_sample)?).ok()?;
            (row < record.rows).then_some(RowRef { shard, row })
        });
        found.or_else(|| self.manifest.locate(sample))
    }
}

impl Manifest {
    /// Returns the shard with this number.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn shard(&self, shard: u32) -> Shard {
        let record = self.shard_record(shard);
        Shard {
            id: ShardId::from_bytes(record.id),
            first_sample: record.first_sample,
            rows: record.rows,
            bytes: record.bytes,
            checksum: (record.flags & SHARD_HAS_CHECKSUM != 0).then_some(record.checksum),
        }
    }

    /// Returns the memory that one of the tensors takes in a shard.
    ///
    /// # Panics
    /// If there is no such shard or tensor.
    pub fn region(&self, shard: u32, tensor: usize) -> RegionPlan {
        let rows = self.shard_record(shard).rows;
        let tensor = &self.tensors()[tensor];
        let (row_bytes, stride_bytes, bytes) = match tensor.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                (row_bytes, stride_bytes, u64::from(rows - 1) * stride_bytes + row_bytes)
            }
            RowLocator::Ragged => (0, 0, self.ragged_bytes(shard, tensor)),
        };
        RegionPlan { rows: rows.into(), row_bytes, stride_bytes, bytes }
    }

    /// Returns the memory that each of the tensors takes in a shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn regions(&self, shard: u32) -> Vec<RegionPlan> {
        (0..self.tensors().len()).map(|tensor| self.region(shard, tensor)).collect()
    }

    /// Returns the bytes of a ragged tensor's rows in a shard.
    fn ragged_bytes(&self, shard: u32, tensor: &Tensor) -> u64 {
        let number = tensor.ragged.expect("asked of ragged tensors");
        let at = number as usize * self.shard_count() as usize + shard as usize;
        let tables = self.tables();
        let table = &self.as_bytes()[tables.regions..tables.leaves];
        let bytes = table[at * size_of::<u32>()..].first_chunk().expect("checked");
        u32::from_le_bytes(*bytes).into()
    }

    /// Returns the leaf that has the details of a shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn leaf_of(&self, shard: u32) -> u32 {
        assert!(shard < self.shard_count(), "shard {shard} of {}", self.shard_count());
        last_where(self.leaf_count(), |leaf| self.leaf_record(leaf).first_shard <= shard)
    }

    /// Returns the bytes of a leaf's file.
    ///
    /// # Panics
    /// If there is no such leaf.
    pub fn leaf_bytes(&self, leaf: u32) -> u64 {
        self.leaf_record(leaf).file_bytes.into()
    }

    /// Returns the SHA-256 of a leaf's file, which is its name.
    ///
    /// # Panics
    /// If there is no such leaf.
    pub fn leaf_sha256(&self, leaf: u32) -> [u8; 32] {
        self.leaf_record(leaf).sha256
    }

    /// Returns the shard that holds a sample, and its row there; `None` past the last sample.
    pub fn locate(&self, sample: u64) -> Option<RowRef> {
        if sample >= self.samples() {
            return None;
        }
        let begins = |shard: u32| self.shard_record(shard).first_sample <= sample;
        let shard = self.guess(sample).unwrap_or_else(|| last_where(self.shard_count(), begins));
        let row = u32::try_from(sample - self.shard_record(shard).first_sample);
        Some(RowRef { shard, row: row.expect("rows of a shard are counted in 32 bits") })
    }

    /// Returns the shard that holds a sample, if it is where equal sizes would put it. That takes
    /// one or two records rather than a search.
    fn guess(&self, sample: u64) -> Option<u32> {
        let shards = self.shard_count();
        let place = u128::from(sample) * u128::from(shards) / u128::from(self.samples());
        let place = u32::try_from(place).ok()?;
        let begins = |shard: u32| self.shard_record(shard).first_sample <= sample;
        let holds = |shard: &u32| begins(*shard) && (*shard + 1 == shards || !begins(*shard + 1));
        [place, place.saturating_sub(1)].into_iter().find(holds)
    }

    /// Returns a locator for many samples.
    pub fn sample_locator(&self) -> SampleLocator<'_> {
        let rows = if self.shard_count() > 0 { self.shard_record(0).rows } else { 1 };
        SampleLocator { manifest: self, rows: u64::from(rows.max(1)) }
    }

    /// Returns the number of the shard with this id. Looks at all of them.
    pub fn shard_index(&self, id: ShardId) -> Option<u32> {
        (0..self.shard_count()).find(|s| self.shard_record(*s).id == *id.as_bytes())
    }

    pub(super) fn tables(&self) -> RootTables {
        self.inner.tables
    }

    pub(super) fn shard_record(&self, shard: u32) -> ShardRecord {
        let tables = self.tables();
        ShardRecord::at(&self.as_bytes()[tables.shards..tables.regions], shard as usize)
    }

    pub(super) fn leaf_record(&self, leaf: u32) -> LeafRecord {
        let tables = self.tables();
        LeafRecord::at(&self.as_bytes()[tables.leaves..tables.keys], leaf as usize)
    }

    /// Returns two sums over all tensors with rows of one length: of the bytes a row, and of the
    /// bytes a stride.
    pub(super) fn sample_sums(&self) -> (u64, u64) {
        self.tensors().iter().fold((0, 0), |(rows, strides), tensor| match tensor.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                (rows.saturating_add(row_bytes), strides.saturating_add(stride_bytes))
            }
            RowLocator::Ragged => (rows, strides),
        })
    }
}

/// Returns the last of `0..count` for which `holds` is true. It is true for the first, up to some
/// point.
pub(super) fn last_where(count: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}
