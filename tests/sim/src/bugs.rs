//! Planted bugs, one at a time, to prove that the checks notice them.

use larder_membership::agent::{Pulled, Rule, Rules};

/// One fault of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// The agents of this run break this rule.
    Rule(Rule),
    /// The world around the agents breaks its contract with them.
    World(Mishap),
}

/// A fault of a shell, a coordinator, a client or the planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mishap {
    /// The coordinator replaces the record without comparing revisions.
    ReplaceWithoutCompare,
    /// The coordinator forgets the last write when it restarts.
    AcknowledgedWriteLost,
    /// The coordinator takes the record and loses the blobs it names.
    RecordBeforeBlobs,
    /// The coordinator sweeps at any revision of the record, and young blobs too.
    SweepWithoutFence,
    /// The coordinator never ends an announcement.
    AnnouncementsForEver,
    /// The coordinator announces no change of the record, and answers from a cache.
    StaleAnswers,
    /// A shell reports a lost answer as a success.
    UnknownAsDone,
    /// A shell reports a failed pull as a success.
    FailureAsMoved,
    /// A shell reports a shard that found no room as moved.
    GapAsMoved,
    /// A shell does not report a failed pull.
    FailureUnsaid,
    /// A pull ends well before the bytes were checked.
    SealSkipped,
    /// A fill takes any version that the origin has.
    IfMatchDropped,
    /// A node that is not the owner refuses to serve.
    SurrogateRefuses,
    /// A new owner asks the origin although an old owner has the shard.
    OriginBeforePeers,
    /// A pull from a node goes to the origin.
    PullFromOrigin,
    /// A client waits ten seconds for a silent node.
    PatientClient,
    /// A client asks only the owner.
    OwnerOnly,
    /// A client that found no node does not ask the origin.
    NoFallback,
    /// A client is never told the new ring.
    ClientNeverTold,
    /// A node installs a ring and forgets the one before.
    PreviousForgotten,
    /// A shell drops more than it was told to.
    DropsNeighbour,
    /// A node that restarts repeats its announcement from before.
    OldWordsAfterRestart,
    /// The planner leaves out a shard that has to move.
    PlanForgetsAShard,
    /// The planner moves a shard that has no need to move.
    PlanMovesTooMuch,
    /// The planner evens placement out at a death, so survivors give shards to each other.
    DeathMovesSurvivors,
    /// The planner makes one copy too few.
    OneCopyFewer,
    /// The planner lets an owner drop a copy that it should keep.
    KeeperGivesAway,
    /// A node installs a ring with the exceptions of the one before.
    OldTablesAtInstall,
    /// A node installs a ring without its exceptions.
    TablesDroppedAtInstall,
    /// A node forgets the exceptions to the ring before.
    PreviousTablesForgotten,
}

/// Bugs that no seed need show, because other rules hold without them (decision 0016).
pub const SECOND_BOLTS: &[Bug] = &[Bug::Rule(Rule::DropWhenFresh)];

/// All planted bugs.
pub const ALL: &[Bug] = &{
    use Bug::{Rule as R, World as W};
    [
        R(Rule::RecordsGrow),
        R(Rule::GenerationFence),
        R(Rule::OneCluster),
        R(Rule::PlanIsPinned),
        R(Rule::HeardBeforeActing),
        R(Rule::GraceBeforeDeath),
        R(Rule::DeathIsAskedFor),
        R(Rule::BrakeOnMassLoss),
        R(Rule::FlapsLengthenGrace),
        R(Rule::ReturnAfterHold),
        R(Rule::DoubtAfterPause),
        R(Rule::DoubtAfterAway),
        R(Rule::FrozenWhileAway),
        R(Rule::JoinsShareAChange),
        R(Rule::LeaversStayOut),
        R(Rule::DeadJoinersAbort),
        R(Rule::ForgetDeadJoiners),
        R(Rule::StageWhenAllAreThere),
        R(Rule::CommitAfterMoves),
        R(Rule::CommitThisPlan),
        R(Rule::CommitByThePresent),
        R(Rule::CommitUnlessPaused),
        R(Rule::DeadlineCommits),
        R(Rule::DeadlinesDoNotWait),
        R(Rule::PullUnlessPaused),
        R(Rule::PullWithinRate),
        R(Rule::PullFewAtOnce),
        R(Rule::UnlistedComeToo),
        R(Rule::LostIsPulledAgain),
        R(Rule::InstallCommittedOnly),
        R(Rule::DropAfterCommit),
        R(Rule::DropAfterVerified),
        R(Rule::DropWithoutGaps),
        R(Rule::DropWhenFresh),
        R(Rule::WordsWhenSteady),
        R(Rule::DropWhenInstalled),
        R(Rule::KeepWhatComesBack),
        R(Rule::SettleWhenAllSaySo),
        R(Rule::SettleWhenClean),
        R(Rule::CommandsAreAnswered),
        W(Mishap::ReplaceWithoutCompare),
        W(Mishap::AcknowledgedWriteLost),
        W(Mishap::RecordBeforeBlobs),
        W(Mishap::SweepWithoutFence),
        W(Mishap::AnnouncementsForEver),
        W(Mishap::StaleAnswers),
        W(Mishap::UnknownAsDone),
        W(Mishap::FailureAsMoved),
        W(Mishap::GapAsMoved),
        W(Mishap::FailureUnsaid),
        W(Mishap::SealSkipped),
        W(Mishap::IfMatchDropped),
        W(Mishap::SurrogateRefuses),
        W(Mishap::OriginBeforePeers),
        W(Mishap::PullFromOrigin),
        W(Mishap::PatientClient),
        W(Mishap::OwnerOnly),
        W(Mishap::NoFallback),
        W(Mishap::ClientNeverTold),
        W(Mishap::PreviousForgotten),
        W(Mishap::DropsNeighbour),
        W(Mishap::OldWordsAfterRestart),
        W(Mishap::PlanForgetsAShard),
        W(Mishap::PlanMovesTooMuch),
        W(Mishap::DeathMovesSurvivors),
        W(Mishap::OneCopyFewer),
        W(Mishap::KeeperGivesAway),
        W(Mishap::OldTablesAtInstall),
        W(Mishap::TablesDroppedAtInstall),
        W(Mishap::PreviousTablesForgotten),
    ]
};

/// The rules of one run's agents: all but the broken one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planted(pub(crate) Option<Bug>);

impl Rules for Planted {
    fn broken(&self, rule: Rule) -> bool {
        self.0 == Some(Bug::Rule(rule))
    }
}

impl Planted {
    /// What the agent hears of a pull that ended.
    pub(crate) fn heard(&self, pulled: Pulled) -> Option<Pulled> {
        match (self.0, pulled) {
            (Some(Bug::World(Mishap::FailureAsMoved)), Pulled::Failed)
            | (Some(Bug::World(Mishap::GapAsMoved)), Pulled::NoRoom | Pulled::Gone) => {
                Some(Pulled::Verified)
            }
            (Some(Bug::World(Mishap::FailureUnsaid)), Pulled::Failed) => None,
            _ => Some(pulled),
        }
    }

    pub(crate) fn world(&self, mishap: Mishap) -> bool {
        self.0 == Some(Bug::World(mishap))
    }
}
