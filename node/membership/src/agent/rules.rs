//! The safety rules of the agent, each by name. A simulation breaks one rule at a time, and its
//! checks must notice. Each rule says what it forbids, then what would happen without it.

/// A safety rule of the agent. The code asks for it by name wherever it applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// No older record replaces a newer one: a late watch event would bring back an old ring.
    RecordsGrow,
    /// No record of an older generation counts: a coordinator that lost its seat would rule again.
    GenerationFence,
    /// No record of another cluster counts: a wrong address would give this node a foreign ring.
    OneCluster,
    /// No plan applies to another ring version: it would undo the changes since it was made.
    PlanIsPinned,
    /// An unannounced agent proposes nothing: a cut-off node would declare live members dead.
    HeardBeforeActing,
    /// No member is dead before its grace ends: each restart would cost a ring change.
    GraceBeforeDeath,
    /// No member is dead without a fresh answer: a missed watch event would remove a live one.
    DeathIsAskedFor,
    /// No death counts while over a quarter is gone: a network fault would empty the ring.
    BrakeOnMassLoss,
    /// No flapping member keeps its short grace: each of its losses would change the ring.
    FlapsLengthenGrace,
    /// No dead member returns before its hold ends: a flapping node would move shards each time.
    ReturnAfterHold,
    /// No absence from before the agent's own pause counts: a paused agent would see deaths.
    DoubtAfterPause,
    /// No absence from an outage counts: leases that could not be renewed would look like deaths.
    DoubtAfterAway,
    /// No proposal starts while the coordinator is away: decisions would rest on a stale record.
    FrozenWhileAway,
    /// No joiner gets a change of its own: nodes that start together would move shards again.
    JoinsShareAChange,
    /// No removed node rejoins by itself: a drained node would be back in the ring at once.
    LeaversStayOut,
    /// No change goes on with a dead joiner: it would wait for that node without end.
    DeadJoinersAbort,
    /// No dead joiner stays in the record: entries of nodes that never came would pile up.
    ForgetDeadJoiners,
    /// No change is planned while a member is absent: the plan would count on a dead node.
    StageWhenAllAreThere,
    /// No commit before each target has its shards: reads would go to owners without them.
    CommitAfterMoves,
    /// No announcement for another plan counts: a commit could come before the moves.
    CommitThisPlan,
    /// No announcement of an absent node counts: a dead target would seem to hold shards.
    CommitByThePresent,
    /// No paused change commits: the ring would change although an operator held it.
    CommitUnlessPaused,
    /// No change waits beyond a member's deadline: that node would be killed while it owns shards.
    DeadlineCommits,
    /// No deadline waits for another change: the node would be killed before its turn.
    DeadlinesDoNotWait,
    /// No pull starts while the change is paused: a pause would not relieve the cluster.
    PullUnlessPaused,
    /// No pull starts above the rate: transfers would take bandwidth that reads need.
    PullWithinRate,
    /// No more than `PULLS_IN_FLIGHT_MAX` pulls run at once: a change would flood the node.
    PullFewAtOnce,
    /// No shard stays unpulled because its source did not list it: the change would never end.
    UnlistedComeToo,
    /// No evicted shard counts as settled: its old owner would drop the last copy.
    LostIsPulledAgain,
    /// No staged ring is installed: nodes would read by a ring that may be aborted.
    InstallCommittedOnly,
    /// No old copy is dropped before the commit: an abort would leave owners without shards.
    DropAfterCommit,
    /// No old copy is dropped before its new owner verified it: the shard would be lost.
    DropAfterVerified,
    /// No old copy is dropped while its new owner has gaps: it may be one of the missing shards.
    DropWithoutGaps,
    /// No old copy is dropped by a stale record: a change since then may need that copy.
    DropWhenFresh,
    /// No announcement from before an outage counts: its node may have died in the outage.
    WordsWhenSteady,
    /// No old copy is dropped before the new ring is in use here: reads still come by the old.
    DropWhenInstalled,
    /// No shard that the change in flight brings back is dropped: the change counts on the copy.
    KeepWhatComesBack,
    /// No ring settles before all members announce it: open pulls and drops would be forgotten.
    SettleWhenAllSaySo,
    /// No ring settles before members dropped old copies: these copies would stay in memory.
    SettleWhenClean,
    /// No command is forgotten after a lost write: its operator would wait without an answer.
    CommandsAreAnswered,
}

/// Tells which rules hold. In a node all do.
pub trait Rules {
    /// Whether a simulation took this rule away.
    fn broken(&self, rule: Rule) -> bool;

    /// Whether an action may be taken that needs `condition` by this rule.
    fn holds(&self, rule: Rule, condition: bool) -> bool {
        condition || self.broken(rule)
    }

    /// Whether this rule demands an action, because of `condition`.
    fn demands(&self, rule: Rule, condition: bool) -> bool {
        !self.holds(rule, !condition)
    }
}

/// The rules of every node: all hold.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unbroken;

impl Rules for Unbroken {
    #[inline]
    fn broken(&self, _: Rule) -> bool {
        false
    }
}
