//! The sweep against a plain MIN, against all possible choices, and carried out early.

use fastrand::Rng;

use super::*;

/// A random future of small shards.
struct Future {
    memory: u64,
    shards: Vec<Shard>,
    uses: Vec<Use>,
}

/// `alike` makes shards of one byte whose uses do not overlap.
fn future(random: &mut Rng, alike: bool) -> Future {
    let shards: Vec<Shard> = (0..random.usize(1..7))
        .map(|_| Shard {
            bytes: if alike { 1 } else { random.u64(1..4) },
            is_held: random.bool(),
            is_locked: false,
        })
        .collect();
    let mut begin = 0;
    let uses = (0..random.usize(0..14)).map(|_| {
        begin += if alike { 5 } else { random.u64(0..6) };
        let shard = u32::try_from(random.usize(0..shards.len())).unwrap();
        Use::new(shard, begin..begin + random.u64(1..if alike { 5 } else { 12 }))
    });
    let uses = uses.collect();
    let held: u64 = shards.iter().filter(|shard| shard.is_held).map(|shard| shard.bytes).sum();
    let memory = held.max(1) + random.u64(0..3);
    Future { memory, shards, uses }
}

/// MIN by looking at everything at each step.
fn plain(Future { memory, shards, uses }: &Future) -> Schedule {
    let mut schedule = Schedule::default();
    let mut there: Vec<bool> = shards.iter().map(|shard| shard.is_held).collect();
    let mut untouched = there.clone();
    let mut going_on: Vec<usize> = Vec::new();
    for (index, one) in uses.iter().enumerate() {
        let place = one.shard as usize;
        going_on.retain(|&other| uses[other].time.end > one.time.start);
        let in_use = |shard: usize| going_on.iter().any(|&at| uses[at].shard as usize == shard);
        let next = |shard: usize| {
            let next =
                (index..uses.len()).find(|&at| uses[at].shard as usize == shard && at > index);
            next.unwrap_or(usize::MAX)
        };
        if !there[place] {
            let (mut left, mut evicted) = (there.clone(), Vec::new());
            let used = |there: &[bool]| -> u64 {
                let held = shards.iter().zip(there).filter(|(_, there)| **there);
                held.map(|(shard, _)| shard.bytes).sum()
            };
            let fits = loop {
                if used(&left) + shards[place].bytes <= *memory {
                    break true;
                }
                let may_leave =
                    |&shard: &usize| left[shard] && !in_use(shard) && !shards[shard].is_locked;
                let candidates = (0..shards.len()).filter(may_leave);
                let Some(farthest) = candidates.max_by_key(|&shard| (next(shard), shard)) else {
                    break false;
                };
                left[farthest] = false;
                evicted.push(farthest);
            };
            if !fits {
                schedule.unfit.push(u32::try_from(index).unwrap());
                continue;
            }
            let gone = evicted.into_iter().filter(|&shard| std::mem::take(&mut untouched[shard]));
            schedule.given_up.extend(gone.map(|shard| u32::try_from(shard).unwrap()));
            there = left;
            there[place] = true;
            schedule.fetches.push(Fetch { shard: one.shard, deadline: one.time.start });
        }
        untouched[place] = false;
        going_on.push(index);
    }
    schedule
}

#[test]
fn sweep_equals_plain_min_with_locks_and_overlaps() {
    let mut random = Rng::with_seed(1);
    for round in 0..10_000 {
        let mut future = future(&mut random, false);
        for shard in &mut future.shards {
            shard.is_locked = shard.is_held && random.u8(0..4) == 0;
        }
        let found = schedule(future.memory, &future.shards, &future.uses);
        assert_eq!(found, plain(&future), "round {round}: {:?} {:?}", future.shards, future.uses);
    }
}

/// The fewest fetches over all choices of what to evict, if uses do not overlap.
fn fewest(future: &Future, there: u32, index: usize) -> usize {
    let Some(one) = future.uses.get(index) else { return 0 };
    if there >> one.shard & 1 == 1 {
        return fewest(future, there, index + 1);
    }
    let full = u64::from(there.count_ones()) >= future.memory;
    let choices =
        (0..32).filter(|shard| there >> shard & 1 == 1).map(|shard| there & !(1 << shard));
    let after = |there: u32| 1 + fewest(future, there | 1 << one.shard, index + 1);
    if full { choices.map(after).min().unwrap_or(usize::MAX) } else { after(there) }
}

fn held(shards: &[Shard]) -> u32 {
    (0u32..).zip(shards).map(|(index, shard)| u32::from(shard.is_held) << index).sum()
}

#[test]
fn no_choice_fetches_less() {
    let mut random = Rng::with_seed(2);
    for _ in 0..2_000 {
        let future = future(&mut random, true);
        let found = schedule(future.memory, &future.shards, &future.uses);
        assert_eq!(found.fetches.len(), fewest(&future, held(&future.shards), 0));
        assert!(found.unfit.is_empty());
    }
}

#[test]
fn early_fetches_into_the_room_of_shards_given_up_cost_nothing() {
    let mut random = Rng::with_seed(3);
    for round in 0..2_000 {
        let mut future = future(&mut random, true);
        let least = schedule(future.memory, &future.shards, &future.uses).fetches.len();
        let mut fetched = 0;
        while !future.uses.is_empty() {
            let schedule = schedule(future.memory, &future.shards, &future.uses);
            let mut given_up = schedule.given_up.iter();
            // As early and as many as the rule allows, but each shard once.
            for fetch in &schedule.fetches {
                if future.shards[fetch.shard as usize].is_held {
                    break;
                }
                let held = future.shards.iter().filter(|shard| shard.is_held).count() as u64;
                if held >= future.memory {
                    let Some(&victim) = given_up.next() else { break };
                    future.shards[victim as usize].is_held = false;
                }
                future.shards[fetch.shard as usize].is_held = true;
                fetched += 1;
            }
            let used = future.uses.remove(0);
            assert!(future.shards[used.shard as usize].is_held, "round {round}: it came too late");
        }
        assert_eq!(fetched, least, "round {round}");
    }
}

#[test]
fn memory_that_shrank_is_given_up_first() {
    let shards = [Shard::held(4), Shard::held(4), Shard::locked(4)];
    let uses = [Use::new(0, 10..20), Use::new(1, 30..40), Use::new(2, 50..60)];
    let found = schedule(8, &shards, &uses);
    assert_eq!((found.given_up, found.unfit), (vec![1], vec![]));
    assert_eq!(found.fetches, [Fetch { shard: 1, deadline: 30 }]);
}

#[test]
fn window_beyond_memory_is_unfit_and_evicts_nothing() {
    let shards = [Shard::held(6), Shard::absent(3)];
    let uses = [Use::new(0, 0..100), Use::new(1, 10..20), Use::new(0, 200..210)];
    let found = schedule(8, &shards, &uses);
    assert_eq!(found, Schedule { unfit: vec![1], ..Schedule::default() });
}
