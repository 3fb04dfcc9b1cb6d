//! A tensor in the memory of a GPU, exported by DLPack and by the CUDA array interface without a
//! copy.
//!
//! A consumer names the stream on which it will use the tensor. That stream waits, on the device,
//! for the copy of the batch. When the consumer releases the tensor, an event is recorded on the
//! same stream. The block is written to again only after that event. The program waits for neither.
//!
//! Thread rule: frozen; exports may be made and dropped in several threads at once.
//! Non-goals: computing, indexing, copies between devices.

use larder_client::{
    ConsumerStream, DeviceSlice, DeviceTensor as Inner, Dtype, HostTensor, Logical, Memory,
};
use pyo3::{
    exceptions::{PyAttributeError, PyBufferError},
    intern,
    prelude::*,
    types::{PyCapsule, PyDict, PyTuple},
};

use super::{
    Array,
    dlpack::{self, Export},
    dtype, export,
};
use crate::error::OrRaise;

/// DLPack's numbers of streams.
const LEGACY_DEFAULT: i64 = 1;
const PER_THREAD: i64 = 2;
const NO_WAIT: i64 = -1;

/// A tensor in the memory of a GPU: elements of one type in C order.
///
/// `torch.from_dlpack(tensor)`, `jax.dlpack.from_dlpack(tensor)` and `cupy.asarray(tensor)` make
/// views of it that copy nothing. `tensor.numpy()` copies it back to the host.
#[pyclass(frozen, module = "larder")]
pub(crate) struct DeviceTensor {
    memory: DeviceSlice,
    dtype: Dtype,
    logical: Logical,
    shape: Box<[i64]>,
    /// A use by the CUDA array interface. Its consumer keeps this object.
    interface: std::sync::OnceLock<Use>,
}

/// A use of a tensor on a stream, until it is dropped.
struct Use {
    memory: DeviceSlice,
    stream: ConsumerStream,
}

impl Use {
    /// Has the stream wait for the tensor.
    fn begin(memory: &DeviceSlice, stream: ConsumerStream) -> Result<Self, larder_client::Error> {
        memory.begin_use(stream)?;
        Ok(Self { memory: memory.clone(), stream })
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.memory.end_use(self.stream);
    }
}

impl DeviceTensor {
    /// The tensor, and for a ragged tensor its offsets.
    pub(crate) fn new(tensor: Inner) -> (Self, Option<Self>) {
        let Inner { dtype, logical, shape, memory, offsets, .. } = tensor;
        let shape = shape.into_iter().map(|side| i64::try_from(side).expect("a side in memory"));
        let offsets = offsets.map(|memory| {
            let length = i64::try_from(memory.len() / size_of::<i64>()).expect("of one batch");
            Self::with(memory, Dtype::I64, Logical::Number, [length].into())
        });
        (Self::with(memory, dtype, logical, shape.collect()), offsets)
    }

    fn with(memory: DeviceSlice, dtype: Dtype, logical: Logical, shape: Box<[i64]>) -> Self {
        Self { memory, dtype, logical, shape, interface: std::sync::OnceLock::new() }
    }

    /// A copy in the memory of the host.
    fn to_host(&self) -> Result<Array, larder_client::Error> {
        let mut bytes = vec![0; self.memory.len()];
        self.memory.read(&mut bytes)?;
        Array::new(HostTensor {
            name: "a device tensor".into(),
            dtype: self.dtype,
            logical: self.logical,
            shape: self.shape.iter().map(|side| side.unsigned_abs()).collect(),
            memory: Memory::copied(&bytes)?,
            offsets: None,
        })
    }
}

#[pymethods]
impl DeviceTensor {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The type of an element, as numpy and ml_dtypes call it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// The meaning of its values, such as `text` or `timestamp[ms]`.
    #[getter]
    fn logical(&self) -> &'static str {
        self.logical.name()
    }

    /// Its device, such as `cuda:0`.
    #[getter]
    fn device(&self) -> String {
        format!("cuda:{}", self.memory.ordinal())
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.len()
    }

    fn __len__(&self) -> usize {
        self.shape.first().map_or(0, |&rows| usize::try_from(rows).unwrap_or(usize::MAX))
    }

    fn __repr__(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        let (dtype, device) = (self.dtype(), self.device());
        format!("larder.DeviceTensor(shape=[{}], dtype={dtype}, device={device})", shape.join(", "))
    }

    /// A copy in the memory of the host, as a numpy array. Waits for the device.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let array = py.detach(|| self.to_host()).or_raise(py)?;
        py.import(intern!(py, "larder._output"))?.call_method1(intern!(py, "to_numpy"), (array,))
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::CUDA, self.memory.ordinal().cast_signed())
    }

    /// A capsule for `from_dlpack`. The consumer uses the tensor on `stream`: 1 (or `None`) is the
    /// legacy default stream, 2 the per-thread one. With -1 no stream waits.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let device = self.__dlpack_device__();
        if dl_device.is_some_and(|wanted| wanted != device) {
            return Err(PyBufferError::new_err(format!(
                "this tensor is on {}: import it there, then copy it",
                self.device()
            )));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err("this tensor is exported without a copy only"));
        }
        let owner = py.detach(|| self.used_on(stream.unwrap_or(LEGACY_DEFAULT)))?.or_raise(py)?;
        let (address, dtype) = (self.memory.address(), dtype::dlpack(self.dtype));
        let shape = &self.shape;
        export(py, Export { address, device, owner, dtype, shape, copied: false }, max_version)
    }

    /// Version 3 of the interface: the legacy default stream has waited for the tensor.
    #[getter(__cuda_array_interface__)]
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Some(kind) = dtype::array_interface(self.dtype) else {
            return Err(PyAttributeError::new_err(format!(
                "the CUDA array interface has no {}: use DLPack",
                self.dtype()
            )));
        };
        self.memory.check().or_raise(py)?;
        if self.interface.get().is_none() {
            let used = py.detach(|| Use::begin(&self.memory, ConsumerStream::DEFAULT));
            // If two threads begin a use, both wait, and the first use is kept.
            drop(self.interface.set(used.or_raise(py)?));
        }
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", kind)?;
        interface.set_item("data", (self.memory.address(), false))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("stream", LEGACY_DEFAULT)?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }
}

impl DeviceTensor {
    /// A use on a stream, given by DLPack's number.
    fn used_on(&self, stream: i64) -> PyResult<Result<Use, larder_client::Error>> {
        // Any thread may end the use, and it can't name the per-thread stream of another thread.
        // So such a use ends on the legacy default stream, which comes after all of them.
        let ends_on = |stream| Use { memory: self.memory.clone(), stream };
        match stream {
            0 => Err(PyBufferError::new_err(
                "stream 0 could be either default stream: say 1 for the legacy one, 2 for the per-thread one",
            )),
            NO_WAIT => Ok(self.memory.check().map(|()| ends_on(ConsumerStream::DEFAULT))),
            PER_THREAD => {
                let begun = Use::begin(&self.memory, ConsumerStream(PER_THREAD.unsigned_abs()));
                Ok(begun.map(|mut begun| {
                    begun.stream = ConsumerStream::DEFAULT;
                    begun
                }))
            }
            _ => Ok(Use::begin(&self.memory, ConsumerStream(stream.cast_unsigned()))),
        }
    }
}
