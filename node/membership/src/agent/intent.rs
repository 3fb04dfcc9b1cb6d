//! The writes that an agent proposes, and their reasons.

use super::{Command, Steer, Ticket};
use crate::{
    Now, Record,
    plan::{Edit, Task},
    record::{Past, Refused, State},
};

/// Why the agent proposes a write.
#[derive(Debug, Clone)]
pub(super) enum Intent {
    /// This node's own entry.
    Own,
    /// Datasets that were opened here.
    Opened,
    /// A step that the cluster needs.
    Action(Action),
    /// An operator's command.
    Command(Waiting),
}

/// A step that some agent should take for the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Remove these members from the ring: they are dead or condemned.
    Lose(Vec<String>),
    /// Commit the change in flight: everything has moved.
    Commit,
    /// Abort the change in flight: this joiner is dead.
    Abort(String),
    /// Forget these joiners: they are dead.
    Forget(Vec<String>),
    /// Begin a planned change.
    Stage(Vec<Edit>),
    /// Replace the change in flight by one with these edits, so that members with a deadline need
    /// not wait for it.
    Extend(Vec<Edit>),
    /// Settle the committed ring: all its shards are at their owners.
    Settle,
}

impl Action {
    pub(super) fn words(&self) -> String {
        match self {
            Self::Lose(ids) => {
                let are = if ids.len() == 1 { "is" } else { "are" };
                format!("{} {are} gone", ids.join(", "))
            }
            Self::Commit => "everything has moved".to_owned(),
            Self::Abort(id) => format!("{id} is gone"),
            Self::Forget(ids) => format!("{} gone before they had joined", ids.join(", ")),
            Self::Stage(_) => "members come or go".to_owned(),
            Self::Extend(_) => "a member leaves by a deadline".to_owned(),
            Self::Settle => "nothing is left to move or to drop".to_owned(),
        }
    }
}

/// A command that has no answer yet.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) command: Command,
    pub(super) since: Now,
    pub(super) tries: u32,
    /// The change that is meant; none: the one in flight.
    pub(super) change: Option<u64>,
}

impl Waiting {
    pub(super) fn blobs(&self) -> Vec<Vec<u8>> {
        let Command::Apply { planned, .. } = &self.command else {
            return Vec::new();
        };
        [Some(planned.plan.clone()), planned.placement.clone()].into_iter().flatten().collect()
    }

    /// Refuses to steer a change other than the one that is meant.
    pub(super) fn check(&self, record: &Record) -> Result<(), Refused> {
        let now = number(record);
        match self.change {
            Some(meant) if now != Some(meant) => Err(Refused::new(match now {
                Some(now) => {
                    format!(
                        "change {meant} is not in flight, change {now} is; see 'larder ring status'"
                    )
                }
                None => {
                    format!(
                        "change {meant} is not in flight, and no other is; see 'larder ring history'"
                    )
                }
            })),
            _ => Ok(()),
        }
    }

    /// Whether the record shows the result of the command.
    pub(super) fn shows_in(&self, record: &Record) -> bool {
        let state = |id: &str| record.entry(id).map(|entry| entry.state);
        let change = record.change.as_ref();
        match &self.command {
            Command::Plan { .. } => false,
            Command::Apply { planned, .. } => {
                let id = planned.id();
                let done = record.history.iter().any(|past| past.committed && past.plan == id);
                done || change.is_some_and(|change| change.plan == id)
            }
            Command::Steer { steer: Steer::Abort, .. } => {
                let was_aborted = |past: &Past| Some(past.number) == self.change && !past.committed;
                record.history.iter().any(was_aborted)
            }
            Command::Steer { steer, .. } => {
                let meant = change.filter(|_| self.check(record).is_ok());
                meant.is_some_and(|change| match steer {
                    Steer::Pause => change.paused,
                    Steer::Resume => !change.paused,
                    Steer::Rate(rate) => change.rate == *rate,
                    Steer::Abort => false,
                })
            }
            Command::Drain { id, deadline } => {
                let out = change.filter(|change| deadline.is_some() && change.takes_out(id));
                let held = out.is_some_and(|change| change.paused || change.rate.is_some());
                !held && state(id) == Some(State::Draining { deadline: *deadline })
            }
            Command::Undrain(id) => state(id) == Some(State::Active),
            Command::Remove(ids) => {
                ids.iter().all(|id| state(id).is_none_or(|s| s == State::Condemned))
            }
        }
    }
}

/// Returns the change that a command is about, if any. An abort is about the change that was in
/// flight when the command came.
pub(super) fn meant(record: &Record, command: &Command) -> Option<u64> {
    match command {
        Command::Steer { steer: Steer::Abort, change } => change.or_else(|| number(record)),
        Command::Steer { change, .. } => *change,
        _ => None,
    }
}

/// Returns the number of the change in flight.
fn number(record: &Record) -> Option<u64> {
    record.change.as_ref().map(|change| change.number)
}

/// Returns the planner's task for this record.
pub(super) fn task(record: &Record, edits: Vec<Edit>, urgent: bool) -> Task {
    Task {
        base: record.version,
        members: record.ring_members(),
        scheme: record.scheme,
        replicas: record.scheme.replicas,
        placement: record.placement,
        edits,
        urgent,
    }
}
