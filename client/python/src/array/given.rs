//! Memory of Python objects, given for rows to be gathered into: of a torch tensor for a batch, or
//! of an array of the caller for one read.
//!
//! ```text
//! allocate(bytes) ──▶ tensor ──▶ TensorMemory ──▶ a thread writes rows ──▶ views of the tensor
//!                                    └ dropped: the tensor is put down, Python releases it
//! ```
//!
//! A fetching thread may drop such memory if its batch is no longer wanted. It must not wait for
//! the interpreter, which may be about to end. It must not take a lock either: a forked child could
//! find the lock held for ever. So a dropped tensor is only put down here, in a list without a
//! lock. The next thread that begins an epoch, asks for a batch or ends an epoch releases it.

use std::{
    iter,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicPtr, Ordering},
};

use larder_client::{CallerBlock, CallerMemory, ConsumerStream, Error, ErrorKind, Owned};
use pyo3::{buffer::PyBuffer, exceptions::PyBufferError, intern, prelude::*};

use crate::error::OrRaise;

/// Alignment of the tensors of a batch: the widest of torch's own vector loads.
const ALIGNMENT: usize = 64;

/// Alignment of blocks of device memory: torch's allocator returns multiples of this.
const BLOCK_ALIGNMENT: u64 = 256;

/// The tensor that was put down last. Each points to the one before it. A thread with the
/// interpreter releases them.
static PUT_DOWN: AtomicPtr<PutDown> = AtomicPtr::new(ptr::null_mut());

struct PutDown {
    tensor: Tensor,
    before: *mut PutDown,
}

/// A forked child must not release it. torch would return page-locked memory to its allocator. The
/// allocator asks the device, and takes a lock that a thread of the parent may hold for ever.
type Tensor = Owned<Py<PyAny>>;

/// The bytes of a tensor that was made for one batch.
pub(crate) struct TensorMemory {
    /// Taken when dropped.
    tensor: Option<Tensor>,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the address is plain data. The bytes that it points to are written through `&mut` and
// read through `&` only. A `Py` may be sent and shared, and is used with the interpreter only.
unsafe impl Send for TensorMemory {}
// SAFETY: as above.
unsafe impl Sync for TensorMemory {}

impl TensorMemory {
    /// The memory of the tensor that `allocate` makes for a number of bytes. The tensor must be
    /// new, contiguous and in the memory of the host, and `allocate` must keep no reference to it.
    pub(crate) fn allocate(allocate: &Bound<'_, PyAny>, bytes: usize) -> PyResult<Self> {
        let py = allocate.py();
        let tensor = allocate.call1((bytes,))?;
        let address: usize = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let size: usize = tensor.getattr(intern!(py, "nbytes"))?.extract()?;
        let base = NonNull::new(ptr::with_exposed_provenance_mut::<u8>(address));
        match base.filter(|base| size >= bytes && base.addr().get().is_multiple_of(ALIGNMENT)) {
            Some(base) => Ok(Self { tensor: Some(Tensor::new(tensor.unbind())), base, bytes }),
            None => Err(misfit(address, size, bytes)).or_raise(py),
        }
    }

    /// The tensor.
    pub(crate) fn tensor(&self, py: Python<'_>) -> Py<PyAny> {
        self.tensor.as_ref().expect("taken only when dropped").clone_ref(py)
    }
}

impl CallerMemory for TensorMemory {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the tensor has so many bytes at this address, and keeps them as long as `self`
        // has the tensor. It was made for this batch, and has no other owner before the batch is
        // handed out. After that this library neither reads nor writes the bytes. Memory that torch
        // allocates has some value in every byte.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

/// Writable bytes of an array of the caller, for one read.
pub(crate) struct GivenBytes(PyBuffer<u8>);

impl GivenBytes {
    /// The bytes of an array, which stays in place meanwhile.
    ///
    /// # Errors
    /// `BufferError` for an array that is read-only or has gaps.
    pub(crate) fn new(array: PyBuffer<u8>) -> PyResult<Self> {
        if array.readonly() || !array.is_c_contiguous() {
            return Err(PyBufferError::new_err("a writable array in C order is needed"));
        }
        Ok(Self(array))
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: the exporter keeps so many writable bytes at this address while the buffer is
        // held. The package has checked that the arrays of one call do not overlap. The caller must
        // not use them in another thread meanwhile, as for any function that fills an array.
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

/// A tensor in device memory that was made for one batch.
pub(crate) struct BlockMemory {
    /// Taken when dropped, or handed back.
    tensor: Option<Tensor>,
    address: u64,
    bytes: usize,
    /// The stream that it was allocated on: torch reuses its memory after the work queued there.
    stream: ConsumerStream,
}

impl BlockMemory {
    /// The tensor that `allocate` of `place` makes for a number of bytes, with its stream.
    pub(crate) fn allocate(place: &Bound<'_, PyAny>, bytes: usize) -> PyResult<Self> {
        let py = place.py();
        let (tensor, stream): (Bound<'_, PyAny>, u64) =
            place.call_method1(intern!(py, "allocate"), (bytes,))?.extract()?;
        let address: u64 = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let size: usize = tensor.getattr(intern!(py, "nbytes"))?.extract()?;
        if address == 0 || size < bytes || !address.is_multiple_of(BLOCK_ALIGNMENT) {
            let what = format!("{size} bytes at {address:#x} are no block for {bytes} bytes");
            return Err(Error::new(ErrorKind::Internal, what)
                .because(format!(
                    "a tensor of that size is needed, at a multiple of {BLOCK_ALIGNMENT}"
                ))
                .hint(
                    "please report it with your version of torch; output='device' does without",
                ))
            .or_raise(py);
        }
        let tensor = Some(Tensor::new(tensor.unbind()));
        Ok(Self { tensor, address, bytes: size, stream: ConsumerStream(stream) })
    }

    /// The tensor. This memory no longer owns it.
    pub(crate) fn take(mut self, py: Python<'_>) -> Py<PyAny> {
        self.tensor.take().expect("taken once").clone_ref(py)
    }
}

impl CallerBlock for BlockMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn stream(&self) -> ConsumerStream {
        self.stream
    }
}

impl Drop for BlockMemory {
    fn drop(&mut self) {
        if let Some(tensor) = self.tensor.take() {
            put_down(tensor);
        }
    }
}

impl Drop for TensorMemory {
    fn drop(&mut self) {
        if let Some(tensor) = self.tensor.take() {
            put_down(tensor);
        }
    }
}

/// Puts a tensor down. Any thread may call this, with the interpreter or without.
fn put_down(tensor: Tensor) {
    let last = Box::into_raw(Box::new(PutDown { tensor, before: ptr::null_mut() }));
    let push = |before| {
        // SAFETY: this thread has the only pointer until it is in the list.
        unsafe { (*last).before = before };
        Some(last)
    };
    let pushed = PUT_DOWN.fetch_update(Ordering::Release, Ordering::Relaxed, push);
    debug_assert!(pushed.is_ok(), "it is always pushed");
}

/// Releases the tensors that were put down.
pub(crate) fn let_go(_py: Python<'_>) {
    let mut last = PUT_DOWN.swap(ptr::null_mut(), Ordering::Acquire);
    let tensors = iter::from_fn(|| {
        // SAFETY: each entry of the list came from a box. The swap takes the whole list, so this
        // thread alone has it, and no other thread reads an entry that this thread frees.
        let taken = (!last.is_null()).then(|| unsafe { Box::from_raw(last) })?;
        last = taken.before;
        Some(taken.tensor)
    });
    tensors.for_each(drop);
}

fn misfit(address: usize, size: usize, bytes: usize) -> Error {
    let what = format!("{size} bytes at {address:#x} are no memory for a batch of {bytes} bytes");
    Error::new(ErrorKind::Internal, what)
        .because(format!("a tensor of that size is needed, at a multiple of {ALIGNMENT}"))
        .hint("please report it with your version of torch; pin_memory=False does without")
}
