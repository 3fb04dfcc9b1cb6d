//! Rows of mapped shards, into the batch: each shard is looked up once, and what is copied is
//! checked.

use std::sync::Arc;

use larder_extent::{Attached, RowCopy, RowSource, copy_rows_verified};
use larder_wire::data::{DistinctShards, RowRef};

use larder_dataset::Manifest;

use super::ASK_AGAIN_CORRUPT;
use crate::{
    local::Slots,
    process,
    remote::{Batch, Lengths, Placed},
};

/// What rows are found by.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) slots: &'a Slots,
}

/// A shard that is mapped.
struct Map {
    shard: u32,
    extent: Arc<Attached>,
}

/// Places in the batch that nothing was copied to.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Their shards are not mapped.
    pub(super) missing: Vec<u32>,
    /// Their mapped bytes are damaged.
    pub(super) damaged: Vec<u32>,
}

/// A row that is mapped.
#[derive(Clone, Copy)]
struct Mapped {
    /// Where in the batch it goes.
    place: u32,
    /// Which row of its shard it is.
    row: u32,
    /// Index into the maps.
    source: u32,
}

/// CopyStats the rows of mapped shards into the batch.
pub(super) fn copy_mapped(
    Means { manifest, slots }: Means<'_>,
    placed: Placed<'_>,
    shards: &DistinctShards,
    tensors: &[u16],
    batch: &mut Batch<'_, '_>,
) -> Rest {
    if slots.is_empty() {
        let missing = placed.iter().map(|(place, _)| place).collect();
        return Rest { missing, ..Rest::default() };
    }
    let (maps, mapped, missing) = find_maps(slots, placed, shards);
    let mut damaged = Vec::new();
    for (slot, &tensor) in tensors.iter().enumerate() {
        let (tensor, out) = (tensor.into(), &mut *batch.out[slot]);
        match batch.lengths[slot] {
            Lengths::Even(row_bytes) => {
                copy_even(&maps, &mapped, tensor, row_bytes, out, &mut damaged);
            }
            Lengths::Ragged(begins) => {
                copy_ragged(manifest, &maps, &mapped, tensor, begins, out, &mut damaged);
            }
        }
    }
    damaged.sort_unstable();
    damaged.dedup();
    let is_damaged = |(place, _): &(u32, RowRef)| damaged.binary_search(place).is_ok();
    for (place, RowRef { shard, .. }) in placed.iter().filter(is_damaged) {
        tracing::warn!(shard, place, "a mapped row is damaged: it is fetched anew");
        slots.take(shard, process::uptime() + ASK_AGAIN_CORRUPT);
    }
    Rest { missing, damaged }
}

/// CopyStats rows of one length, and adds to `damaged` the places of those that are not as they
/// were filled.
fn copy_even(
    maps: &[Map],
    mapped: &[Mapped],
    tensor: usize,
    row_bytes: usize,
    out: &mut [u8],
    damaged: &mut Vec<u32>,
) {
    let sources: Vec<RowSource<'_>> = maps.iter().map(|map| map.extent.rows(tensor)).collect();
    let wanted = mapped.iter().map(|&Mapped { place, row, source }| RowCopy {
        source: &sources[source as usize],
        row: row.into(),
        at: place as usize * row_bytes,
    });
    copy_rows_verified(wanted, out, |copy| {
        let place = u32::try_from(copy.at / row_bytes).expect("a place of this batch");
        damaged.push(place);
    });
}

/// The same for rows that differ in length. Their checksums are those of blocks, of which a row is
/// a part and which may have many rows: each is compared once a map, before the first of its bytes
/// is copied.
fn copy_ragged(
    manifest: &Manifest,
    maps: &[Map],
    mapped: &[Mapped],
    tensor: usize,
    begins: &[usize],
    out: &mut [u8],
    damaged: &mut Vec<u32>,
) {
    for &Mapped { place, row, source } in mapped {
        let Map { shard, extent } = &maps[source as usize];
        let (begin, bytes) = manifest.row_in_region(*shard, row, tensor);
        match extent.bytes_verified(tensor, &(begin..begin + bytes)) {
            Ok(bytes) => out[Lengths::Ragged(begins).range(place)].copy_from_slice(bytes),
            Err(_) => damaged.push(place),
        }
    }
}

/// The maps of those shards that have one, and of each row which it is, or that there is none.
fn find_maps(
    slots: &Slots,
    placed: Placed<'_>,
    shards: &DistinctShards,
) -> (Vec<Map>, Vec<Mapped>, Vec<u32>) {
    let mut maps = Vec::new();
    let mut find = |&shard: &u32| {
        let extent = slots.get(shard)?;
        maps.push(Map { shard, extent });
        u32::try_from(maps.len() - 1).ok()
    };
    let sources: Vec<Option<u32>> = shards.shards().iter().map(&mut find).collect();
    let (mut mapped, mut missing) = (Vec::with_capacity(shards.of_rows().len()), Vec::new());
    for ((place, RowRef { row, .. }), &shard) in placed.iter().zip(shards.of_rows()) {
        // A row that is not copied must be fetched: these are the only two ways.
        match sources[shard as usize] {
            Some(source) => mapped.push(Mapped { place, row, source }),
            None => missing.push(place),
        }
    }
    (maps, mapped, missing)
}
