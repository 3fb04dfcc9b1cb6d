//! The rows of one snapshot, as loaders and reads of chosen rows get them.
//!
//! Thread rule: any thread calls. Each call is for a batch or for rows of a shard, never for one
//! row of a batch, so a loader may call it through a pointer. Non-goals: the order of rows.

use std::{ops::Range, sync::Arc, time::Duration};

use larder_base::RowRef;
use larder_dataset::{RowPlaces, Tensor};
use larder_extent::Attached;
use larder_wire::data::DistinctShards;

use super::{
    ASK_AGAIN_CORRUPT, Awaited, Fetcher, Gathered, RowsView, check,
    gather::{Gathering, Means},
    mapped::{self, copy_mapped},
    view::Stretch,
};
use crate::{
    CancelToken, CopyStats, Error,
    deadline::Deadline,
    process,
    remote::{Batch, Placed, Wanted},
};

/// A source of the rows of one snapshot: a [`Fetcher`], or the fake of a test.
pub(crate) trait RowSource: Send + Sync {
    /// Fills `out[k]` with the rows of tensor `tensors[k]`, as [`Fetcher::gather`]. Rows with
    /// places go there, and the other bytes of the buffers are left alone. Also reports the longest
    /// wait, and fails soon after it is cancelled.
    ///
    /// # Errors
    /// As [`Fetcher::gather`], and when it was cancelled.
    fn gather(
        &self,
        placed: Placed<'_>,
        tensors: &[usize],
        out: &mut [&mut [u8]],
        cancel: &CancelToken,
    ) -> Result<Gathered, Error>;

    /// Views consecutive rows of one tensor of a shard, as [`Fetcher::view_rows`], without counting
    /// them. `ask` is as in [`mapped`](Self::mapped).
    fn look(
        &self,
        shard: u32,
        rows: &Range<u32>,
        tensor: usize,
        ask: Option<&CancelToken>,
    ) -> Option<RowsView>;

    /// The mapped extent of a shard. With a token it asks the node of this host for an extent that
    /// is not mapped, until the token is cancelled.
    fn mapped(&self, shard: u32, ask: Option<&CancelToken>) -> Option<Arc<Attached>>;

    /// A wait for these shards. `None` for the fake of a test.
    fn awaits(&self, shards: Vec<u32>) -> Option<Awaited> {
        let _ = shards;
        None
    }
}

impl RowSource for Fetcher {
    fn gather(
        &self,
        placed: Placed<'_>,
        tensors: &[usize],
        out: &mut [&mut [u8]],
        cancel: &CancelToken,
    ) -> Result<Gathered, Error> {
        let begun = process::now();
        let (rows, manifest) = (placed.rows, &self.target.manifest);
        let shards = DistinctShards::of(rows);
        check::check_rows(manifest, rows, &shards)?;
        let places = self.places_of(rows, tensors)?;
        let checked = check::check(&places, placed, tensors, out)?;
        let session = self.session();
        let mut batch = Batch { out, lengths: &checked.lengths };
        let means = mapped::Means { places: &places, slots: &session.slots };
        let rest = copy_mapped(means, placed, &shards, &checked.tensors, &mut batch);
        let wait_local = process::now() - begun;
        let bytes = checked.bytes(rows.len());
        let bytes_local = bytes - checked.bytes_at(&rest.missing) - checked.bytes_at(&rest.damaged);
        let left = rest.missing.len() + rest.damaged.len();
        let rows_local = rows.len() - left;
        let mut gathered = Gathered::default();
        if rows_local < rows.len() {
            cancel.follow()?;
            let snapshot = self.target.manifest.snapshot();
            let (rows, tensors) = (&*placed.by_place(), &checked.tensors);
            let copies = CopyStats::default();
            let wanted = Wanted { snapshot, ring_version: 0, rows, tensors, batch, copies };
            let (target, fallback, leaves) = (&self.target, &self.fallback, &self.leaves);
            let means = Means { target, session: &session, fallback, leaves };
            let deadline = Deadline::new(target.options.patience, cancel);
            let mut gathering = Gathering::new(means, wanted, deadline);
            gathering.want(rest.missing, false);
            gathering.want(rest.damaged, true);
            let ended = gathering.run();
            cancel.answered();
            gathered = ended.map_err(|error| error.hint_at_reading(manifest.uri()))?;
        }
        let sources = &mut gathered.sources;
        sources.rows_local = rows_local as u64;
        sources.bytes = bytes;
        sources.wait_local = if rows_local > 0 { wait_local } else { Duration::ZERO };
        sources.copies += CopyStats::local(bytes_local);
        sources.copies.count();
        Ok(gathered)
    }

    fn look(
        &self,
        shard: u32,
        rows: &Range<u32>,
        tensor: usize,
        ask: Option<&CancelToken>,
    ) -> Option<RowsView> {
        let manifest = &self.target.manifest;
        let known = shard < manifest.shard_count() && rows.end <= manifest.shard(shard).rows;
        let found = manifest.tensors().get(tensor).filter(|_| known && !rows.is_empty())?;
        let wanted = match found.is_ragged() {
            false => Stretch::Rows(rows.start.into()..rows.end.into()),
            true => {
                let places = self.places_to_look(shard, ask)?;
                let begin = |row| places.row(RowRef { shard, row }, tensor);
                let (last, bytes) = begin(rows.end - 1);
                Stretch::Bytes(begin(rows.start).0..last + bytes)
            }
        };
        let extent = self.mapped(shard, ask)?;
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

    fn mapped(&self, shard: u32, ask: Option<&CancelToken>) -> Option<Arc<Attached>> {
        let session = self.session();
        session.slots.get(shard).or_else(|| session.attach(&self.target, shard, ask?))
    }

    fn awaits(&self, shards: Vec<u32>) -> Option<Awaited> {
        Some(Awaited { target: Arc::clone(&self.target), shards })
    }
}

impl Fetcher {
    /// The places of these rows, with leaves if one of the tensors is ragged.
    fn places_of(&self, rows: &[RowRef], tensors: &[usize]) -> Result<RowPlaces, Error> {
        let known = self.target.manifest.tensors();
        let is_ragged = |&tensor: &usize| known.get(tensor).is_some_and(Tensor::is_ragged);
        match tensors.iter().any(is_ragged) {
            true => self.leaves.places(rows),
            false => Ok(RowPlaces::even(&self.target.manifest)),
        }
    }

    /// The places of a shard's rows. Without a node to ask, only if they are known.
    fn places_to_look(&self, shard: u32, ask: Option<&CancelToken>) -> Option<RowPlaces> {
        let here = self.leaves.places_here(shard);
        here.or_else(|| ask.and_then(|_| self.leaves.of_shards([shard].into_iter()).ok()))
    }
}
