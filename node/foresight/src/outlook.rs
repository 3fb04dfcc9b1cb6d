//! From plans and the shards in memory to the next steps of a node.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::{ReadPlan, Schedule, Shard, joined, schedule};

/// A client returns a recalled map within this time, unless a program still uses its rows.
const RECALL_PATIENCE: Duration = Duration::from_secs(1);

/// How long a recall is remembered.
const RECALL_AGAIN: Duration = Duration::from_secs(10);

/// The shards of a snapshot that a node owns, and the plans of the jobs that read it. `K` names a
/// shard.
#[derive(Debug)]
pub struct Reads<'a, K> {
    /// The shards, in any order.
    pub shards: &'a [OwnShard<K>],
    /// The plans.
    pub plans: Vec<ReadPlan>,
}

/// A shard that the node owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnShard<K> {
    /// The shard.
    pub id: K,
    /// Its number in the snapshot.
    pub number: u32,
    /// The bytes that it takes.
    pub bytes: u64,
}

/// A shard in memory, or on its way there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InMemory<K> {
    /// The shard.
    pub id: K,
    /// The bytes that it takes.
    pub bytes: u64,
    /// Whether clients map it. They are asked to return it before it leaves.
    pub is_mapped: bool,
    /// When it was last used.
    pub last_used: Instant,
    /// The standing of a shard that the node does not own.
    pub otherwise: Otherwise,
}

/// What becomes of a shard in memory that the node does not own, or that no plan names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// It stays, and its room is not for planned shards.
    Stays,
    /// It leaves before any planned shard.
    IsSpare,
    /// It leaves by itself when room is needed.
    IsIdle,
}

/// The next steps of a node.
#[derive(Debug, Clone)]
pub struct Looked<K> {
    /// All shards to fetch. A request for one of them may take the room of those given up.
    pub fetches: HashSet<K>,
    /// The shards to give up, the first one first.
    pub given_up: Vec<K>,
    /// The shards to fetch that there is room for, soonest first.
    pub due: Vec<Due>,
    /// Shards given up that clients map: they are to return them.
    pub recalled: Vec<K>,
}

/// A shard to fetch now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The index of its snapshot among the [`Reads`].
    pub reads: usize,
    /// Its number in the snapshot.
    pub number: u32,
    /// The bytes that it takes.
    pub bytes: u64,
    /// When it is needed, in milliseconds from now.
    pub deadline: u64,
}

/// The memory of a node from one look to the next: the maps that it recalled.
#[derive(Debug)]
pub struct Outlook<K> {
    recalls: HashMap<K, Instant>,
}

impl<K> Default for Outlook<K> {
    fn default() -> Self {
        Self { recalls: HashMap::new() }
    }
}

/// The shards of a look. The index of a shard is its name in the schedule.
struct ShardTable<K> {
    shards: Vec<Shard>,
    ids: Vec<K>,
    /// The snapshot and the number of each. `None`: the node only has it.
    names: Vec<Option<(usize, u32)>>,
    index: HashMap<K, u32>,
    mapped: HashSet<u32>,
}

impl<K: Copy + Eq + Hash> Outlook<K> {
    /// Computes what to do with so many bytes of memory. The first `uses_max` uses are looked at.
    ///
    /// About 100 nanoseconds a use, and as much for each shard.
    pub fn look(
        &mut self,
        memory: u64,
        uses_max: usize,
        reads: &[Reads<'_, K>],
        held: impl IntoIterator<Item = InMemory<K>>,
        now: Instant,
    ) -> Looked<K> {
        self.recalls.retain(|_, asked| now.saturating_duration_since(*asked) < RECALL_AGAIN);
        let mut table = ShardTable::new();
        let indices: Vec<Vec<u32>> =
            reads.iter().enumerate().map(|(at, reads)| table.add_owned(at, reads.shards)).collect();
        let memory = self.take_stock(&mut table, memory, held, now);
        let memory = memory.saturating_sub(reserve(reads));
        let of_snapshot = |(reads, indices): (&Reads<'_, K>, &Vec<u32>)| {
            let numbers = reads.shards.iter().map(|shard| shard.number);
            let shards: Vec<(u32, u32)> = indices.iter().copied().zip(numbers).collect();
            let uses = reads.plans.iter().map(|plan| plan.uses(shards.iter().copied()));
            uses.collect::<Vec<_>>()
        };
        let mut uses = joined(reads.iter().zip(&indices).flat_map(of_snapshot), uses_max);
        // Where not all fit that are needed at once, those stay that are here.
        uses.sort_by_key(|one| (one.time.start, !table.shards[one.shard as usize].is_held));
        let schedule = schedule(memory, &table.shards, &uses);
        self.looked(&table, &schedule, memory, now)
    }

    /// Notes which shards are here. Returns the memory for them: all but that of others which stay.
    fn take_stock(
        &self,
        table: &mut ShardTable<K>,
        mut memory: u64,
        held: impl IntoIterator<Item = InMemory<K>>,
        now: Instant,
    ) -> u64 {
        for one in held {
            let index = match (table.index.get(&one.id), one.otherwise) {
                (Some(&index), _) => index,
                (None, Otherwise::IsSpare) => table.add(one.id, one.bytes, None),
                (None, Otherwise::IsIdle) => continue,
                (None, Otherwise::Stays) => {
                    memory = memory.saturating_sub(one.bytes);
                    continue;
                }
            };
            // A map that was used since was returned, and taken again.
            let asked = self.recalls.get(&one.id).filter(|asked| one.last_used <= **asked);
            let is_kept =
                asked.is_some_and(|asked| now.saturating_duration_since(*asked) > RECALL_PATIENCE);
            let shard = &mut table.shards[index as usize];
            (shard.is_held, shard.is_locked) = (true, one.is_mapped && is_kept);
            if one.is_mapped {
                table.mapped.insert(index);
            }
        }
        memory
    }

    /// Translates a schedule for so much memory.
    fn looked(
        &mut self,
        table: &ShardTable<K>,
        schedule: &Schedule,
        memory: u64,
        now: Instant,
    ) -> Looked<K> {
        let bytes_of = |shard: u32| table.shards[shard as usize].bytes;
        let id_of = |shard: &u32| table.ids[*shard as usize];
        let held = table.shards.iter().filter(|shard| shard.is_held).map(|shard| shard.bytes);
        let leaves: u64 = schedule.given_up.iter().map(|&shard| bytes_of(shard)).sum();
        let room = memory.saturating_sub(held.sum::<u64>().saturating_sub(leaves));
        let (mut fetches, mut due, mut due_bytes) = (HashSet::new(), Vec::new(), 0_u64);
        for fetch in &schedule.fetches {
            let (is_new, bytes) = (fetches.insert(id_of(&fetch.shard)), bytes_of(fetch.shard));
            let is_held = table.shards[fetch.shard as usize].is_held;
            // More than the room would evict shards at each look that the last one fetched.
            if is_new && !is_held && due_bytes.saturating_add(bytes) <= room {
                let name = table.names[fetch.shard as usize];
                let (reads, number) = name.expect("only owned shards have uses");
                due.push(Due { reads, number, bytes, deadline: fetch.deadline });
                due_bytes += bytes;
            }
        }
        // All of them, so that a reader who comes first finds room too.
        let mapped = schedule.given_up.iter().filter(|shard| table.mapped.contains(shard));
        let recalled: Vec<K> = mapped.map(id_of).collect();
        for &id in &recalled {
            self.recalls.entry(id).or_insert(now);
        }
        let given_up = schedule.given_up.iter().map(id_of).collect();
        Looked { fetches, given_up, due, recalled }
    }
}

/// The room that fetches take until the shards given up for them have left: that of a window.
/// Without it, a window that is entered would wait until clients returned maps of the last one.
fn reserve<K>(reads: &[Reads<'_, K>]) -> u64 {
    let window = |reads: &Reads<'_, K>| {
        let bytes: u64 = reads.shards.iter().map(|shard| shard.bytes).sum();
        let windows = reads.plans.iter().filter_map(|plan| Some(plan.passes.first()?.windows()));
        windows.map(|windows| bytes / u64::from(windows.max(1))).max()
    };
    reads.iter().filter_map(window).max().unwrap_or(0)
}

impl<K: Copy + Eq + Hash> ShardTable<K> {
    fn new() -> Self {
        Self {
            shards: Vec::new(),
            ids: Vec::new(),
            names: Vec::new(),
            index: HashMap::new(),
            mapped: HashSet::new(),
        }
    }

    /// Adds the shards of a snapshot. Returns the index of each. A shard of several snapshots has
    /// one index.
    fn add_owned(&mut self, reads: usize, shards: &[OwnShard<K>]) -> Vec<u32> {
        let add = |shard: &OwnShard<K>| {
            let known = self.index.get(&shard.id).copied();
            known.unwrap_or_else(|| self.add(shard.id, shard.bytes, Some((reads, shard.number))))
        };
        shards.iter().map(add).collect()
    }

    fn add(&mut self, id: K, bytes: u64, name: Option<(usize, u32)>) -> u32 {
        let index = u32::try_from(self.shards.len()).expect("snapshots count shards in 32 bits");
        self.shards.push(Shard::absent(bytes));
        self.ids.push(id);
        self.names.push(name);
        self.index.insert(id, index);
        index
    }
}

#[cfg(test)]
mod tests {
    use larder_order::{DatasetShape, DeclaredShards, ShardOrder};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "an `Instant` can be had in no other way")]
    fn start() -> Instant {
        Instant::now()
    }

    /// Ten shards of one byte, read one by one in their order, one a second. One loader reads shard
    /// 0, another shard 1.
    fn reads(shards: &[OwnShard<char>]) -> [Reads<'_, char>; 1] {
        let shape = DatasetShape::from_rows([1; 10]).unwrap();
        let order = ShardOrder::new(DeclaredShards::of(&shape), None, 1);
        let plan = ReadPlan { passes: vec![order; 2], slowest: 0, fastest: 1, rate: Some(1.0) };
        [Reads { shards, plans: vec![plan] }]
    }

    fn shards() -> Vec<OwnShard<char>> {
        let shard = |(number, id)| OwnShard { id, number, bytes: 1 };
        (0..).zip("abcdefghij".chars()).map(shard).collect()
    }

    fn held(ids: &str, now: Instant) -> Vec<InMemory<char>> {
        let otherwise = Otherwise::Stays;
        let one = |id| InMemory { id, bytes: 1, is_mapped: false, last_used: now, otherwise };
        ids.chars().map(one).collect()
    }

    fn due(looked: &Looked<char>) -> Vec<u32> {
        looked.due.iter().map(|due| due.number).collect()
    }

    #[test]
    fn shards_needed_soonest_are_fetched_as_far_as_room_goes() {
        let (own, now) = (shards(), start());
        let look =
            |memory, ids| Outlook::default().look(memory, 1000, &reads(&own), held(ids, now), now);
        // One of five is the window's room.
        let cold = look(5, "");
        assert_eq!((due(&cold), cold.given_up), (vec![0, 1, 2, 3], vec![]));
        // The last of the epoch is needed latest.
        let full = look(5, "ahij");
        assert_eq!((due(&full), full.given_up), (vec![1], vec!['j']));
        assert!(full.fetches.contains(&'b'));
    }

    #[test]
    fn memory_of_others_is_not_taken_and_spare_copies_leave_first() {
        let (own, now) = (shards(), start());
        let mut others = held("ahixyz", now);
        others[4].otherwise = Otherwise::IsSpare;
        others[5].otherwise = Otherwise::IsIdle;
        let looked = Outlook::default().look(6, 1000, &reads(&own), others, now);
        assert_eq!((due(&looked), looked.given_up), (vec![1], vec!['y']));
    }

    #[test]
    fn mapped_shard_is_recalled_and_taken_while_it_is_kept() {
        let (own, now) = (shards(), start());
        let mut mapped = held("ahij", now);
        mapped[3].is_mapped = true;
        let mut outlook = Outlook::default();
        let mut look = |held: &[InMemory<char>], after_ms| {
            let later = now + Duration::from_millis(after_ms);
            outlook.look(5, 1000, &reads(&own), held.iter().copied(), later)
        };
        let asked = look(&mapped, 0);
        assert_eq!((due(&asked), asked.recalled), (vec![1], vec!['j']));
        assert_eq!(look(&mapped, 1_000).recalled, ['j'], "it may come back any moment");
        let kept = look(&mapped, 1_001);
        assert_eq!((due(&kept), kept.given_up), (vec![1], vec!['i']), "the next one leaves");
        // It was returned, and mapped again.
        mapped[3].last_used = now + Duration::from_millis(500);
        assert_eq!(look(&mapped, 1_001).recalled, ['j']);
    }
}
