//! The gate that each driver call passes.
//!
//! The gate refuses forked children and host functions, counts the call, plays the stub, injects
//! failures, and answers with the sticky error of a lost device. Only then does a call's body run.
//! Thread rule: a forked child is refused before any lock. Non-goals: the bodies, in `api`.

use crate::codes::{self, Code};
use crate::mistakes;
use crate::report;
use crate::state::{self, Held, State};
use crate::stream::IS_STREAM;

/// Event queries that a program may make after it has seen the sticky error.
const POLLS_AFTER_LOSS_MAX: u64 = 200;

/// Symbols, and the first driver version that has them.
const SYMBOLS: &[(&str, i32)] = &[
    ("cuLaunchHostFunc", 10000),
    ("cuDeviceGetUuid_v2", 11040),
    ("cuCtxSetFlags", 12010),
    ("cuMemcpyBatchAsync", 12080),
    ("cuEventElapsedTime_v2", 12080),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Needs neither `cuInit` nor a healthy device.
    Answers,
    /// Needs `cuInit`; works on a lost device.
    Asks,
    /// Needs `cuInit` and a healthy device.
    Works,
}

/// Runs a call that works without `cuInit`.
pub(crate) fn answer(name: &'static str, body: impl FnOnce(Held) -> Result<(), Code>) -> Code {
    code(enter(name, Manner::Answers).and_then(body))
}

/// Runs a call that only asks and therefore works on a lost device.
pub(crate) fn ask(name: &'static str, body: impl FnOnce(Held) -> Result<(), Code>) -> Code {
    code(enter(name, Manner::Asks).and_then(body))
}

/// Runs a call that a lost device refuses.
pub(crate) fn call(name: &'static str, body: impl FnOnce(Held) -> Result<(), Code>) -> Code {
    code(enter(name, Manner::Works).and_then(|state| body(healthy(name, state)?)))
}

/// Runs a call that gives something back. On a lost device it does so and returns the error, so
/// that the report's `left` shows only the things that the program has not given back.
pub(crate) fn release(name: &'static str, body: impl FnOnce(Held) -> Result<(), Code>) -> Code {
    code(enter(name, Manner::Works).and_then(|state| {
        let lost = state.lost;
        let done = body(state);
        lost.map_or(done, Err)
    }))
}

fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(codes::SUCCESS)
}

fn enter(name: &'static str, manner: Manner) -> Result<Held, Code> {
    if state::driver().process != std::process::id() {
        report::note_call_after_fork(name);
        return Err(codes::NOT_INITIALIZED);
    }
    if IS_STREAM.get() {
        return Err(codes::NOT_PERMITTED);
    }
    let mut state = state::lock();
    let calls = state.calls.entry(name).or_default();
    *calls += 1;
    let nth = *calls;
    if state.settings.stub && name != "cuDriverGetVersion" {
        return Err(codes::STUB_LIBRARY);
    }
    let failure = state.settings.failure(name, nth);
    if let Some(code) = failure.filter(|_| state.lost.is_none() || manner != Manner::Works) {
        if codes::is_sticky(code) {
            state.lose(code);
        }
        return Err(code);
    }
    if manner != Manner::Answers && !state.initialized {
        return Err(codes::NOT_INITIALIZED);
    }
    state.check_version(name)?;
    Ok(state)
}

fn healthy(name: &'static str, mut state: Held) -> Result<Held, Code> {
    let Some(code) = state.lost else { return Ok(state) };
    if name == "cuEventQuery" {
        state.polls_after_loss += 1;
        if state.polls_after_loss == POLLS_AFTER_LOSS_MAX + 1 {
            let detail = format!(
                "{name} was called {} times after the device was lost with code {code}",
                state.polls_after_loss
            );
            state.mistake(mistakes::POLLED_AFTER_LOSS, detail);
        }
    }
    Err(code)
}

impl State {
    /// A real driver of the played version would lack a newer symbol.
    fn check_version(&mut self, name: &'static str) -> Result<(), Code> {
        let version = self.settings.version;
        let newer = SYMBOLS.iter().find(|(symbol, since)| *symbol == name && *since > version);
        let Some((_, since)) = newer else { return Ok(()) };
        let detail = format!("{name} came with version {since}, and the driver has {version}");
        self.mistake(mistakes::NEWER_SYMBOL, detail);
        Err(codes::NOT_FOUND)
    }
}
