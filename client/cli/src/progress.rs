//! Shows the progress of long work on standard error: amount, speed and remaining time. It is drawn
//! on a terminal only; in a pipe nothing is written.

use std::{
    fmt::Write,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::output::Output;

const TICK: Duration = Duration::from_millis(100);

/// The bar on the terminal.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Runs what prints lines, and draws the bar below them.
pub(crate) fn above(print: impl FnOnce()) {
    let drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match drawn {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// One bar. It is removed on drop.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// Starts a bar for work of unknown length.
    pub(crate) fn start(output: &Output, doing: &str) -> Self {
        let bar = if output.shows_progress() {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
        } else {
            ProgressBar::hidden()
        };
        bar.set_style(style("{spinner} {msg}"));
        bar.set_message(doing.to_owned());
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
            *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        }
        Self { bar }
    }

    /// Whether it is on a terminal.
    pub(crate) fn is_drawn(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Names a step without a count.
    pub(crate) fn say(&self, doing: &str) {
        self.bar.set_message(doing.to_owned());
    }

    /// From here on `total` bytes are counted.
    pub(crate) fn bytes(&self, doing: &str, total: u64) {
        let counts = "{binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}";
        self.begin(doing, total, counts);
    }

    /// From here on `total` things are counted.
    pub(crate) fn items(&self, doing: &str, total: u64) {
        self.begin(doing, total, "{human_pos}/{human_len}  {rate}");
    }

    fn begin(&self, doing: &str, total: u64, counts: &str) {
        self.bar.set_style(style(&format!("{{msg}}  [{{bar:30}}] {counts}  {{eta}} left")));
        self.bar.set_message(doing.to_owned());
        self.bar.set_length(total);
        self.bar.set_position(0);
        self.bar.reset_eta();
        self.bar.reset_elapsed();
    }

    pub(crate) fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    pub(crate) fn add(&self, more: u64) {
        self.bar.inc(more);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        DRAWN.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    let style =
        ProgressStyle::with_template(template).expect("the templates above are well formed");
    let rate = |state: &ProgressState, out: &mut dyn Write| {
        let _ = write!(out, "{:.0}/s", state.per_sec());
    };
    style.with_key("rate", rate).progress_chars("=> ").tick_strings(&["-", "\\", "|", "/", " "])
}
