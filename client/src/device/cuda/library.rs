//! Finds the driver's library and checks that it is usable.
//!
//! `cudarc` panics on a missing library or symbol. So this module looks for both before the first
//! call, and returns an error with the path of the library.
//!
//! Thread rule: any thread. A process loads the library once. Non-goals: installing drivers.

#![expect(unsafe_code, reason = "symbols of a library are untyped; none is called here untyped")]

use std::{ffi::c_void, fs};

use cudarc::driver::{DriverError, result, sys};

/// The oldest CUDA version of a usable driver, in the driver's notation: 12.0.
const VERSION_MIN: i32 = 12_000;

/// The first version with `cuMemcpyBatchAsync`.
const BATCHES_VERSION: i32 = 12_080;

/// Functions that this crate calls. Every driver of [`VERSION_MIN`] has them.
const SYMBOLS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuGetErrorName",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
];

pub(super) struct Library {
    version: i32,
    pub(super) devices: u32,
}

impl Library {
    /// Finds and initialises the driver.
    ///
    /// # Errors
    /// The defect of the library, with the reason and a hint.
    pub(super) fn find() -> Result<Self, DriverFault> {
        // SAFETY: loads a library that the system has under the driver's name. Its constructors
        // run, as in any program that uses a GPU.
        if !unsafe { sys::is_culib_present() } {
            let hint = "install the driver, start the container with GPUs, or leave `device` out";
            let why = "no NVIDIA driver (libcuda.so) was found";
            return Err(DriverFault::Absent(why.to_owned(), hint.to_owned()));
        }
        let path = path();
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| !has(symbol)) {
            return Err(too_old(&path, &format!("lacks {symbol}")));
        }
        let mut version = 0;
        // SAFETY: the driver writes one integer to a place that outlives the call.
        let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
        asked.map_err(|error| cannot_begin(&path, version, error))?;
        if version < VERSION_MIN {
            return Err(too_old(&path, &format!("is for CUDA {}", text(version))));
        }
        let begun = result::init().and_then(|()| result::device::get_count());
        let count = begun.map_err(|error| cannot_begin(&path, version, error))?;
        match u32::try_from(count).unwrap_or(0) {
            0 => Err(no_device()),
            devices => Ok(Self { version, devices }),
        }
    }

    /// Its CUDA version.
    pub(super) fn version_text(&self) -> String {
        text(self.version)
    }

    /// Whether one call queues many copies.
    pub(super) fn copies_batches(&self) -> bool {
        self.version >= BATCHES_VERSION && has("cuMemcpyBatchAsync")
    }
}

fn has(symbol: &str) -> bool {
    address(symbol).is_some()
}

fn address(symbol: &str) -> Option<*const c_void> {
    // SAFETY: the library was found, and the symbol is not called by this type.
    let found = unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
    found.ok().map(|function| *function as *const c_void)
}

/// The path of the library, as the kernel lists it.
fn path() -> String {
    let address = address("cuInit").map_or(0, <*const c_void>::addr);
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let found = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (begin, end) = range.split_once('-')?;
        let begin = usize::from_str_radix(begin, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let path = rest.find('/').map(|at| &rest[at..])?;
        (begin..end).contains(&address).then(|| path.to_owned())
    });
    found.unwrap_or_else(|| "libcuda.so".to_owned())
}

/// Formats a version: 12080 is 12.8.
fn text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// A reason why there is no usable driver.
pub(super) enum DriverFault {
    /// There is no driver, or it finds no GPU. Holds the reason and a hint.
    Absent(String, String),
    /// The driver can't be used. Holds the reason and a hint.
    Unusable(String, String),
    /// This process was forked from a process that uses the driver.
    Forked,
}

impl DriverFault {
    fn new(why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Unusable(why.into(), hint.into())
    }
}

fn too_old(path: &str, why: &str) -> DriverFault {
    let why = format!("{path} {why}, and a driver for CUDA 12.0 or later is needed");
    DriverFault::new(why, "install a newer driver, or leave `device` out")
}

fn no_device() -> DriverFault {
    let hint = "look at CUDA_VISIBLE_DEVICES and at nvidia-smi, or leave `device` out";
    DriverFault::Absent("the driver finds 0 GPUs".to_owned(), hint.to_owned())
}

fn cannot_begin(path: &str, version: i32, error: DriverError) -> DriverFault {
    use sys::CUresult as Code;
    match error.0 {
        Code::CUDA_ERROR_STUB_LIBRARY => {
            let what = "is the toolkit's stub for linking, and no driver";
            let version = text(version);
            let why = format!(
                "{path} (CUDA {version}) {what}; a driver for CUDA 12.0 or later is needed"
            );
            let hint = "take the folder of stubs out of LD_LIBRARY_PATH, or leave `device` out";
            DriverFault::new(why, hint)
        }
        Code::CUDA_ERROR_NO_DEVICE => no_device(),
        Code::CUDA_ERROR_NOT_INITIALIZED => DriverFault::Forked,
        _ => {
            let why = format!("{path}: cuInit returned {}", super::name_of(error));
            DriverFault::new(why, "look at nvidia-smi")
        }
    }
}
