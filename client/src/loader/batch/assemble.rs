//! Fetches a batch by its number: locates its rows in each dataset and gathers them into a buffer.

mod decoding;

use std::{borrow::Cow, collections::BTreeSet, ops::Range, sync::Arc};

use larder_dataset::{Manifest, RowPlaces};
use larder_extent::Attached;

use super::{
    Batch, HostRows, OnHost,
    layout::{BatchLayout, Ragged},
};
use crate::{
    CallerMemory, Cluster, CopyStats, Error, Fetcher, HostTensor, RowRef, RowsView, Sources,
    deadline::CancelToken,
    fetch::{Awaited, Gathered, Leaves, RowSource},
    loader::order::Pass,
    memory::{Buffer, BufferPool},
    process,
    remote::Placed,
    sampler::Draws,
};

pub(in crate::loader) use decoding::Decoding;

/// A dataset, in the form that a loader needs.
pub(crate) struct LoaderSource {
    pub(crate) leaves: Arc<Leaves>,
    /// The columns of a batch, unless the loader names its own. `None`: all.
    pub(crate) columns: Option<Arc<[String]>>,
    pub(crate) rows: Arc<dyn RowSource>,
    pub(crate) cluster: Option<Arc<Cluster>>,
}

impl LoaderSource {
    pub(crate) fn manifest(&self) -> &Manifest {
        self.leaves.manifest()
    }
}

/// The rows of one dataset of a loader, and its tensors.
pub(in crate::loader) struct SnapshotRows {
    leaves: Arc<Leaves>,
    /// The tensors of a batch, by their index in this snapshot.
    tensors: Box<[usize]>,
    rows: Arc<dyn RowSource>,
}

/// Fetches batches. Shared by the threads that fetch ahead.
pub(in crate::loader) struct BatchFetcher {
    pub(in crate::loader) snapshots: Box<[SnapshotRows]>,
    pub(in crate::loader) layout: Arc<BatchLayout>,
    pub(in crate::loader) buffers: Arc<BufferPool>,
    /// Present if some columns are decoded.
    pub(in crate::loader) decoding: Option<Box<Decoding>>,
}

impl SnapshotRows {
    /// Finds the tensors of `layout` in this snapshot.
    ///
    /// # Errors
    /// As [`BatchLayout::tensors_in`].
    pub(in crate::loader) fn new(
        source: &LoaderSource,
        layout: &BatchLayout,
    ) -> Result<Self, Error> {
        let (leaves, rows) = (Arc::clone(&source.leaves), Arc::clone(&source.rows));
        Ok(Self { tensors: layout.tensors_in(leaves.manifest())?, leaves, rows })
    }

    /// The extent of a shard: see [`RowSource::mapped`].
    pub(in crate::loader) fn mapped(
        &self,
        shard: u32,
        ask: Option<&CancelToken>,
    ) -> Option<Arc<Attached>> {
        self.rows.mapped(shard, ask)
    }

    pub(in crate::loader) fn tensor(&self, column: usize) -> usize {
        self.tensors[column]
    }

    fn tensors_of(&self, columns: &[usize]) -> Cow<'_, [usize]> {
        match columns.len() == self.tensors.len() {
            true => Cow::Borrowed(&self.tensors),
            false => columns.iter().map(|&column| self.tensors[column]).collect(),
        }
    }

    fn locate(&self, sample: u64) -> RowRef {
        self.leaves.manifest().locate(sample).expect("a sample of this snapshot")
    }

    /// Views these samples in place, if they are consecutive rows of a mapped shard. Also returns
    /// the first row.
    fn see(&self, samples: &[u64]) -> Option<(Vec<RowsView>, RowRef)> {
        let (&first, &last) = samples.first().zip(samples.last())?;
        if !samples.is_sorted_by(|before, after| before + 1 == *after) {
            return None;
        }
        let (begin, end) = (self.locate(first), self.locate(last));
        if begin.shard != end.shard {
            return None;
        }
        let rows = begin.row..end.row + 1;
        let look = |&tensor| self.rows.look(begin.shard, &rows, tensor, None);
        let views = self.tensors.iter().map(look).collect::<Option<Vec<RowsView>>>()?;
        // All views are of one extent.
        views.first().into_iter().for_each(RowsView::settle_views);
        Some((views, begin))
    }
}

/// The columns of a gather, and the offsets of their ragged rows.
#[derive(Clone, Copy)]
struct WantedColumns<'a> {
    columns: &'a [usize],
    begins: &'a [Option<&'a [usize]>],
}

/// The rows of a batch, and the costs of fetching them.
pub(in crate::loader) struct FetchedRows<P> {
    pub(in crate::loader) place: P,
    pub(in crate::loader) ragged: Ragged,
    pub(in crate::loader) gathered: Gathered,
}

/// The memory for a batch.
pub(in crate::loader) enum Choice<M> {
    /// Memory of the loader. On the host, rows may also be viewed in place.
    Any,
    /// This memory of the caller, or memory of the loader if there is none.
    Given(Option<M>),
}

/// The memory that holds the rows of a [`Batch`].
pub trait BatchMemory: Sized + Send + 'static {
    /// Memory that the caller gives for such a batch.
    type Given: Send + 'static;
    /// The means of copying rows there.
    type By: Send + Sync + 'static;
}

/// How rows get into the memory of a batch.
pub(in crate::loader) trait Fetch: BatchMemory {
    /// The bytes of memory that a batch needs. For ragged rows this computes the batch's order.
    ///
    /// # Errors
    /// As [`Ragged::new`].
    fn bytes_of(fetcher: &BatchFetcher, pass: &Pass, batch: u64) -> Result<usize, Error>;

    /// Fetches samples into this memory, until `cancel` is cancelled.
    fn fetch(
        fetcher: &BatchFetcher,
        draws: &Draws,
        choice: Choice<Self::Given>,
        by: &Self::By,
        cancel: &CancelToken,
    ) -> Result<FetchedRows<Self>, Error>;
}

impl BatchMemory for OnHost {
    type Given = Box<dyn CallerMemory>;
    type By = ();
}

impl Fetch for OnHost {
    fn bytes_of(fetcher: &BatchFetcher, pass: &Pass, batch: u64) -> Result<usize, Error> {
        fetcher.batch_bytes(pass, batch, |layout, _, ragged| ragged.buffer_bytes(layout))
    }

    fn fetch(
        fetcher: &BatchFetcher,
        draws: &Draws,
        choice: Choice<Self::Given>,
        (): &(),
        cancel: &CancelToken,
    ) -> Result<FetchedRows<Self>, Error> {
        let given = match choice {
            Choice::Given(given) => given,
            Choice::Any => match fetcher.see(draws) {
                Some(seen) => return seen,
                None => None,
            },
        };
        let (buffer, ragged, gathered) = fetcher.read(draws, given, cancel)?;
        Ok(FetchedRows { place: Self(HostRows::Gathered(buffer)), ragged, gathered })
    }
}

impl BatchFetcher {
    /// The shards of a batch of a pass, in each dataset.
    pub(in crate::loader) fn awaits(&self, pass: &Pass, batch: u64) -> Vec<Awaited> {
        let (draws, _) = pass.draws(batch);
        let mut shards = vec![BTreeSet::new(); self.snapshots.len()];
        for (source, sample) in (0..draws.len()).map(|place| draws.at(place)) {
            let source = source as usize;
            shards[source].insert(self.snapshots[source].locate(sample).shard);
        }
        let sources = self.snapshots.iter().zip(shards);
        sources.filter_map(|(of, shards)| of.rows.awaits(Vec::from_iter(shards))).collect()
    }

    /// Builds a batch of a pass. `fetch` fetches its samples, and is called again if some of them
    /// are replaced.
    pub(in crate::loader) fn batch<P>(
        &self,
        pass: &Pass,
        batch: u64,
        mut fetch: impl FnMut(&Draws) -> Result<FetchedRows<P>, Error>,
    ) -> Result<Batch<P>, Error> {
        let begun = process::now();
        let (mut draws, padding) = pass.draws(batch);
        let mut skipped = self.replace_bad(&mut draws)?;
        let mut fetched = fetch(&draws)?;
        while let (Some(decoding), false) = (&self.decoding, fetched.gathered.bad.is_empty()) {
            decoding.note(&draws, &fetched.gathered.bad);
            drop(fetched);
            skipped += self.replace_bad(&mut draws)?;
            fetched = fetch(&draws)?;
        }
        let FetchedRows { place, ragged, gathered } = fetched;
        Ok(Batch {
            layout: Arc::clone(&self.layout),
            ragged,
            place,
            padding: usize::try_from(padding).expect("no more than rows in memory"),
            draws,
            skipped,
            state: pass.state_after(batch),
            sources: gathered.sources,
            longest: gathered.longest,
            fetching: process::now().saturating_duration_since(begun),
        })
    }

    fn replace_bad(&self, draws: &mut Draws) -> Result<u64, Error> {
        self.decoding.as_ref().map_or(Ok(0), |decoding| decoding.replace_bad(draws))
    }

    /// Views these samples in place, if possible.
    fn see(&self, draws: &Draws) -> Option<Result<FetchedRows<OnHost>, Error>> {
        let ([snapshot], None) = (&*self.snapshots, &self.decoding) else {
            return None;
        };
        let (views, first) = snapshot.see(draws.samples())?;
        let rows = draws.len();
        let places = snapshot.leaves.places_here(first.shard)?;
        let row_at = |row: usize| {
            let row = first.row + u32::try_from(row).expect("rows of one shard");
            (&places, &*snapshot.tensors, RowRef { row, ..first })
        };
        let ragged = Ragged::new(&self.layout, rows, row_at);
        Some(ragged.map(|ragged| {
            let gathered = seen(&views, rows);
            FetchedRows { place: OnHost(HostRows::Viewed(views.into())), ragged, gathered }
        }))
    }

    /// The bytes of a batch, which `bytes` returns for its rows if they are ragged.
    pub(in crate::loader) fn batch_bytes(
        &self,
        pass: &Pass,
        batch: u64,
        bytes: impl Fn(&BatchLayout, usize, &Ragged) -> usize,
    ) -> Result<usize, Error> {
        if !self.layout.is_ragged() {
            return Ok(self.layout.buffer_bytes());
        }
        let (draws, _) = pass.draws(batch);
        let ragged = self.ragged(&draws, &self.locate(&draws))?;
        Ok(bytes(&self.layout, draws.len(), &ragged))
    }

    /// Reads the rows of these samples, in their order, into the given memory or a buffer of the
    /// pool.
    fn read(
        &self,
        draws: &Draws,
        given: Option<Box<dyn CallerMemory>>,
        cancel: &CancelToken,
    ) -> Result<(Buffer, Ragged, Gathered), Error> {
        let rows = self.locate(draws);
        let ragged = self.ragged(draws, &rows)?;
        let bytes = ragged.buffer_bytes(&self.layout);
        let given = given.and_then(|memory| Buffer::given(memory, bytes));
        let mut buffer = given.map_or_else(|| self.buffers.take(bytes), Ok)?;
        let gathered = self.gather(draws, &rows, &ragged, &mut buffer, |_| true, cancel)?;
        Ok((buffer, ragged, gathered))
    }

    /// Reads the rows of some columns to their places in a buffer. Decodes those that are encoded.
    pub(in crate::loader) fn gather(
        &self,
        draws: &Draws,
        rows: &[RowRef],
        ragged: &Ragged,
        buffer: &mut [u8],
        is_wanted: impl Fn(usize) -> bool,
        cancel: &CancelToken,
    ) -> Result<Gathered, Error> {
        let parts = self.layout.split(buffer, rows.len(), ragged);
        let parts = parts.into_iter().enumerate().filter(|(column, _)| is_wanted(*column));
        let is_decoded =
            |column: usize| self.decoding.as_ref().is_some_and(|decoding| decoding.has(column));
        let (decoded, read): (Vec<_>, Vec<_>) = parts.partition(|(column, _)| is_decoded(*column));
        let mut gathered = Gathered::default();
        if !read.is_empty() || decoded.is_empty() {
            gathered = self.read_columns(draws, rows, ragged, read, cancel)?;
        }
        if let (Some(decoding), false) = (&self.decoding, decoded.is_empty()) {
            let (columns, mut parts): (Vec<_>, Vec<_>) = decoded.into_iter().unzip();
            gathered.add_columns(decoding.fill(draws, &columns, &mut parts, cancel)?);
        }
        Ok(gathered)
    }

    /// Reads the rows of some columns to their parts of a buffer.
    fn read_columns(
        &self,
        draws: &Draws,
        rows: &[RowRef],
        ragged: &Ragged,
        parts: Vec<(usize, &mut [u8])>,
        cancel: &CancelToken,
    ) -> Result<Gathered, Error> {
        let (columns, mut parts): (Vec<usize>, Vec<&mut [u8]>) = parts.into_iter().unzip();
        let begins: Vec<Option<&[usize]>> = match self.layout.is_ragged() {
            true => columns.iter().map(|&column| ragged.begins(column)).collect(),
            false => Vec::new(),
        };
        let wanted = WantedColumns { columns: &columns, begins: &begins };
        match &*self.snapshots {
            [snapshot] => {
                let placed = Placed::all(rows).beginning(&begins);
                snapshot.rows.gather(placed, &snapshot.tensors_of(&columns), &mut parts, cancel)
            }
            _ => self.gather_mixed(draws, rows, wanted, &mut parts, cancel),
        }
    }

    /// The snapshot of the sample at a place of a batch.
    pub(in crate::loader) fn snapshot_of(&self, draws: &Draws, place: usize) -> &SnapshotRows {
        &self.snapshots[draws.source(place) as usize]
    }

    /// The row of each sample in its snapshot.
    pub(in crate::loader) fn locate(&self, draws: &Draws) -> Vec<RowRef> {
        let located = draws.samples().iter().enumerate();
        located.map(|(place, &sample)| self.snapshot_of(draws, place).locate(sample)).collect()
    }

    /// The places of the ragged rows in their buffer.
    pub(in crate::loader) fn ragged(
        &self,
        draws: &Draws,
        rows: &[RowRef],
    ) -> Result<Ragged, Error> {
        if !self.layout.is_ragged() {
            return Ok(Ragged::default());
        }
        let places = self.places(draws, rows)?;
        let row_at = |place: usize| {
            let dataset = draws.source(place) as usize;
            (&places[dataset], &*self.snapshots[dataset].tensors, rows[place])
        };
        Ragged::new(&self.layout, rows.len(), row_at)
    }

    /// The places of these rows in their shards, for each snapshot.
    pub(in crate::loader) fn places(
        &self,
        draws: &Draws,
        rows: &[RowRef],
    ) -> Result<Vec<RowPlaces>, Error> {
        if let [snapshot] = &*self.snapshots {
            return Ok(vec![snapshot.leaves.places(rows)?]);
        }
        let of = |(dataset, snapshot): (u32, &SnapshotRows)| {
            let own = (0..rows.len()).filter(|&place| draws.source(place) == dataset);
            snapshot.leaves.places(&own.map(|place| rows[place]).collect::<Vec<_>>())
        };
        (0..).zip(&self.snapshots).map(of).collect()
    }

    /// Reads rows of several snapshots, one snapshot after the other, each row to its own place.
    fn gather_mixed(
        &self,
        draws: &Draws,
        rows: &[RowRef],
        wanted: WantedColumns<'_>,
        parts: &mut [&mut [u8]],
        cancel: &CancelToken,
    ) -> Result<Gathered, Error> {
        let mut gathered = Gathered::default();
        for (dataset, snapshot) in (0..).zip(&self.snapshots) {
            let places: Vec<u32> = (0..)
                .zip(draws.sources().unwrap_or_default())
                .filter(|(_, of)| **of == dataset)
                .map(|(place, _)| place)
                .collect();
            if places.is_empty() {
                continue;
            }
            let rows: Vec<RowRef> = places.iter().map(|&place| rows[place as usize]).collect();
            let placed = Placed::at(&rows, &places).beginning(wanted.begins);
            let tensors = snapshot.tensors_of(wanted.columns);
            gathered += snapshot.rows.gather(placed, &tensors, parts, cancel)?;
        }
        Ok(gathered)
    }
}

/// Counts rows that are viewed in place.
fn seen(views: &[RowsView], rows: usize) -> Gathered {
    let bytes = views.iter().map(|view| view.len() as u64).sum();
    let copies = CopyStats::viewed(bytes);
    copies.count();
    let sources = Sources { rows_local: rows as u64, bytes, copies, ..Sources::default() };
    Gathered { sources, ..Gathered::default() }
}

/// Views consecutive rows of a shard in place, for the named tensors or all, until `cancel` is
/// cancelled. `None` if a tensor can't be viewed.
///
/// # Errors
/// As [`BatchLayout::new`], and `ResourceExhausted` if the ragged rows exceed the limit of a batch.
pub(crate) fn private_views(
    fetcher: &Fetcher,
    shard: u32,
    rows: &Range<u32>,
    names: Option<&[String]>,
    cancel: &CancelToken,
) -> Result<Option<Vec<HostTensor>>, Error> {
    let layout = BatchLayout::new(fetcher.manifest(), names, 1)?;
    let tensors = layout.tensors_in(fetcher.manifest())?;
    let look = |&tensor| fetcher.look(shard, rows, tensor, Some(cancel));
    let Some(views) = tensors.iter().map(look).collect::<Option<Vec<RowsView>>>() else {
        return Ok(None);
    };
    let places = fetcher.leaves().places(&[RowRef { shard, row: rows.start }])?;
    let row_at = |row: usize| {
        let row = rows.start + u32::try_from(row).expect("rows of one shard");
        (&places, &*tensors, RowRef { shard, row })
    };
    let ragged = Ragged::new(&layout, rows.len(), row_at)?;
    seen(&views, rows.len());
    layout.lift_views(&views, rows.len(), &ragged).map(Some)
}
