//! Progress of work that users wait for, and its speed.
//!
//! Thread rule: a [`Progress`] is a value. A [`Reporter`] is called from any thread.
//! Non-goals: when and where progress is shown, which programs decide.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use larder_base::Bytes;
use larder_dataset::IndexProgress;

use crate::process;

/// The speed is that of the time since the oldest report of this time.
const SPEED_OVER: Duration = Duration::from_secs(10);

/// Reports that come faster than this count for the speed as one.
const REPORTS_APART: Duration = Duration::from_millis(200);

/// How far some work is. Displayed as `filling 43 of 111 MiB at 3.1 MiB/s, 22 s left`.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The work in a word or a few: `indexing`, `filling`.
    pub what: &'static str,
    /// The finished amount.
    pub done: u64,
    /// The whole amount. `None`: not known.
    pub total: Option<u64>,
    /// The unit of both, in plural: `bytes`, `files`, `objects`, `samples`.
    pub unit: &'static str,
    /// Units a second over the last ten seconds. `None`: not known yet.
    pub per_second: Option<f64>,
    /// A further fact: what a batch still needs, or the reason of a wait. May be empty.
    pub note: String,
}

impl Progress {
    /// The begin of some work, of which no amount is known.
    pub fn of(what: &'static str) -> Self {
        Self::new(what, 0, None, "bytes")
    }

    pub(crate) fn new(
        what: &'static str,
        done: u64,
        total: Option<u64>,
        unit: &'static str,
    ) -> Self {
        Self { what, done, total, unit, per_second: None, note: String::new() }
    }

    /// This progress, which waits for this reason.
    pub(crate) fn waiting(mut self, why: Option<impl fmt::Display>) -> Self {
        if let Some(why) = why {
            let gap = if self.note.is_empty() { "" } else { ", " };
            self.note += &format!("{gap}and waits: {why}");
        }
        self
    }

    /// The time to the end at the present speed, in seconds. `None` if the whole amount or the
    /// speed is not known.
    pub fn seconds_left(&self) -> Option<f64> {
        let left = self.total?.checked_sub(self.done)?;
        let speed = self.per_second.filter(|speed| *speed > 0.0)?;
        Some(float(left) / speed)
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, done, total, unit, per_second, note } = self;
        let counts_bytes = *unit == "bytes";
        write!(f, "{what}")?;
        match total {
            Some(total) if counts_bytes => write!(f, " {}", of(Bytes(*done), Bytes(*total)))?,
            Some(total) => write!(f, " {done} of {total} {unit}")?,
            None if *done == 0 => {}
            None if counts_bytes => write!(f, ", {} so far", Bytes(*done))?,
            None => write!(f, ", {done} {unit} so far")?,
        }
        if let Some(speed) = per_second.filter(|_| counts_bytes) {
            write!(f, " at {}/s", Bytes(whole(speed)))?;
        }
        if let Some(seconds) = self.seconds_left() {
            write!(f, ", {} left", Seconds(whole(seconds.ceil())))?;
        }
        if !note.is_empty() {
            write!(f, ", {note}")?;
        }
        Ok(())
    }
}

/// `43 of 111 MiB`, or `430 KiB of 111 MiB`.
fn of(done: Bytes, total: Bytes) -> String {
    let (done, total) = (done.to_string(), total.to_string());
    match (done.split_once(' '), total.split_once(' ')) {
        (Some((amount, unit)), Some((_, same))) if unit == same => format!("{amount} of {total}"),
        _ => format!("{done} of {total}"),
    }
}

/// Shows `22 s`, `7 min` or `3 h`.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..120 => write!(f, "{} s", self.0),
            120..7_200 => write!(f, "{} min", self.0.div_ceil(60)),
            _ => write!(f, "{} h", self.0.div_ceil(3_600)),
        }
    }
}

impl From<IndexProgress> for Progress {
    fn from(step: IndexProgress) -> Self {
        match step {
            IndexProgress::Listed { objects } => Self::new("listing", objects, None, "objects"),
            IndexProgress::Headers { done, total } => {
                Self::new("indexing", done, Some(total), "files")
            }
            IndexProgress::Offsets { done, total } => {
                Self::new("reading offsets", done, Some(total), "bytes")
            }
            IndexProgress::Checksums { done, total } => {
                Self::new("reading for checksums", done, Some(total), "bytes")
            }
            IndexProgress::Keys { done, total } => {
                Self::new("reading keys", done, Some(total), "samples")
            }
            _ => Self::of("writing the manifest"),
        }
    }
}

/// Calls a function of the program with the progress of some work. Clones share it. By default
/// there is no function.
#[derive(Clone, Default)]
pub struct Reporter<'a> {
    report: Option<Arc<dyn Fn(Progress) + Send + Sync + 'a>>,
    pace: Arc<Mutex<Pace>>,
}

impl<'a> Reporter<'a> {
    /// Reports to `report`, with the speed.
    pub fn new(report: impl Fn(Progress) + Send + Sync + 'a) -> Self {
        Self { report: Some(Arc::new(report)), pace: Arc::default() }
    }

    /// Whether there is no function.
    pub(crate) fn is_silent(&self) -> bool {
        self.report.is_none()
    }

    /// Reports the present progress.
    pub fn report(&self, progress: impl Into<Progress>) {
        let Some(report) = &self.report else { return };
        let mut progress = progress.into();
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        progress.per_second = pace.speed(&progress, process::uptime());
        drop(pace);
        report(progress);
    }
}

impl fmt::Debug for Reporter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").finish_non_exhaustive()
    }
}

/// The speed of work.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    what: &'static str,
    /// When so much was done, the oldest first.
    seen: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// The units a second of work that is so far at `now`, the time since any fixed moment.
    pub(crate) fn speed(&mut self, progress: &Progress, now: Duration) -> Option<f64> {
        let Progress { what, done, .. } = *progress;
        if self.what != what || self.seen.back().is_some_and(|&(_, before)| before > done) {
            *self = Self { what, seen: VecDeque::new() };
        }
        while self.seen.get(1).is_some_and(|&(at, _)| now.saturating_sub(at) >= SPEED_OVER) {
            self.seen.pop_front();
        }
        if self.seen.back().is_none_or(|&(at, _)| now.saturating_sub(at) >= REPORTS_APART) {
            self.seen.push_back((now, done));
        }
        let &(since, before) = self.seen.front()?;
        let time = now.saturating_sub(since);
        (time >= REPORTS_APART && done > before).then(|| float(done - before) / time.as_secs_f64())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a speed needs few digits")]
fn float(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(done: u64, total: Option<u64>) -> Progress {
        Progress::new("filling", done, total, "bytes")
    }

    #[test]
    fn line_has_amount_speed_time_left_and_note() {
        const MIB: u64 = 1 << 20;
        let mut progress = bytes(43 * MIB, Some(111 * MIB));
        assert_eq!(progress.to_string(), "filling 43 of 111 MiB");
        progress.per_second = Some(3.1 * float(MIB));
        assert_eq!(progress.to_string(), "filling 43 of 111 MiB at 3.1 MiB/s, 22 s left");
        progress.note = "first batch needs 18 MiB more".to_owned();
        let whole = "filling 43 of 111 MiB at 3.1 MiB/s, 22 s left, first batch needs 18 MiB more";
        assert_eq!(progress.to_string(), whole);
        assert_eq!(bytes(430 << 10, Some(111 * MIB)).to_string(), "filling 430 KiB of 111 MiB");
        assert_eq!(bytes(MIB, None).to_string(), "filling, 1.0 MiB so far");
        assert_eq!(bytes(0, None).to_string(), "filling");
    }

    #[test]
    fn steps_of_an_index_count_their_own_units() {
        let said = |step: IndexProgress| Progress::from(step).to_string();
        assert_eq!(said(IndexProgress::Headers { done: 12, total: 40 }), "indexing 12 of 40 files");
        assert_eq!(said(IndexProgress::Listed { objects: 7 }), "listing, 7 objects so far");
        assert_eq!(said(IndexProgress::Publishing), "writing the manifest");
        let keys = IndexProgress::Keys { done: 1, total: 9 };
        assert_eq!(said(keys), "reading keys 1 of 9 samples");
    }

    #[test]
    fn speed_is_that_of_the_last_ten_seconds() {
        let mut pace = Pace::default();
        let mut speed = |second, done| pace.speed(&bytes(done, None), Duration::from_secs(second));
        assert_eq!(speed(0, 0), None, "one report has no speed");
        assert_eq!(speed(2, 200), Some(100.0));
        assert_eq!(speed(3, 200), Some(200.0 / 3.0));
        let speeds = (4..20).map(|second| speed(second, 200 + 1_000 * (second - 3)));
        assert_eq!(speeds.last().flatten(), Some(1_000.0));
        assert_eq!(speed(21, 5), None, "the work began again");
    }

    #[test]
    fn time_left_is_known_with_speed_and_total() {
        let mut progress = bytes(10, Some(110));
        assert_eq!(progress.seconds_left(), None);
        progress.per_second = Some(10.0);
        assert_eq!(progress.seconds_left(), Some(10.0));
        progress.done = 120;
        assert_eq!(progress.seconds_left(), None);
        progress.total = None;
        assert_eq!(progress.seconds_left(), None);
        let said = |seconds| Seconds(seconds).to_string();
        assert_eq!([said(119), said(120), said(7_200)], ["119 s", "2 min", "2 h"]);
    }
}
