//! The memory of a torch tensor, given for a batch to be gathered into.
//!
//! ```text
//! allocate(bytes) ──▶ tensor ──▶ TensorMemory ──▶ a thread writes rows ──▶ arrays of the batch ──▶ views of the tensor
//!                                     └ dropped: the tensor is put down, and let go of by a thread of Python's
//! ```
//!
//! A thread that fetches may drop such memory when nobody wants its batch any more. It must not
//! wait for the interpreter then, which may be about to end, nor take a lock that a forked child
//! could find held for ever. So a dropped tensor is only put down here, in a list without a lock,
//! and whoever next begins an epoch, asks for a batch or ends an epoch lets go of it.

use std::{
    iter,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicPtr, Ordering},
};

use larder_client::{CallerBlock, CallerMemory, ConsumerStream, Error, ErrorKind, Owned};
use pyo3::{intern, prelude::*};

use crate::error::OrRaise;

/// What the tensors of a batch need: the widest of torch's own vector loads.
const ALIGNMENT: usize = 64;

/// What blocks of device memory are aligned to: torch's allocator gives multiples of this.
const BLOCK_ALIGNMENT: u64 = 256;

/// The tensor that was put down last, to be let go of with the interpreter: each leads to the one
/// before it.
static PUT_DOWN: AtomicPtr<PutDown> = AtomicPtr::new(ptr::null_mut());

struct PutDown {
    tensor: Tensor,
    before: *mut PutDown,
}

/// A forked child must not be the one to let go of it: torch returns page-locked memory to its
/// allocator then, which asks the device, and takes a lock that a thread of the parent may hold for
/// ever.
type Tensor = Owned<Py<PyAny>>;

/// The bytes of a tensor that was made for one batch.
pub(crate) struct TensorMemory {
    /// Taken when dropped.
    tensor: Option<Tensor>,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the address is plain data; what it points to is written through `&mut` and read through
// `&` only. A `Py` may be sent and shared, and is used with the interpreter only.
unsafe impl Send for TensorMemory {}
// SAFETY: as above.
unsafe impl Sync for TensorMemory {}

impl TensorMemory {
    /// The memory of the tensor that `allocate` makes of a number of bytes. It must be a new one in
    /// the memory of the host, contiguous, of which `allocate` keeps nothing.
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
        // SAFETY: the tensor has so many bytes there, and keeps them as long as `self` has it. It
        // was made for this batch and nobody else has it before the batch is handed out, after
        // which this library neither reads nor writes them. What torch allocates has some value in
        // every byte.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

/// A tensor in device memory that was made for one batch.
pub(crate) struct BlockMemory {
    /// Taken when dropped, or handed back.
    tensor: Option<Tensor>,
    address: u64,
    bytes: usize,
    /// The stream that it was allocated on: torch uses its memory again after work queued there.
    stream: ConsumerStream,
}

impl BlockMemory {
    /// The tensor that `allocate` of `place` makes of a number of bytes, with the stream it belongs
    /// to.
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

    /// The tensor, which is not held here any more.
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

/// To be called in any thread, with the interpreter or without.
fn put_down(tensor: Tensor) {
    let last = Box::into_raw(Box::new(PutDown { tensor, before: ptr::null_mut() }));
    let push = |before| {
        // SAFETY: nobody else has it before it is in the list.
        unsafe { (*last).before = before };
        Some(last)
    };
    let pushed = PUT_DOWN.fetch_update(Ordering::Release, Ordering::Relaxed, push);
    debug_assert!(pushed.is_ok(), "it is always pushed");
}

/// Lets go of the tensors that were put down.
pub(crate) fn let_go(_py: Python<'_>) {
    let mut last = PUT_DOWN.swap(ptr::null_mut(), Ordering::Acquire);
    let tensors = iter::from_fn(|| {
        // SAFETY: what is in the list came from a box, and who takes the list is the only one to
        // have it. It is taken whole, so that nobody looks at what another thread frees.
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
