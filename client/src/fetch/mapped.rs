//! Rows of mapped shards, into the batch: each shard is looked up once, and what is copied is checked.

use std::sync::Arc;

use larder_extent::{Attached, RowCopy, RowSource, copy_rows_verified};
use larder_wire::data::{DistinctShards, RowRef};

use super::{ASK_AGAIN_CORRUPT, placed::Placed, session::Session};
use crate::{process, remote::Batch};

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

/// Copies the rows of mapped shards into the batch.
pub(super) fn copy_mapped(
    session: &Session,
    placed: Placed<'_>,
    shards: &DistinctShards,
    tensors: &[u16],
    batch: &mut Batch<'_, '_>,
) -> Rest {
    let slots = &session.slots;
    if slots.is_empty() {
        let missing = placed.iter().map(|(place, _)| place).collect();
        return Rest { missing, ..Rest::default() };
    }
    let (maps, mapped, missing) = find_maps(session, placed, shards);
    let mut damaged = Vec::new();
    for (slot, &tensor) in tensors.iter().enumerate() {
        let sources: Vec<RowSource<'_>> = maps.iter().map(|map| map.rows(tensor.into())).collect();
        let row_bytes = batch.row_bytes[slot];
        let wanted = mapped.iter().map(|&Mapped { place, row, source }| RowCopy {
            source: &sources[source as usize],
            row: row.into(),
            at: place as usize * row_bytes,
        });
        copy_rows_verified(wanted, batch.out[slot], |copy| {
            let place = u32::try_from(copy.at / row_bytes).expect("a place of this batch");
            damaged.push(place);
        });
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

/// The maps of those shards that have one, and of each row which it is, or that there is none.
fn find_maps(
    session: &Session,
    placed: Placed<'_>,
    shards: &DistinctShards,
) -> (Vec<Arc<Attached>>, Vec<Mapped>, Vec<u32>) {
    let mut maps = Vec::new();
    let mut find = |&shard: &u32| {
        let map = session.slots.get(shard)?;
        maps.push(map);
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
