//! Initialisation, version and errors: the calls that always answer.
//!
//! They need neither `cuInit` nor a healthy device; only the stub refuses the names of errors.
//! Thread rule: any thread. Non-goals: other calls.

use std::ffi::{c_char, c_int, c_uint};

use super::Out;
use crate::codes::{self, Code, described};
use crate::gate::answer;

/// Initialises the driver.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuInit(flags: c_uint) -> Code {
    answer("cuInit", |mut state| {
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        if state.contexts.is_empty() {
            return Err(codes::NO_DEVICE);
        }
        state.initialized = true;
        Ok(())
    })
}

/// The driver's version.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDriverGetVersion(version: Out<c_int>) -> Code {
    answer("cuDriverGetVersion", |state| version.put(state.settings.version))
}

/// The name of a code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGetErrorName(code: Code, name: Out<*const c_char>) -> Code {
    answer("cuGetErrorName", |_| match described(code) {
        Some((known, _)) => name.put(known.as_ptr()),
        None => name.put(std::ptr::null()).and(Err(codes::INVALID_VALUE)),
    })
}

/// A sentence about a code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGetErrorString(code: Code, text: Out<*const c_char>) -> Code {
    answer("cuGetErrorString", |_| match described(code) {
        Some((_, known)) => text.put(known.as_ptr()),
        None => text.put(std::ptr::null()).and(Err(codes::INVALID_VALUE)),
    })
}
