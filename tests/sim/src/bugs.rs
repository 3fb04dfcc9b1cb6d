//! The bugs that are planted, one at a time, to see that the checks notice.

use larder_membership::agent::{Rule, Rules};

/// One thing that is wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// The agents of this run do not hold to this rule.
    Rule(Rule),
    /// The world around the agents breaks its contract with them.
    World(Mishap),
}

/// What a shell, a coordinator or a client can do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mishap {
    /// The coordinator replaces the record whatever revision was expected.
    ReplaceWithoutCompare,
    /// The coordinator forgets the last write when it restarts.
    AcknowledgedWriteLost,
    /// The coordinator takes the record and loses the blobs it names.
    RecordBeforeBlobs,
    /// The coordinator sweeps whatever the record's revision, and young blobs too.
    SweepWithoutFence,
    /// The coordinator never ends an announcement.
    AnnouncementsForEver,
    /// The coordinator tells nobody when the record changes, nor does it answer what is newest.
    StaleAnswers,
    /// A shell reports a lost answer as a success.
    UnknownAsDone,
    /// A pull ends well before the bytes were checked.
    SealSkipped,
    /// A fill takes whatever version the origin has.
    IfMatchDropped,
    /// A node that is not the owner refuses to serve.
    SurrogateRefuses,
    /// A new owner asks the origin although an old owner has the shard.
    OriginBeforePeers,
    /// A pull that was asked of a node goes to the origin.
    PullFromOrigin,
    /// A client waits ten seconds for a silent node.
    PatientClient,
    /// A client asks the owner and nobody else.
    OwnerOnly,
    /// A client that found no node does not ask the origin.
    NoFallback,
    /// A client is never told the new ring.
    ClientNeverTold,
    /// A node brings a ring into use and forgets the one before.
    PreviousForgotten,
    /// A shell drops more than it was told to.
    DropsNeighbour,
    /// A node that restarts says what it said before it.
    OldWordsAfterRestart,
    /// The planner leaves out a shard that has to move.
    PlanForgetsAShard,
    /// The planner moves what nobody asked to be moved.
    PlanMovesTooMuch,
    /// The planner evens out at a death, so that survivors give shards to each other.
    DeathMovesSurvivors,
    /// The planner makes one copy fewer than it is to.
    OneCopyFewer,
    /// The planner says that who keeps its copy gives it away.
    KeeperGivesAway,
    /// A node brings a ring into use with the exceptions to the one before.
    OldTablesAtInstall,
    /// A node brings a ring into use without its exceptions.
    TablesDroppedAtInstall,
    /// A node forgets the exceptions to the ring before.
    PreviousTablesForgotten,
}

/// Those that no seed need show, because other rules hold without them: decision 0016 says why.
pub const SECOND_BOLTS: &[Bug] = &[Bug::Rule(Rule::DropWhenFresh)];

/// All that are planted.
pub const ALL: &[Bug] = &{
    use Bug::{Rule as R, World as W};
    [
        R(Rule::RecordsGrow),
        R(Rule::GenerationFence),
        R(Rule::OneCluster),
        R(Rule::PlanIsPinned),
        R(Rule::UnknownIsReadAgain),
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
        R(Rule::FailedIsNotMoved),
        R(Rule::FailedIsTriedAgain),
        R(Rule::GapsAreSaid),
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

/// The rules of one run's agents: all but the one that is taken away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planted(pub(crate) Option<Bug>);

impl Rules for Planted {
    fn broken(&self, rule: Rule) -> bool {
        self.0 == Some(Bug::Rule(rule))
    }
}

impl Planted {
    pub(crate) fn world(&self, mishap: Mishap) -> bool {
        self.0 == Some(Bug::World(mishap))
    }
}
