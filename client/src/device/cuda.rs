//! GPUs, by the CUDA driver.
//!
//! The driver is loaded when a device is first opened. Without a driver everything else works. A
//! process opens each device once, in its primary context, which torch and JAX use too.
//!
//! [`Cuda::did`] checks the result of each call. After a sticky error the device is lost: no
//! further call reaches the driver, not even to free memory.
//!
//! Thread rule: any thread. Each call first binds the context to its thread. Non-goals: rules of
//! order and lifetime (see [`pump`](super::pump)).

mod library;
mod memory;
mod stream;
mod thread;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use cudarc::driver::{CudaContext, DriverError, result, sys};
use larder_extent::{Attached, Companion, fork_count};

use super::{
    ConsumerStream, Device, DeviceFacts, DeviceMemory, Driver, PageLocked, Stream, forked,
    registrar::Registrar,
};
use crate::{Error, ErrorKind, process::PerProcess};
use library::{DriverFault, Library};
use thread::{Entered, Restore};

/// `CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED`: whether the driver registers pages that
/// the process can only read.
const REGISTERS_READ_ONLY: sys::CUdevice_attribute =
    sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;

/// A GPU that this process uses.
pub(super) struct Cuda {
    context: Guarded<Arc<CudaContext>>,
    state: Arc<State>,
    ordinal: u32,
    registers_pages: bool,
    copies_batches: bool,
}

/// Whether the driver may be called.
struct State {
    name: String,
    /// The [`fork_count`] of the process that opened the device.
    process: u32,
    /// The sticky error that ended the device.
    lost: OnceLock<Error>,
}

/// A resource of the driver, freed by its drop. In a forked child, and after the device was lost,
/// the drop leaves it alone.
struct Guarded<T> {
    value: Option<T>,
    state: Arc<State>,
}

/// The devices of this process.
#[derive(Default)]
struct OpenedDevices {
    devices: Mutex<BTreeMap<u32, WeakDevice>>,
    /// Shared, because registered pages serve all devices.
    registrar: OnceLock<Arc<Registrar>>,
}

struct WeakDevice {
    driver: Weak<Cuda>,
    lot: Weak<super::Lot>,
}

/// One more than the fork count of the process that called the driver first. 0 before the first
/// call.
static CALLED_IN: AtomicU32 = AtomicU32::new(0);

static OPENED: PerProcess<OpenedDevices> = PerProcess::new();

/// See [`Device::cuda`].
pub(super) fn open(ordinal: u32) -> Result<Device, Error> {
    let name = format!("cuda:{ordinal}");
    let what = format!("device '{name}' can't be used");
    let library = begin().map_err(|fault| fault.into_error(&what))?;
    let opened = OPENED.get(|_| OpenedDevices::default());
    let registrar = Arc::clone(opened.registrar.get_or_init(Registrar::new));
    let mut devices = opened.devices.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(WeakDevice { driver, lot }) = devices.get(&ordinal)
        && let (Some(driver), Some(lot)) = (driver.upgrade(), lot.upgrade())
        && driver.check().is_ok()
    {
        return Ok(Device { driver, lot, registrar });
    }
    let driver = Arc::new(Cuda::open(ordinal, name, &library)?);
    let device = Device::new(Arc::clone(&driver) as Arc<dyn Driver>, registrar);
    let weak = WeakDevice { driver: Arc::downgrade(&driver), lot: Arc::downgrade(&device.lot) };
    devices.insert(ordinal, weak);
    Ok(device)
}

/// Whether a device of this process is open.
#[cfg(feature = "testing")]
pub(super) fn is_any_open() -> bool {
    let opened = OPENED.get(|_| OpenedDevices::default());
    let devices = opened.devices.lock().unwrap_or_else(PoisonError::into_inner);
    devices.values().any(|device| device.driver.strong_count() > 0)
}

/// See [`Device::list`].
pub(super) fn list() -> Result<Vec<DeviceFacts>, Error> {
    let what = "GPUs can't be listed";
    let library = match begin() {
        Ok(library) => library,
        Err(DriverFault::Absent(..)) => return Ok(Vec::new()),
        Err(fault) => return Err(fault.into_error(what)),
    };
    (0..library.devices).map(|ordinal| facts(ordinal, &library)).collect()
}

/// Finds the driver. Fails in a forked child of a process that called it.
fn begin() -> Result<Library, DriverFault> {
    let (process, first) = (fork_count() + 1, CALLED_IN.load(Relaxed));
    if first != 0 && first != process {
        return Err(DriverFault::Forked);
    }
    let found = Library::find();
    if found.is_ok() {
        CALLED_IN.store(process, Relaxed);
    }
    found
}

impl DriverFault {
    /// The error that `what` fails for this reason.
    fn into_error(self, what: &str) -> Error {
        match self {
            Self::Absent(why, hint) | Self::Unusable(why, hint) => {
                Error::new(ErrorKind::NotFound, what).because(why).hint(hint)
            }
            Self::Forked => forked(what),
        }
    }
}

fn facts(ordinal: u32, library: &Library) -> Result<DeviceFacts, Error> {
    let did = |call: &str, error: DriverError| failure("GPUs can't be listed", call, error);
    let device = result::device::get(ordinal.cast_signed()).map_err(|e| did("cuDeviceGet", e))?;
    let name = result::device::get_name(device).map_err(|e| did("cuDeviceGetName", e))?;
    let (bytes, registers_pages) = memory::facts(device).map_err(|e| did("cuDeviceTotalMem", e))?;
    Ok(DeviceFacts {
        ordinal,
        name,
        memory_bytes: bytes,
        driver: library.version_text(),
        registers_pages,
    })
}

impl Cuda {
    fn open(ordinal: u32, name: String, library: &Library) -> Result<Self, Error> {
        if ordinal >= library.devices {
            return Err(no_such_device(&name, library.devices));
        }
        let state = State { name, process: fork_count(), lost: OnceLock::new() };
        let state = Arc::new(state);
        let _restore = Restore::later();
        let context = CudaContext::new(ordinal as usize);
        let context = state.did("cuDevicePrimaryCtxRetain", context)?;
        memory::leave_order_to_caller(&context);
        let registers = context.attribute(REGISTERS_READ_ONLY);
        let registers_pages = state.did("cuDeviceGetAttribute", registers)? == 1;
        Ok(Self {
            context: Guarded::new(context, &state),
            state,
            ordinal,
            registers_pages,
            copies_batches: library.copies_batches(),
        })
    }

    /// Makes the context current on this thread.
    fn enter(&self) -> Result<Entered<'_>, Error> {
        Entered::new(&self.context, &self.state)
    }

    fn did<T>(&self, call: &str, result: Result<T, DriverError>) -> Result<T, Error> {
        self.state.did(call, result)
    }
}

impl State {
    fn check(&self) -> Result<(), Error> {
        if self.process != fork_count() {
            return Err(forked(&self.unusable()));
        }
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn unusable(&self) -> String {
        format!("device '{}' can't be used", self.name)
    }

    fn did<T>(&self, call: &str, result: Result<T, DriverError>) -> Result<T, Error> {
        result.map_err(|error| {
            if !is_sticky(error.0) {
                return failure(&self.unusable(), call, error);
            }
            let why = format!("{call} returned {}", name_of(error));
            let what = format!("device '{}' is lost", self.name);
            let lost = Error::new(ErrorKind::Unavailable, what).because(why);
            let hint = "start this process again: the device answers nothing else until then";
            self.lost.get_or_init(|| lost.hint(hint)).clone()
        })
    }
}

impl<T> Guarded<T> {
    fn new(value: T, state: &Arc<State>) -> Self {
        Self { value: Some(value), state: Arc::clone(state) }
    }
}

impl<T> std::ops::Deref for Guarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("taken only when dropped")
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        if self.state.check().is_err() {
            return std::mem::forget(self.value.take());
        }
        let _restore = Restore::later();
        drop(self.value.take());
    }
}

impl Driver for Cuda {
    fn name(&self) -> String {
        self.state.name.clone()
    }

    fn ordinal(&self) -> u32 {
        self.ordinal
    }

    fn page_locked(&self, bytes: usize) -> Result<Box<dyn PageLocked>, Error> {
        self.allocate_page_locked(bytes)
    }

    fn memory(&self, bytes: usize) -> Result<Arc<dyn DeviceMemory>, Error> {
        self.allocate(bytes)
    }

    fn register(&self, extent: &Attached) -> Result<Companion, Error> {
        self.register_pages(extent)
    }

    fn stream(&self) -> Result<Box<dyn Stream>, Error> {
        self.new_stream()
    }

    fn consumer(&self, stream: ConsumerStream) -> Result<Box<dyn Stream>, Error> {
        self.borrow_stream(stream)
    }

    fn check(&self) -> Result<(), Error> {
        self.state.check()
    }

    fn adopt_thread(&self) {
        thread::adopt();
    }
}

/// Whether the driver returns this error from now on.
fn is_sticky(code: sys::CUresult) -> bool {
    use sys::CUresult as Code;
    matches!(
        code,
        Code::CUDA_ERROR_DEINITIALIZED
            | Code::CUDA_ERROR_DEVICE_UNAVAILABLE
            | Code::CUDA_ERROR_ECC_UNCORRECTABLE
            | Code::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | Code::CUDA_ERROR_ILLEGAL_ADDRESS
            | Code::CUDA_ERROR_LAUNCH_TIMEOUT
            | Code::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | Code::CUDA_ERROR_ASSERT
            | Code::CUDA_ERROR_HARDWARE_STACK_ERROR
            | Code::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | Code::CUDA_ERROR_MISALIGNED_ADDRESS
            | Code::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | Code::CUDA_ERROR_INVALID_PC
            | Code::CUDA_ERROR_LAUNCH_FAILED
            | Code::CUDA_ERROR_MPS_CLIENT_TERMINATED
            | Code::CUDA_ERROR_EXTERNAL_DEVICE
            | Code::CUDA_ERROR_UNKNOWN
    )
}

fn failure(what: &str, call: &str, error: DriverError) -> Error {
    Error::new(ErrorKind::Internal, what).because(format!("{call} returned {}", name_of(error)))
}

fn name_of(error: DriverError) -> String {
    let name = error.error_name().ok().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| format!("error {}", error.0 as u32))
}

fn no_such_device(name: &str, count: u32) -> Error {
    let found = match count {
        1 => "this process sees 1 GPU, cuda:0".to_owned(),
        _ => format!("this process sees {count} GPUs, cuda:0 to cuda:{}", count - 1),
    };
    Error::new(ErrorKind::NotFound, format!("device '{name}' can't be used"))
        .because(found)
        .hint("choose one of them, or name more in CUDA_VISIBLE_DEVICES")
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({})", self.state.name)
    }
}
