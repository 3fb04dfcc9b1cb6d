//! Events.
//!
//! An event keeps the tick and the clock of its last record. An event without a record is done.
//! Thread rule: any thread; a query needs no current context, as in a real driver.
//! Non-goals: events of other processes.

use std::ffi::c_uint;

use super::Out;
use crate::codes::{self, Code};
use crate::gate::{call, release};
use crate::state::queue::{Event, Recorded, Stamp, Work};
use crate::state::{Held, State, until};
use crate::stream::room;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;

impl State {
    fn event(&self, handle: u64) -> Result<&Event, Code> {
        self.events.get(&handle).ok_or(codes::INVALID_HANDLE)
    }

    /// The time at which a stream met a timed event.
    fn stamped(&self, handle: u64) -> Result<std::time::Instant, Code> {
        let event = self.event(handle)?;
        let recorded = event.recorded.as_ref().filter(|_| event.timed);
        let recorded = recorded.ok_or(codes::INVALID_HANDLE)?;
        recorded.stamp.get().copied().ok_or(codes::NOT_READY)
    }

    fn elapsed(&self, start: u64, end: u64) -> Result<f32, Code> {
        let (start, end) = (self.stamped(start)?, self.stamped(end)?);
        let seconds = end
            .checked_duration_since(start)
            .map_or_else(|| -(start - end).as_secs_f32(), |d| d.as_secs_f32());
        Ok(seconds * 1000.0)
    }
}

/// Orders later work of a stream after the last record of an event.
pub(super) fn wait_for_event(mut state: Held, stream: u64, event: u64) -> Result<(), Code> {
    if let Some(recorded) = state.event(event)?.recorded.clone() {
        state.order(stream);
        state.order_after(stream, &[recorded.tick], &recorded.clock);
        state.push(stream, Work::Wait);
    }
    Ok(())
}

/// Creates an event.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventCreate(event: Out<u64>, flags: c_uint) -> Code {
    call("cuEventCreate", |mut state| {
        let device = state.current("cuEventCreate")?;
        let handle = state.new_handle();
        let timed = flags & DISABLE_TIMING == 0;
        state.events.insert(handle, Event { device, timed, recorded: None });
        event.put(handle)
    })
}

/// Destroys an event; waits that were queued for it stay.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventDestroy_v2(event: u64) -> Code {
    release("cuEventDestroy_v2", |mut state| {
        state.current("cuEventDestroy_v2")?;
        if state.events.remove(&event).is_none() {
            return Err(state.given_back_twice("cuEventDestroy_v2", event, codes::INVALID_HANDLE));
        }
        state.retired.insert(event);
        Ok(())
    })
}

/// Records the work that a stream has at this call.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventRecord(event: u64, stream: u64) -> Code {
    call("cuEventRecord", |mut state| {
        let stream = state.stream("cuEventRecord", stream)?;
        let mut state = room(state, stream)?;
        if state.event(event)?.device != state.streams[&stream].device {
            return Err(codes::INVALID_HANDLE);
        }
        let stamp = Stamp::default();
        state.order(stream);
        let tick = state.push(stream, Work::Stamp(stamp.clone()));
        let clock = state.streams[&stream].clock.clone();
        if let Some(event) = state.events.get_mut(&event) {
            event.recorded = Some(Recorded { tick, clock, stamp });
        }
        Ok(())
    })
}

/// Asks whether the recorded work is done.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventQuery(event: u64) -> Code {
    call("cuEventQuery", |mut state| {
        if let Some(recorded) = state.event(event)?.recorded.clone() {
            if !state.done(recorded.tick) {
                return Err(codes::NOT_READY);
            }
            state.host.join(&recorded.clock);
        }
        Ok(())
    })
}

/// Waits for the recorded work.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventSynchronize(event: u64) -> Code {
    call("cuEventSynchronize", |mut state| {
        state.current("cuEventSynchronize")?;
        if let Some(recorded) = state.event(event)?.recorded.clone() {
            let mut state = until(state, |state| state.done(recorded.tick))?;
            state.host.join(&recorded.clock);
        }
        Ok(())
    })
}

/// Milliseconds between two events.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) -> Code {
    call("cuEventElapsedTime", |mut state| {
        state.current("cuEventElapsedTime")?;
        milliseconds.put(state.elapsed(start, end)?)
    })
}

/// Milliseconds between two events.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventElapsedTime_v2(
    milliseconds: Out<f32>,
    start: u64,
    end: u64,
) -> Code {
    call("cuEventElapsedTime_v2", |mut state| {
        state.current("cuEventElapsedTime_v2")?;
        milliseconds.put(state.elapsed(start, end)?)
    })
}
