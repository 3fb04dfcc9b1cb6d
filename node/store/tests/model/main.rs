//! The store against a naive model of it: random steps, and after each the same answer and the
//! same books. The model keeps no sums and no serial numbers; it counts everything anew.

mod reference;
mod steps;

use larder_store::{
    Budget, FillPermit, Foreseen, GroupView, HandOver, HolderId, HolderView, KeepWhatYouHave,
    Orphan, OrphanToken, Outcome, Store, Tally, Waiter,
};
use proptest::test_runner::{Config, FileFailurePersistence};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use reference::Model;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use steps::{Ending, Group, Id, LIMIT, QUOTA, SHARDS_MAX, Said, Step, bytes_of, ordered, shards};

prop_state_machine! {
    #![proptest_config(Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..Config::default()
    })]

    #[test]
    fn store_agrees_with_a_naive_model(sequential 1..200 => Run);
}

/// The store with the tokens that its callers hold.
struct Run {
    store: Store<Id, Group, u32, u32>,
    start: Instant,
    now: Instant,
    made: u32,
    permits: BTreeMap<Id, FillPermit<Id>>,
    /// Permits that were revoked and are used all the same.
    stale: Vec<FillPermit<Id>>,
    waiters: BTreeMap<Id, Vec<Waiter<Id>>>,
    /// Waiters of fills that have ended.
    late: Vec<Waiter<Id>>,
    /// In the order of the model's orphans.
    orphans: Vec<OrphanToken>,
}

impl StateMachineTest for Run {
    type SystemUnderTest = Self;
    type Reference = Model;

    #[expect(clippy::disallowed_methods, reason = "an `Instant` can be had in no other way")]
    fn init_test(_model: &Model) -> Self {
        let start = Instant::now();
        let budget = Budget::new(LIMIT).with_shards_max(SHARDS_MAX);
        Self {
            store: Store::new(budget, KeepWhatYouHave::default(), QUOTA),
            start,
            now: start,
            made: 0,
            permits: BTreeMap::new(),
            stale: Vec::new(),
            waiters: BTreeMap::new(),
            late: Vec::new(),
            orphans: Vec::new(),
        }
    }

    fn apply(mut run: Self, model: &Model, step: Step) -> Self {
        let said = run.perform(step);
        assert_eq!(said, model.said, "after {step:?}");
        run
    }

    fn check_invariants(run: &Self, model: &Model) {
        run.check_budget(model);
        run.check_tokens();
        assert_eq!(run.store.shards(), model.shard_views(run.start));
        let groups: Vec<GroupView<Group>> = model.group_views(run.start);
        assert_eq!(run.store.groups(), groups);
        let holders: Vec<HolderView> = model.holder_views();
        assert_eq!(run.store.holders(), holders);
        assert!(holders.iter().all(|view| view.bytes <= QUOTA));
    }
}

impl Run {
    fn perform(&mut self, step: Step) -> Said {
        match step {
            Step::Request { id, group } => self.request(id, group),
            Step::Get { id, group } => Said::Got(self.store.get(id, group, self.now)),
            Step::End { id, ending } => match self.permits.remove(&id) {
                Some(permit) => self.end(permit, ending),
                None => Said::Nothing,
            },
            Step::EndStale { ending } => match self.stale.pop() {
                Some(permit) => self.end(permit, ending),
                None => Said::Nothing,
            },
            Step::Revoke { id } => match self.store.revoke(id, self.now) {
                Some(hand_over) => {
                    self.stale.extend(self.permits.remove(&id));
                    self.handed_over(hand_over)
                }
                None => Said::Nothing,
            },
            Step::Leave { id } => self.leave(id),
            Step::LeaveLate => {
                self.late.pop().into_iter().for_each(|waiter| self.store.leave(waiter));
                Said::Nothing
            }
            Step::Lease { id, holder } => {
                Said::Leased(self.store.lease(id, HolderId(holder), self.now))
            }
            Step::Release { id, holder } => {
                Said::Ended(self.store.release(id, HolderId(holder), self.now))
            }
            Step::ReleaseAll { holder } => {
                Said::Released(self.store.release_all(HolderId(holder), self.now))
            }
            Step::Evict { id } => {
                let evicted = self.store.evict(id, self.now);
                Said::Evicted(evicted.map(|orphan| self.keep(orphan)))
            }
            Step::Foresee { fetches, given_up, from_last } => {
                let fetches = shards(fetches).collect();
                let given_up = ordered(given_up, from_last).into();
                self.store.foresee(Foreseen { fetches, given_up });
                Said::Nothing
            }
            Step::Freed { index } => self.freed(index),
            Step::Open { group } => {
                self.store.open_group(group, self.now);
                Said::Nothing
            }
            Step::Close { group } => Said::Ended(self.store.close_group(group, self.now)),
            Step::Advance { seconds } => {
                self.now += Duration::from_secs(seconds);
                Said::Nothing
            }
        }
    }

    fn request(&mut self, id: Id, group: Group) -> Said {
        let made = self.made;
        let make = || {
            self.made += 1;
            made
        };
        match self.store.request(id, group, bytes_of(id), self.now, make) {
            Outcome::Resident(handle) => Said::Resident(handle),
            Outcome::InFlight { handle, waiter } => {
                self.waiters.entry(id).or_default().push(waiter);
                Said::InFlight(handle)
            }
            Outcome::Admitted { handle, permit } => {
                let other = self.permits.insert(id, permit);
                assert!(other.is_none(), "two permits for shard {id}");
                Said::Admitted(handle)
            }
            Outcome::NoRoom { reason, evicted } => {
                let ids = evicted.into_iter().map(|orphan| self.keep(orphan)).collect();
                Said::NoRoom(reason, ids)
            }
        }
    }

    fn end(&mut self, permit: FillPermit<Id>, ending: Ending) -> Said {
        let id = permit.id();
        match ending {
            Ending::Complete { handle } => match self.store.complete(permit, handle, self.now) {
                Ok(fill) => {
                    self.late.extend(self.waiters.remove(&id).into_iter().flatten());
                    Said::Completed(fill)
                }
                Err(stale) => {
                    assert_eq!(stale.handle, handle);
                    Said::Stale
                }
            },
            Ending::Fail => match self.store.fail(permit, self.now) {
                Ok(hand_over) => self.handed_over(hand_over),
                Err(_) => Said::Stale,
            },
            Ending::GiveUp => match self.store.give_up(permit, self.now) {
                Ok(orphan) => self.dropped(orphan),
                Err(_) => Said::Stale,
            },
        }
    }

    fn handed_over(&mut self, hand_over: HandOver<Id, u32>) -> Said {
        match hand_over {
            HandOver::Retry { handle, permit, waiters } => {
                let other = self.permits.insert(permit.id(), permit);
                assert!(other.is_none(), "two permits for one shard");
                Said::Retry { handle, waiters }
            }
            HandOver::Dropped(orphan) => self.dropped(orphan),
        }
    }

    fn dropped(&mut self, orphan: Orphan<Id, u32>) -> Said {
        let handle = orphan.handle;
        let id = self.keep(orphan);
        self.late.extend(self.waiters.remove(&id).into_iter().flatten());
        Said::Dropped(handle)
    }

    fn leave(&mut self, id: Id) -> Said {
        if let Some(waiter) = self.waiters.get_mut(&id).and_then(Vec::pop) {
            self.store.leave(waiter);
        }
        Said::Nothing
    }

    fn freed(&mut self, index: usize) -> Said {
        if let Some(index) = index.checked_rem(self.orphans.len()) {
            self.store.freed(self.orphans.remove(index));
        }
        Said::Nothing
    }

    fn keep(&mut self, orphan: Orphan<Id, u32>) -> Id {
        assert_eq!(orphan.bytes, bytes_of(orphan.id));
        self.orphans.push(orphan.token);
        orphan.id
    }

    fn check_budget(&self, model: &Model) {
        let budget = self.store.budget();
        let [filling, resident, orphaned]: [Tally; 3] = model.tallies();
        assert_eq!(budget.filling(), filling);
        assert_eq!(budget.resident(), resident);
        assert_eq!(budget.orphaned(), orphaned);
        let used = filling.bytes + resident.bytes + orphaned.bytes;
        assert!(used <= LIMIT, "{used} bytes are used of {LIMIT}");
        assert_eq!((budget.used_bytes(), budget.free_bytes()), (used, LIMIT - used));
    }

    /// Every fill has one permit, and as many waiters as joined and did not leave.
    fn check_tokens(&self) {
        let mut permits = 0;
        for shard in self.store.shards() {
            if let larder_store::ShardState::Filling { waiters, .. } = shard.state {
                assert!(self.permits.contains_key(&shard.id));
                assert_eq!(self.waiters.get(&shard.id).map_or(0, Vec::len), waiters);
                permits += 1;
            }
        }
        assert_eq!(self.permits.len(), permits);
    }
}

#[test]
fn random_steps_reach_every_answer_of_the_store() {
    use proptest::strategy::{Strategy, ValueTree};
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut seen, mut given_up) = (BTreeMap::<&str, usize>::new(), 0);
    for _ in 0..100 {
        let tree = Model::sequential_strategy(200..201).new_tree(&mut runner).unwrap();
        let (mut model, steps, _) = tree.current();
        for step in &steps {
            model = Model::apply(model, step);
            *seen.entry(model.said.name()).or_default() += 1;
        }
        given_up += model.gave_up;
    }
    assert!(given_up > 20, "{given_up} times was room made for a fetch");
    let missing: Vec<_> =
        Said::NAMES.iter().filter(|name| seen.get(*name).is_none_or(|&count| count < 20)).collect();
    assert!(missing.is_empty(), "hardly ever said: {missing:?} of {seen:?}");
}
