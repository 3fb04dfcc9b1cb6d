//! Memory: page-locked on the host, on the device, and registered pages of the cache.
//!
//! Thread rule: allocated and freed in any thread. Nothing is freed in a forked child, or after the
//! device was lost. Non-goals: reusing memory; `staging` and `blocks` do that.

#![expect(unsafe_code, reason = "calls of the driver that take and return addresses")]

use std::{
    ffi::c_void,
    ptr::NonNull,
    slice,
    sync::{
        Arc,
        atomic::{AtomicPtr, Ordering::Relaxed},
    },
};

use cudarc::driver::{CudaContext, DriverError, result, sys};
use larder_extent::{Attached, Companion};

use super::{Cuda, REGISTERS_READ_ONLY, State, thread::Entered};
use crate::{
    Error, ErrorKind,
    device::{DeviceMemory, PageLocked},
};

/// The bytes of a device's memory, and whether it registers pages that can only be read.
pub(super) fn facts(device: sys::CUdevice) -> Result<(u64, bool), DriverError> {
    // SAFETY: both calls only write their results.
    let (bytes, registers) = unsafe {
        (
            result::device::total_mem(device)?,
            result::device::get_attribute(device, REGISTERS_READ_ONLY)?,
        )
    };
    Ok((bytes as u64, registers == 1))
}

/// Turns off `cudarc`'s tracking, which would wait for the whole context at the first new stream.
pub(super) fn leave_order_to_caller(context: &CudaContext) {
    // SAFETY: this crate makes no `CudaSlice` of this context, and orders all copies by its own
    // events.
    unsafe { context.disable_event_tracking() };
}

impl Cuda {
    pub(super) fn allocate_page_locked(&self, bytes: usize) -> Result<Box<dyn PageLocked>, Error> {
        let context = self.enter()?;
        let bytes = bytes.max(1);
        // SAFETY: the memory is uninitialised; it is zeroed below before a slice of it is made.
        let allocated = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let base = match allocated {
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let what = format!("there are no {bytes} bytes of page-locked memory for a batch");
                return Err(Error::new(ErrorKind::ResourceExhausted, what)
                    .hint("lower batch_size or prefetch"));
            }
            other => self.did("cuMemHostAlloc", other)?,
        };
        let base = NonNull::new(base.cast::<u8>()).expect("the driver's memory is not at 0");
        // SAFETY: the driver allocated this many bytes, and this is their only user.
        unsafe { base.write_bytes(0, bytes) };
        let (context, state) = (Arc::clone(&context), Arc::clone(&self.state));
        Ok(Box::new(PinnedBytes { base: AtomicPtr::new(base.as_ptr()), bytes, context, state }))
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<Arc<dyn DeviceMemory>, Error> {
        let context = self.enter()?;
        let bytes = bytes.max(1);
        // SAFETY: copies write to the memory before anything reads it.
        let address = match unsafe { result::malloc_sync(bytes) } {
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                return Err(self.no_memory(bytes));
            }
            other => self.did("cuMemAlloc", other)?,
        };
        let (context, state) = (Arc::clone(&context), Arc::clone(&self.state));
        Ok(Arc::new(OnDevice { address, bytes, context, state }))
    }

    fn no_memory(&self, bytes: usize) -> Error {
        let name = &self.state.name;
        let what = format!("device '{name}' has no memory for a batch of {bytes} bytes");
        let error = Error::new(ErrorKind::ResourceExhausted, what)
            .hint("lower batch_size or prefetch, or free memory of the device");
        match self.context.mem_get_info() {
            Ok((free, total)) => error.because(format!("{free} of its {total} bytes are free")),
            Err(_) => error,
        }
    }

    pub(super) fn register_pages(&self, extent: &Attached) -> Result<Companion, Error> {
        let refused = |why: String| {
            let what =
                format!("device '{}' refused to register pages of the cache", self.state.name);
            let hint = "say device_way='auto' or 'staged'";
            Error::new(ErrorKind::InvalidArgument, what).because(why).hint(hint)
        };
        if !self.registers_pages {
            return Err(refused("it registers no pages that a process can only read".to_owned()));
        }
        let context = self.enter()?;
        let bytes = extent.bytes();
        let base = bytes.as_ptr().cast_mut().cast::<c_void>();
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_READ_ONLY;
        // SAFETY: the range is a mapping that outlives the registration: see `Attached::accompany`.
        // The driver only reads it, as the flag says.
        let registered = unsafe { sys::cuMemHostRegister_v2(base, bytes.len(), flags) }.result();
        if let Err(error) = registered {
            let error = self.did::<()>("cuMemHostRegister", Err(error)).expect_err("an error");
            self.state.check()?;
            return Err(refused(error.why().unwrap_or_default().to_owned()));
        }
        let (context, state) = (Arc::clone(&context), Arc::clone(&self.state));
        Ok(Arc::new(Registered { base: AtomicPtr::new(base.cast()), context, state }))
    }
}

/// Page-locked memory of the driver, for all devices.
struct PinnedBytes {
    /// Only loaded. Atomic because a bare pointer can't be sent to another thread.
    base: AtomicPtr<u8>,
    bytes: usize,
    context: Arc<CudaContext>,
    state: Arc<State>,
}

impl PageLocked for PinnedBytes {
    fn bytes(&self) -> &[u8] {
        // SAFETY: this many bytes lie there until this is dropped, all of them initialised, and
        // only `bytes_mut` writes to them.
        unsafe { slice::from_raw_parts(self.base.load(Relaxed), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.base.load(Relaxed), self.bytes) }
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        free(&self.state, &self.context, || {
            // SAFETY: the driver allocated it, and no copy reads it: `Lot` holds what copies read.
            unsafe { result::free_host(self.base.load(Relaxed).cast()) }
        });
    }
}

struct OnDevice {
    address: u64,
    bytes: usize,
    context: Arc<CudaContext>,
    state: Arc<State>,
}

impl DeviceMemory for OnDevice {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        free(&self.state, &self.context, || {
            // SAFETY: the driver allocated it, and its last use is done: `Lot` holds it until then.
            unsafe { result::free_sync(self.address) }
        });
    }
}

/// Pages of an extent that the driver has registered.
struct Registered {
    base: AtomicPtr<u8>,
    context: Arc<CudaContext>,
    state: Arc<State>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        free(&self.state, &self.context, || {
            // SAFETY: it was registered at this address, and each copy holds its registration.
            unsafe { sys::cuMemHostUnregister(self.base.load(Relaxed).cast()) }.result()
        });
    }
}

/// Frees memory, if the driver may be called. The program can't get its error, but a sticky error
/// is kept.
fn free(state: &State, context: &Arc<CudaContext>, free: impl FnOnce() -> Result<(), DriverError>) {
    if let Ok(_entered) = Entered::new(context, state) {
        let _ = state.did("a call that frees", free());
    }
}
