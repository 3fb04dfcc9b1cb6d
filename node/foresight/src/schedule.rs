//! MIN over the uses of a node's shards.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A shard that the node owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// The bytes that it takes.
    pub bytes: u64,
    /// Whether it is in memory, or a fill brings it.
    pub is_held: bool,
    /// Whether it can't leave: a reader has its bytes, or an operator pinned it.
    pub is_locked: bool,
}

impl Shard {
    /// A shard in memory, which may leave.
    pub fn held(bytes: u64) -> Self {
        Self { bytes, is_held: true, is_locked: false }
    }

    /// A shard that is not in memory.
    pub fn absent(bytes: u64) -> Self {
        Self { bytes, is_held: false, is_locked: false }
    }

    /// A shard in memory that can't leave.
    pub fn locked(bytes: u64) -> Self {
        Self { bytes, is_held: true, is_locked: true }
    }
}

/// A stretch of time in which readers read a shard: a window of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The index of the shard.
    pub shard: u32,
    /// From the first reader's entrance to the slowest reader's leave, on any scale that all uses
    /// share.
    pub time: Range<u64>,
}

impl Use {
    /// A use of a shard.
    pub fn new(shard: u32, time: Range<u64>) -> Self {
        Self { shard, time }
    }
}

/// A shard to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// The index of the shard.
    pub shard: u32,
    /// When it is needed.
    pub deadline: u64,
}

/// What a node should do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The shards to fetch, those needed soonest first. A shard comes twice if it is given up in
    /// between.
    pub fetches: Vec<Fetch>,
    /// The held shards to give up, in the order in which MIN evicts them. None is read before then.
    pub given_up: Vec<u32>,
    /// The uses that do not fit beside others at the same time, as indices of uses. Their rows are
    /// read by range.
    pub unfit: Vec<u32>,
}

/// Computes what to fetch and what to give up. `memory` is the room for shards; locked ones count
/// in it. `uses` are sorted by their begin. What lies behind the last of them is later than all.
///
/// About 100 nanoseconds a use.
///
/// # Panics
/// If a use names a shard that is not there, or uses are not sorted.
pub fn schedule(memory: u64, shards: &[Shard], uses: &[Use]) -> Schedule {
    assert!(uses.is_sorted_by_key(|one| one.time.start), "uses are sorted by their begin");
    let mut sweep = Sweep::new(memory, shards, uses);
    // Memory may have shrunk: what readers still map after it was evicted counts no more.
    sweep.make_room(0);
    for index in 0..uses.len() {
        sweep.begin(index);
    }
    sweep.schedule
}

/// The next use of a shard that is not used again.
const NEVER: u32 = u32::MAX;

/// The course of memory while time goes on.
struct Sweep<'a> {
    shards: &'a [Shard],
    uses: &'a [Use],
    /// By use: the next use of its shard.
    next: Vec<u32>,
    state: Vec<State>,
    memory: u64,
    used: u64,
    /// Ends of the uses that are going on, the soonest on top.
    ends: BinaryHeap<Reverse<(u64, u32)>>,
    /// Shards that may leave, by their next use, the farthest on top. An entry is out of date if
    /// its shard is in use, has left, or has another next use.
    idle: BinaryHeap<(u32, u32)>,
    schedule: Schedule,
}

/// A shard at the present of the sweep.
#[derive(Debug, Clone, Copy)]
struct State {
    is_in_memory: bool,
    /// Uses that go on.
    users: u32,
    /// The index of the next use, or [`NEVER`].
    next: u32,
    /// Whether it was in memory at first, and no use has begun since.
    is_untouched: bool,
}

impl<'a> Sweep<'a> {
    fn new(memory: u64, shards: &'a [Shard], uses: &'a [Use]) -> Self {
        let mut first = vec![NEVER; shards.len()];
        let mut next = vec![NEVER; uses.len()];
        for (index, one) in (0..NEVER).zip(uses).rev() {
            next[index as usize] = std::mem::replace(&mut first[one.shard as usize], index);
        }
        let state = |(shard, next): (&Shard, u32)| State {
            is_in_memory: shard.is_held,
            users: 0,
            next,
            is_untouched: shard.is_held,
        };
        let state: Vec<State> = shards.iter().zip(first).map(state).collect();
        let held = shards.iter().filter(|shard| shard.is_held).map(|shard| shard.bytes);
        let used = held.fold(0, u64::saturating_add);
        let idle = (0..).zip(&state).filter(|(_, state)| state.is_in_memory);
        let idle = idle.map(|(shard, state)| (state.next, shard)).collect();
        let (ends, schedule) = (BinaryHeap::new(), Schedule::default());
        Self { shards, uses, next, state, memory, used, ends, idle, schedule }
    }

    /// A use begins: its shard comes if it is not there.
    fn begin(&mut self, index: usize) {
        let Use { shard, time } = &self.uses[index];
        self.end_until(time.start);
        let place = *shard as usize;
        self.state[place].next = self.next[index];
        let is_there = self.state[place].is_in_memory;
        if !is_there && !self.make_room(self.shards[place].bytes) {
            self.schedule.unfit.push(u32::try_from(index).expect("counted in 32 bits"));
            return;
        }
        if !is_there {
            self.used += self.shards[place].bytes;
            self.schedule.fetches.push(Fetch { shard: *shard, deadline: time.start });
        }
        let state = &mut self.state[place];
        (state.is_in_memory, state.is_untouched) = (true, false);
        state.users += 1;
        self.ends.push(Reverse((time.end, *shard)));
    }

    /// Uses end. A shard that nobody uses any more may leave.
    fn end_until(&mut self, now: u64) {
        while let Some(&Reverse((end, shard))) = self.ends.peek() {
            if end > now {
                break;
            }
            self.ends.pop();
            let state = &mut self.state[shard as usize];
            state.users -= 1;
            if state.users == 0 {
                self.idle.push((state.next, shard));
            }
        }
    }

    /// Evicts the shards with the farthest next use until there is room. Returns whether there is.
    fn make_room(&mut self, bytes: u64) -> bool {
        let (mut chosen, mut used) = (Vec::new(), self.used);
        while used.saturating_add(bytes) > self.memory {
            let Some(entry @ (next, shard)) = self.idle.pop() else {
                self.idle.extend(chosen);
                return false;
            };
            let state = self.state[shard as usize];
            let is_current = state.is_in_memory && state.users == 0 && state.next == next;
            if is_current && !self.shards[shard as usize].is_locked {
                used -= self.shards[shard as usize].bytes;
                chosen.push(entry);
            }
        }
        for (_, shard) in chosen {
            let state = &mut self.state[shard as usize];
            if std::mem::take(&mut state.is_untouched) {
                self.schedule.given_up.push(shard);
            }
            state.is_in_memory = false;
        }
        self.used = used;
        true
    }
}

#[cfg(test)]
mod tests;
