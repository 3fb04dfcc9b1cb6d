//! Reads rows and regions into memory, in one attempt.

use std::{convert::Infallible, ops::ControlFlow, ops::Range};

use larder_base::{RegionRef, RowRef, limits};

use super::Origin;
use crate::{FetchError, Layout, Leaf, Manifest, RowOrigin, Scatter};

impl Origin {
    /// Reads one row of a tensor in one attempt.
    ///
    /// # Errors
    /// As [`Origin::read_exact_range`].
    ///
    /// # Panics
    /// If there is no such shard, row or tensor, or the leaf does not have it.
    pub async fn read_row(
        &self,
        manifest: &Manifest,
        leaf: &Leaf,
        row: RowRef,
        tensor: usize,
    ) -> Result<Vec<u8>, FetchError> {
        let read = match manifest.row_source(leaf, row, tensor) {
            RowOrigin::Value(value) => return Ok(value.to_vec()),
            RowOrigin::Block(_, place) => {
                let region = RegionRef { shard: row.shard, tensor };
                return self.read_region(manifest, leaf, region, &place).await;
            }
            RowOrigin::Object(read) => read,
        };
        self.read_bytes(leaf, read.object, &read.range()).await
    }

    /// Reads a range of an object into memory, in one attempt.
    ///
    /// # Errors
    /// As [`Origin::read_exact_range`].
    pub async fn read_bytes(
        &self,
        leaf: &Leaf,
        object: u32,
        range: &Range<u64>,
    ) -> Result<Vec<u8>, FetchError> {
        let mut bytes = Vec::new();
        let mut sink = |chunk: &[u8]| {
            bytes.extend_from_slice(chunk);
            ControlFlow::Continue(())
        };
        self.read_exact_range(leaf, object, range, &mut sink).await?;
        Ok(bytes)
    }

    /// Reads these bytes of a tensor's region in one attempt, one range of an object after the
    /// other. Reads and makes whole blocks, if rows are made.
    ///
    /// # Errors
    /// As [`Origin::read_exact_range`].
    ///
    /// # Panics
    /// If there is no such shard or tensor, or the leaf does not have it.
    pub async fn read_region(
        &self,
        manifest: &Manifest,
        leaf: &Leaf,
        region: RegionRef,
        wanted: &Range<u64>,
    ) -> Result<Vec<u8>, FetchError> {
        let RegionRef { shard, tensor } = region;
        let index = |offset: u64| usize::try_from(offset).expect("what is read is in memory");
        if manifest.tensors()[tensor].layout() == Layout::Inline {
            let values = manifest.inline_region(leaf, shard, tensor);
            return Ok(values[index(wanted.start)..index(wanted.end)].to_vec());
        }
        let mut bytes = vec![0; index(wanted.end - wanted.start)];
        for block in manifest.blocks(leaf, region, wanted) {
            let stored = match block.range.is_empty() {
                true => Vec::new(),
                false => self.read_bytes(leaf, block.object, &block.range).await?,
            };
            let mut target = [(wanted.clone(), &mut *bytes)];
            manifest.make_into(leaf, shard, &block, &stored, &mut target)?;
        }
        for get in manifest.region_gets(leaf, region, wanted, limits::FILL_PART_BYTES) {
            let mut scatter = Scatter::new(manifest, leaf, shard, &get);
            let mut sink = |chunk: &[u8]| {
                let put = |_, at: u64, row: &[u8]| {
                    let at = index(at - wanted.start);
                    bytes[at..at + row.len()].copy_from_slice(row);
                    Ok::<_, Infallible>(())
                };
                let Ok(()) = scatter.take(chunk, put);
                ControlFlow::Continue(())
            };
            self.read_exact_range(leaf, get.object, &get.range, &mut sink).await?;
        }
        Ok(bytes)
    }
}
