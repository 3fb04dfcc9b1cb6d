//! Columns that a device copies straight from mapped extents, without a copy on the host.
//!
//! A column goes directly if all its rows are in mapped extents that the driver has registered, and
//! if its runs are long. Adjacent rows form one run, and so does each row of 32 KiB or more. All
//! other columns are staged. The first batch that reads an extent has it registered, for later
//! batches.
//!
//! Thread rule: several threads fetch side by side. Non-goals: registering (see `registrar`).

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use larder_dataset::RowPlaces;
use larder_extent::{Attached, Companion};

use crate::{
    CopyStats, DeviceWay, Error, Pump, RowRef, Sources,
    deadline::CancelToken,
    device::CopySource,
    fetch::Gathered,
    loader::batch::{BatchFetcher, SnapshotRows},
    sampler::Draws,
};

/// A run of this length copies as fast as a large one.
const RUN_BYTES_MIN: u64 = 32 << 10;

/// The direct columns of a batch.
#[derive(Default)]
pub(super) struct Direct {
    sources: Vec<CopySource>,
    /// By column.
    columns: BTreeMap<usize, Vec<DirectRun>>,
}

/// Adjacent rows of one column in one extent.
pub(super) struct DirectRun {
    pub(super) source: usize,
    pub(super) from: Range<usize>,
    /// The place in the column.
    pub(super) to: usize,
}

/// The extents of a batch.
struct Extents<'a> {
    pump: &'a Pump,
    cancel: &'a CancelToken,
    /// By dataset and shard, the index of the source. `None` if the shard can't be read directly.
    known: BTreeMap<(u32, u32), Option<usize>>,
    sources: Vec<(Companion, Arc<Attached>)>,
}

/// The rows of a batch.
#[derive(Clone, Copy)]
struct Rows<'a> {
    draws: &'a Draws,
    rows: &'a [RowRef],
    /// Of each snapshot.
    places: &'a [RowPlaces],
}

impl BatchFetcher {
    /// Finds the columns of these rows that go directly.
    ///
    /// # Errors
    /// The caller requires direct copies, and the driver refuses.
    pub(super) fn direct(
        &self,
        draws: &Draws,
        rows: &[RowRef],
        pump: &Pump,
        cancel: &CancelToken,
    ) -> Result<Direct, Error> {
        if pump.way() == DeviceWay::Staged {
            return Ok(Direct::default());
        }
        let places = &self.places(draws, rows)?;
        let rows = Rows { draws, rows, places };
        let (known, sources) = (BTreeMap::new(), Vec::new());
        let (mut extents, mut columns) =
            (Extents { pump, cancel, known, sources }, BTreeMap::new());
        for (column, of) in self.layout.columns().iter().enumerate() {
            if of.decode.is_some() || !self.may_pay(column, rows) {
                continue;
            }
            let runs = self.runs(column, rows, &mut extents)?;
            if let Some(runs) = runs.filter(|runs| pays(runs, &extents)) {
                columns.insert(column, runs);
            }
        }
        let source = |(registration, extent)| CopySource::Extent { registration, extent };
        Ok(Direct { sources: extents.sources.into_iter().map(source).collect(), columns })
    }

    /// Whether the rows of a column could form long runs, by the manifest alone.
    fn may_pay(&self, column: usize, of_batch: Rows<'_>) -> bool {
        let Rows { draws, rows, .. } = of_batch;
        let side_by_side = || draws.samples().is_sorted_by(|before, after| before + 1 == *after);
        let long = || {
            let bytes = self.row_bytes(column, of_batch);
            bytes >= RUN_BYTES_MIN * rows.len() as u64
        };
        !rows.is_empty() && (long() || (self.snapshots.len() == 1 && side_by_side()))
    }

    fn row_bytes(&self, column: usize, of_batch: Rows<'_>) -> u64 {
        let even = self.layout.columns()[column].row_bytes as u64;
        if even > 0 {
            return even * of_batch.rows.len() as u64;
        }
        (0..of_batch.rows.len()).map(|place| self.place(column, of_batch, place).1).sum()
    }

    /// The offset of a row in the region of a column, and its bytes.
    fn place(&self, column: usize, of_batch: Rows<'_>, place: usize) -> (u64, u64) {
        let dataset = of_batch.draws.source(place) as usize;
        of_batch.places[dataset].row(of_batch.rows[place], self.snapshots[dataset].tensor(column))
    }

    /// The runs of a column, if all its rows are in extents that can be read directly.
    fn runs(
        &self,
        column: usize,
        of_batch: Rows<'_>,
        extents: &mut Extents<'_>,
    ) -> Result<Option<Vec<DirectRun>>, Error> {
        let (mut runs, mut to) = (Vec::<DirectRun>::new(), 0);
        for (place, &row) in of_batch.rows.iter().enumerate() {
            let snapshot = self.snapshot_of(of_batch.draws, place);
            let dataset = of_batch.draws.source(place);
            let Some((source, extent)) = extents.find(dataset, snapshot, row.shard)? else {
                return Ok(None);
            };
            let (begin, bytes) = self.place(column, of_batch, place);
            let begin = extent.file_offset(snapshot.tensor(column)) + begin;
            let from = usize::try_from(begin).expect("within a mapping");
            let bytes = usize::try_from(bytes).expect("within a mapping");
            match runs.last_mut() {
                Some(run) if run.source == source && run.from.end == from => run.from.end += bytes,
                _ => runs.push(DirectRun { source, from: from..from + bytes, to }),
            }
            to += bytes;
        }
        runs.retain(|run| !run.from.is_empty());
        Ok(Some(runs))
    }
}

impl Extents<'_> {
    /// The extent of a shard, if it is mapped and registered.
    fn find(
        &mut self,
        dataset: u32,
        snapshot: &SnapshotRows,
        shard: u32,
    ) -> Result<Option<(usize, &Attached)>, Error> {
        let index = match self.known.get(&(dataset, shard)) {
            Some(&known) => known,
            None => {
                let found = registered(snapshot, shard, self.pump, self.cancel)?;
                let index = found.map(|source| {
                    self.sources.push(source);
                    self.sources.len() - 1
                });
                self.known.insert((dataset, shard), index);
                index
            }
        };
        Ok(index.map(|index| (index, &*self.sources[index].1)))
    }
}

fn registered(
    snapshot: &SnapshotRows,
    shard: u32,
    pump: &Pump,
    cancel: &CancelToken,
) -> Result<Option<(Companion, Arc<Attached>)>, Error> {
    let waits = pump.way() == DeviceWay::Direct;
    let Some(extent) = snapshot.mapped(shard, waits.then_some(cancel)) else { return Ok(None) };
    let registration = match waits {
        true => Some(pump.registered(&extent, cancel)?),
        false => pump.registration(&extent),
    };
    Ok(registration.map(|registration| (registration, extent)))
}

/// Whether runs are long, or no more than the extents.
fn pays(runs: &[DirectRun], extents: &Extents<'_>) -> bool {
    let bytes: u64 = runs.iter().map(|run| run.from.len() as u64).sum();
    runs.len() <= extents.sources.len() || bytes >= RUN_BYTES_MIN * runs.len() as u64
}

impl Direct {
    pub(super) fn has(&self, column: usize) -> bool {
        self.columns.contains_key(&column)
    }

    /// The sources and bytes of the direct columns.
    pub(super) fn gathered(&self, rows: usize) -> Gathered {
        let runs = self.columns.values().flatten();
        let bytes = runs.map(|run| run.from.len() as u64).sum();
        if self.columns.is_empty() {
            return Gathered::default();
        }
        let copies = CopyStats::viewed(bytes);
        copies.count();
        let sources = Sources { rows_local: rows as u64, bytes, copies, ..Sources::default() };
        Gathered { sources, ..Gathered::default() }
    }

    /// The extents, and the runs of each column.
    pub(super) fn take(&mut self) -> (Vec<CopySource>, Vec<(usize, DirectRun)>) {
        let columns = std::mem::take(&mut self.columns);
        let sources = match columns.is_empty() {
            true => Vec::new(),
            false => std::mem::take(&mut self.sources),
        };
        let runs = columns
            .into_iter()
            .flat_map(|(column, runs)| runs.into_iter().map(move |run| (column, run)));
        (sources, runs.collect())
    }
}
