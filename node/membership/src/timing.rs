//! How long an agent waits, for what: every duration of the protocol in one value.

use std::time::Duration;

/// The durations that an agent waits by.
///
/// [`Timing::REAL`] is the only value for clusters that hold anything. Tests of real processes
/// divide it, so that they need not wait half a minute for a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The shell tells the agent at least this often that time passed.
    pub tick: Duration,
    /// An announcement that is not renewed for this long ends. That is a suspicion, not a death.
    pub announcement_ttl: Duration,
    /// A node renews its announcement this often. Three renewals in a row may be lost.
    pub announcement_interval: Duration,
    /// A member is dead after this time without an announcement. A restart takes less.
    pub death_grace: Duration,
    /// A dead member owns shards again after this time of unbroken announcements.
    pub return_hold: Duration,
    /// Losses of one member within this time count as flapping: each doubles its grace and its
    /// hold.
    pub flap_window: Duration,
    /// Nodes that come within this time of each other join in one change.
    pub join_window: Duration,
    /// No joining node waits longer than this for others.
    pub join_wait_max: Duration,
    /// A node that never saw its cluster ends itself after this time without an answer.
    pub entry_wait_max: Duration,
    /// The k-th of the live members acts for the cluster after k of these, if no other did.
    pub turn: Duration,
    /// An agent drops an old copy only by a record that was the newest within this time.
    pub drop_freshness: Duration,
    /// A write to the coordinator without an answer after this time has an unknown outcome.
    pub proposal_timeout: Duration,
    /// A node rewrites its own address at most this often: a second process may use its name and
    /// rewrite it too.
    pub readdress_interval: Duration,
    /// An agent waits this long for a plan it still wants. Large plans take tens of seconds, and
    /// asking again starts the planner anew.
    pub plan_timeout: Duration,
    /// A node tells the cluster at most this often of a dataset that the record does not name.
    pub dataset_told_interval: Duration,
    /// A dataset that a node read from within this time is in use. A change moves its shards first.
    pub dataset_in_use: Duration,
    /// First wait before a failed pull is tried again. Each failure doubles it.
    pub pull_wait_min: Duration,
    /// Longest wait before a failed pull is tried again.
    pub pull_wait_max: Duration,
    /// An agent asks the coordinator this often for changes that a watch may have missed.
    pub refresh_interval: Duration,
    /// First wait after the coordinator refused a question. Each refusal doubles it, up to
    /// `refresh_interval`.
    pub refresh_wait_min: Duration,
}

impl Timing {
    /// The durations of every real cluster.
    pub const REAL: Self = Self {
        tick: Duration::from_secs(1),
        announcement_ttl: Duration::from_secs(10),
        announcement_interval: Duration::from_millis(2_500),
        death_grace: Duration::from_secs(30),
        return_hold: Duration::from_secs(60),
        flap_window: Duration::from_secs(600),
        join_window: Duration::from_secs(5),
        join_wait_max: Duration::from_secs(30),
        entry_wait_max: Duration::from_secs(30),
        turn: Duration::from_secs(5),
        drop_freshness: Duration::from_secs(5),
        proposal_timeout: Duration::from_secs(30),
        readdress_interval: Duration::from_secs(60),
        plan_timeout: Duration::from_secs(120),
        dataset_told_interval: Duration::from_secs(3_600),
        dataset_in_use: Duration::from_secs(60),
        pull_wait_min: Duration::from_secs(1),
        pull_wait_max: Duration::from_secs(30),
        refresh_interval: Duration::from_secs(15),
        refresh_wait_min: Duration::from_secs(1),
    };

    /// All durations divided by `divisor`, for tests of real processes.
    ///
    /// # Panics
    /// When `divisor` is 0.
    #[must_use]
    pub fn divided(self, divisor: u32) -> Self {
        Self {
            tick: self.tick / divisor,
            announcement_ttl: self.announcement_ttl / divisor,
            announcement_interval: self.announcement_interval / divisor,
            death_grace: self.death_grace / divisor,
            return_hold: self.return_hold / divisor,
            flap_window: self.flap_window / divisor,
            join_window: self.join_window / divisor,
            join_wait_max: self.join_wait_max / divisor,
            entry_wait_max: self.entry_wait_max / divisor,
            turn: self.turn / divisor,
            drop_freshness: self.drop_freshness / divisor,
            proposal_timeout: self.proposal_timeout / divisor,
            readdress_interval: self.readdress_interval / divisor,
            plan_timeout: self.plan_timeout / divisor,
            dataset_told_interval: self.dataset_told_interval / divisor,
            dataset_in_use: self.dataset_in_use / divisor,
            pull_wait_min: self.pull_wait_min / divisor,
            pull_wait_max: self.pull_wait_max / divisor,
            refresh_interval: self.refresh_interval / divisor,
            refresh_wait_min: self.refresh_wait_min / divisor,
        }
    }
}

// The relations that the protocol needs between its durations.
const _: () = {
    let real = Timing::REAL;
    assert!(3 * real.announcement_interval.as_millis() < real.announcement_ttl.as_millis());
    assert!(real.announcement_ttl.as_millis() < real.death_grace.as_millis());
    assert!(real.drop_freshness.as_millis() < real.announcement_ttl.as_millis());
};
