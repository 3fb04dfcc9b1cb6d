//! The log: one event a line, on standard error.
//!
//! Thread rule: any thread may log.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering::Relaxed;

use larder_base::printable_line;
use larder_node::LOG_LINES_DROPPED;
use tracing_subscriber::EnvFilter;

/// Target of log lines about operators' requests, done or refused.
const AUDIT: &str = "larder::audit";

/// Logs to standard error, at the level of `RUST_LOG`. The audit log is off only if `RUST_LOG`
/// names it.
pub(crate) fn start() {
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let filter = EnvFilter::try_new(if asked.is_empty() { "info" } else { &asked });
    let mut filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    if !asked.contains(AUDIT) {
        filter = filter.add_directive(format!("{AUDIT}=info").parse().expect("a directive"));
    }
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(|| OneLine(io::stderr()))
        .init();
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
