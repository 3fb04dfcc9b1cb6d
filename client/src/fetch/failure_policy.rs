//! What a node's failure means for the gather that met it: pure, so that the rules can be read in
//! one place.

use larder_base::{Advice, ErrorKind};

use crate::remote::Failure;

/// What a node did wrong in one gather.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FailurePolicy {
    /// It is asked for nothing more.
    pub(super) out: bool,
    /// A connection from before broke: it was allowed that once.
    broke: bool,
    /// It did not know us, and was told.
    reopened: bool,
    /// It sent a damaged row.
    corrupt: bool,
}

/// What is to be done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection had only outlived its node: the same node is asked over a new one.
    Reconnect,
    /// The node does not know us any more: the dataset is opened on it again.
    Reopen,
    /// The same is asked again after a wait.
    Wait,
    /// A row came damaged: it is asked for again, and must be checked before it is sent.
    Recheck,
    /// Bytes of the origin are not those that the snapshot pins; another node may have sound ones.
    Lost,
    /// This gather asks other nodes.
    PassOver,
    /// All gathers ask other nodes until this one answers a probe.
    Down,
    /// Nobody will answer this.
    Fatal,
}

impl FailurePolicy {
    /// Counts a failure. `used` says whether the connection had served before.
    pub(super) fn judge(&mut self, failure: &Failure, used: bool) -> Verdict {
        let verdict = match failure {
            Failure::Broken(_) if used && !self.broke => Verdict::Reconnect,
            Failure::Broken(_) | Failure::Silent | Failure::Protocol(_) | Failure::Unwilling(_) => {
                Verdict::Down
            }
            Failure::Corrupt { .. } => Verdict::Recheck,
            Failure::Answer(answer) => match (answer.kind(), answer.advice()) {
                (ErrorKind::Unauthenticated | ErrorKind::NotFound, _) if !self.reopened => {
                    Verdict::Reopen
                }
                (_, Advice::Retry) => Verdict::Wait,
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
            Verdict::Lost | Verdict::PassOver | Verdict::Down => self.out = true,
            Verdict::Wait | Verdict::Fatal => {}
        }
        verdict
    }

    /// After a wait all is forgiven but damage.
    pub(super) fn forgive(&mut self) {
        *self = Self { corrupt: self.corrupt, ..Self::default() };
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
