//! The report: JSON with calls, counts, mistakes and things that were not given back.
//!
//! ```json
//! {"calls": {"cuInit": 1}, "counts": {"copies": 0}, "mistakes": [], "mistakes_total": 0,
//!  "left": {"streams": 0}}
//! ```
//!
//! Each mistake is `{"kind": ..., "detail": ...}`; a report keeps the first 100. `copies` counts
//! each row of a batch; a two-dimensional copy is one. Work counts when it is queued.
//! `registered_bytes` are those of the registrations that are left; `*_max` are peaks.
//! The file appears at process exit, by way of `.fini_array`, or when a test asks for it. A rename
//! puts it in place, so readers never see half a report.
//!
//! Thread rule: takes the state's mutex for one snapshot. A forked child has a list of its own and
//! rewrites its report at each call. It needs a path with `%p`, so it never touches the parent's.
//! Non-goals: a report of a process that a signal ends.

#![expect(unsafe_code, reason = "runs at process exit and exports symbols")]

use std::ffi::{CStr, c_char};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::mistakes;
use crate::state::blocks::Kind;
use crate::state::{Counts, State, driver, lock, queue, used_driver};

/// Calls of a forked child. The parent never locks it, so the child cannot inherit a held lock.
static AFTER_FORK: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

#[used]
// SAFETY: the linker's section holds functions without arguments, which `exit` runs once.
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    let Some(driver) = used_driver().filter(|driver| driver.process == std::process::id()) else {
        return;
    };
    if let Some(path) = &driver.settings.report {
        write_or_warn(&named(path));
    }
}

/// Writes the report to `path` now. Returns 0, or 1 if it cannot.
// SAFETY: no other library of the process exports this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn larder_standin_report(path: *const c_char) -> i32 {
    if path.is_null() {
        return 1;
    }
    // SAFETY: the caller passes a C string, as the symbol's contract says.
    let path = unsafe { CStr::from_ptr(path) };
    path.to_str().map_or(1, |path| i32::from(!write_or_warn(path)))
}

/// The number of mistakes so far.
// SAFETY: no other library of the process exports this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn larder_standin_mistakes() -> u64 {
    if is_forked() { calls_after_fork().len() as u64 } else { lock().mistakes_total }
}

/// Notes a call in a forked child and rewrites the child's report.
pub(crate) fn note_call_after_fork(call: &'static str) {
    let mut calls = AFTER_FORK.lock().unwrap_or_else(PoisonError::into_inner);
    calls.push(call);
    drop(calls);
    if let Some(path) = driver().settings.report.as_ref().filter(|path| path.contains("%p")) {
        write_or_warn(&named(path));
    }
}

fn is_forked() -> bool {
    driver().process != std::process::id()
}

fn calls_after_fork() -> Vec<&'static str> {
    AFTER_FORK.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn named(path: &str) -> String {
    path.replace("%p", &std::process::id().to_string())
}

fn write_or_warn(path: &str) -> bool {
    let report = if is_forked() { child_report() } else { lock().report() };
    let written = write(Path::new(path), &report);
    if let Err(error) = &written {
        eprintln!("the stand-in cannot write its report {path}: {error}");
    }
    written.is_ok()
}

fn write(path: &Path, report: &Value) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}", std::process::id()));
    std::fs::write(&unfinished, format!("{report:#}\n"))?;
    std::fs::rename(&unfinished, path)
}

fn child_report() -> Value {
    let calls = calls_after_fork();
    let mistake = |call: &&str| {
        let detail = format!("{call} runs in a forked child of the process that called first");
        json!({"kind": mistakes::AFTER_FORK, "detail": detail})
    };
    let mistakes: Vec<Value> = calls.iter().take(100).map(mistake).collect();
    json!({"calls": {}, "counts": {}, "mistakes": mistakes, "mistakes_total": calls.len(),
           "left": {}})
}

impl State {
    pub(crate) fn report(&self) -> Value {
        let mistakes: Vec<Value> = self
            .mistakes
            .iter()
            .map(|mistake| json!({"kind": mistake.kind, "detail": mistake.detail}))
            .collect();
        json!({
            "calls": self.calls,
            "counts": self.counts.report(self.registered_bytes()),
            "mistakes": mistakes,
            "mistakes_total": self.mistakes_total,
            "left": self.left(),
        })
    }

    /// Things that the program has not given back.
    fn left(&self) -> Value {
        let blocks = |kind| self.blocks.values().filter(|block| block.kind == kind).count();
        let created = |kind| matches!(kind, queue::Kind::Blocking | queue::Kind::NonBlocking);
        let streams = self.streams.values().filter(|s| created(s.kind) && !s.destroyed).count();
        json!({
            "streams": streams,
            "events": self.events.len(),
            "registrations": self.registrations.len(),
            "host_allocations": blocks(Kind::PageLocked),
            "device_allocations": blocks(Kind::Device),
            "contexts": self.contexts.iter().filter(|context| context.retained > 0).count(),
        })
    }
}

impl Counts {
    fn report(&self, registered_bytes: usize) -> Value {
        json!({
            "copies": self.copies,
            "copied_bytes": self.copied_bytes,
            "batched_copies": self.batched_copies,
            "pageable_bytes": self.pageable_bytes,
            "direct_bytes": self.direct_bytes,
            "pinned_bytes": self.pinned_bytes,
            "context_waits": self.context_waits,
            "device_bytes_max": self.device_bytes_max,
            "pinned_bytes_max": self.pinned_bytes_max,
            "registered_bytes_max": self.registered_bytes_max,
            "registered_bytes": registered_bytes,
        })
    }
}
