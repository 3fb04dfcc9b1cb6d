//! The shell around this node's agent: it feeds events to the agent, and performs the agent's
//! effects.
//!
//! ```text
//! coordinator's watch ─┐                          ┌─▶ Agreement: announce, propose, fetch, sweep
//! operators' requests ─┼─▶ Driver ──▶ Agent ──▶ ──┼─▶ Installer: the ring, and its exceptions
//! the clock ───────────┤     ▲       (pure)       ├─▶ Holdings: pull shards, drop old copies
//!                      │     │                    ├─▶ last_uses: ask sources for the last reads
//! results of effects ──┘     └────── events ◀─────┴─▶ Planning: the planner, over known datasets
//! ```
//!
//! Thread rule: one task owns the agent and waits only for the next event. Work that takes time
//! runs in tasks of its own, which report with an event. Non-goals: decisions (the agent decides).

mod agreement;
mod announced;
mod entry;
mod holdings;
mod install;
mod opener;
mod planning;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::{StreamExt, future, stream};
use larder_base::{BootId, Error, Member, SnapshotId, limits};
use larder_coordinator::{Revision, Watch};
use larder_membership::agent::{
    Alive, Answer, Bootstrap, Effect, Event, Identity, LastUses, Shard, Ticket,
};
use larder_membership::{Agent, Now, Record};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{self, Instant, MissedTickBehavior};

use crate::cache::Priority;
use crate::cluster::{Inbox, Request, Standing};
use crate::fill::Peers;
use crate::shared::Shared;
use agreement::Agreement;
use announced::{Announced, DuplicateNodeDetector};
use holdings::Holdings;
use install::Installer;
use planning::Planning;

/// Most events that wait for the driver. A sender of one more waits too.
const EVENTS_MAX: usize = 256;

/// Where results of effects are reported.
type Report = mpsc::Sender<Event>;

/// A node's part in its cluster.
#[derive(Debug)]
pub(crate) struct ClusterPart {
    /// Ends, and takes back that the node lives, when the node stops.
    pub(crate) task: JoinHandle<()>,
    /// Why the node may not take part, if it may not.
    pub(crate) refused: oneshot::Receiver<Error>,
}

/// One node's shell.
struct Driver {
    me: Member,
    /// Whether this node joins its cluster for the first time.
    newcomer: bool,
    agent: Agent,
    started: Instant,
    shared: Arc<Shared>,
    watch: Watch,
    seen: ToldState,
    duplicate: DuplicateNodeDetector,
    inbox: Inbox,
    events: mpsc::Receiver<Event>,
    agreement: Agreement,
    installer: Installer,
    holdings: Arc<Holdings>,
    planning: Arc<Planning>,
    /// Operators that wait for an answer.
    asking: HashMap<Ticket, oneshot::Sender<Result<Answer, String>>>,
    tickets: u64,
    announced: Announced,
    report: Report,
}

/// The state of the coordinator's watch that the agent was told last.
#[derive(Debug, Default)]
struct ToldState {
    revision: Option<Revision>,
    stamp: Option<u64>,
    away: bool,
}

/// Begins to take part in the cluster, as `me`: from here on the node is announced, joins, and goes
/// by the cluster's ring. Nothing where the node is in no cluster.
///
/// # Panics
/// When done twice.
pub(crate) fn start(shared: &Arc<Shared>, me: Member) -> Option<ClusterPart> {
    let cluster = shared.cluster.as_ref()?;
    let (inbox, founds) = cluster.take_inbox();
    let coordinator = cluster.coordinator();
    let (report, events) = mpsc::channel(EVENTS_MAX);
    let boot = BootId::from_bytes(shared.boot_id);
    let timing = shared.config.timing;
    let _runtime = shared.runtime.enter();
    let planning = Arc::new(Planning::new(shared, coordinator));
    let driver = Driver {
        me: me.clone(),
        newcomer: cluster.is_newcomer(),
        started: Instant::now(),
        watch: coordinator.watch(),
        seen: ToldState::default(),
        duplicate: DuplicateNodeDetector::new(me.id.clone(), boot),
        inbox,
        events,
        agreement: Agreement::start(
            coordinator,
            me.id.clone(),
            boot,
            timing.announcement_ttl,
            report.clone(),
        ),
        installer: Installer::start(shared, coordinator, report.clone()),
        holdings: Holdings::new(shared, &me.id),
        planning,
        asking: HashMap::new(),
        tickets: 0,
        announced: Announced::default(),
        agent: Agent::new(
            Identity {
                member: me,
                boot,
                founds: founds.then(|| Bootstrap {
                    cluster: std::array::from_fn(|_| fastrand::u8(..)),
                    replicas: shared.config.replicas.unwrap_or(1),
                }),
                epoch_ms: unix_ms(),
            },
            timing,
            Now::ZERO,
        ),
        report,
        shared: Arc::clone(shared),
    };
    let (refuse, refused) = oneshot::channel();
    Some(ClusterPart { task: shared.runtime.spawn(driver.run(refuse)), refused })
}

impl Driver {
    async fn run(mut self, refuse: oneshot::Sender<Error>) {
        let stopping = self.shared.stopping.clone();
        match stopping.run_until_cancelled(self.enter()).await {
            Some(Ok(())) => self.take_part().await,
            Some(Err(why)) => {
                // At a stop the receiver is gone.
                let _ = refuse.send(why);
            }
            None => {}
        }
    }

    /// Serves the agent until the node stops.
    async fn take_part(mut self) {
        let stopping = self.shared.stopping.clone();
        self.look_at_coordinator();
        let mut tick = time::interval(self.shared.config.timing.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = self.agent.due().map(|due| self.started + due);
            tokio::select! {
                () = stopping.cancelled() => break,
                _ = tick.tick() => self.look_around(),
                () = reached(due) => self.tell(Event::Tick),
                more = self.watch.changed() => {
                    if !more {
                        break;
                    }
                    self.look_at_coordinator();
                }
                Some(event) = self.events.recv() => {
                    self.look_at_answer(&event);
                    self.tell(event);
                }
                Some(request) = self.inbox.requests.recv() => self.ask(request),
            }
        }
        self.agent.handle(self.clock(), Event::Stop);
        self.agreement.withdraw().await;
    }

    /// Passes an event to the agent, and performs its effects.
    fn tell(&mut self, event: Event) {
        for effect in self.agent.handle(self.clock(), event) {
            self.perform(effect);
        }
        self.show();
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Announce(word) => self.agreement.announce(word),
            // Performed when the task ends.
            Effect::Withdraw => {}
            Effect::Refresh(ticket) => self.agreement.refresh(ticket),
            Effect::Propose { ticket, blobs, expected, record } => {
                self.agreement.propose(ticket, blobs, expected, record);
            }
            Effect::Fetch(blob) => self.agreement.fetch(blob),
            Effect::Sweep { at, .. } => self.agreement.sweep(at),
            Effect::Plan(ticket, task) => {
                let known = self.agent.record().map(|record| record.datasets.clone());
                let planning = Arc::clone(&self.planning);
                self.later(async move {
                    let planned = planning.plan(task, known.unwrap_or_default()).await;
                    Event::Planned(ticket, planned)
                });
            }
            Effect::Install { ring, previous } => self.installer.install(ring, previous),
            Effect::Pull { shard, yields, .. } => {
                let priority = if yields { Priority::Background } else { Priority::Prefetch };
                let known = self.agent.record().and_then(|record| record.dataset(shard.snapshot));
                let (known, holdings) = (known.cloned(), Arc::clone(&self.holdings));
                self.later(async move {
                    Event::Pulled(shard, holdings.pull(shard, known.as_ref(), priority).await)
                });
            }
            Effect::AskLastUses { plan, givers, wanted } => {
                let peers = Arc::clone(&self.shared.peers);
                self.later(async move {
                    Event::LastUses(plan, last_uses(&peers, givers, &wanted).await)
                });
            }
            Effect::Drop(shard) => self.holdings.drop_old(shard),
            Effect::Reply(ticket, answer) => {
                if let Some(asker) = self.asking.remove(&ticket) {
                    // The operator may have gone.
                    let _ = asker.send(answer);
                }
            }
            Effect::Audit(words) => tracing::info!(target: "larder::audit", "{words}"),
            Effect::Alarm(words) => tracing::warn!("{words}"),
        }
    }

    /// Polls for time, evicted shards and datasets in use.
    fn look_around(&mut self) {
        self.tell_if_away();
        for shard in self.holdings.take_lost() {
            self.tell(Event::Lost(shard));
        }
        self.holdings.drop_due(|owner| self.announced.nodes().contains_key(owner));
        for dataset in self.shared.catalog.list_used() {
            let record = self.agent.record();
            if record.is_some_and(|record| record.dataset(dataset.snapshot()).is_none()) {
                self.tell(Event::Opened(planning::described(&dataset)));
            }
        }
        self.tell(Event::Tick);
    }

    fn look_at_coordinator(&mut self) {
        let (view, away) = (self.watch.view(), self.watch.away());
        if away.is_none() && std::mem::take(&mut self.seen.away) {
            self.announced.begin_anew();
            self.tell(Event::Back);
        }
        self.tell_if_away();
        if let Some(stored) = &view.record
            && self.seen.revision != Some(stored.revision)
        {
            self.seen.revision = Some(stored.revision);
            self.tell(Event::Record(agreement::stored(stored)));
        }
        if away.is_none() && self.seen.stamp != Some(view.alive.stamp) {
            self.seen.stamp = Some(view.alive.stamp);
            let alive = agreement::alive(&view.alive);
            self.note_alive(&alive);
            self.tell(Event::Alive(alive));
        }
    }

    /// Before the first answer, the coordinator counts as away only after it had time to answer.
    fn tell_if_away(&mut self) {
        let away = self.watch.away().is_some();
        let had_time = self.seen.stamp.is_some() || self.clock() > self.shared.config.timing.turn;
        if away && had_time && !std::mem::replace(&mut self.seen.away, true) {
            self.tell(Event::Away);
        }
    }

    /// An answer lists announcements too, and is newer than a watch without news.
    fn look_at_answer(&mut self, event: &Event) {
        if let Event::Refreshed(_, Some((_, alive))) = event {
            self.note_alive(alive);
        }
    }

    fn note_alive(&mut self, alive: &Alive) {
        if !self.announced.take(alive) {
            return;
        }
        if let Some(words) = self.duplicate.notice(self.announced.nodes(), self.clock()) {
            tracing::error!("{words}");
        }
    }

    fn ask(&mut self, request: Request) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.asking.retain(|_, asker| !asker.is_closed());
        self.asking.insert(ticket, request.answer);
        self.tell(Event::Command(ticket, request.command));
    }

    /// Publishes the current state for operators.
    fn show(&mut self) {
        let shown = Arc::clone(&self.inbox.standing.borrow());
        let record = self.agent.record().map(|record| match &shown.record {
            Some(known) if **known == *record => Arc::clone(known),
            _ => Arc::new(Record::clone(record)),
        });
        let standing = Standing {
            record,
            alive: self.announced.nodes().clone(),
            away: self.away(),
            installed: self.agent.installed(),
            braked: self.agent.braked(),
            progress: self.agent.progress(),
        };
        if *shown != standing {
            self.inbox.standing.send_replace(Arc::new(standing));
        }
    }

    /// Why the coordinator changes nothing, if so: it does not answer, keeps another cluster's
    /// record, or can't write.
    fn away(&mut self) -> Option<Arc<str>> {
        let silent = self.watch.away().filter(|_| self.seen.away);
        silent.or_else(|| self.other_cluster()).or_else(|| {
            let cluster = self.shared.cluster.as_ref()?;
            cluster.seat()?.disk_fault()
        })
    }

    fn other_cluster(&mut self) -> Option<Arc<str>> {
        let view = self.watch.view();
        let theirs = Record::cluster_of(&view.record.as_ref()?.record)?;
        let why = || {
            let theirs = u128::from_be_bytes(theirs);
            format!(
                "it keeps the record of another cluster, {theirs:032x}: a coordinator that lost \
                 its --state folder founds one; stop it, and start it with the old folder, or \
                 order a takeover with larder ring takeover"
            )
        };
        (theirs != self.agent.record()?.cluster).then(|| why().into())
    }

    /// Runs work in a task of its own and reports its result.
    fn later(&self, work: impl Future<Output = Event> + Send + 'static) {
        let report = self.report.clone();
        self.shared.runtime.spawn(async move {
            // At a stop the receiver is gone.
            let _ = report.send(work.await).await;
        });
    }

    fn clock(&self) -> Now {
        self.started.elapsed()
    }
}

/// Unix time in milliseconds.
#[expect(clippy::disallowed_methods, reason = "the edge that hands the wall clock to the agent")]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Waits until `at`, or for ever.
async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Asks the sources of the shards `wanted` when each shard was last read, a few in parallel. A
/// source without a turn in the total time counts with nothing.
async fn last_uses(
    peers: &Peers,
    givers: BTreeMap<String, BTreeSet<SnapshotId>>,
    wanted: &BTreeMap<Shard, usize>,
) -> LastUses {
    let asked = givers.into_iter().map(|(giver, asked)| last_uses_of(peers, giver, asked, wanted));
    let mut all = LastUses::default();
    let answers = stream::iter(asked).buffer_unordered(limits::LAST_USES_ASKED_MAX);
    let merged = answers.for_each(|one| {
        all.merge(one);
        future::ready(())
    });
    let _ = time::timeout(limits::LAST_USES_ALL_TIMEOUT, merged).await;
    all
}

async fn last_uses_of(
    peers: &Peers,
    giver: String,
    snapshots: BTreeSet<SnapshotId>,
    wanted: &BTreeMap<Shard, usize>,
) -> LastUses {
    let mut uses = LastUses::default();
    let note = |snapshot, shard, idle| {
        // Ignore snapshots that were not requested.
        if snapshots.contains(&snapshot) {
            uses.note(Shard { snapshot, shard }, idle, wanted);
        }
    };
    if let Some(peer) = peers.named(&giver) {
        peer.last_uses(&snapshots, note).await;
    }
    uses
}
