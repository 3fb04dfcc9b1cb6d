//! What becomes of a shard whose bytes are all in.
//!
//! It is served if it is what somebody who waits pins; or if nobody pins anything, and a peer that gave some of it has
//! the same. Else all of it is read from the origin, up to twice. What comes alike both times is what the origin has,
//! and is served, though not to those who pin another: their snapshot is wrong, and keeps the shard from nobody else.

use crate::pin::Proof;

/// What to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is served, as what it is known to be.
    Serve(Proof),
    /// Bytes of a peer are in it: all is read again, from the origin.
    ReadFromOrigin,
    /// It is read once more: bytes can be damaged on their way once.
    ReadAgain,
    /// It came differently each time.
    GiveUp,
}

/// What one fill has read.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// The digest of what came from the origin and is not what is pinned.
    unlike: Option<u64>,
}

impl Reads {
    /// Judges a shard by its digest. `lent` is the digest that it is to have according to a peer that gave some of it.
    pub(super) fn judge(&mut self, digest: u64, pinned: Option<u64>, lent: Option<u64>) -> Verdict {
        match (pinned, lent) {
            (Some(pinned), _) if pinned == digest => Verdict::Serve(Proof::Pinned),
            (None, None) => Verdict::Serve(Proof::None),
            (None, Some(lent)) if lent == digest => Verdict::Serve(Proof::None),
            (_, Some(_)) => Verdict::ReadFromOrigin,
            (Some(_), None) => match self.unlike.replace(digest) {
                None => Verdict::ReadAgain,
                Some(before) if before == digest => Verdict::Serve(Proof::ReadTwice),
                Some(_) => Verdict::GiveUp,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROVEN: Verdict = Verdict::Serve(Proof::Pinned);
    const UNPROVEN: Verdict = Verdict::Serve(Proof::None);

    #[test]
    fn what_is_pinned_is_proven_whoever_gave_it() {
        assert_eq!(Reads::default().judge(7, Some(7), None), PROVEN);
        assert_eq!(Reads::default().judge(7, Some(7), Some(8)), PROVEN);
    }

    #[test]
    fn what_nobody_pins_is_served_as_it_came_unless_a_peer_has_another() {
        assert_eq!(Reads::default().judge(7, None, None), UNPROVEN);
        assert_eq!(Reads::default().judge(7, None, Some(7)), UNPROVEN);
        assert_eq!(Reads::default().judge(7, None, Some(8)), Verdict::ReadFromOrigin);
    }

    #[test]
    fn what_the_origin_gives_twice_is_proven_whatever_is_pinned() {
        let mut reads = Reads::default();
        assert_eq!(reads.judge(7, Some(9), None), Verdict::ReadAgain);
        assert_eq!(reads.judge(7, Some(9), None), Verdict::Serve(Proof::ReadTwice));
    }

    #[test]
    fn what_a_peer_gave_counts_for_neither_of_the_two_reads() {
        let mut reads = Reads::default();
        assert_eq!(reads.judge(7, Some(9), Some(7)), Verdict::ReadFromOrigin);
        assert_eq!(reads.judge(7, Some(9), None), Verdict::ReadAgain);
    }

    #[test]
    fn what_comes_differently_each_time_is_given_up() {
        let mut reads = Reads::default();
        assert_eq!(reads.judge(7, Some(9), None), Verdict::ReadAgain);
        assert_eq!(reads.judge(8, Some(9), None), Verdict::GiveUp);
    }
}
