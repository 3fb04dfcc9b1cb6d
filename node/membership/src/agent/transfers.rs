//! Pulls the shards that plans move to this node: a few at a time, within the rate, the soonest
//! needed first. Each pull is retried until its shard is verified or becomes a gap.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use larder_base::{
    SnapshotId,
    limits::{LAST_USES_INTERVAL, PULLS_IN_FLIGHT_MAX},
};

use super::{
    Effect, LastUses, Pulled, Shard,
    order::Need,
    rules::{Rule, Rules},
};
use crate::{BlobId, Now, RingPlan, Timing};

/// One plan, as far as it moves shards to this node.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) id: BlobId,
    pub(super) plan: RingPlan,
    steps: Vec<TransferStep>,
    by_shard: Arc<BTreeMap<Shard, usize>>,
    /// Steps not begun: in the order of the plan until the sources tell their last uses.
    waiting: VecDeque<usize>,
    /// When to ask the sources for last uses.
    ask_at: Now,
    /// Steps that failed, each with the time of its next try.
    again: Vec<(Now, usize)>,
    /// Steps that are neither verified nor gaps.
    open: usize,
    gaps: u32,
}

#[derive(Debug, Clone)]
struct TransferStep {
    shard: Shard,
    bytes: u64,
    from: String,
    tries: u32,
    state: StepState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepState {
    Open,
    Verified,
    Gap,
}

impl Work {
    /// Creates the work of this node for a plan. Shards without a live owner are not pulled: they
    /// come when a client reads them, so that a death causes no storm on the origin.
    fn new(id: BlobId, plan: RingPlan, me: &str) -> Self {
        let pulled = plan.moves_to(me).filter_map(|step| {
            let shard = Shard { snapshot: step.snapshot, shard: step.shard };
            let from = plan.name(step.from?).to_owned();
            Some(TransferStep { shard, bytes: step.bytes, from, tries: 0, state: StepState::Open })
        });
        let steps: Vec<TransferStep> = pulled.collect();
        let by_shard = steps.iter().enumerate().map(|(i, step)| (step.shard, i));
        let by_shard = Arc::new(by_shard.collect());
        let (open, waiting) = (steps.len(), (0..steps.len()).collect());
        let ask_at = Now::ZERO;
        Self { id, plan, steps, by_shard, waiting, ask_at, again: Vec::new(), open, gaps: 0 }
    }

    /// Returns the sources of the steps not begun, each with its snapshots.
    fn givers(&self) -> BTreeMap<String, BTreeSet<SnapshotId>> {
        let mut givers = BTreeMap::<String, BTreeSet<SnapshotId>>::new();
        for TransferStep { shard, from, .. } in self.waiting.iter().map(|&index| &self.steps[index])
        {
            if let Some(snapshots) = givers.get_mut(from) {
                snapshots.insert(shard.snapshot);
            } else {
                givers.insert(from.clone(), [shard.snapshot].into());
            }
        }
        givers
    }

    /// Sorts the steps not begun by need. Steps of equal need keep the order of the plan.
    fn sort(&mut self, uses: &LastUses, in_use: Duration, rules: &impl Rules) {
        let mut waiting: Vec<usize> = self.waiting.drain(..).collect();
        let need = |index: usize| uses.need(self.steps[index].shard, in_use);
        waiting.sort_by_cached_key(|&index| (need(index), index));
        if rules.broken(Rule::UnlistedComeToo) {
            waiting.retain(|&index| need(index) != Need::NotThere);
        }
        self.waiting = waiting.into();
    }

    /// Whether the plan moves this shard here.
    pub(super) fn brings(&self, shard: Shard) -> bool {
        self.by_shard.contains_key(&shard)
    }

    /// Returns the number of gaps once no step is open.
    fn gaps(&self) -> Option<u32> {
        (self.open == 0).then_some(self.gaps)
    }

    /// Returns the next step that is due.
    fn next(&mut self, now: Now) -> Option<usize> {
        let due = self.again.iter().position(|(at, _)| *at <= now);
        match due {
            Some(at) => Some(self.again.swap_remove(at).1),
            None => self.waiting.pop_front(),
        }
    }

    fn close(&mut self, index: usize, state: StepState) {
        let step = &mut self.steps[index];
        if step.state == StepState::Open {
            step.state = state;
            self.open -= 1;
            self.gaps += u32::from(state == StepState::Gap);
        }
    }

    fn ended(&mut self, now: Now, index: usize, pulled: Pulled, timing: Timing) {
        match pulled {
            Pulled::Verified => self.close(index, StepState::Verified),
            Pulled::NoRoom | Pulled::Gone => self.close(index, StepState::Gap),
            Pulled::Failed => {
                let step = &mut self.steps[index];
                let wait = timing.pull_wait_min * (1 << step.tries.min(5));
                step.tries += 1;
                self.again.push((now + wait.min(timing.pull_wait_max), index));
            }
        }
    }

    fn lost(&mut self, now: Now, shard: Shard) {
        let Some(&index) = self.by_shard.get(&shard) else {
            return;
        };
        let step = &mut self.steps[index];
        if step.state == StepState::Verified {
            step.state = StepState::Open;
            self.open += 1;
            self.again.push((now, index));
        }
    }
}

/// The progress of a plan at one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanProgress {
    /// Shards that are neither verified nor gaps.
    pub shards_left: u64,
    /// All shards that the plan moves here.
    pub shards: u64,
    /// Bytes of `shards_left`.
    pub bytes_left: u64,
    /// Bytes of `shards`.
    pub bytes: u64,
}

/// Whether the change in flight may move shards, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransferPace {
    pub(super) paused: bool,
    /// Bytes a second for this node.
    pub(super) rate: Option<u64>,
}

/// The plans that move shards here: that of the committed ring, and that of the change in flight.
#[derive(Debug, Clone)]
pub(super) struct ShardTransfers {
    timing: Timing,
    works: Vec<Work>,
    /// Plans that are not here yet, each with the time to ask for it.
    wanted: BTreeMap<BlobId, Now>,
    /// Pulls under way, each with its plan.
    pulling: BTreeMap<Shard, BlobId>,
    /// When the latest pull under a rate began, and its bytes. The next begins after the time that
    /// these bytes take at the rate.
    paced: Option<(Now, u64)>,
    /// When the next pull may begin that waits only for the rate.
    due: Option<Now>,
}

impl ShardTransfers {
    /// Creates a mover without plans.
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            timing,
            works: Vec::new(),
            wanted: BTreeMap::new(),
            pulling: BTreeMap::new(),
            paced: None,
            due: None,
        }
    }

    /// Keeps the work of these plans, drops that of others, and asks for plans that are not here.
    pub(super) fn want(&mut self, plans: &[BlobId], now: Now) {
        self.works.retain(|work| plans.contains(&work.id));
        self.wanted.retain(|id, _| plans.contains(id));
        for id in plans {
            if self.work(*id).is_none() {
                self.wanted.entry(*id).or_insert(now);
            }
        }
    }

    pub(super) fn work(&self, id: BlobId) -> Option<&Work> {
        self.works.iter().find(|work| work.id == id)
    }

    /// Takes the bytes of a plan that was asked for.
    pub(super) fn arrived(&mut self, id: BlobId, bytes: &[u8], me: &str) {
        if self.wanted.contains_key(&id)
            && BlobId::of(bytes) == id
            && let Ok(plan) = RingPlan::decode(bytes)
        {
            self.wanted.remove(&id);
            self.works.push(Work::new(id, plan, me));
        }
    }

    /// Asks for the plans that are not here, each again after `refresh_interval`.
    pub(super) fn fetch(&mut self, now: Now, out: &mut Vec<Effect>) {
        for (id, at) in &mut self.wanted {
            if *at <= now {
                *at = now + self.timing.refresh_interval;
                out.push(Effect::Fetch(*id));
            }
        }
    }

    /// Asks the sources for the last uses of their shards, again after [`LAST_USES_INTERVAL`]. No
    /// pull waits for the answer.
    pub(super) fn ask(
        &mut self,
        now: Now,
        change: Option<(BlobId, TransferPace)>,
        out: &mut Vec<Effect>,
    ) {
        let paused = change.filter(|(_, pace)| pace.paused).map(|(id, _)| id);
        for work in self.works.iter_mut().filter(|work| Some(work.id) != paused) {
            if now >= work.ask_at && !work.waiting.is_empty() {
                work.ask_at = now + LAST_USES_INTERVAL;
                let (plan, givers, wanted) = (work.id, work.givers(), Arc::clone(&work.by_shard));
                out.push(Effect::AskLastUses { plan, givers, wanted });
            }
        }
    }

    /// Sorts a plan's steps by the sources' answers.
    pub(super) fn sort(&mut self, plan: BlobId, uses: &LastUses, rules: &impl Rules) {
        if let Some(work) = self.works.iter_mut().find(|work| work.id == plan) {
            work.sort(uses, self.timing.dataset_in_use, rules);
        }
    }

    /// Begins pulls: for the committed ring first, then for the change in flight at its pace. A
    /// pull without a rate gives client reads precedence if `yields` is set.
    pub(super) fn pull(
        &mut self,
        now: Now,
        change: Option<(BlobId, TransferPace)>,
        yields: bool,
        rules: &impl Rules,
        out: &mut Vec<Effect>,
    ) {
        let in_flight = change.map(|(id, _)| id);
        self.due = None;
        let few = |pulling: usize| rules.holds(Rule::PullFewAtOnce, pulling < PULLS_IN_FLIGHT_MAX);
        self.works.sort_by_key(|work| Some(work.id) == in_flight);
        for work in &mut self.works {
            let pace = change.filter(|(id, _)| *id == work.id).map(|(_, pace)| pace);
            let paused = pace.is_some_and(|pace| pace.paused);
            let rate = pace.and_then(|pace| pace.rate);
            let yields = yields && rate.is_none();
            while few(self.pulling.len())
                && rules.holds(Rule::PullUnlessPaused, !paused)
                && rules.holds(Rule::PullWithinRate, now >= free_at(self.paced, rate))
                && let Some(index) = work.next(now)
            {
                let TransferStep { shard, bytes, from, .. } = work.steps[index].clone();
                if self.pulling.contains_key(&shard) {
                    // Another plan already pulls it; look again when that pull may have ended.
                    work.again.push((now + self.timing.pull_wait_min, index));
                    continue;
                }
                self.pulling.insert(shard, work.id);
                if rate.is_some() {
                    self.paced = Some((now, bytes));
                }
                out.push(Effect::Pull { plan: work.id, shard, bytes, from, yields });
            }
            if !paused && work.open > 0 {
                self.due = Some(free_at(self.paced, rate)).filter(|at| *at > now).or(self.due);
            }
        }
    }

    /// Returns when to look again. Without it the rate would be held but not reached.
    pub(super) fn due(&self) -> Option<Now> {
        self.due
    }

    /// Handles the end of a pull.
    pub(super) fn pulled(&mut self, now: Now, shard: Shard, pulled: Pulled) {
        let Some(plan) = self.pulling.remove(&shard) else {
            return;
        };
        let work = self.works.iter_mut().find(|work| work.id == plan);
        if let Some(work) = work
            && let Some(&index) = work.by_shard.get(&shard)
        {
            work.ended(now, index, pulled, self.timing);
        }
    }

    /// Handles the eviction of a shard.
    pub(super) fn lost(&mut self, now: Now, shard: Shard, rules: &impl Rules) {
        if rules.demands(Rule::LostIsPulledAgain, true) {
            self.works.iter_mut().for_each(|work| work.lost(now, shard));
        }
    }

    /// Returns the plans without open steps, sorted, each with its number of gaps.
    pub(super) fn moved(&self) -> Vec<(BlobId, u32)> {
        let moved = self.works.iter().filter_map(|work| Some((work.id, work.gaps()?)));
        let mut moved: Vec<_> = moved.collect();
        moved.sort_unstable();
        moved
    }

    /// Returns the progress of a plan that is here.
    pub(super) fn progress(&self, plan: BlobId) -> Option<PlanProgress> {
        let work = self.work(plan)?;
        let open = work.steps.iter().filter(|step| step.state == StepState::Open);
        Some(PlanProgress {
            shards_left: work.open as u64,
            shards: work.steps.len() as u64,
            bytes_left: open.map(|step| step.bytes).sum(),
            bytes: work.steps.iter().map(|step| step.bytes).sum(),
        })
    }
}

/// Returns when the next pull may begin at this rate. A changed rate counts from the latest pull.
fn free_at(paced: Option<(Now, u64)>, rate: Option<u64>) -> Now {
    match (paced, rate) {
        (Some((began, bytes)), Some(rate)) => began + time_for(bytes, rate),
        _ => Now::ZERO,
    }
}

fn time_for(bytes: u64, rate: u64) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(rate.max(1));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use larder_base::{ShardId, SnapshotId};

    use larder_base::Scheme;

    use super::*;
    use crate::{agent::Unbroken, plan::Move};

    const BYTES: u64 = 1 << 20;
    const SECOND: Duration = Duration::from_secs(1);

    /// A plan that moves this many shards of 1 MiB here.
    fn transfers(shards: u8) -> (ShardTransfers, BlobId) {
        let step = |shard| Move {
            snapshot: SnapshotId::from_bytes([1; 32]),
            shard: ShardId::from_bytes([shard; 16]),
            bytes: BYTES,
            from: Some(0),
            stays: false,
            to: 1,
        };
        let names = ["a", "b"].map(str::to_owned).to_vec();
        let moves = (0..shards).map(step).collect();
        let edits = Vec::new();
        let plan =
            RingPlan { base: 1, edits, scheme: Scheme::one_replica(1), target: None, names, moves }
                .encode();
        let (id, mut transfers) = (BlobId::of(&plan), ShardTransfers::new(Timing::REAL));
        transfers.want(&[id], Now::ZERO);
        transfers.arrived(id, &plan, "b");
        (transfers, id)
    }

    /// Begins pulls, ends them at once, and returns their number.
    fn pulled(transfers: &mut ShardTransfers, id: BlobId, now: Now, rate: Option<u64>) -> usize {
        let mut out = Vec::new();
        let pace = TransferPace { paused: false, rate };
        transfers.pull(now, Some((id, pace)), true, &Unbroken, &mut out);
        for effect in &out {
            if let Effect::Pull { shard, .. } = effect {
                transfers.pulled(now, *shard, Pulled::Verified);
            }
        }
        out.len()
    }

    #[test]
    fn rate_is_reached_and_not_exceeded() {
        let (mut transfers, id) = transfers(100);
        let (rate, mut now, mut begun) = (Some(10 * BYTES), SECOND, 0);
        while now < 6 * SECOND {
            begun += pulled(&mut transfers, id, now, rate);
            now = transfers.due().expect("there is more");
        }
        assert_eq!(begun, 50, "ten a second");
    }

    #[test]
    fn moves_longest_unread_shards_first_and_unknown_ones_last() {
        let (mut transfers, id) = transfers(6);
        let mut out = Vec::new();
        transfers.ask(SECOND, None, &mut out);
        let [Effect::AskLastUses { plan, givers, wanted }] = &out[..] else { panic!("{out:?}") };
        let snapshot = SnapshotId::from_bytes([1; 32]);
        assert_eq!((*plan, givers), (id, &BTreeMap::from([("a".to_owned(), [snapshot].into())])));
        let mut uses = LastUses::default();
        for (number, secs) in [(1, 1), (3, 30), (5, 20)] {
            let shard = Shard { snapshot, shard: ShardId::from_bytes([number; 16]) };
            uses.note(shard, Duration::from_secs(secs), wanted);
        }
        transfers.sort(id, &uses, &Unbroken);
        let numbers =
            transfers.works[0].waiting.iter().map(|&index| transfers.works[0].steps[index].shard);
        let numbers: Vec<u8> = numbers.map(|shard| shard.shard.as_bytes()[0]).collect();
        assert_eq!(numbers, [3, 5, 1, 0, 2, 4]);
    }

    #[test]
    fn sources_are_asked_periodically_while_shards_wait() {
        let (mut transfers, id) = transfers(1);
        let asked_of = |transfers: &mut ShardTransfers, now, change| {
            let mut out = Vec::new();
            transfers.ask(now, change, &mut out);
            out.len()
        };
        let asked = |transfers: &mut ShardTransfers, now| asked_of(transfers, now, None);
        let paused = TransferPace { paused: true, rate: None };
        assert_eq!(asked_of(&mut transfers, SECOND, Some((id, paused))), 0);
        assert_eq!(asked(&mut transfers, SECOND), 1);
        assert_eq!(asked(&mut transfers, LAST_USES_INTERVAL), 0);
        assert_eq!(asked(&mut transfers, SECOND + LAST_USES_INTERVAL), 1);
        pulled(&mut transfers, id, 2 * LAST_USES_INTERVAL, None);
        assert_eq!(asked(&mut transfers, 3 * LAST_USES_INTERVAL), 0);
    }

    #[test]
    fn new_rate_applies_at_once() {
        let (mut transfers, id) = transfers(9);
        assert_eq!(pulled(&mut transfers, id, SECOND, Some(1)), 1);
        assert_eq!(pulled(&mut transfers, id, 2 * SECOND, Some(1)), 0, "it takes days");
        assert_eq!(pulled(&mut transfers, id, 2 * SECOND, Some(BYTES)), 1);
        assert_eq!(transfers.due(), Some(3 * SECOND));
    }

    #[test]
    fn no_transfer_is_due_without_a_rate_or_without_shards() {
        let (mut transfers, id) = transfers(1);
        pulled(&mut transfers, id, SECOND, Some(1));
        pulled(&mut transfers, id, SECOND, Some(1));
        assert_eq!(transfers.due(), None);
    }
}
