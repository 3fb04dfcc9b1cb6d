//! Arithmetic on a parsed manifest: from a sample to its shard, from a shard to its objects. It
//! allocates nothing. Bounds were checked when the manifest was parsed.

use larder_base::{ShardId, limits};

use super::{
    Manifest, Object, RowLocator, Shard, Tensor,
    format::{COLUMNS_INLINE, ObjectRecord, SHARD_HAS_CHECKSUM, ShardRecord, SpanRecord, Tables},
};

/// The rows of one shard that lie in one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) group: u32,
    /// The first of them, counted in the group.
    pub(super) row_in_group: u64,
    /// The first of them, counted in the shard.
    pub(super) row_in_shard: u32,
    pub(super) rows: u32,
}

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
    pub fn locate(&self, sample: u64) -> Option<(u32, u32)> {
        let place = u32::try_from(sample / self.rows).ok();
        let place = place.filter(|&shard| shard < self.manifest.shard_count());
        let found = place.and_then(|shard| {
            let record = self.manifest.shard_record(shard);
            let row = u32::try_from(sample.checked_sub(record.first_sample)?).ok()?;
            (row < record.rows).then_some((shard, row))
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

    /// Returns the object with this number.
    ///
    /// # Panics
    /// If there is no such object.
    pub fn object(&self, object: u32) -> Object<'_> {
        let record = self.object_record(object);
        let at = index(record.names_at);
        let names = &self.names()[at..];
        let (key, rest) = names.split_at(record.key_bytes as usize);
        let (etag, rest) = rest.split_at(record.etag_bytes.into());
        let version = &rest[..record.version_bytes.into()];
        let text =
            |bytes| std::str::from_utf8(bytes).expect("checked when the manifest was parsed");
        let given = |bytes: &'_ [u8]| !bytes.is_empty();
        Object {
            key: text(key),
            etag: given(etag).then(|| text(etag)),
            version: given(version).then(|| text(version)),
            size_bytes: record.size_bytes,
        }
    }

    /// Returns the shard that holds a sample, and its row there; `None` past the last sample.
    pub fn locate(&self, sample: u64) -> Option<(u32, u32)> {
        if sample >= self.samples() {
            return None;
        }
        let begins = |shard: u32| self.shard_record(shard).first_sample <= sample;
        let shard = self.guess(sample).unwrap_or_else(|| last_where(self.shard_count(), begins));
        let row = sample - self.shard_record(shard).first_sample;
        Some((shard, u32::try_from(row).expect("rows of a shard are counted in 32 bits")))
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

    pub(super) fn tables(&self) -> Tables {
        self.inner.tables
    }

    pub(super) fn names(&self) -> &[u8] {
        let tables = self.tables();
        &self.as_bytes()[tables.names..tables.end]
    }

    pub(super) fn shard_record(&self, shard: u32) -> ShardRecord {
        let tables = self.tables();
        ShardRecord::at(&self.as_bytes()[tables.shards..tables.objects], shard as usize)
    }

    pub(super) fn object_record(&self, object: u32) -> ObjectRecord {
        let tables = self.tables();
        ObjectRecord::at(&self.as_bytes()[tables.objects..tables.columns], object as usize)
    }

    pub(super) fn span_record(&self, table: u32, sample: u64) -> SpanRecord {
        let tables = self.tables();
        let at = u64::from(table) * self.samples() + sample;
        SpanRecord::at(&self.as_bytes()[tables.spans..tables.names], index(at))
    }

    /// Returns the offset in an object of the tensor with this column.
    pub(super) fn column(&self, object: u32, column: u32) -> u64 {
        if column < COLUMNS_INLINE {
            return self.object_record(object).columns[column as usize];
        }
        let extra = self.inner.header.extra_columns as usize;
        let at = object as usize * extra + (column - COLUMNS_INLINE) as usize;
        let tables = self.tables();
        let bytes = &self.as_bytes()[tables.columns..tables.spans][at * 8..][..8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    pub(super) fn group_count(&self) -> u32 {
        self.inner.header.object_count / self.inner.header.objects_per_group
    }

    pub(super) fn group_object(&self, group: u32, slot: u32) -> u32 {
        group * self.inner.header.objects_per_group + slot
    }

    pub(super) fn group_begin(&self, group: u32) -> u64 {
        self.object_record(self.group_object(group, 0)).first_sample
    }

    pub(super) fn group_end(&self, group: u32) -> u64 {
        if group + 1 == self.group_count() { self.samples() } else { self.group_begin(group + 1) }
    }

    pub(super) fn group_of(&self, sample: u64) -> u32 {
        last_where(self.group_count(), |g| self.group_begin(g) <= sample)
    }

    /// Returns two sums over all strided tensors: of the bytes a row, and of the bytes a stride.
    pub(super) fn sample_sums(&self) -> (u64, u64) {
        self.tensors().iter().fold((0, 0), |(rows, strides), tensor| match tensor.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                (rows.saturating_add(row_bytes), strides.saturating_add(stride_bytes))
            }
            RowLocator::Spans => (rows, strides),
        })
    }

    /// Returns whether rows lie back to back in every tensor, so that a shard may join several
    /// groups.
    pub(super) fn rows_touch(&self) -> bool {
        self.tensors().iter().all(Tensor::rows_touch)
    }

    /// Returns how many groups a shard may join: a fill reads each of their tensors separately.
    pub(super) fn groups_per_shard_max(&self) -> u32 {
        (limits::SHARD_READS_MAX / self.inner.header.tensor_count).max(1)
    }

    /// Returns the parts of a shard that lie in one group each, in order.
    pub(super) fn segments(&self, shard: u32) -> impl Iterator<Item = Segment> + '_ {
        let record = self.shard_record(shard);
        let mut next = Some((record.first_group, record.row_in_group, 0));
        std::iter::from_fn(move || {
            let (group, row_in_group, row_in_shard) = next?;
            let in_group = self.group_end(group) - self.group_begin(group) - row_in_group;
            let rows = u32::try_from(in_group).unwrap_or(u32::MAX).min(record.rows - row_in_shard);
            let done = row_in_shard + rows;
            next = (done < record.rows).then_some((group + 1, 0, done));
            Some(Segment { group, row_in_group, row_in_shard, rows })
        })
    }
}

impl Tensor {
    pub(super) fn rows_touch(&self) -> bool {
        match self.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => row_bytes == stride_bytes,
            RowLocator::Spans => true,
        }
    }
}

/// Returns the last of `0..count` for which `holds` is true. It is true for the first, up to some
/// point.
fn last_where(count: u32, holds: impl Fn(u32) -> bool) -> u32 {
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

fn index(at: u64) -> usize {
    usize::try_from(at).expect("checked when the manifest was parsed")
}
