//! The naive model: a few maps, and every sum, count and choice worked out from scratch.

use crate::steps::{
    Ending, Group, Holder, Id, LIMIT, QUOTA, SHARDS_MAX, Said, Step, any_step, bytes_of, ordered,
};
use larder_store::{
    CannotEvict, GroupView, HolderId, HolderView, LEAVING_FOR, LeaseRefused, NoRoom, Released,
    ShardState, ShardView, Tally, Why,
};
use proptest::strategy::{BoxedStrategy, Just, Strategy};
use proptest_state_machine::ReferenceStateMachine;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const IDLE_SECONDS: u64 = 600;

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) said: Said,
    now: u64,
    made: u32,
    stale: usize,
    shards: BTreeMap<Id, Shard>,
    orphans: Vec<(Id, u64)>,
    in_use_until: u64,
    sessions: BTreeMap<Group, usize>,
    touched: BTreeMap<Group, u64>,
    leases: BTreeMap<(Holder, Id), u64>,
    fetches: u8,
    given_up: Vec<Id>,
    /// How often shards were given up for a fetch.
    pub(crate) gave_up: usize,
}

#[derive(Clone, Debug)]
struct Shard {
    groups: BTreeSet<Group>,
    handle: u32,
    /// Since when it is in its state.
    since: u64,
    /// When it was last used, once it is here.
    used: u64,
    /// How many wait, while it is being filled.
    waiters: Option<usize>,
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self {
            said: Said::Nothing,
            now: 0,
            made: 0,
            stale: 0,
            shards: BTreeMap::new(),
            orphans: Vec::new(),
            in_use_until: 0,
            sessions: BTreeMap::new(),
            touched: BTreeMap::new(),
            leases: BTreeMap::new(),
            fetches: 0,
            given_up: Vec::new(),
            gave_up: 0,
        })
        .boxed()
    }

    fn transitions(model: &Self) -> BoxedStrategy<Step> {
        let (filling, resident): (Vec<Id>, Vec<Id>) =
            model.shards.keys().partition(|&&id| model.is_filling(id));
        any_step(&filling, &resident)
    }

    fn apply(mut model: Self, step: &Step) -> Self {
        model.said = match *step {
            Step::Request { id, group } => model.request(id, group),
            Step::Get { id, group } => model.get(id, group),
            Step::End { id, ending } if model.is_filling(id) => model.end(id, ending),
            Step::EndStale { .. } if model.stale > 0 => {
                model.stale -= 1;
                Said::Stale
            }
            Step::Revoke { id } if model.is_filling(id) => {
                model.stale += 1;
                model.hand_over(id)
            }
            Step::Leave { id } => model.leave(id),
            Step::Lease { id, holder } => Said::Leased(model.lease(id, holder)),
            Step::Release { id, holder } => Said::Ended(model.release(id, holder)),
            Step::ReleaseAll { holder } => Said::Released(model.release_all(holder)),
            Step::Evict { id } => Said::Evicted(model.evict(id)),
            Step::Freed { index } if !model.orphans.is_empty() => {
                model.orphans.remove(index % model.orphans.len());
                Said::Nothing
            }
            Step::Foresee { fetches, given_up, from_last } => {
                (model.fetches, model.given_up) = (fetches, ordered(given_up, from_last));
                Said::Nothing
            }
            Step::Open { group } => {
                *model.sessions.entry(group).or_default() += 1;
                model.touch([group]);
                Said::Nothing
            }
            Step::Close { group } => Said::Ended(model.close(group)),
            Step::Advance { seconds } => {
                model.now += seconds;
                Said::Nothing
            }
            _ => Said::Nothing,
        };
        model
    }
}

/// The steps.
impl Model {
    fn request(&mut self, id: Id, group: Group) -> Said {
        self.touch([group]);
        let (now, made) = (self.now, self.made);
        if let Some(shard) = self.shards.get_mut(&id) {
            shard.groups.insert(group);
            let Some(waiters) = &mut shard.waiters else {
                shard.used = now;
                return Said::Resident(shard.handle);
            };
            *waiters += 1;
            return Said::InFlight(shard.handle);
        }
        if self.missing(id) > 0 {
            return self.make_room(id);
        }
        let shard =
            Shard { groups: [group].into(), handle: made, since: now, used: now, waiters: Some(0) };
        self.shards.insert(id, shard);
        self.made += 1;
        Said::Admitted(made)
    }

    fn make_room(&mut self, id: Id) -> Said {
        let (needed_bytes, free_bytes) = (bytes_of(id), self.free());
        let mut reason = NoRoom { needed_bytes, free_bytes, why: Why::InUse };
        if needed_bytes > LIMIT {
            reason.why = Why::LargerThanBudget { limit_bytes: LIMIT };
            return Said::NoRoom(reason, Vec::new());
        }
        let young = |since: u64| Duration::from_secs(self.now - since) < LEAVING_FOR;
        let leaving = self.orphans.iter().filter(|orphan| young(orphan.1));
        let leaving = leaving.map(|orphan| bytes_of(orphan.0)).sum::<u64>();
        if leaving >= self.missing(id) {
            reason.why = Why::Leaving;
            return Said::NoRoom(reason, Vec::new());
        }
        let missing = self.missing(id) - leaving;
        if self.places() == 0 {
            reason.why = Why::NoPlace { shards_max: SHARDS_MAX };
        }
        let looks = self.now >= self.in_use_until;
        let idle = looks.then(|| self.choose(missing)).flatten();
        if looks && idle.is_none() {
            self.in_use_until = self.now + 1;
        }
        let is_foreseen = self.fetches & 1 << id != 0;
        let given_up = || is_foreseen.then(|| self.choose_given_up(missing)).flatten();
        let (chosen, is_given_up) = match idle {
            Some(chosen) => (chosen, false),
            None => match given_up() {
                Some(chosen) => (chosen, true),
                None => return Said::NoRoom(reason, Vec::new()),
            },
        };
        reason.why = Why::Leaving;
        chosen.iter().for_each(|&id| self.drop_shard(id));
        if is_given_up {
            self.gave_up += 1;
            self.given_up.retain(|id| !chosen.contains(id));
        }
        Said::NoRoom(reason, chosen)
    }

    /// The first shards given up that can leave and are enough.
    fn choose_given_up(&self, missing: u64) -> Option<Vec<Id>> {
        let may_leave = |id: &Id| {
            self.shards.contains_key(id) && !self.is_filling(*id) && self.holders_of(*id) == 0
        };
        let mut chosen: Vec<Id> = self.given_up.iter().copied().filter(may_leave).collect();
        let enough = |ids: &[Id]| ids.iter().map(|&id| bytes_of(id)).sum::<u64>() >= missing;
        let count = (0..=chosen.len()).find(|&count| enough(&chosen[..count]))?;
        chosen.truncate(count);
        Some(chosen)
    }

    /// The shortest run of the longest idle that is enough, less those that can stay, last first.
    fn choose(&self, missing: u64) -> Option<Vec<Id>> {
        let mut idle: Vec<Id> =
            self.shards.keys().copied().filter(|&id| self.is_idle(id)).collect();
        idle.sort_by_key(|id| (self.group_used(*id), self.shards[id].used, *id));
        let enough = |ids: &[Id]| ids.iter().map(|&id| bytes_of(id)).sum::<u64>() >= missing;
        let count = (0..=idle.len()).find(|&count| enough(&idle[..count]))?;
        idle.truncate(count);
        for index in (0..idle.len()).rev() {
            let mut without = idle.clone();
            without.remove(index);
            idle = if enough(&without) { without } else { idle };
        }
        Some(idle)
    }

    fn get(&mut self, id: Id, group: Group) -> Said {
        let now = self.now;
        let shard = self.shards.get_mut(&id).filter(|shard| shard.waiters.is_none());
        let got = shard.map(|shard| {
            shard.groups.insert(group);
            shard.used = now;
            shard.handle
        });
        if got.is_some() {
            self.touch([group]);
        }
        Said::Got(got)
    }

    fn end(&mut self, id: Id, ending: Ending) -> Said {
        let fill = self.shards[&id].handle;
        match ending {
            Ending::Complete { handle } => {
                let groups = self.shards[&id].groups.clone();
                let now = self.now;
                let shard = Shard { groups, handle, since: now, used: now, waiters: None };
                self.shards.insert(id, shard);
                Said::Completed(fill)
            }
            Ending::Fail => self.hand_over(id),
            Ending::GiveUp => {
                self.drop_shard(id);
                Said::Dropped(fill)
            }
        }
    }

    fn hand_over(&mut self, id: Id) -> Said {
        let now = self.now;
        let shard = self.shards.get_mut(&id).expect("it is being filled");
        let (handle, waiters) = (shard.handle, shard.waiters.expect("it is being filled"));
        if waiters == 0 {
            self.drop_shard(id);
            return Said::Dropped(handle);
        }
        shard.since = now;
        Said::Retry { handle, waiters }
    }

    fn leave(&mut self, id: Id) -> Said {
        if let Some(Shard { waiters: Some(waiters @ 1..), .. }) = self.shards.get_mut(&id) {
            *waiters -= 1;
        }
        Said::Nothing
    }

    fn lease(&mut self, id: Id, holder: Holder) -> Result<u32, LeaseRefused> {
        let shard = self.shards.get(&id).filter(|shard| shard.waiters.is_none());
        let Some(handle) = shard.map(|shard| shard.handle) else {
            return Err(LeaseRefused::NotResident);
        };
        let (needed_bytes, held_bytes) = (bytes_of(id), self.held(holder));
        if !self.leases.contains_key(&(holder, id)) && held_bytes + needed_bytes > QUOTA {
            let quota_bytes = QUOTA;
            return Err(LeaseRefused::OverQuota { needed_bytes, held_bytes, quota_bytes });
        }
        *self.leases.entry((holder, id)).or_default() += 1;
        self.use_shard(id);
        Ok(handle)
    }

    fn release(&mut self, id: Id, holder: Holder) -> bool {
        let Some(count) = self.leases.get_mut(&(holder, id)) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.leases.remove(&(holder, id));
            self.use_shard(id);
        }
        true
    }

    fn release_all(&mut self, holder: Holder) -> Released<Id> {
        let bytes = self.held(holder);
        let ids: Vec<Id> = self.leased_by(holder).collect();
        self.leases.retain(|lease, _| lease.0 != holder);
        ids.iter().for_each(|&id| self.use_shard(id));
        Released { ids, bytes }
    }

    fn evict(&mut self, id: Id) -> Result<Id, CannotEvict> {
        if self.is_filling(id) || !self.shards.contains_key(&id) {
            return Err(CannotEvict::NotResident);
        }
        match self.holders_of(id) {
            0 => self.drop_shard(id),
            holders => return Err(CannotEvict::Leased { holders }),
        }
        Ok(id)
    }

    fn close(&mut self, group: Group) -> bool {
        let Some(sessions @ 1..) = self.sessions.get_mut(&group) else {
            return false;
        };
        *sessions -= 1;
        self.touch([group]);
        true
    }

    fn touch(&mut self, groups: impl IntoIterator<Item = Group>) {
        self.touched.extend(groups.into_iter().map(|group| (group, self.now)));
    }

    fn use_shard(&mut self, id: Id) {
        let shard = self.shards.get_mut(&id).expect("a leased shard is here");
        shard.used = self.now;
        let groups = shard.groups.clone();
        self.touch(groups);
    }

    fn drop_shard(&mut self, id: Id) {
        self.shards.remove(&id).expect("only shards that are here are dropped");
        self.orphans.push((id, self.now));
    }
}

/// What can be worked out.
impl Model {
    fn is_filling(&self, id: Id) -> bool {
        self.shards.get(&id).is_some_and(|shard| shard.waiters.is_some())
    }

    fn leased_by(&self, holder: Holder) -> impl Iterator<Item = Id> {
        self.leases.keys().filter(move |lease| lease.0 == holder).map(|lease| lease.1)
    }

    fn held(&self, holder: Holder) -> u64 {
        self.leased_by(holder).map(bytes_of).sum()
    }

    fn holders_of(&self, id: Id) -> usize {
        self.leases.keys().filter(|lease| lease.1 == id).count()
    }

    fn group_used(&self, id: Id) -> u64 {
        self.shards[&id].groups.iter().map(|group| self.touched[group]).max().unwrap_or(0)
    }

    fn members(&self, group: Group) -> impl Iterator<Item = Id> {
        let shards = self.shards.iter();
        shards.filter(move |(_, shard)| shard.groups.contains(&group)).map(|(&id, _)| id)
    }

    fn is_in_use(&self, group: Group) -> bool {
        self.sessions.get(&group).is_some_and(|&sessions| sessions > 0)
            || self.members(group).any(|id| self.holders_of(id) > 0)
            || self.now - self.touched[&group] < IDLE_SECONDS
    }

    fn is_idle(&self, id: Id) -> bool {
        !self.is_filling(id) && !self.shards[&id].groups.iter().any(|&group| self.is_in_use(group))
    }

    /// The bytes that must leave before a shard may come. Any shard that leaves gives a place.
    fn missing(&self, id: Id) -> u64 {
        let bytes = bytes_of(id).saturating_sub(self.free());
        if self.places() == 0 { bytes.max(1) } else { bytes }
    }

    fn places(&self) -> usize {
        SHARDS_MAX - self.tallies().iter().map(|tally| tally.shards).sum::<usize>()
    }

    fn free(&self) -> u64 {
        LIMIT - self.tallies().iter().map(|tally| tally.bytes).sum::<u64>()
    }

    /// Filling, resident, orphaned.
    pub(crate) fn tallies(&self) -> [Tally; 3] {
        let tally =
            |ids: Vec<Id>| Tally { shards: ids.len(), bytes: ids.into_iter().map(bytes_of).sum() };
        let (filling, resident) = self.shards.keys().partition(|&&id| self.is_filling(id));
        [filling, resident, self.orphans.iter().map(|orphan| orphan.0).collect()].map(tally)
    }

    pub(crate) fn shard_views(&self, start: Instant) -> Vec<ShardView<Id, Group>> {
        let at = |seconds| start + Duration::from_secs(seconds);
        let present = self.shards.iter().map(|(&id, shard)| ShardView {
            id,
            bytes: bytes_of(id),
            groups: shard.groups.iter().copied().collect(),
            state: match shard.waiters {
                Some(waiters) => ShardState::Filling { waiters, since: at(shard.since) },
                None => ShardState::Resident {
                    holders: self.holders_of(id),
                    since: at(shard.since),
                    last_used: at(shard.used),
                },
            },
        });
        let orphaned = self.orphans.iter().map(|&(id, since)| ShardView {
            id,
            bytes: bytes_of(id),
            groups: Vec::new(),
            state: ShardState::Orphaned { since: at(since) },
        });
        let mut views: Vec<_> = present.chain(orphaned).collect();
        views.sort_by_key(|view| (view.id, view.state));
        views
    }

    pub(crate) fn group_views(&self, start: Instant) -> Vec<GroupView<Group>> {
        let views = self.touched.iter().map(|(&group, &touched)| {
            let ids: Vec<Id> = self.members(group).collect();
            GroupView {
                group,
                shards: ids.len(),
                bytes: ids.iter().map(|&id| bytes_of(id)).sum(),
                leased: ids.iter().filter(|&&id| self.holders_of(id) > 0).count(),
                sessions: self.sessions.get(&group).copied().unwrap_or(0),
                last_used: start + Duration::from_secs(touched),
            }
        });
        views.filter(|view| view.shards + view.sessions > 0).collect()
    }

    pub(crate) fn holder_views(&self) -> Vec<HolderView> {
        let holders: BTreeSet<Holder> = self.leases.keys().map(|lease| lease.0).collect();
        let view = |holder| HolderView {
            holder: HolderId(holder),
            shards: self.leased_by(holder).count(),
            bytes: self.held(holder),
        };
        holders.into_iter().map(view).collect()
    }
}
