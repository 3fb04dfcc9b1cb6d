//! The loader, its epochs and their batches for Python.

use std::{
    mem,
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
};

use larder_client::{
    Batch as InnerBatch, Device, DeviceWay, Epoch as OnHostEpoch, Error, ErrorKind,
    Loader as Inner, OnDevice, Progress, ScheduledBatch, renew_credentials,
    sampler::{self, LoaderState},
};
use pyo3::{
    exceptions::{PyIndexError, PyRuntimeError},
    prelude::*,
    types::PyDict,
};

use crate::{
    array::{Array, TensorMemory, arrays, let_go},
    error::OrRaise,
    pump::{DeviceAllocator, Pump, tensors_of},
    stats::{self, Fetched},
    wait::{LOOK_UP, Lock, Reports},
    warnings,
};

fn saved(text: &str) -> Result<LoaderState, Error> {
    text.parse().map_err(|error: sampler::Error| {
        Error::new(ErrorKind::InvalidArgument, "this is no state of a loader")
            .with_source(error)
            .hint("pass what state_dict() returned")
    })
}

/// Hands out epochs of batches.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Loader {
    inner: Lock<Inner>,
    /// The number of the next epoch.
    next: AtomicU64,
    /// See [`Reports`].
    reporter: Option<Py<PyAny>>,
}

impl Loader {
    pub(crate) fn new(inner: Inner, reporter: Option<Py<PyAny>>) -> Self {
        Self { inner: Lock::new(inner), next: AtomicU64::new(0), reporter }
    }

    fn begun(&self, py: Python<'_>, inner: InnerEpoch) -> Epoch {
        Epoch::new(inner, self.reporter.as_ref().map(|reporter| reporter.clone_ref(py)))
    }
}

#[pymethods]
impl Loader {
    /// Begins an epoch, at the resumed state if that is in this epoch. If there is an `allocate`,
    /// it makes a tensor for a number of bytes, and each batch is gathered into such a tensor.
    fn epoch(
        &self,
        py: Python<'_>,
        epoch: u64,
        allocate: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Epoch> {
        let_go(py);
        let Some(allocate) = allocate else {
            let begun = self.inner.with(|inner| inner.epoch(epoch));
            return Ok(self.begun(py, InnerEpoch::OnHost(begun.or_raise(py)?, None)));
        };
        let mut prepared = self.inner.with(|inner| inner.prepare(epoch)).or_raise(py)?;
        while let Some(bytes) = prepared.wanted() {
            prepared.give(Box::new(TensorMemory::allocate(&allocate, bytes)?));
        }
        let begun = prepared.begin().or_raise(py)?;
        Ok(self.begun(py, InnerEpoch::OnHost(begun, Some(allocate.unbind()))))
    }

    /// The pump that copies this loader's batches to the GPU with this number.
    fn pump(&self, py: Python<'_>, ordinal: u32, way: &str) -> PyResult<Pump> {
        let way: DeviceWay = way.parse().or_raise(py)?;
        let device = py.detach(|| Device::cuda(ordinal)).or_raise(py)?;
        let pump = self.inner.with(|inner| inner.pump(&device, way));
        Ok(Pump::new(pump.or_raise(py)?))
    }

    /// Begins an epoch of batches on a device. If there is a `place`, its `allocate` makes a block
    /// for each batch, and its `stream` names the stream that waits for the copy.
    fn epoch_on(
        &self,
        py: Python<'_>,
        epoch: u64,
        pump: &Pump,
        place: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Epoch> {
        let_go(py);
        let pump = pump.inner();
        let Some(place) = place.map(|place| DeviceAllocator::new(&place, pump)) else {
            let begun = self.inner.with(|inner| inner.epoch_on(epoch, pump));
            return Ok(self.begun(py, InnerEpoch::OnDevice(begun.or_raise(py)?, None)));
        };
        let mut prepared = self.inner.with(|inner| inner.prepare_on(epoch, pump)).or_raise(py)?;
        place.prepare(py, &mut prepared)?;
        let begun = prepared.begin().or_raise(py)?;
        Ok(self.begun(py, InnerEpoch::OnDevice(begun, Some(place))))
    }

    /// The number of the next epoch. No other thread gets it.
    fn turn(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of an epoch that could not begin. It is the next again, unless another
    /// epoch has begun since.
    fn turn_back(&self, epoch: u64) {
        let next = epoch.wrapping_add(1);
        self.next.compare_exchange(next, epoch, Ordering::Relaxed, Ordering::Relaxed).ok();
    }

    /// Sets the number of the next epoch.
    fn turn_to(&self, epoch: u64) {
        self.next.store(epoch, Ordering::Relaxed);
    }

    /// Continues at a state: its epoch is the next. Returns the epoch's number.
    fn resume(&self, py: Python<'_>, state: &str) -> PyResult<u64> {
        let state: LoaderState = saved(state).or_raise(py)?;
        self.inner.with(|inner| inner.resume(state)).or_raise(py)?;
        let epoch = state.pass_id().epoch();
        self.turn_to(epoch);
        Ok(epoch)
    }

    /// The state of the job after the batch that was handed out last.
    fn state(&self) -> String {
        self.inner.with(|inner| inner.state()).to_string()
    }

    /// The state of the job at the start of an epoch.
    fn state_at(&self, epoch: u64) -> String {
        LoaderState::new(self.inner.with(|inner| inner.pass_id(epoch)), 0).to_string()
    }

    /// The samples of the batches from a state on.
    fn schedule(&self, py: Python<'_>, state: &str) -> PyResult<Schedule> {
        let state: LoaderState = saved(state).or_raise(py)?;
        let schedule = self.inner.with(|inner| inner.schedule(state));
        Ok(Schedule { inner: schedule.or_raise(py)? })
    }

    /// The job's seed; after a resume, the seed of the state.
    #[getter]
    fn seed(&self) -> u64 {
        self.inner.with(|inner| inner.pass_id(0)).seed()
    }

    /// The shuffle in use: `auto` is resolved.
    #[getter]
    fn shuffle(&self) -> String {
        self.inner.with(|inner| inner.shuffle()).to_string()
    }

    /// Batches of this rank in a whole epoch.
    #[getter]
    fn batches_per_epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.inner.with(|inner| inner.batches_per_epoch()).or_raise(py)
    }

    /// Sums over the batches that were handed out; times are in seconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::of_loader(py, &self.inner.with(|inner| inner.stats()))
    }

    /// The slowest batches, the slowest first.
    fn slowest<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let slowest = self.inner.with(|inner| inner.slowest());
        slowest.iter().map(|batch| stats::of_slow_batch(py, batch)).collect()
    }
}

/// The batches of an epoch as numbers of samples.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Schedule {
    inner: larder_client::Schedule,
}

#[pymethods]
impl Schedule {
    /// Batches of this rank.
    fn __len__(&self) -> usize {
        usize::try_from(self.inner.batches()).unwrap_or(usize::MAX)
    }

    /// The samples of a batch, how many of them are padding, and the state after it.
    fn batch(&self, batch: u64) -> PyResult<(Vec<u64>, u64, String)> {
        let ScheduledBatch { samples, padding, state, .. } =
            self.inner.batch(batch).ok_or_else(|| PyIndexError::new_err("no such batch"))?;
        Ok((samples, padding, state.to_string()))
    }
}

/// The batches of one epoch. One thread at a time iterates it, in the process that began it.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Epoch {
    stand: Lock<Stand>,
    /// Batches in all.
    batches: u64,
    reporter: Option<Py<PyAny>>,
}

/// An epoch, and the allocator of its batches' tensors if there is one.
enum InnerEpoch {
    OnHost(OnHostEpoch, Option<Py<PyAny>>),
    OnDevice(OnHostEpoch<OnDevice>, Option<DeviceAllocator>),
}

/// A batch of such an epoch.
enum AnyBatch {
    OnHost(InnerBatch),
    OnDevice(InnerBatch<OnDevice>),
}

impl InnerEpoch {
    fn batches(&self) -> u64 {
        match self {
            Self::OnHost(epoch, _) => epoch.batches(),
            Self::OnDevice(epoch, _) => epoch.batches(),
        }
    }

    /// Allocates memory for the batches that are fetched next.
    fn give(&mut self, py: Python<'_>) -> PyResult<()> {
        match self {
            Self::OnHost(epoch, Some(allocate)) => {
                while let Some(bytes) = epoch.wanted() {
                    epoch.give(Box::new(TensorMemory::allocate(allocate.bind(py), bytes)?));
                }
                Ok(())
            }
            Self::OnDevice(epoch, Some(place)) => place.give(py, epoch),
            Self::OnHost(_, None) | Self::OnDevice(_, None) => Ok(()),
        }
    }

    fn poll(&mut self) -> Poll<Option<Result<AnyBatch, Error>>> {
        match self {
            Self::OnHost(epoch, _) => {
                epoch.poll(LOOK_UP).map(|next| next.map(|next| next.map(AnyBatch::OnHost)))
            }
            Self::OnDevice(epoch, _) => {
                epoch.poll(LOOK_UP).map(|next| next.map(|next| next.map(AnyBatch::OnDevice)))
            }
        }
    }

    fn progress(&mut self) -> Option<Progress> {
        match self {
            Self::OnHost(epoch, _) => epoch.progress(),
            Self::OnDevice(epoch, _) => epoch.progress(),
        }
    }

    fn place(&self) -> Option<&DeviceAllocator> {
        match self {
            Self::OnHost(..) => None,
            Self::OnDevice(_, place) => place.as_ref(),
        }
    }
}

/// The states of an epoch.
///
/// ```text
/// Ready ──take──▶ Waiting ──put_back──▶ Ready
///   └──────close─────┴──────▶ Closed
/// ```
enum Stand {
    /// Any thread may ask for the next batch.
    Ready(Box<InnerEpoch>),
    /// A thread has the epoch, and waits for the next batch.
    Waiting,
    /// The rest is not wanted. A waiting thread notices that, and drops the epoch.
    Closed,
}

impl Stand {
    /// Takes the epoch for one thread to wait on; returns the state if it is not `Ready`.
    fn take(&mut self) -> Self {
        match self {
            Self::Ready(_) => mem::replace(self, Self::Waiting),
            Self::Waiting => Self::Waiting,
            Self::Closed => Self::Closed,
        }
    }

    /// Puts a taken epoch back. Returns it, for the caller to drop, if it was closed meanwhile.
    fn put_back(&mut self, epoch: Box<InnerEpoch>) -> Option<Box<InnerEpoch>> {
        if self.is_closed() {
            return Some(epoch);
        }
        *self = Self::Ready(epoch);
        None
    }

    fn close(&mut self) -> Self {
        mem::replace(self, Self::Closed)
    }

    fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }
}

impl Epoch {
    fn new(inner: InnerEpoch, reporter: Option<Py<PyAny>>) -> Self {
        let batches = inner.batches();
        Self { stand: Lock::new(Stand::Ready(Box::new(inner))), batches, reporter }
    }

    /// The next batch; `None` after the last, and if the epoch is closed meanwhile. Memory for the
    /// batches after it is allocated first.
    fn wait(&self, py: Python<'_>, epoch: &mut InnerEpoch) -> PyResult<Option<Batch>> {
        epoch.give(py)?;
        let mut reports = Reports::to(self.reporter.as_ref().map(|report| report.clone_ref(py)));
        let next = self.poll(py, epoch, &mut reports);
        reports.end(py)?;
        next
    }

    fn poll(
        &self,
        py: Python<'_>,
        epoch: &mut InnerEpoch,
        reports: &mut Reports,
    ) -> PyResult<Option<Batch>> {
        loop {
            match py.detach(|| epoch.poll()) {
                Poll::Ready(next) => {
                    let next = next.transpose().or_raise(py)?;
                    return next.map(|batch| Batch::new(py, batch, epoch.place())).transpose();
                }
                Poll::Pending if self.stand.with(|stand| stand.is_closed()) => return Ok(None),
                Poll::Pending => {
                    warnings::hand_over(py)?;
                    py.check_signals()?;
                    reports.look(py, || epoch.progress())?;
                }
            }
        }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        drop(self.stand.with(Stand::close));
        // The interpreter frees objects on an attached thread, except at its end.
        Python::try_attach(let_go);
    }
}

#[pymethods]
impl Epoch {
    /// Batches in all, from the begin of the epoch or the resumed state.
    fn __len__(&self) -> usize {
        usize::try_from(self.batches).unwrap_or(usize::MAX)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Ends the epoch, also for a thread that waits for its next batch, and stops the prefetch.
    fn close(&self, py: Python<'_>) {
        drop(self.stand.with(Stand::close));
        let_go(py);
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let_go(py);
        warnings::hand_over(py)?;
        renew_credentials();
        let mut epoch = match self.stand.with(Stand::take) {
            Stand::Ready(epoch) => epoch,
            Stand::Closed => return Ok(None),
            Stand::Waiting => {
                return Err(PyRuntimeError::new_err(
                    "another thread is waiting for the next batch of this epoch: iterate it in one thread",
                ));
            }
        };
        let next = self.wait(py, &mut epoch);
        drop(self.stand.with(|stand| stand.put_back(epoch)));
        next
    }
}

/// The rows of some samples, in their order.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Batch {
    /// An array for each tensor.
    #[pyo3(get)]
    tensors: Py<PyDict>,
    /// The block that the tensors are parts of, if a framework allocated it: see [`tensors_of`].
    #[pyo3(get)]
    block: Option<Py<PyAny>>,
    /// The number of each row's sample, padding included.
    #[pyo3(get)]
    samples: Py<Array>,
    /// In a mixture, the index of each row's dataset.
    #[pyo3(get)]
    sources: Option<Py<Array>>,
    /// In a mixture, the number of the pass over that dataset, for each row.
    #[pyo3(get)]
    passes: Option<Py<Array>>,
    /// The number of rows at the end that only fill the batch.
    #[pyo3(get)]
    padding: usize,
    state: LoaderState,
    fetched: Fetched,
}

impl Batch {
    fn new(py: Python<'_>, batch: AnyBatch, place: Option<&DeviceAllocator>) -> PyResult<Self> {
        match batch {
            AnyBatch::OnHost(batch) => Self::of(py, batch, |batch| {
                Ok((arrays(py, batch.into_tensors().or_raise(py)?)?, None))
            }),
            AnyBatch::OnDevice(batch) => Self::of(py, batch, |batch| tensors_of(py, batch, place)),
        }
    }

    fn of<'py, P>(
        py: Python<'py>,
        batch: InnerBatch<P>,
        tensors: impl FnOnce(InnerBatch<P>) -> PyResult<(Bound<'py, PyDict>, Option<Py<PyAny>>)>,
    ) -> PyResult<Self> {
        let (padding, state, fetched) = (batch.padding(), batch.state(), Fetched::of(&batch));
        let samples = Array::of_integers(py, batch.samples())?;
        let sources = batch.datasets().map(|datasets| {
            let datasets: Vec<u64> = datasets.iter().copied().map(u64::from).collect();
            Py::new(py, Array::of_integers(py, &datasets)?)
        });
        let passes = batch.passes().map(|passes| Py::new(py, Array::of_integers(py, passes)?));
        let (tensors, block) = tensors(batch)?;
        Ok(Self {
            tensors: tensors.unbind(),
            block,
            samples: Py::new(py, samples)?,
            sources: sources.transpose()?,
            passes: passes.transpose()?,
            padding,
            state,
            fetched,
        })
    }
}

#[pymethods]
impl Batch {
    /// The state of the job after this batch.
    fn state(&self) -> String {
        self.state.to_string()
    }

    /// The times of its fetch.
    fn fetched<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.fetched.facts(py)
    }
}
