//! Decides how a gather reacts to a node's failure. Pure, so that all rules are in one place.

use larder_base::{Advice, ErrorKind};

use crate::remote::Failure;

/// The failures of a node in one gather.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FailurePolicy {
    /// The gather sends it no more requests.
    pub(super) out: bool,
    /// A reused connection broke, which is tolerated once.
    broke: bool,
    /// It did not know this client, and the dataset was opened again.
    reopened: bool,
    corrupt: bool,
    /// It found the origin's bytes damaged.
    lost: bool,
}

/// The reaction to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection had outlived its node. Ask the same node over a new connection.
    Reconnect,
    /// The node no longer knows this client. Open the dataset on it again.
    Reopen,
    /// Ask again after a wait.
    Wait,
    /// A row was damaged. Ask for it again, with a check before it is sent.
    Recheck,
    /// The origin's bytes are damaged, or differ from those that the snapshot pins. Another node
    /// may have good ones.
    Lost,
    /// This gather asks other nodes.
    PassOver,
    /// All gathers ask other nodes until this one answers a probe.
    Down,
    /// No node can answer this.
    Fatal,
}

impl FailurePolicy {
    /// Counts a failure. `used` is true if the connection had served before.
    pub(super) fn judge(&mut self, failure: &Failure, used: bool) -> Verdict {
        let verdict = match failure {
            Failure::Broken(_) if used && !self.broke => Verdict::Reconnect,
            Failure::Broken(_)
            | Failure::Unreachable(_)
            | Failure::Silent
            | Failure::Protocol(_)
            | Failure::Unwilling(_) => Verdict::Down,
            Failure::Corrupt { .. } => Verdict::Recheck,
            Failure::Answer(answer) => match (answer.kind(), answer.advice()) {
                (ErrorKind::Unauthenticated | ErrorKind::NotFound, _) if !self.reopened => {
                    Verdict::Reopen
                }
                (_, Advice::Retry) => Verdict::Wait,
                // All others were asked since the first time.
                (ErrorKind::DataLoss, _) if self.lost => Verdict::Fatal,
                (ErrorKind::DataLoss, _) => Verdict::Lost,
                (ErrorKind::Unavailable, _) => Verdict::Down,
                (_, Advice::TryNextNode) => Verdict::PassOver,
                (_, Advice::CallerFault | Advice::GiveUp) => Verdict::Fatal,
            },
        };
        match verdict {
            Verdict::Reconnect => self.broke = true,
            Verdict::Reopen => self.reopened = true,
            Verdict::Recheck => {
                self.out = self.corrupt;
                self.corrupt = true;
            }
            Verdict::Lost => (self.out, self.lost) = (true, true),
            Verdict::PassOver | Verdict::Down => self.out = true,
            Verdict::Wait | Verdict::Fatal => {}
        }
        verdict
    }

    /// Forgets all failures but damage, after a wait.
    pub(super) fn forgive(&mut self) {
        *self = Self { corrupt: self.corrupt, lost: self.lost, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn answer(kind: ErrorKind) -> Failure {
        Failure::Answer(Error::new(kind, "as the test says"))
    }

    #[test]
    fn reconnects_once_after_break_of_an_old_connection_only() {
        let broken = Failure::Broken("reset".to_owned());
        let mut policy = FailurePolicy::default();
        assert_eq!(policy.judge(&broken, true), Verdict::Reconnect);
        assert!(!policy.out);
        assert_eq!(policy.judge(&broken, true), Verdict::Down);
        assert!(policy.out);
        assert_eq!(FailurePolicy::default().judge(&broken, false), Verdict::Down);
    }

    #[test]
    fn reopens_dataset_only_once_when_node_does_not_know_it() {
        let mut policy = FailurePolicy::default();
        assert_eq!(policy.judge(&answer(ErrorKind::NotFound), false), Verdict::Reopen);
        assert_eq!(policy.judge(&answer(ErrorKind::NotFound), false), Verdict::Fatal);
    }

    #[test]
    fn second_damage_excludes_the_node_even_after_a_wait() {
        let corrupt = Failure::Corrupt { slot: 0, row: 3 };
        let mut policy = FailurePolicy::default();
        assert_eq!(policy.judge(&corrupt, true), Verdict::Recheck);
        assert!(!policy.out);
        policy.forgive();
        assert_eq!(policy.judge(&corrupt, true), Verdict::Recheck);
        assert!(policy.out);
    }

    #[test]
    fn second_report_of_damaged_bytes_is_final_even_after_a_wait() {
        let lost = answer(ErrorKind::DataLoss);
        let mut policy = FailurePolicy::default();
        assert_eq!(policy.judge(&lost, true), Verdict::Lost);
        assert!(policy.out);
        policy.forgive();
        assert!(!policy.out);
        assert_eq!(policy.judge(&lost, true), Verdict::Fatal);
    }

    #[test]
    fn verdict_follows_error_kind() {
        for (kind, verdict) in [
            (ErrorKind::ResourceExhausted, Verdict::Wait),
            (ErrorKind::OriginUnavailable, Verdict::Wait),
            (ErrorKind::DataLoss, Verdict::Lost),
            (ErrorKind::Unavailable, Verdict::Down),
            (ErrorKind::DataChanged, Verdict::Fatal),
            (ErrorKind::InvalidArgument, Verdict::Fatal),
        ] {
            assert_eq!(FailurePolicy::default().judge(&answer(kind), true), verdict, "{kind:?}");
        }
    }
}
