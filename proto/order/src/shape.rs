//! The one thing the order knows of a dataset: how many samples each shard holds.

use std::ops::Range;
use std::sync::Arc;

use super::Error;

/// Row counts of a dataset's shards as prefix sums, 8 bytes a shard; clones share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetShape {
    /// `first[s]` is the first sample of shard `s`; one more entry holds the number of samples.
    first: Arc<[u64]>,
}

impl DatasetShape {
    /// From the number of rows of each shard, in shard order.
    ///
    /// # Errors
    /// [`Error::Shape`] for more than `u32::MAX` shards.
    pub fn from_rows(rows: impl IntoIterator<Item = u32>) -> Result<Self, Error> {
        let mut first = vec![0];
        let mut samples = 0_u64;
        for rows in rows {
            samples += u64::from(rows); // 2^32 shards of 2^32 rows still fit
            first.push(samples);
            if u32::try_from(first.len() - 1).is_err() {
                return Err(Error::Shape {
                    problem: "exceed 4294967295 shards",
                    entry: first.len(),
                });
            }
        }
        Ok(Self { first: first.into() })
    }

    /// From prefix sums: the first sample of each shard, then the number of samples.
    ///
    /// # Errors
    /// [`Error::Shape`] if they do not start at 0, fall, or name more than `u32::MAX` shards.
    pub fn from_prefix_sums(first: Arc<[u64]>) -> Result<Self, Error> {
        if first.first() != Some(&0) {
            return Err(Error::Shape { problem: "do not start at 0", entry: 0 });
        }
        if let Some(fall) = first.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(Error::Shape { problem: "fall", entry: fall + 1 });
        }
        if u32::try_from(first.len() - 1).is_err() {
            return Err(Error::Shape { problem: "exceed 4294967295 shards", entry: first.len() });
        }
        Ok(Self { first })
    }

    /// The same shards with other row counts: `change` is given each prefix sum in turn.
    pub(super) fn map_prefix_sums(&self, change: impl FnMut(u64) -> u64) -> Self {
        Self { first: self.first.iter().copied().map(change).collect() }
    }

    /// The same shards with these row counts, one a shard.
    pub(super) fn with_rows(&self, rows: &[u64]) -> Self {
        debug_assert_eq!(rows.len() + 1, self.first.len());
        let sums = rows.iter().scan(0, |sum, rows| {
            *sum += rows;
            Some(*sum)
        });
        Self { first: std::iter::once(0).chain(sums).collect() }
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.first[self.first.len() - 1]
    }

    /// Number of shards.
    pub fn shard_count(&self) -> u32 {
        u32::try_from(self.first.len() - 1).expect("checked when the shape was made")
    }

    /// The samples of `shard`, or `None` past the last shard.
    pub fn shard_samples(&self, shard: u32) -> Option<Range<u64>> {
        let shard = shard as usize;
        Some(*self.first.get(shard)?..*self.first.get(shard + 1)?)
    }

    /// Whether `shard` exists and has a sample.
    pub fn has(&self, shard: u32) -> bool {
        self.shard_samples(shard).is_some_and(|samples| !samples.is_empty())
    }

    /// The first sample of `shard`, which must exist.
    pub(super) fn first_sample(&self, shard: u32) -> u64 {
        self.first[shard as usize]
    }

    /// Rows of `shard`, which must exist.
    pub(super) fn rows(&self, shard: u32) -> u64 {
        self.first[shard as usize + 1] - self.first[shard as usize]
    }

    /// The shard that holds `sample`, or `None` past the last sample. A binary search.
    pub fn shard_of(&self, sample: u64) -> Option<u32> {
        if sample >= self.samples() {
            return None;
        }
        let after = self.first.partition_point(|&first| first <= sample);
        u32::try_from(after - 1).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_shard_of_each_sample_beside_empty_shards() {
        let shape = DatasetShape::from_rows([0, 3, 0, 0, 2, 1, 0]).unwrap();
        assert_eq!((shape.samples(), shape.shard_count()), (6, 7));
        let shards: Vec<_> = (0..7).map(|sample| shape.shard_of(sample)).collect();
        assert_eq!(shards, [Some(1), Some(1), Some(1), Some(4), Some(4), Some(5), None]);
        assert_eq!(shape.shard_samples(4), Some(3..5));
        assert_eq!(shape.shard_samples(7), None);
    }

    #[test]
    fn prefix_sums_that_describe_no_dataset_are_refused() {
        let shape = |sums: &[u64]| DatasetShape::from_prefix_sums(sums.into());
        assert!(matches!(shape(&[]), Err(Error::Shape { entry: 0, .. })));
        assert!(matches!(shape(&[1, 2]), Err(Error::Shape { entry: 0, .. })));
        assert!(matches!(shape(&[0, 4, 3]), Err(Error::Shape { entry: 2, .. })));
        assert_eq!(shape(&[0, 4, 6]), DatasetShape::from_rows([4, 2]));
        assert_eq!(shape(&[0]).unwrap().samples(), 0);
    }
}
