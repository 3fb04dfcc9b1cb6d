//! Rows that a program chooses: each tensor stacked, in memory of the library or of the caller.
//!
//! ```text
//! Dataset::take(indices) ──▶ Take ──read()──▶ tensors in a buffer of the dataset's pool
//!                              └──into(out)─▶ the caller's buffers, one for each tensor
//! ```
//!
//! A large read that must ask nodes is cut in two. While one half waits for the network, the other
//! copies.
//!
//! Thread rule: a [`Take`] is a value, and any thread may read it. Non-goals: views in place, which
//! [`Dataset::slice`](crate::Dataset::slice) makes.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
};

use larder_base::limits;
use larder_dataset::RowPlaces;

use super::layout::{BatchLayout, Ragged, invalid};
use crate::{
    CancelToken, Error, ErrorKind, Fetcher, HostTensor, Memory, RowRef,
    fetch::{RowSource, RowsWait},
    memory::BufferPool,
    remote::Placed,
};

/// A read that must ask nodes is cut in two from this size on: below, the second thread costs more
/// than it gains.
const HALVES_FROM_BYTES: usize = 8 << 20;

/// Chosen samples of a dataset, to be read: see [`Dataset::take`](crate::Dataset::take).
pub struct Take {
    layout: Arc<BatchLayout>,
    /// The tensors, by their index in the manifest.
    tensors: Box<[usize]>,
    rows: Vec<RowRef>,
    ragged: Ragged,
    fetcher: Arc<Fetcher>,
    buffers: Arc<BufferPool>,
    in_halves: bool,
}

impl Take {
    /// Prepares to read these rows of the named tensors, or of all.
    ///
    /// # Errors
    /// As [`BatchLayout::new`] and [`Ragged::new`], and if a leaf of the manifest can't be read.
    pub(crate) fn new(
        fetcher: Arc<Fetcher>,
        rows: Vec<RowRef>,
        names: Option<&[String]>,
        buffers: Arc<BufferPool>,
    ) -> Result<Self, Error> {
        let count = u32::try_from(rows.len()).map_err(|_| {
            invalid(format!("{} rows can't be read at once", rows.len())).hint("take fewer")
        })?;
        let manifest = fetcher.manifest();
        let layout = BatchLayout::new(manifest, names, count)?;
        let tensors = layout.tensors_in(manifest)?;
        let places = match layout.is_ragged() {
            true => fetcher.leaves().places(&rows)?,
            false => RowPlaces::even(manifest),
        };
        let ragged = Ragged::new(&layout, rows.len(), |place| (&places, &*tensors, rows[place]))?;
        let is_large = rows.len() > 1 && ragged.buffer_bytes(&layout) >= HALVES_FROM_BYTES;
        let in_halves = is_large && !fetcher.has_mapped(&rows);
        Ok(Self { layout, tensors, rows, ragged, fetcher, buffers, in_halves })
    }

    /// The bytes of each tensor, in the order of the names or of the dataset.
    pub fn bytes(&self) -> Vec<usize> {
        let ranges = self.layout.ranges(self.rows.len(), &self.ragged);
        ranges.iter().map(ExactSizeIterator::len).collect()
    }

    /// Follows the fills that the rows wait for, for a program that reads them on another thread.
    pub fn follow(&self) -> RowsWait {
        let shards: BTreeSet<u32> = self.rows.iter().map(|row| row.shard).collect();
        let awaited = self.fetcher.awaits(Vec::from_iter(shards));
        RowsWait::begin(Vec::from_iter(awaited), "this read")
    }

    /// Reads the rows into new memory: one tensor for each name, its rows in the order of the
    /// indices. The memory returns to the dataset when the last of these tensors is dropped.
    ///
    /// # Errors
    /// `ResourceExhausted` if there is no memory for them. Otherwise as
    /// [`Fetcher::gather`](crate::Fetcher::gather).
    pub fn read(&self) -> Result<Vec<HostTensor>, Error> {
        self.read_unless(&CancelToken::never())
    }

    /// As [`read`](Self::read), until `cancel` is cancelled.
    ///
    /// # Errors
    /// As [`read`](Self::read), and when it was cancelled.
    pub fn read_unless(&self, cancel: &CancelToken) -> Result<Vec<HostTensor>, Error> {
        let rows = self.rows.len();
        let mut buffer = self.buffers.take(self.ragged.buffer_bytes(&self.layout))?;
        self.gather_to(&mut self.layout.split(&mut buffer, rows, &self.ragged), cancel)?;
        Ok(self.layout.lift(&Memory::buffer(buffer), rows, &self.ragged))
    }

    /// Reads the rows into `out`, a buffer of exactly [`bytes`](Self::bytes) for each tensor. After
    /// an error of the read, the contents of the buffers are undefined.
    ///
    /// # Errors
    /// `InvalidArgument` for buffers of another number or size, which stay as they are. Otherwise
    /// as [`Fetcher::gather`](crate::Fetcher::gather).
    pub fn into(self, out: &mut [&mut [u8]]) -> Result<(), Error> {
        self.fill(out, &CancelToken::never())
    }

    /// As [`into`](Self::into), until `cancel` is cancelled.
    ///
    /// # Errors
    /// As [`into`](Self::into), and when it was cancelled.
    pub fn fill(&self, out: &mut [&mut [u8]], cancel: &CancelToken) -> Result<(), Error> {
        let (wanted, given) = (self.bytes(), out.iter().map(|out| out.len()));
        if !given.clone().eq(wanted.iter().copied()) {
            let given: Vec<usize> = given.collect();
            return Err(invalid(format!(
                "buffers of {given:?} bytes for rows of {wanted:?} bytes"
            ))
            .hint("give one buffer for each tensor: Take::bytes() has their sizes"));
        }
        self.gather_to(out, cancel)
    }

    fn gather_to(&self, out: &mut [&mut [u8]], cancel: &CancelToken) -> Result<(), Error> {
        let begins: Vec<Option<&[usize]>> =
            (0..self.tensors.len()).map(|column| self.ragged.begins(column)).collect();
        match self.in_halves {
            true => self.gather_halves(&begins, out, cancel),
            false => self.gather_part(&self.rows, &begins, out, cancel),
        }
    }

    /// Reads both halves at once. This thread only waits, so that it notices when the call is
    /// cancelled.
    fn gather_halves(
        &self,
        begins: &[Option<&[usize]>],
        out: &mut [&mut [u8]],
        cancel: &CancelToken,
    ) -> Result<(), Error> {
        let (head, tail) = self.rows.split_at(self.rows.len() / 2);
        let cut = head.len();
        let mut begins_of = [Vec::<Option<Vec<usize>>>::new(), Vec::new()];
        let mut parts = [Vec::new(), Vec::new()];
        let columns = self.layout.columns().iter().zip(begins);
        for ((column, begins), out) in columns.zip(out) {
            let at = begins.map_or(cut * column.row_bytes, |begins| begins[cut]);
            let (first, second) = out.split_at_mut(at);
            parts[0].push(first);
            parts[1].push(second);
            begins_of[0].push(begins.map(|begins| begins[..=cut].to_vec()));
            begins_of[1].push(begins.map(|begins| begins[cut..].iter().map(|b| b - at).collect()));
        }
        thread::scope(|scope| {
            let (end, ended) = mpsc::sync_channel(2);
            for ((rows, begins), out) in [head, tail].into_iter().zip(&begins_of).zip(&mut parts) {
                let end = end.clone();
                let half = move || {
                    let begins: Vec<_> = begins.iter().map(Option::as_deref).collect();
                    // The receiver is gone if the other half failed.
                    let _ = end.send(self.gather_part(rows, &begins, out, cancel));
                };
                let started = thread::Builder::new().spawn_scoped(scope, half);
                started.map_err(no_thread)?;
            }
            drop(end);
            loop {
                match ended.recv_timeout(limits::CANCEL_CHECK_INTERVAL) {
                    Ok(half) => half?,
                    Err(RecvTimeoutError::Timeout) => cancel.check()?,
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
        })
    }

    fn gather_part(
        &self,
        rows: &[RowRef],
        begins: &[Option<&[usize]>],
        out: &mut [&mut [u8]],
        cancel: &CancelToken,
    ) -> Result<(), Error> {
        let placed = Placed::all(rows).beginning(begins);
        RowSource::gather(&*self.fetcher, placed, &self.tensors, out, cancel).map(drop)
    }
}

fn no_thread(error: io::Error) -> Error {
    Error::new(ErrorKind::ResourceExhausted, "cannot start a thread")
        .with_source(error)
        .hint("raise the limit on threads (ulimit -u)")
}
