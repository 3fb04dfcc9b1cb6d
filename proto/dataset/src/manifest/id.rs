//! The id of a shard: a hash of where its bytes lie and how the shard is made from them.

use larder_base::{RowRef, ShardId};
use larder_formats::Block;
use ring::digest::{Context, SHA256};

use super::{Layout, Leaf, Manifest, RowLocator};

/// How shards are made from their ranges. A release that makes other bytes from the same ranges
/// counts it up, so that shards of both never mix.
const MAKE_VERSION: u32 = 1;

impl Manifest {
    /// Returns whether the id of a shard is the one computed from its bytes' places. The name of a
    /// manifest only shows that it is undamaged; this check finds the id of another dataset in it.
    /// Call it before a shard is filled under its id.
    ///
    /// # Panics
    /// If there is no such shard, or the leaf does not have it.
    pub fn shard_id_holds(&self, leaf: &Leaf, shard: u32) -> bool {
        let known = self.shard(shard);
        self.compute_shard_id(leaf, shard, known.checksum) == known.id
    }

    /// Hashes the places and versions of the bytes of each tensor, the layout of its rows, and the
    /// checksum that a manifest pins. So datasets share a shard only if they pin the same checksum.
    pub(crate) fn compute_shard_id(
        &self,
        leaf: &Leaf,
        shard: u32,
        checksum: Option<u64>,
    ) -> ShardId {
        let mut state = Context::new(&SHA256);
        state.update(b"larder shard 2\0");
        state.update(&MAKE_VERSION.to_le_bytes());
        put_text(&mut state, &self.uri().to_string());
        for (index, tensor) in self.tensors().iter().enumerate() {
            let region = self.region(shard, index);
            for value in [region.rows, region.row_bytes, region.stride_bytes, region.bytes] {
                state.update(&value.to_le_bytes());
            }
            state.update(&tensor.layout.code().to_le_bytes());
            match tensor.layout {
                Layout::Column | Layout::Spans => self.put_pieces(&mut state, leaf, shard, index),
                Layout::Inline => {
                    self.put_lengths(&mut state, leaf, shard, index);
                    let rows = self.shard_record(shard).rows;
                    state.update(leaf.values(self, shard, 0..rows, index));
                }
                Layout::Blocks => {
                    self.put_lengths(&mut state, leaf, shard, index);
                    self.put_pieces(&mut state, leaf, shard, index);
                }
            }
        }
        if let Some(checksum) = checksum {
            state.update(b"checksum");
            state.update(&checksum.to_le_bytes());
        }
        let hash = state.finish();
        ShardId::from_bytes(*hash.as_ref().first_chunk().expect("a SHA-256 has 32 bytes"))
    }

    fn put_pieces(&self, state: &mut Context, leaf: &Leaf, shard: u32, tensor: usize) {
        let numbers = leaf.pieces(shard, tensor);
        for number in numbers.clone() {
            let piece = leaf.piece(self, shard, &numbers, number);
            let object = leaf.object(piece.object);
            put_text(state, object.key);
            put_text(state, object.etag.unwrap_or(""));
            put_text(state, object.version.unwrap_or(""));
            for value in [object.size_bytes, piece.rows.start.into(), piece.begin, piece.end] {
                state.update(&value.to_le_bytes());
            }
            if self.tensors()[tensor].layout == Layout::Blocks {
                put_block(state, leaf, leaf.block(number));
            }
            if self.tensors()[tensor].layout == Layout::Spans {
                for row in piece.rows.clone() {
                    let range = leaf.span_range(self, RowRef { shard, row }, tensor, &piece);
                    state.update(&range.start.to_le_bytes());
                    state.update(&range.end.to_le_bytes());
                }
            }
        }
    }

    fn put_lengths(&self, state: &mut Context, leaf: &Leaf, shard: u32, tensor: usize) {
        let rows = self.shard_record(shard).rows;
        if self.tensors()[tensor].locator == RowLocator::Ragged {
            for row in 0..=rows {
                let begin = leaf.ragged_begin(self, shard, row, tensor);
                state.update(&begin.to_le_bytes());
            }
        }
    }
}

fn put_text(state: &mut Context, text: &str) {
    state.update(&(text.len() as u64).to_le_bytes());
    state.update(text.as_bytes());
}

/// Hashes how rows are made. The places of recipes differ from leaf to leaf, so their bytes count.
fn put_block(state: &mut Context, leaf: &Leaf, block: Block) {
    state.update(&block.without_places().to_bytes());
    for recipe in block.recipes(leaf.recipes()).into_iter().flatten() {
        state.update(&(recipe.len() as u64).to_le_bytes());
        state.update(recipe);
    }
}
