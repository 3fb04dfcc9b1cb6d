//! Tensors in host memory, exported by the buffer protocol and by DLPack without a copy.
//!
//! An [`Array`] owns a share of its memory. So does each buffer and each DLPack tensor made of it.
//! A DLPack tensor has no Python object behind it: its consumer may release it in any thread, with
//! the interpreter or without. The memory is released with the last of them.
//!
//! The exported bytes are writable. Nothing here reads or writes them, except two copies: that of a
//! consumer that asks for `copy=True`, and that of [`Array::of_integers`]. So the holders of an
//! array must avoid races among themselves, as with any framework's array.
//!
//! Thread rule: frozen; exports may be made and dropped in several threads at once.
//! Non-goals: computing, indexing. [`device`] is about memory of GPUs.

#![expect(unsafe_code, reason = "the buffer protocol and DLPack are C interfaces")]

use std::ffi::{c_int, c_void};

use larder_client::{Dtype, Error, ErrorKind, HostTensor, Logical, Memory};
use pyo3::{
    exceptions::PyBufferError,
    ffi,
    prelude::*,
    types::{PyCapsule, PyDict, PyTuple},
};

mod arrow;
mod device;
mod dlpack;
mod dtype;
mod given;

use crate::error::OrRaise;
use dlpack::{Export, Unversioned, Versioned};

pub(crate) use arrow::ArrowBatch;
pub(crate) use device::DeviceTensor;
pub(crate) use given::{BlockMemory, GivenBytes, TensorMemory, let_go};

/// A tensor: elements of one type in C order, little-endian, in writable memory of this host.
///
/// `numpy.asarray(array)`, `numpy.from_dlpack(array)`, `torch.from_dlpack(array)` and
/// `jax.dlpack.from_dlpack(array)` make views of it that copy nothing.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Array {
    memory: Memory,
    dtype: Dtype,
    logical: Logical,
    shape: Box<[i64]>,
    /// In bytes.
    strides: Box<[i64]>,
}

impl Array {
    /// The array of a tensor, or of the elements of a ragged tensor.
    ///
    /// # Errors
    /// A side of the shape does not fit `i64`.
    pub(crate) fn new(tensor: HostTensor) -> Result<Self, Error> {
        let HostTensor { name, dtype, logical, shape, memory, .. } = tensor;
        let shape: Result<Box<[i64]>, _> = shape.into_iter().map(i64::try_from).collect();
        let shape = shape.map_err(|error| {
            let what = format!("tensor '{name}' has a side that is too long");
            Error::new(ErrorKind::InvalidArgument, what).with_source(error)
        })?;
        Ok(Self::with(memory, dtype, logical, shape))
    }

    /// A copy of some integers, as `int64`.
    pub(crate) fn of_integers(py: Python<'_>, integers: &[u64]) -> PyResult<Self> {
        let bytes: Vec<u8> = integers.iter().flat_map(|integer| integer.to_le_bytes()).collect();
        let length = i64::try_from(integers.len()).expect("no slice is longer");
        let memory = Memory::copied(&bytes).or_raise(py)?;
        Ok(Self::with(memory, Dtype::I64, Logical::Number, [length].into()))
    }

    fn with(memory: Memory, dtype: Dtype, logical: Logical, shape: Box<[i64]>) -> Self {
        let size = i64::try_from(dtype.size_bytes()).expect("a few bytes");
        let after = |axis: usize| shape[axis + 1..].iter().map(|&length| length.max(1));
        let strides = (0..shape.len()).map(|axis| after(axis).product::<i64>() * size).collect();
        Self { memory, dtype, logical, shape, strides }
    }

    /// A copy of its elements, with no other owner.
    fn copy_memory(&self) -> Result<Memory, Error> {
        let (base, bytes) = (self.memory.base(), self.memory.len());
        // SAFETY: the memory stays in place while `self` has its share. The holders must not write
        // to it meanwhile, as for any array that is copied.
        Memory::copied(unsafe { std::slice::from_raw_parts(base.as_ptr(), bytes) })
    }
}

/// A capsule in the newest form that the consumer knows.
fn export<'py, O: Send + 'static>(
    py: Python<'py>,
    export: Export<'_, O>,
    max_version: Option<(u32, u32)>,
) -> PyResult<Bound<'py, PyCapsule>> {
    match max_version {
        Some((major, _)) if major >= 1 => dlpack::capsule::<Versioned, O>(py, export),
        _ => dlpack::capsule::<Unversioned, O>(py, export),
    }
}

#[pymethods]
impl Array {
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

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.len()
    }

    /// The tensor that was allocated for its batch, and this array's first byte in it. `None` if
    /// the array is in other memory.
    #[getter]
    fn given(&self, py: Python<'_>) -> Option<(Py<PyAny>, usize)> {
        let (memory, offset) = self.memory.given()?;
        Some((memory.downcast_ref::<TensorMemory>()?.tensor(py), offset))
    }

    fn __repr__(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        format!("larder.Array(shape=[{}], dtype={})", shape.join(", "), self.dtype())
    }

    /// The same memory as bytes, with one more axis: the bytes of an element.
    fn raw(&self) -> Self {
        let size = i64::try_from(self.dtype.size_bytes()).expect("a few bytes");
        let shape = self.shape.iter().copied().chain([size]).collect();
        Self::with(self.memory.clone(), Dtype::U8, self.logical, shape)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::CPU, 0)
    }

    /// A capsule for `from_dlpack`: the versioned form if the consumer says that it knows it.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("memory of the host belongs to no stream"));
        }
        if dl_device.is_some_and(|device| device != self.__dlpack_device__()) {
            return Err(PyBufferError::new_err(
                "this array is in the memory of the host: import it there, then copy it to the device",
            ));
        }
        let copied = copy == Some(true);
        let memory = match copied {
            true => py.detach(|| self.copy_memory()).or_raise(py)?,
            false => self.memory.clone(),
        };
        let dtype = dtype::dlpack(self.dtype);
        let address = memory.base().as_ptr().expose_provenance() as u64;
        let (device, shape) = (self.__dlpack_device__(), &self.shape);
        export(py, Export { address, device, owner: memory, dtype, shape, copied }, max_version)
    }

    /// Fills in a view for the buffer protocol.
    ///
    /// # Safety
    /// The interpreter calls it, with a view that it owns.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let array = slf.get();
        let Some(format) = dtype::buffer_format(array.dtype) else {
            return Err(PyBufferError::new_err(format!(
                "the buffer protocol has no {}: use DLPack (torch.from_dlpack, jax.dlpack.from_dlpack)",
                array.dtype(),
            )));
        };
        let fortran_only = flags & ffi::PyBUF_F_CONTIGUOUS == ffi::PyBUF_F_CONTIGUOUS;
        if fortran_only && array.shape.len() > 1 {
            return Err(PyBufferError::new_err("this array is in C order, not in Fortran order"));
        }
        let asked = |flag: c_int| flags & flag == flag;
        let lengths = |asked: bool, lengths: &[i64]| match asked {
            true => lengths.as_ptr().cast_mut().cast::<ffi::Py_ssize_t>(),
            false => std::ptr::null_mut(),
        };
        let format = if asked(ffi::PyBUF_FORMAT) { format.as_ptr() } else { std::ptr::null() };
        let itemsize = array.dtype.size_bytes();
        let filled = ffi::Py_buffer {
            buf: array.memory.base().as_ptr().cast::<c_void>(),
            len: array.memory.len().cast_signed(),
            itemsize: ffi::Py_ssize_t::try_from(itemsize).expect("a few bytes"),
            readonly: 0,
            ndim: c_int::try_from(array.shape.len()).expect("a tensor of few dimensions"),
            format: format.cast_mut(),
            shape: lengths(asked(ffi::PyBUF_ND), &array.shape),
            strides: lengths(asked(ffi::PyBUF_STRIDES), &array.strides),
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
            obj: slf.clone().into_ptr(),
        };
        // SAFETY: the caller owns the view and wants it filled. The shape, the strides and the
        // memory that it points to belong to the array, do not move, and live as long as the
        // reference in `obj`, which the caller releases. A `Py_ssize_t` is an `i64` on the 64-bit
        // systems that this package is for.
        unsafe { view.write(filled) };
        Ok(())
    }
}

/// Tensors by name. A ragged tensor is a tuple of its elements and its offsets.
pub(crate) fn arrays<'py>(
    py: Python<'py>,
    tensors: Vec<HostTensor>,
) -> PyResult<Bound<'py, PyDict>> {
    let arrays = PyDict::new(py);
    for mut tensor in tensors {
        let (name, offsets) = (tensor.name.clone(), tensor.offsets.take());
        let elements = Array::new(tensor).or_raise(py)?;
        match offsets {
            None => arrays.set_item(&*name, elements)?,
            Some(offsets) => {
                let offsets: Vec<u64> = offsets.iter().map(|at| at.unsigned_abs()).collect();
                arrays.set_item(&*name, (elements, Array::of_integers(py, &offsets)?))?;
            }
        }
    }
    Ok(arrays)
}

const _: () = assert!(size_of::<ffi::Py_ssize_t>() == size_of::<i64>());
