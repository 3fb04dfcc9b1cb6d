//! The pump of a loader's batches to a device, and the devices of this host.

use std::sync::Arc;

use larder_client::{
    Batch, ConsumerStream, Device, DeviceTensor as InnerTensor, Dtype, Epoch, Logical, OnDevice,
    PreparedEpoch, Pump as Inner,
};
use pyo3::{intern, prelude::*, types::PyDict};

use crate::{
    array::{BlockMemory, DeviceTensor},
    error::OrRaise,
};

/// The GPUs of this host, each as a dict.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let listed = py.detach(Device::list).or_raise(py)?;
    let facts = |device: larder_client::DeviceFacts| {
        let facts = PyDict::new(py);
        facts.set_item("device", format!("cuda:{}", device.ordinal))?;
        facts.set_item("name", device.name)?;
        facts.set_item("memory_bytes", device.memory_bytes)?;
        facts.set_item("driver", device.driver)?;
        facts.set_item("registers_pages", device.registers_pages)?;
        Ok(facts)
    };
    listed.into_iter().map(facts).collect()
}

/// Copies the batches of one loader to a device.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Pump {
    inner: Arc<Inner>,
}

#[pymethods]
impl Pump {
    /// The device, such as `cuda:0`.
    #[getter]
    fn device(&self) -> String {
        self.inner.device().name()
    }

    /// Why pages of the cache are not registered, if some were refused.
    #[getter]
    fn refused(&self) -> Option<String> {
        self.inner.refused().map(|error| error.to_string())
    }
}

impl Pump {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

/// Device memory that the program's framework allocates for batches: an object with `allocate` and
/// `stream`.
pub(crate) struct DeviceAllocator {
    place: Py<PyAny>,
    pump: Arc<Inner>,
}

impl DeviceAllocator {
    pub(crate) fn new(place: &Bound<'_, PyAny>, pump: &Arc<Inner>) -> Self {
        Self { place: place.clone().unbind(), pump: Arc::clone(pump) }
    }

    /// Allocates a block for each batch that is due.
    pub(crate) fn prepare(
        &self,
        py: Python<'_>,
        epoch: &mut PreparedEpoch<OnDevice>,
    ) -> PyResult<()> {
        while let Some(bytes) = epoch.wanted() {
            epoch.give(self.block(py, bytes)?);
        }
        Ok(())
    }

    /// The same for an epoch that has begun.
    pub(crate) fn give(&self, py: Python<'_>, epoch: &mut Epoch<OnDevice>) -> PyResult<()> {
        while let Some(bytes) = epoch.wanted() {
            epoch.give(self.block(py, bytes)?);
        }
        Ok(())
    }

    fn block(&self, py: Python<'_>, bytes: usize) -> PyResult<larder_client::ReadyBlock> {
        let block = BlockMemory::allocate(self.place.bind(py), bytes)?;
        py.detach(|| self.pump.given(Box::new(block))).or_raise(py)
    }

    /// The stream that the program uses batches on now.
    fn stream(&self, py: Python<'_>) -> PyResult<ConsumerStream> {
        self.place.call_method0(py, intern!(py, "stream"))?.extract(py).map(ConsumerStream)
    }
}

/// The tensors of a batch by name, and the framework's block that holds them. With a block, each
/// tensor is a [`Part`] of it.
pub(crate) fn tensors_of<'py>(
    py: Python<'py>,
    batch: Batch<OnDevice>,
    place: Option<&DeviceAllocator>,
) -> PyResult<(Bound<'py, PyDict>, Option<Py<PyAny>>)> {
    let memory = batch.memory().clone();
    let tensors = batch.into_tensors();
    let base = memory.address();
    let listed = PyDict::new(py);
    let Some(place) = place else {
        for tensor in tensors {
            add(&listed, tensor)?;
        }
        return Ok((listed, None));
    };
    let parts: Vec<_> =
        tensors.iter().map(|tensor| part(py, tensor, base)).collect::<PyResult<_>>()?;
    for (tensor, part) in tensors.iter().zip(parts) {
        listed.set_item(&*tensor.name, part)?;
    }
    // Now only `memory` holds the block.
    drop(tensors);
    let stream = place.stream(py)?;
    let taken = py.detach(|| memory.take_given(stream)).or_raise(py)?;
    let block = taken.map(|block| -> Box<dyn std::any::Any> { block });
    let block = block.and_then(|block| block.downcast::<BlockMemory>().ok());
    let block = block.expect("an epoch is given a block for each batch before it is fetched");
    Ok((listed, Some(block.take(py))))
}

fn add(listed: &Bound<'_, PyDict>, tensor: InnerTensor) -> PyResult<()> {
    let (py, name) = (listed.py(), Arc::clone(&tensor.name));
    match DeviceTensor::new(tensor) {
        (elements, None) => listed.set_item(&*name, Py::new(py, elements)?),
        (elements, Some(offsets)) => listed.set_item(&*name, (elements, offsets)),
    }
}

/// The place of a tensor in its block, and its type.
#[pyclass(frozen, get_all, module = "larder._larder")]
pub(crate) struct Part {
    begin: u64,
    nbytes: usize,
    dtype: &'static str,
    logical: &'static str,
    shape: Vec<u64>,
}

/// The part of a tensor, and of the offsets of a ragged tensor.
fn part<'py>(py: Python<'py>, tensor: &InnerTensor, base: u64) -> PyResult<Bound<'py, PyAny>> {
    let InnerTensor { dtype, logical, shape, memory, offsets, .. } = tensor;
    let elements = Part {
        begin: memory.address() - base,
        nbytes: memory.len(),
        dtype: dtype.name(),
        logical: logical.name(),
        shape: shape.clone(),
    };
    let Some(offsets) = offsets else { return Ok(Bound::new(py, elements)?.into_any()) };
    let offsets = Part {
        begin: offsets.address() - base,
        nbytes: offsets.len(),
        dtype: Dtype::I64.name(),
        logical: Logical::Number.name(),
        shape: vec![(offsets.len() / size_of::<i64>()) as u64],
    };
    Ok((elements, offsets).into_pyobject(py)?.into_any())
}
