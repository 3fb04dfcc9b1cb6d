//! The places of some rows in the regions of their shards.

use larder_base::RowRef;

use super::{Leaf, Manifest, RowLocator};

/// The places of rows, and the leaves that know them. Rows of one length need no leaf.
#[derive(Debug, Clone)]
pub struct RowPlaces {
    manifest: Manifest,
    /// By number.
    leaves: Vec<Leaf>,
}

impl RowPlaces {
    /// Makes the places of rows whose lengths the root knows.
    pub fn even(manifest: &Manifest) -> Self {
        Self { manifest: manifest.clone(), leaves: Vec::new() }
    }

    /// Makes the places of the rows of these leaves' shards.
    pub fn of(manifest: &Manifest, mut leaves: Vec<Leaf>) -> Self {
        leaves.sort_unstable_by_key(Leaf::number);
        Self { manifest: manifest.clone(), leaves }
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the leaf that has a shard; `None` if these places are of other shards.
    pub fn leaf_of(&self, shard: u32) -> Option<&Leaf> {
        let after = self.leaves.partition_point(|leaf| leaf.shards().start <= shard);
        self.leaves[..after].last().filter(|leaf| leaf.shards().contains(&shard))
    }

    /// Returns the leaf with this number; `None` if these places are of other shards.
    pub fn leaf_of_number(&self, number: u32) -> Option<&Leaf> {
        let at = self.leaves.binary_search_by_key(&number, Leaf::number).ok()?;
        Some(&self.leaves[at])
    }

    /// Returns the place of a row in its tensor's region of the shard: offset and length in bytes.
    ///
    /// # Panics
    /// If there is no such shard, row or tensor. If the tensor is ragged and the leaf of the shard
    /// is missing here.
    pub fn row(&self, row: RowRef, tensor: usize) -> (u64, u64) {
        match self.manifest.tensors()[tensor].locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                (u64::from(row.row) * stride_bytes, row_bytes)
            }
            RowLocator::Ragged => {
                let leaf = self.leaf_of(row.shard).expect("the leaf of a ragged row is held");
                self.manifest.row_in_region(leaf, row, tensor)
            }
        }
    }
}
