//! The driver's state of a thread: its current context, and its capture mode.
//!
//! A thread of the program keeps its current context, from which torch reads its current device. A
//! program may also capture a graph while Larder copies. The driver then refuses many calls of all
//! threads and breaks the capture, unless the calling thread's capture mode is "relaxed". So a call
//! on a thread of the program restores both afterwards. Larder's own threads set the mode once.
//!
//! Thread rule: values of this module stay on their thread. Non-goals: taking part in a capture.

#![expect(unsafe_code, reason = "calls of the driver that take and return handles")]

use std::{cell::Cell, marker::PhantomData, ops::Deref, ptr, sync::Arc};

use cudarc::driver::{CudaContext, result, sys};

use super::State;
use crate::Error;

thread_local! {
    /// Whether this thread is one of Larder's.
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one of Larder's.
pub(super) fn adopt() {
    if !IS_OWN.replace(true) {
        exchange_capture_mode(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED);
    }
}

/// The state of a thread of the program, restored on drop.
pub(super) struct Restore {
    /// `None` on threads of Larder.
    before: Option<(sys::CUcontext, sys::CUstreamCaptureMode)>,
    _stays_here: PhantomData<*const ()>,
}

impl Restore {
    pub(super) fn later() -> Self {
        let before = (!IS_OWN.get()).then(|| {
            let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
            let mode = exchange_capture_mode(relaxed);
            let context = result::ctx::get_current().ok().flatten();
            (context.unwrap_or(ptr::null_mut()), mode)
        });
        Self { before, _stays_here: PhantomData }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        let Some((context, mode)) = self.before else { return };
        if result::ctx::get_current().ok().flatten().unwrap_or(ptr::null_mut()) != context {
            // SAFETY: the context was current on this thread a moment ago. Null means none.
            let _ = unsafe { result::ctx::set_current(context) };
        }
        exchange_capture_mode(mode);
    }
}

/// Sets the capture mode of this thread, and returns the previous one.
fn exchange_capture_mode(mode: sys::CUstreamCaptureMode) -> sys::CUstreamCaptureMode {
    let mut mode = mode;
    // SAFETY: the driver swaps one number, in a place that outlives the call.
    let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    mode
}

/// A device's context, current on this thread until this is dropped.
pub(super) struct Entered<'a> {
    context: &'a Arc<CudaContext>,
    _restore: Restore,
}

impl<'a> Entered<'a> {
    pub(super) fn new(context: &'a Arc<CudaContext>, state: &State) -> Result<Self, Error> {
        state.check()?;
        // A call during a drop failed before. If the device survived that, this call is not at
        // fault.
        let _ = state.did("a call that frees", context.check_err());
        state.check()?;
        let restore = Restore::later();
        state.did("cuCtxSetCurrent", context.bind_to_thread())?;
        Ok(Self { context, _restore: restore })
    }
}

impl Deref for Entered<'_> {
    type Target = Arc<CudaContext>;

    fn deref(&self) -> &Arc<CudaContext> {
        self.context
    }
}
