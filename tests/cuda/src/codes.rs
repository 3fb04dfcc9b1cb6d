//! The driver's result codes, by number and by name.
//!
//! Constants name the codes that the stand-in returns by itself; the table also names codes that
//! `STANDIN_FAIL` can inject. Thread rule: constants only. Non-goals: every code of every version.

use std::ffi::CStr;

/// A result code of the driver; 0 is success.
pub(crate) type Code = i32;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const NOT_INITIALIZED: Code = 3;
pub(crate) const STUB_LIBRARY: Code = 34;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const INVALID_DEVICE: Code = 101;
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const INVALID_HANDLE: Code = 400;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: Code = 712;
pub(crate) const HOST_MEMORY_NOT_REGISTERED: Code = 713;
pub(crate) const NOT_PERMITTED: Code = 800;
pub(crate) const NOT_SUPPORTED: Code = 801;

/// Tells whether a context that returned `code` is lost for good.
pub(crate) fn is_sticky(code: Code) -> bool {
    matches!(code, 4 | 46 | 214 | 220 | 700 | 702 | 709 | 710 | 714..=719 | 999)
}

/// The name and the text of a code.
pub(crate) fn described(code: Code) -> Option<(&'static CStr, &'static CStr)> {
    let found = TABLE.iter().find(|(known, ..)| *known == code);
    found.map(|(_, name, text)| (*name, *text))
}

const TABLE: &[(Code, &CStr, &CStr)] = &[
    (0, c"CUDA_SUCCESS", c"success"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid value"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"not initialized"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"deinitialized"),
    (34, c"CUDA_ERROR_STUB_LIBRARY", c"stub library"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"device unavailable"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no device"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid context"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"ecc uncorrectable"),
    (220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", c"nvlink uncorrectable"),
    (304, c"CUDA_ERROR_OPERATING_SYSTEM", c"operating system"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid handle"),
    (401, c"CUDA_ERROR_ILLEGAL_STATE", c"illegal state"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"not found"),
    (600, c"CUDA_ERROR_NOT_READY", c"not ready"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"illegal address"),
    (701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"launch out of resources"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"launch timeout"),
    (709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
    (710, c"CUDA_ERROR_ASSERT", c"assert"),
    (712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"host memory already registered"),
    (713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"host memory not registered"),
    (714, c"CUDA_ERROR_HARDWARE_STACK_ERROR", c"hardware stack error"),
    (715, c"CUDA_ERROR_ILLEGAL_INSTRUCTION", c"illegal instruction"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
    (717, c"CUDA_ERROR_INVALID_ADDRESS_SPACE", c"invalid address space"),
    (718, c"CUDA_ERROR_INVALID_PC", c"invalid pc"),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"launch failed"),
    (800, c"CUDA_ERROR_NOT_PERMITTED", c"not permitted"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"not supported"),
    (802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"system not ready"),
    (803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"system driver mismatch"),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown"),
];
