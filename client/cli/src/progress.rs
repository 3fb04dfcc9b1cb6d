//! Shows the progress of long work on standard error: amount, speed and remaining time. It is drawn
//! on a terminal. Elsewhere, work of the library gets a line every ten seconds.

use std::{
    fmt::Write,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use larder_client::Progress;

use crate::output::Output;

const TICK: Duration = Duration::from_millis(100);

/// The time from one line to the next where no bar is drawn.
const LINE_EVERY: Duration = Duration::from_secs(10);

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
    is_quiet: bool,
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
        Self { bar, is_quiet: output.is_quiet() }
    }

    /// Whether it is on a terminal.
    pub(crate) fn is_drawn(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Names a step without a count.
    pub(crate) fn say(&self, doing: &str) {
        self.bar.set_message(doing.to_owned());
    }

    /// Shows the progress of work of the library.
    pub(crate) fn shows(&self) -> impl Fn(Progress) + Send + Sync + 'static {
        let (bar, is_quiet) = (self.bar.clone(), self.is_quiet);
        let said = Mutex::new(bar.elapsed());
        move |progress| {
            bar.set_message(progress.to_string());
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            if bar.is_hidden() && !is_quiet && bar.elapsed() >= *said + LINE_EVERY {
                *said = bar.elapsed();
                eprintln!("{progress}");
            }
        }
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
