//! What operators ask. A command is done when it shows in the record; whoever asks again, or after an
//! outcome that nobody knows, is told the same.

use std::time::Duration;

use larder_base::limits::COMMANDS_QUEUED_MAX;

use super::{Agent, Answer, Command, Effect, Steer, Ticket, proposal::Intent, rules::Rules};
use crate::{
    Now, Record,
    plan::{Edit, Task},
    record::{Past, Refused, State},
};

/// How often a command is tried on a record that others change.
const TRIES_MAX: u32 = 16;
/// How long an operator is kept waiting for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command that has no answer yet.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    command: Command,
    since: Now,
    tries: u32,
    /// The change that is meant; none when whichever is in flight is.
    change: Option<u64>,
}

impl<R: Rules> Agent<R> {
    pub(super) fn command(&mut self, ticket: Ticket, command: Command, out: &mut Vec<Effect>) {
        let Some(record) = self.record() else {
            let why = "this node has not seen the cluster's record yet; try again, or another node";
            return out.push(Effect::Reply(ticket, Err(why.to_owned())));
        };
        if let Command::Plan { edits, copies } = command {
            let copies = copies.unwrap_or(record.scheme.copies);
            let task = Task { copies, ..task(record, edits, false) };
            return self.show_plan(ticket, task, out);
        }
        let change = meant(record, &command);
        let refused = if self.link.away {
            Some("the coordinator does not answer; try again when it does")
        } else if self.commands.len() >= COMMANDS_QUEUED_MAX {
            Some("too many commands wait at this node; try again, or another node")
        } else if command == Steer::Abort.any() && change.is_none() {
            Some("no change is in flight")
        } else {
            None
        };
        match refused {
            Some(why) => out.push(Effect::Reply(ticket, Err(why.to_owned()))),
            None => {
                let since = self.now;
                self.commands.push_back(Waiting { ticket, command, since, tries: 0, change });
            }
        }
    }

    pub(super) fn refuse_commands(&mut self, why: &str, out: &mut Vec<Effect>) {
        for waiting in self.commands.drain(..) {
            out.push(Effect::Reply(waiting.ticket, Err(why.to_owned())));
        }
    }

    /// Answers what is answered already, and proposes the first that is not.
    pub(super) fn run_commands(&mut self, out: &mut Vec<Effect>) {
        while self.proposal.is_none()
            && let Some(mut waiting) = self.commands.pop_front()
        {
            let Some(record) = self.record() else {
                return;
            };
            waiting.tries += 1;
            if waiting.shows_in(record) {
                out.push(Effect::Reply(waiting.ticket, Ok(Answer::Done)));
                continue;
            }
            if waiting.tries > TRIES_MAX || self.now >= waiting.since + PATIENCE {
                let why = "the record changes too fast or answers do not come; try again";
                out.push(Effect::Reply(waiting.ticket, Err(why.to_owned())));
                continue;
            }
            let step = waiting.check(record).and_then(|()| self.step_for(record, &waiting.command));
            match step {
                Ok(audit) => {
                    let blobs = waiting.blobs();
                    self.propose(Intent::Command(waiting), audit, blobs, out);
                }
                Err(why) => out.push(Effect::Reply(waiting.ticket, Err(why.to_string()))),
            }
        }
    }
}

impl Waiting {
    fn blobs(&self) -> Vec<Vec<u8>> {
        let Command::Apply { planned, .. } = &self.command else {
            return Vec::new();
        };
        [Some(planned.plan.clone()), planned.placement.clone()].into_iter().flatten().collect()
    }

    /// Refuses to steer another change than is meant.
    fn check(&self, record: &Record) -> Result<(), Refused> {
        let now = number(record);
        match self.change {
            Some(meant) if now != Some(meant) => Err(Refused::new(match now {
                Some(now) => {
                    format!("change {meant} is not in flight, change {now} is; see `ring status`")
                }
                None => {
                    format!("change {meant} is not in flight, and no other is; see `ring history`")
                }
            })),
            _ => Ok(()),
        }
    }

    /// Whether the record is as the command wants it.
    fn shows_in(&self, record: &Record) -> bool {
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

/// The change that a command is about, if it is about one. An abort is about the one that was in flight when it came.
fn meant(record: &Record, command: &Command) -> Option<u64> {
    match command {
        Command::Steer { steer: Steer::Abort, change } => change.or_else(|| number(record)),
        Command::Steer { change, .. } => *change,
        _ => None,
    }
}

/// The number of the change in flight.
fn number(record: &Record) -> Option<u64> {
    record.change.as_ref().map(|change| change.number)
}

/// What a planner is asked about this record.
pub(super) fn task(record: &Record, edits: Vec<Edit>, urgent: bool) -> Task {
    Task {
        base: record.version,
        members: record.ring_members(),
        scheme: record.scheme,
        copies: record.scheme.copies,
        placement: record.placement,
        edits,
        urgent,
    }
}
