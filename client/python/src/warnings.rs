//! Hands warnings of the client to Python's `logging`. Any thread may warn. A call that has the
//! interpreter anyway logs the warnings.
//!
//! ```text
//! data thread ──tracing──▶ SLOTS, without a lock or the interpreter
//!                             │
//! next batch, open, a read, the end of the program: hand_over() ──▶ logging.getLogger("larder")
//! ```
//!
//! A thread that warns never waits for the interpreter: its holder may wait for that thread. It
//! never waits for a lock either: a fork could leave the lock locked for ever. A warning that finds
//! no free slot is counted and left out.
//!
//! Thread rule: as above; any thread may warn, and any thread may hand over. A forked child leaves
//! out the waiting warnings of its parent, which the parent hands over itself.

use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use larder_client::{Level, take_warnings};
use pyo3::{intern, prelude::*};

/// Warnings that wait to be handed over. A program that asks for batches hands them over often.
const WAITING_MAX: usize = 32;

static SLOTS: [ArcSwapOption<Warning>; WAITING_MAX] =
    [const { ArcSwapOption::const_empty() }; WAITING_MAX];
/// Whether a slot may hold a warning.
static WAITING: AtomicBool = AtomicBool::new(false);
/// Warnings so far.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Warnings without a free slot since the last time they were handed over.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

struct Warning {
    /// Their order.
    number: u64,
    process: u32,
    level: Level,
    text: String,
}

/// Begins to collect the warnings of this library.
pub(crate) fn listen() {
    // A second import may call it again.
    take_warnings(put);
}

/// Logs the waiting warnings. Without any it only reads a flag.
///
/// An exception of logging is returned: a signal handler may run in it.
#[pyfunction]
pub(crate) fn hand_over(py: Python<'_>) -> PyResult<()> {
    if !WAITING.load(Ordering::Relaxed) || !WAITING.swap(false, Ordering::AcqRel) {
        return Ok(());
    }
    let mut waiting: Vec<Arc<Warning>> = SLOTS.iter().filter_map(|slot| slot.swap(None)).collect();
    waiting.retain(|warning| warning.process == process::id());
    waiting.sort_unstable_by_key(|warning| warning.number);
    let left_out = LEFT_OUT.swap(0, Ordering::AcqRel);
    py.import(intern!(py, "larder._progress"))?.call_method0(intern!(py, "clear"))?;
    let logging = py.import(intern!(py, "logging"))?;
    let logger = logging.call_method1(intern!(py, "getLogger"), ("larder",))?;
    let words = py.import("larder._errors")?.getattr("in_words_of_python")?;
    let log = |level, text: &str| {
        logger.call_method1(intern!(py, "log"), (level, "%s", words.call1((text,))?))
    };
    for warning in waiting {
        log(if warning.level == Level::ERROR { 40 } else { 30 }, &warning.text)?;
    }
    if left_out > 0 {
        log(30, &format!("{left_out} more warnings came too fast and were left out"))?;
    }
    Ok(())
}

fn put(level: Level, text: String) {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let warning = Arc::new(Warning { number, process: process::id(), level, text });
    let none = None::<Arc<Warning>>;
    let took = |slot: &ArcSwapOption<Warning>| {
        slot.compare_and_swap(&none, Some(Arc::clone(&warning))).is_none()
    };
    if !SLOTS.iter().any(took) {
        LEFT_OUT.fetch_add(1, Ordering::AcqRel);
    }
    WAITING.store(true, Ordering::Release);
}
