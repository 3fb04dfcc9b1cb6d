//! Primary contexts, and the context that is current in a thread.
//!
//! The last release of a primary context waits for the context's work.
//! Thread rule: any thread; the current context is the thread's own. Non-goals: other contexts.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};

use super::Out;
use crate::codes::{self, Code};
use crate::context::{current_handle, pop, push};
use crate::gate::{ask, call, release};
use crate::state::until;
use crate::stream::synchronize;

/// Retains the primary context of a device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: c_int) -> Code {
    call("cuDevicePrimaryCtxRetain", |mut state| {
        state.retain(device).and_then(|handle| context.put(handle))
    })
}

/// Releases the primary context of a device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Code {
    release("cuDevicePrimaryCtxRelease_v2", |mut state| {
        if let Some(device) = state.release(device)? {
            let streams = state.streams_of(device);
            let ticks = state.newest(&streams).0;
            drop(until(state, |state| ticks.iter().all(|tick| state.done(*tick)))?);
        }
        Ok(())
    })
}

/// Makes a context current in this thread; null makes none current.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSetCurrent(context: u64) -> Code {
    call("cuCtxSetCurrent", |state| {
        if context != 0 {
            state.device_of(context)?;
        }
        pop();
        if context == 0 { Ok(()) } else { push(context) }
    })
}

/// The thread's current context, or null.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxGetCurrent(context: Out<u64>) -> Code {
    call("cuCtxGetCurrent", |_| context.put(current_handle()))
}

/// Makes a context current until it is popped.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxPushCurrent_v2(context: u64) -> Code {
    call("cuCtxPushCurrent_v2", |state| state.device_of(context).and_then(|_| push(context)))
}

/// Makes the context current that was so before the last push.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxPopCurrent_v2(context: Out<u64>) -> Code {
    release("cuCtxPopCurrent_v2", |_| {
        context.put_if_wanted(pop().ok_or(codes::INVALID_CONTEXT)?);
        Ok(())
    })
}

/// The device of the current context.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxGetDevice(device: Out<c_int>) -> Code {
    call("cuCtxGetDevice", |mut state| {
        let current = state.current("cuCtxGetDevice")?;
        device.put(c_int::try_from(current).map_err(|_| codes::INVALID_CONTEXT)?)
    })
}

/// Accepts the flags of the current context and ignores them.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSetFlags(_flags: c_uint) -> Code {
    call("cuCtxSetFlags", |mut state| state.current("cuCtxSetFlags").map(|_| ()))
}

thread_local! {
    /// How calls of this thread bear captures of others; no graph is ever captured here.
    static CAPTURE_MODE: Cell<c_uint> = const { Cell::new(0) };
}

/// Swaps the capture mode of the calling thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuThreadExchangeStreamCaptureMode(mode: Out<c_uint>) -> Code {
    ask("cuThreadExchangeStreamCaptureMode", |_| mode.swap(&CAPTURE_MODE))
}

/// Waits for all work of the current context.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSynchronize() -> Code {
    call("cuCtxSynchronize", |mut state| {
        let device = state.current("cuCtxSynchronize")?;
        state.counts.context_waits += 1;
        let streams = state.streams_of(device);
        synchronize(state, &streams).map(|_| ())
    })
}

/// The least and the greatest priority of streams.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxGetStreamPriorityRange(
    least: Out<c_int>,
    greatest: Out<c_int>,
) -> Code {
    call("cuCtxGetStreamPriorityRange", |mut state| {
        state.current("cuCtxGetStreamPriorityRange")?;
        least.put_if_wanted(0);
        greatest.put_if_wanted(-5);
        Ok(())
    })
}
