//! The log: one event a line, on standard error. A fault repeats its warning for each request that
//! meets it. So each warning is written a few times a minute, and the others are counted.
//!
//! Thread rule: any thread may log.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use larder_base::printable_line;
use larder_node::LOG_LINES_DROPPED;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt as text};

/// Target of log lines about operators' requests, done or refused.
const AUDIT: &str = "larder::audit";

/// Warnings of one place in the code that are written each minute.
const WARNINGS_MAX: u64 = 5;

/// Logs to standard error, at the level of `RUST_LOG`. The audit log is off only if `RUST_LOG`
/// names it. The caller tells each minute of the warnings that were left out.
pub(crate) fn start() -> Repeats {
    let asked = std::env::var_os(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let asked = asked.to_string_lossy();
    let filter = EnvFilter::try_new(if asked.is_empty() { "info" } else { &asked });
    let (mut filter, fault) = match filter {
        Ok(filter) => (filter, None),
        Err(why) => (EnvFilter::new("info"), Some(why)),
    };
    if !asked.contains(AUDIT) {
        filter = filter.add_directive(format!("{AUDIT}=info").parse().expect("a directive"));
    }
    let repeats = Repeats::default();
    let lines = text::layer()
        .with_ansi(io::stderr().is_terminal())
        .with_writer(|| OneLine(io::stderr()))
        .with_filter(repeats.clone());
    tracing_subscriber::registry().with(filter).with(lines).init();
    if let Some(why) = fault {
        tracing::warn!("RUST_LOG can't be used, so the log has the level info: {why}");
    }
    repeats
}

/// Counts the warnings of each place in the code, and lets the first ones of a minute pass.
#[derive(Debug, Default, Clone)]
pub(crate) struct Repeats(Arc<Mutex<HashMap<Identifier, Warnings>>>);

/// The warnings of one place in the code.
#[derive(Debug, Default)]
struct Warnings {
    count: u64,
    /// The last one that was left out.
    last: Message,
}

impl Repeats {
    /// Logs how many warnings were left out, and begins to count anew.
    pub(crate) fn tell(&self) {
        let counted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for Warnings { count, last } in counted.into_values() {
            if let Some(more @ 1..) = count.checked_sub(WARNINGS_MAX) {
                tracing::info!("{more} more warnings in the last minute were like: {}", last.0);
            }
        }
    }
}

impl<S: Subscriber> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN || metadata.target() == AUDIT {
            return true;
        }
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let warnings = counted.entry(metadata.callsite()).or_default();
        warnings.count += 1;
        let is_left_out = warnings.count > WARNINGS_MAX;
        if is_left_out {
            event.record(&mut warnings.last);
        }
        !is_left_out
    }
}

/// The text of an event, without its other fields.
#[derive(Debug, Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// Writes each event on one line, even if names and messages from outside contain line breaks.
///
/// A line that can't be written is dropped and counted. The reader of the log may have ended, or
/// its disk may be full. An error would make the subscriber print to standard error, which panics.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// Takes one whole event, with the end of its line.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = printable_line(text.trim_end_matches('\n'));
        if self.0.write_all(format!("{line}\n").as_bytes()).is_err() {
            LOG_LINES_DROPPED.fetch_add(1, Relaxed);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
