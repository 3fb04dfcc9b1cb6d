//! Views of rows in extents mapped from a node on this host, without a copy.

use std::{
    ops::{Deref, Range},
    sync::Arc,
};

use larder_dataset::RowPlaces;
use larder_extent::{Attached, CorruptRow};
use larder_wire::data::{DistinctShards, RowRef};

use super::{ASK_AGAIN_CORRUPT, Fetcher};
use crate::{CancelToken, CopyStats, Error, Memory, process};

/// The node to ask for a shard that is not mapped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asking<'a> {
    /// The owner on this host: one exchange over its socket, until the token is cancelled.
    Node(&'a CancelToken),
    /// No node. Only mapped shards can be viewed.
    Nobody,
}

impl Fetcher {
    /// Views a row in place, if its shard is mapped or the node on this host hands it out at once.
    /// The checksum was compared. `None` means that the row must be gathered.
    pub fn view(&self, row: RowRef, tensor: usize) -> Option<RowsView> {
        self.view_rows(row.shard, row.row..row.row.checked_add(1)?, tensor)
    }

    /// Views consecutive rows of a shard in place, as [`view`](Self::view). Also `None` for no
    /// rows, and for rows that do not lie back to back, such as overlapping windows. Ragged rows
    /// always do.
    pub fn view_rows(&self, shard: u32, rows: Range<u32>, tensor: usize) -> Option<RowsView> {
        let view = self.look(shard, &rows, tensor, Asking::Node(&CancelToken::never()))?;
        CopyStats::viewed(view.len() as u64).count();
        Some(view)
    }

    /// Whether the shards of all these rows are mapped.
    pub(crate) fn has_mapped(&self, rows: &[RowRef]) -> bool {
        let (session, shards) = (self.session(), DistinctShards::of(rows));
        shards.shards().iter().all(|&shard| session.slots.get(shard).is_some())
    }

    /// As [`view_rows`](Self::view_rows), without counting.
    pub(crate) fn look(
        &self,
        shard: u32,
        rows: &Range<u32>,
        tensor: usize,
        asking: Asking<'_>,
    ) -> Option<RowsView> {
        let manifest = &self.target.manifest;
        let known = shard < manifest.shard_count() && rows.end <= manifest.shard(shard).rows;
        let found = manifest.tensors().get(tensor).filter(|_| known && !rows.is_empty())?;
        let wanted = match found.is_ragged() {
            false => Stretch::Rows(rows.start.into()..rows.end.into()),
            true => {
                let places = self.places_to_look(shard, asking)?;
                let begin = |row| places.row(shard, row, tensor);
                let (last, bytes) = begin(rows.end - 1);
                Stretch::Bytes(begin(rows.start).0..last + bytes)
            }
        };
        let extent = self.mapped(shard, asking)?;
        match wanted.verified(&extent, tensor) {
            Ok(bytes) => {
                bytes?;
                Some(RowsView { extent, region: tensor, stretch: wanted })
            }
            Err(corrupt) => {
                tracing::warn!(shard, %corrupt, "a mapped row is damaged: it is fetched anew");
                self.session().slots.take(shard, process::uptime() + ASK_AGAIN_CORRUPT);
                None
            }
        }
    }

    /// The places of a shard's rows. Without a node to ask, only if they are known.
    fn places_to_look(&self, shard: u32, asking: Asking<'_>) -> Option<RowPlaces> {
        let here = self.leaves.places_here(shard);
        here.or_else(|| match asking {
            Asking::Node(_) => self.leaves.of_shards([shard].into_iter()).ok(),
            Asking::Nobody => None,
        })
    }

    /// The mapped extent of a shard.
    pub(crate) fn mapped(&self, shard: u32, asking: Asking<'_>) -> Option<Arc<Attached>> {
        let session = self.session();
        session.slots.get(shard).or_else(|| match asking {
            Asking::Node(cancel) => session.attach(&self.target, shard, cancel),
            Asking::Nobody => None,
        })
    }
}

/// Consecutive rows of one tensor in a mapped extent, which this keeps mapped. Derefs to their
/// bytes.
#[derive(Debug, Clone)]
pub struct RowsView {
    extent: Arc<Attached>,
    region: usize,
    stretch: Stretch,
}

/// The viewed part of a region.
#[derive(Debug, Clone)]
enum Stretch {
    Rows(Range<u64>),
    /// A part of a ragged tensor.
    Bytes(Range<u64>),
}

impl Stretch {
    /// The verified bytes. `None` if they do not lie back to back.
    fn verified<'a>(
        &self,
        extent: &'a Attached,
        region: usize,
    ) -> Result<Option<&'a [u8]>, CorruptRow> {
        match self {
            Self::Rows(rows) => extent.rows_verified(region, rows.clone()),
            Self::Bytes(bytes) => extent.bytes_verified(region, bytes).map(Some),
        }
    }
}

impl RowsView {
    /// Prepares returned rows of the extent for another private view. For threads that fetch ahead:
    /// it takes about 0.3 ms for 40 MB, which the training loop would otherwise wait for.
    pub(crate) fn settle_views(&self) {
        self.extent.settle_views();
    }

    /// The same rows as memory for another language. Writes there stay private. The rows are copied
    /// only if another private view of them exists, or if they were written to.
    ///
    /// # Errors
    /// `ResourceExhausted` if the rows must be copied and this process has no memory left.
    pub fn private_view(&self) -> Result<Memory, Error> {
        let lent = match &self.stretch {
            Stretch::Rows(rows) => self.extent.private_view(self.region, rows.clone()),
            Stretch::Bytes(bytes) => self.extent.private_view_bytes(self.region, bytes),
        };
        match lent {
            Some(lent) => Ok(Memory::lent(lent)),
            None => {
                // They were counted as viewed in place.
                CopyStats::moved(self.len() as u64).count();
                Memory::copied(self)
            }
        }
    }
}

impl Deref for RowsView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.stretch {
            Stretch::Rows(rows) => {
                let checked = self.extent.rows_back_to_back(self.region, rows);
                checked.expect("rows that were found to lie back to back")
            }
            Stretch::Bytes(bytes) => self.extent.bytes_of_blocks(self.region, bytes),
        }
    }
}
