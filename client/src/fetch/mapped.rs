//! Copies rows of mapped shards into the batch. Looks up each shard once, and checks every copied
//! row.

use std::sync::Arc;

use larder_base::RowRef;
use larder_extent::{Attached, RegionRows, RowCopy, copy_rows_verified};
use larder_wire::data::DistinctShards;

use larder_dataset::RowPlaces;

use super::ASK_AGAIN_CORRUPT;
use crate::{
    local::Slots,
    process,
    remote::{Batch, Lengths, Placed},
};

#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) places: &'a RowPlaces,
    pub(super) slots: &'a Slots,
}

struct Map {
    shard: u32,
    extent: Arc<Attached>,
}

/// Places in the batch that were not filled.
#[derive(Debug, Default)]
pub(super) struct RowsLeft {
    /// Their shards are not mapped.
    pub(super) missing: Vec<u32>,
    /// Their mapped bytes are damaged.
    pub(super) damaged: Vec<u32>,
}

#[derive(Clone, Copy)]
struct MappedRow {
    /// Its place in the batch.
    place: u32,
    /// Its row in the shard.
    row: u32,
    source: u32,
}

/// Copies the rows of mapped shards into the batch.
pub(super) fn copy_mapped(
    Means { places, slots }: Means<'_>,
    placed: Placed<'_>,
    shards: &DistinctShards,
    tensors: &[u16],
    batch: &mut Batch<'_, '_>,
) -> RowsLeft {
    if slots.is_empty() {
        let missing = placed.iter().map(|(place, _)| place).collect();
        return RowsLeft { missing, ..RowsLeft::default() };
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
                copy_ragged(places, &maps, &mapped, tensor, begins, out, &mut damaged);
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
    RowsLeft { missing, damaged }
}

/// Copies rows of fixed length. Adds the places of damaged rows to `damaged`.
fn copy_even(
    maps: &[Map],
    mapped: &[MappedRow],
    tensor: usize,
    row_bytes: usize,
    out: &mut [u8],
    damaged: &mut Vec<u32>,
) {
    let sources: Vec<RegionRows<'_>> = maps.iter().map(|map| map.extent.rows(tensor)).collect();
    let wanted = mapped.iter().map(|&MappedRow { place, row, source }| RowCopy {
        source: &sources[source as usize],
        row: row.into(),
        at: place as usize * row_bytes,
    });
    copy_rows_verified(wanted, out, |copy| {
        let place = u32::try_from(copy.at / row_bytes).expect("a place of this batch");
        damaged.push(place);
    });
}

/// Copies ragged rows. Their checksums are of blocks, and a row is a part of a block with perhaps
/// many rows. Each block is checked once per map, before its first byte is copied.
fn copy_ragged(
    places: &RowPlaces,
    maps: &[Map],
    mapped: &[MappedRow],
    tensor: usize,
    begins: &[usize],
    out: &mut [u8],
    damaged: &mut Vec<u32>,
) {
    for &MappedRow { place, row, source } in mapped {
        let Map { shard, extent } = &maps[source as usize];
        let (begin, bytes) = places.row(RowRef { shard: *shard, row }, tensor);
        match extent.bytes_verified(tensor, &(begin..begin + bytes)) {
            Ok(bytes) => out[Lengths::Ragged(begins).range(place)].copy_from_slice(bytes),
            Err(_) => damaged.push(place),
        }
    }
}

/// Returns the maps of the shards, the rows in them, and the places of rows without a map.
fn find_maps(
    slots: &Slots,
    placed: Placed<'_>,
    shards: &DistinctShards,
) -> (Vec<Map>, Vec<MappedRow>, Vec<u32>) {
    let mut maps = Vec::new();
    let mut find = |&shard: &u32| {
        let extent = slots.get(shard)?;
        maps.push(Map { shard, extent });
        u32::try_from(maps.len() - 1).ok()
    };
    let sources: Vec<Option<u32>> = shards.shards().iter().map(&mut find).collect();
    let (mut mapped, mut missing) = (Vec::with_capacity(shards.of_rows().len()), Vec::new());
    for ((place, RowRef { row, .. }), &shard) in placed.iter().zip(shards.of_rows()) {
        // Each row is either copied or fetched.
        match sources[shard as usize] {
            Some(source) => mapped.push(MappedRow { place, row, source }),
            None => missing.push(place),
        }
    }
    (maps, mapped, missing)
}
