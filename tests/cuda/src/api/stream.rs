//! Streams.
//!
//! Handles 0 and 1 are the legacy default stream, 2 is the thread's default stream.
//! Thread rule: any thread with a current context. Non-goals: priorities; all streams are equal.

use std::ffi::{c_int, c_uint, c_void};

use super::Out;
use super::event::wait_for_event;
use crate::codes::{self, Code};
use crate::gate::{call, release};
use crate::state::queue::{HostFunction, Kind, Work};
use crate::state::{Held, State};
use crate::stream::{room, synchronize};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

fn create(
    name: &'static str,
    mut state: Held,
    stream: Out<u64>,
    flags: c_uint,
) -> Result<(), Code> {
    let device = state.current(name)?;
    let kind = match flags {
        0 => Kind::Blocking,
        NON_BLOCKING => Kind::NonBlocking,
        _ => return Err(codes::INVALID_VALUE),
    };
    stream.put(state.add_stream(device, kind))
}

impl State {
    fn destroy_stream(&mut self, call: &'static str, handle: u64) -> Result<(), Code> {
        let Some(stream) = self.streams.get_mut(&handle).filter(|stream| !stream.destroyed) else {
            return Err(self.given_back_twice(call, handle, codes::INVALID_HANDLE));
        };
        stream.destroyed = true;
        stream.wake.notify_one();
        self.retired.insert(handle);
        Ok(())
    }
}

/// Creates a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamCreate(stream: Out<u64>, flags: c_uint) -> Code {
    call("cuStreamCreate", |state| create("cuStreamCreate", state, stream, flags))
}

/// Creates a stream; the priority has no effect.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamCreateWithPriority(
    stream: Out<u64>,
    flags: c_uint,
    _priority: c_int,
) -> Code {
    call("cuStreamCreateWithPriority", |state| {
        create("cuStreamCreateWithPriority", state, stream, flags)
    })
}

/// Destroys a stream; queued work still runs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamDestroy_v2(stream: u64) -> Code {
    release("cuStreamDestroy_v2", |mut state| {
        state.current("cuStreamDestroy_v2")?;
        state.destroy_stream("cuStreamDestroy_v2", stream)
    })
}

/// Waits for the work of a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamSynchronize(stream: u64) -> Code {
    call("cuStreamSynchronize", |mut state| {
        let stream = state.stream("cuStreamSynchronize", stream)?;
        state.counts.context_waits += 1;
        let streams = state.covered(stream);
        synchronize(state, &streams).map(|_| ())
    })
}

/// Asks whether a stream is idle.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamQuery(stream: u64) -> Code {
    call("cuStreamQuery", |mut state| {
        let stream = state.stream("cuStreamQuery", stream)?;
        let streams = state.covered(stream);
        state.query(&streams)
    })
}

/// Orders later work of a stream after an event.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) -> Code {
    call("cuStreamWaitEvent", |mut state| {
        let stream = state.stream("cuStreamWaitEvent", stream)?;
        wait_for_event(room(state, stream)?, stream, event)
    })
}

/// The context of a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamGetCtx(stream: u64, context: Out<u64>) -> Code {
    call("cuStreamGetCtx", |mut state| {
        let stream = state.stream("cuStreamGetCtx", stream)?;
        let device = state.streams[&stream].device;
        context.put(state.contexts[device].handle)
    })
}

/// Calls a function of the program when a stream gets there.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLaunchHostFunc(
    stream: u64,
    function: Option<HostFunction>,
    argument: *mut c_void,
) -> Code {
    call("cuLaunchHostFunc", |mut state| {
        let function = function.ok_or(codes::INVALID_VALUE)?;
        let stream = state.stream("cuLaunchHostFunc", stream)?;
        let mut state = room(state, stream)?;
        state.order(stream);
        let clock = state.streams[&stream].clock.clone();
        let argument = argument.expose_provenance();
        state.push(stream, Work::Host { function, argument, clock });
        Ok(())
    })
}
