//! What operators ask. A command is done when it shows in the record; whoever asks again, or after
//! an outcome that nobody knows, is told the same.

use std::time::Duration;

use larder_base::limits::COMMANDS_QUEUED_MAX;

use super::{
    Agent, Answer, Command, Effect, Steer, Ticket,
    intent::{Intent, Waiting, meant, task},
    rules::Rules,
};
use crate::plan::Task;

/// How often a command is tried on a record that others change.
const TRIES_MAX: u32 = 16;
/// How long an operator is kept waiting for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

impl<R: Rules> Agent<R> {
    pub(super) fn command(&mut self, ticket: Ticket, command: Command, out: &mut Vec<Effect>) {
        let Some(record) = self.record() else {
            let why = "this node has not seen the cluster's record yet; try again, or another node";
            return out.push(Effect::Reply(ticket, Err(why.to_owned())));
        };
        if let Command::Plan { edits, replicas } = command {
            let replicas = replicas.unwrap_or(record.scheme.replicas);
            let task = Task { replicas, ..task(record, edits, false) };
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
