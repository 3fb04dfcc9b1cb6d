//! Finds the distinct shards of a request's rows, so that each is looked up once rather than per
//! row.

use std::collections::HashMap;

use larder_base::RowRef;

/// Entries of the memo. Batches touch a few dozen shards: rows are shuffled within a window of
/// shards.
const MEMO_SHARDS: usize = 256;

/// Marks an empty entry.
const NOTHING: u32 = u32::MAX;

/// The shards of some rows, each once, in the order of their first row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DistinctShards {
    shards: Vec<u32>,
    of_rows: Vec<u32>,
}

impl DistinctShards {
    /// Finds the shards of `rows`, of which there are fewer than [`u32::MAX`].
    ///
    /// A row costs a nanosecond if the memo has its shard. Other shards are looked up in a map,
    /// which hashes keys with a secret, so that no choice of rows makes this slow.
    pub fn of(rows: &[RowRef]) -> Self {
        let mut memo = [(0, NOTHING); MEMO_SHARDS];
        let mut known = HashMap::new();
        let mut shards = Vec::new();
        let mut find = |row: &RowRef| {
            let memo = &mut memo[row.shard as usize % MEMO_SHARDS];
            if memo.1 == NOTHING || memo.0 != row.shard {
                let index = *known.entry(row.shard).or_insert_with(|| {
                    shards.push(row.shard);
                    u32::try_from(shards.len() - 1).expect("fewer shards than rows")
                });
                *memo = (row.shard, index);
            }
            memo.1
        };
        let of_rows = rows.iter().map(&mut find).collect();
        Self { shards, of_rows }
    }

    /// Returns each shard once.
    pub fn shards(&self) -> &[u32] {
        &self.shards
    }

    /// Returns for each row the index of its shard in [`DistinctShards::shards`].
    pub fn of_rows(&self) -> &[u32] {
        &self.of_rows
    }

    /// Returns the index of the shard of the `row`-th row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn of_row(&self, row: usize) -> usize {
        self.of_rows[row] as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn distinct_shards_list_each_once_and_map_every_row(
            shards in proptest::collection::vec(
                // Neighbours, the same entry of the memo over and over, and any number.
                prop_oneof![0_u32..10, (0_u32..5).prop_map(|shard| shard * 256), any::<u32>()],
                0..300,
            ),
        ) {
            let rows: Vec<_> = shards.iter().map(|&shard| RowRef { shard, row: 7 }).collect();
            let distinct = DistinctShards::of(&rows);
            prop_assert_eq!(distinct.of_rows().len(), rows.len());
            for (index, row) in rows.iter().enumerate() {
                prop_assert_eq!(distinct.shards()[distinct.of_row(index)], row.shard);
            }
            let mut expected = Vec::new();
            for shard in shards {
                if !expected.contains(&shard) {
                    expected.push(shard);
                }
            }
            prop_assert_eq!(distinct.shards(), expected);
        }
    }
}
