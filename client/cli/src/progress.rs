//! Shows the progress of long work on standard error: amount, speed and remaining time. It is drawn
//! on a terminal only; in a pipe nothing is written.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::output::Output;

const TICK: Duration = Duration::from_millis(100);

/// One bar. It is removed on drop.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
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
        }
        Self { bar }
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

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Bars drawn at once; a terminal has no room for more.
const BARS_MAX: usize = 16;

/// Several bars below a title. They are removed on drop.
#[derive(Debug)]
pub(crate) struct Board {
    all: MultiProgress,
    title: ProgressBar,
    bars: BTreeMap<String, ProgressBar>,
    drawn: bool,
}

impl Board {
    pub(crate) fn start(output: &Output) -> Self {
        let drawn = output.shows_progress();
        let target =
            if drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let all = MultiProgress::with_draw_target(target);
        let title = all.add(ProgressBar::no_length());
        title.set_style(style("{spinner} {msg}"));
        if drawn {
            title.enable_steady_tick(TICK);
        }
        Self { all, title, bars: BTreeMap::new(), drawn }
    }

    /// Whether the bars are drawn on a terminal.
    pub(crate) fn is_drawn(&self) -> bool {
        self.drawn
    }

    pub(crate) fn title(&self, text: &str) {
        self.title.set_message(text.to_owned());
    }

    /// Sets one of the bars. A new name gets a bar while there is room.
    pub(crate) fn set(&mut self, name: &str, done: u64, total: u64, text: &str) {
        if !self.bars.contains_key(name) && self.bars.len() < BARS_MAX {
            let bar = self.all.add(ProgressBar::new(total));
            bar.set_style(style("  {prefix:12}  [{bar:30}] {msg}"));
            bar.set_prefix(name.to_owned());
            self.bars.insert(name.to_owned(), bar);
        }
        if let Some(bar) = self.bars.get(name) {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(text.to_owned());
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.bars.values().for_each(ProgressBar::finish_and_clear);
        self.title.finish_and_clear();
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
