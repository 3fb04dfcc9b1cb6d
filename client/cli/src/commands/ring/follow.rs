//! Follows a change until it is over: with one line that changes on a terminal, else with a line
//! now and then.

use std::{
    cmp::Reverse,
    collections::VecDeque,
    time::{Duration, Instant},
};

use larder_client::admin::{ClusterChange, ClusterStatus, MoveProgress, NodeState, Operator};
use serde::Serialize;

use super::words;
use crate::{
    commands::operator::{failed, of_the_record},
    context::Context,
    error::{Exit, Failure},
    output::{Page, Report, units},
    progress::Bar,
};

const TICK: Duration = Duration::from_secs(1);
/// Gives up after the cluster has not answered for this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// In a pipe, a line is written at least this often.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// The window over which the speed is measured.
const SPEED_WINDOW: Duration = Duration::from_secs(15);

/// The event to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) enum Goal {
    /// The end of the first change with a greater number.
    ChangeAfter(u64),
    /// The node's leaving.
    Leaves {
        /// Its name.
        node: String,
        /// Whether it is the coordinator, too.
        keeps_record: bool,
    },
}

/// The end of a change.
#[derive(Debug, Serialize)]
struct ChangeOutcome {
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<u64>,
    ring_version: u64,
    words: String,
    seconds: f64,
}

/// The number of the latest change that began.
pub(super) fn latest_change(operator: &Operator) -> Result<u64, Failure> {
    let asked = |error| failed("the cluster can't be asked", error);
    let history = operator.history().map_err(asked)?;
    let status = operator.status().map_err(asked)?;
    let over = history.changes.iter().map(|past| past.number);
    Ok(over.chain(status.change.map(|change| change.number)).max().unwrap_or(0))
}

/// Waits for the goal and prints how it ended.
pub(in crate::commands) fn follow(
    context: &Context,
    operator: &Operator,
    goal: &Goal,
) -> Result<(), Failure> {
    let begun = context.now();
    let progress = context.progress("asking the nodes");
    let mut watch = ChangeWatch { context, progress, told: None, speed: Speed::default() };
    let mut heard = begun;
    loop {
        match operator.status() {
            Ok(status) => {
                heard = context.now();
                if let Some(outcome) = reached(operator, goal, &status, heard - begun)? {
                    drop(watch);
                    return context.output.print(&outcome);
                }
                watch.look(operator, &status);
            }
            Err(error) if context.now() - heard >= PATIENCE => {
                return Err(failed("the change can't be followed any more", error)
                    .hint("it goes on by itself; see larder ring status"));
            }
            Err(error) => watch.lost(&error),
        }
        std::thread::park_timeout(TICK);
    }
}

/// The outcome, if the goal is reached.
fn reached(
    operator: &Operator,
    goal: &Goal,
    status: &ClusterStatus,
    took: Duration,
) -> Result<Option<ChangeOutcome>, Failure> {
    let seconds = took.as_secs_f64();
    let ring_version = status.ring_version;
    match goal {
        Goal::ChangeAfter(before) => {
            let history = operator.history();
            let history =
                history.map_err(|error| failed("the history can't be asked for", error))?;
            let Some(past) = history.changes.into_iter().find(|past| past.number > *before) else {
                return Ok(None);
            };
            if past.committed {
                let (change, ring_version) = (Some(past.number), past.ring_version);
                let words = past.words;
                return Ok(Some(ChangeOutcome { change, ring_version, words, seconds }));
            }
            let aborted = format!("change {} was given up", past.number);
            Err(Failure::new(Exit::Failed, aborted).why(past.words))
        }
        Goal::Leaves { node: id, keeps_record } => {
            let named = |node: &&larder_client::admin::ClusterNode| {
                node.member.as_ref().is_some_and(|member| member.id == *id)
            };
            match status.nodes.iter().find(named) {
                None if !status.nodes.is_empty() => {
                    let words = match keeps_record {
                        false => format!("{id} has left the ring; it can be stopped"),
                        true => format!("{id} has left the ring. {}", of_the_record(id)),
                    };
                    Ok(Some(ChangeOutcome { change: None, ring_version, words, seconds }))
                }
                Some(node) if node.state() == NodeState::Active => {
                    Err(Failure::new(Exit::Failed, format!("{id} stays in the ring"))
                        .why("its drain was taken back, or the change was aborted"))
                }
                _ => Ok(None),
            }
        }
    }
}

/// Shows the progress of the change.
struct ChangeWatch<'a> {
    context: &'a Context,
    progress: Bar,
    /// The time of the last line, and the percent of the change that was done then.
    told: Option<(Instant, u64)>,
    speed: Speed,
}

impl ChangeWatch<'_> {
    fn look(&mut self, operator: &Operator, status: &ClusterStatus) {
        let now = self.context.now();
        let Some(change) = &status.change else {
            let waits = if status.settling { "old copies settle" } else { "nothing moves yet" };
            return self.say(now, 0, &format!("ring {}: {waits}", status.ring_version));
        };
        let all = progress_of(operator, status);
        let left: u64 = all.iter().map(|(_, progress)| progress.bytes_left).sum();
        let done = change.bytes.saturating_sub(left);
        self.speed.note(now, change.number, done);
        let percent = done * 100 / change.bytes.max(1);
        let what = words(&change.edits, change.replicas);
        let mut text = format!(
            "change {} ({what}): {percent} %, {} of {}{}",
            change.number,
            units::bytes(done),
            units::bytes(change.bytes),
            self.speed.words(left, change)
        );
        if let Some((node, most)) = all.first().filter(|_| self.progress.is_drawn()) {
            text += &format!("; {node} lacks most, {}", units::bytes(most.bytes_left));
        }
        self.say(now, percent, &text);
    }

    fn lost(&mut self, error: &larder_client::Error) {
        let now = self.context.now();
        self.say(now, 0, &format!("the cluster does not answer: {error}"));
    }

    /// Without bars, writes a line at every tenth of the change, and every [`LINE_INTERVAL`].
    fn say(&mut self, now: Instant, percent: u64, text: &str) {
        if self.progress.is_drawn() {
            return self.progress.say(text);
        }
        let due = self
            .told
            .is_none_or(|(at, before)| now - at >= LINE_INTERVAL || percent / 10 != before / 10);
        if due {
            self.context.output.note(text);
            self.told = Some((now, percent));
        }
    }
}

/// The progress of each target, as it reports it. The target with the most bytes left comes first.
fn progress_of(operator: &Operator, status: &ClusterStatus) -> Vec<(String, MoveProgress)> {
    let alive = status.nodes.iter().filter(|node| node.announced);
    let addresses: Vec<(String, String)> = alive
        .filter_map(|node| node.member.as_ref())
        .map(|member| (member.id.clone(), member.control.clone()))
        .collect();
    let mut said: Vec<(String, MoveProgress)> = operator
        .look(&addresses)
        .into_iter()
        .filter_map(|seen| Some((seen.id, seen.standing.ok()?.progress?)))
        .filter(|(_, progress)| progress.shards > 0)
        .collect();
    said.sort_by_key(|(_, progress)| Reverse(progress.bytes_left));
    said
}

/// The speed of a change over [`SPEED_WINDOW`].
#[derive(Debug, Default)]
struct Speed {
    change: u64,
    marks: VecDeque<(Instant, u64)>,
}

impl Speed {
    fn note(&mut self, now: Instant, change: u64, done: u64) {
        if self.change != change {
            *self = Self { change, marks: VecDeque::new() };
        }
        self.marks.push_back((now, done));
        while self.marks.len() > 2 && now - self.marks[0].0 > SPEED_WINDOW {
            self.marks.pop_front();
        }
    }

    /// Speed and time left, after a comma.
    fn words(&self, left: u64, change: &ClusterChange) -> String {
        if change.paused {
            return ", paused".to_owned();
        }
        let (Some(first), Some(last)) = (self.marks.front(), self.marks.back()) else {
            return String::new();
        };
        let rate = units::per_second(last.1.saturating_sub(first.1), last.0 - first.0);
        if rate < 1.0 {
            return String::new();
        }
        let time = units::time_left(left as f64 / rate);
        #[expect(clippy::cast_possible_truncation, reason = "a rate to be read, saturating")]
        let speed = units::bytes(rate as u64);
        format!(", {speed}/s, {time} left")
    }
}

impl Report for ChangeOutcome {
    fn show(&self, page: &mut Page) {
        let took = units::seconds(self.seconds);
        page.line(&format!("{} (ring {}, after {took})", self.words, self.ring_version));
    }
}
