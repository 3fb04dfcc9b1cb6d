//! The safety conditions of the protocol, each by name, so that a simulation can take one away and
//! must notice.

/// A condition that the agent holds to. Where its code asks for one it asks by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is said by the words that `rules!` keeps beside it")]
pub enum Rule {
    RecordsGrow,
    GenerationFence,
    OneCluster,
    PlanIsPinned,
    UnknownIsReadAgain,
    HeardBeforeActing,
    GraceBeforeDeath,
    DeathIsAskedFor,
    BrakeOnMassLoss,
    FlapsLengthenGrace,
    ReturnAfterHold,
    DoubtAfterPause,
    DoubtAfterAway,
    FrozenWhileAway,
    JoinsShareAChange,
    LeaversStayOut,
    DeadJoinersAbort,
    ForgetDeadJoiners,
    StageWhenAllAreThere,
    CommitAfterMoves,
    CommitThisPlan,
    CommitByThePresent,
    CommitUnlessPaused,
    DeadlineCommits,
    DeadlinesDoNotWait,
    PullUnlessPaused,
    PullWithinRate,
    PullFewAtOnce,
    UnlistedComeToo,
    FailedIsNotMoved,
    FailedIsTriedAgain,
    GapsAreSaid,
    LostIsPulledAgain,
    InstallCommittedOnly,
    DropAfterCommit,
    DropAfterVerified,
    DropWithoutGaps,
    DropWhenFresh,
    WordsWhenSteady,
    DropWhenInstalled,
    KeepWhatComesBack,
    SettleWhenAllSaySo,
    SettleWhenClean,
    CommandsAreAnswered,
}

/// Which rules hold. In a node all do.
pub trait Rules {
    /// Whether this rule was taken away.
    fn broken(&self, rule: Rule) -> bool;

    /// Whether an action that needs `condition` by this rule may be taken.
    fn holds(&self, rule: Rule, condition: bool) -> bool {
        condition || self.broken(rule)
    }
}

/// All rules hold: what every node runs with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unbroken;

impl Rules for Unbroken {
    #[inline]
    fn broken(&self, _: Rule) -> bool {
        false
    }
}
