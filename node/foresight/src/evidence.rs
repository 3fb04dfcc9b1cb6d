//! Finds plans that no reader follows: shards fetched ahead for them leave unread.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::Job;

/// Shards in a row that left unread before their plans are doubted.
const UNREAD_MAX: u32 = 8;

/// Windows that must pass meanwhile. A job that stands still may yet read.
const WINDOWS_MAX: u64 = 2;

/// How long plans are set aside. Then the node tries them again.
pub const SET_ASIDE: Duration = Duration::from_mins(1);

/// The fate of shards fetched ahead. `S` names a snapshot, and `K` a shard.
///
/// Plans are set aside by snapshot: a shard that was read does not say which job read it.
#[derive(Debug)]
pub struct Evidence<S, K> {
    /// Shards that were fetched ahead and not read yet.
    ahead: HashMap<K, S>,
    doubts: HashMap<S, Doubt>,
    set_aside: HashMap<S, Instant>,
}

/// The shards of a snapshot that left unread since one was read.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    unread: u32,
    /// The windows that its jobs had passed when the first one left.
    since: u64,
}

impl<S, K> Default for Evidence<S, K> {
    fn default() -> Self {
        Self { ahead: HashMap::new(), doubts: HashMap::new(), set_aside: HashMap::new() }
    }
}

impl<S: Copy + Ord + Hash, K: Copy + Eq + Hash> Evidence<S, K> {
    /// Notes a shard that was fetched before a reader asked.
    pub fn fetched(&mut self, shard: K, snapshot: S) {
        self.ahead.insert(shard, snapshot);
    }

    /// Judges the plans of these jobs. `was_read` has the shards in memory, and whether each was
    /// read there. Returns the snapshots whose plans are set aside from now on.
    pub fn judge(&mut self, jobs: &[Job<S>], was_read: &HashMap<K, bool>, now: Instant) -> Vec<S> {
        let mut passed = HashMap::<S, u64>::new();
        for job in jobs {
            let windows = passed.entry(job.snapshot).or_default();
            *windows = windows.saturating_add(windows_passed(job));
        }
        self.doubts.retain(|snapshot, _| passed.contains_key(snapshot));
        self.set_aside.retain(|snapshot, since| {
            passed.contains_key(snapshot) && now.saturating_duration_since(*since) < SET_ASIDE
        });
        let doubts = &mut self.doubts;
        let mut left = Vec::new();
        self.ahead.retain(|shard, snapshot| {
            let Some(&since) = passed.get(snapshot) else { return false };
            match was_read.get(shard) {
                Some(false) => return true,
                Some(true) => drop(doubts.remove(snapshot)),
                None => left.push((*snapshot, since)),
            }
            false
        });
        for (snapshot, since) in left {
            self.doubts.entry(snapshot).or_insert(Doubt { unread: 0, since }).unread += 1;
        }
        let is_refuted = |(snapshot, doubt): (&S, &Doubt)| {
            let windows = passed[snapshot].saturating_sub(doubt.since);
            (doubt.unread >= UNREAD_MAX && windows >= WINDOWS_MAX).then_some(*snapshot)
        };
        let refuted: Vec<S> = self.doubts.iter().filter_map(is_refuted).collect();
        for snapshot in &refuted {
            self.doubts.remove(snapshot);
            self.set_aside.insert(*snapshot, now);
        }
        refuted
    }

    /// Returns the snapshots whose plans are set aside.
    pub fn set_aside(&self) -> impl Iterator<Item = S> + '_ {
        self.set_aside.keys().copied()
    }
}

fn windows_passed<S>(job: &Job<S>) -> u64 {
    job.pass.saturating_mul(job.keys.windows().into()).saturating_add(job.slowest.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_order::{DeclaredShards, ShardKeys};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "an `Instant` can be had in no other way")]
    fn start() -> Instant {
        Instant::now()
    }

    fn job(slowest: u32) -> Job<char> {
        let declared = DeclaredShards::from_runs(std::iter::once(0..100)).unwrap();
        let keys = Arc::new(ShardKeys { declared, width: 1, keys: None });
        let (pass, fastest, rate) = (0, slowest, Some(1.0));
        let (snapshot, name, loaders) = ('s', Arc::from(""), 1);
        Job { snapshot, name, pass, keys, loaders, slowest, fastest, rate }
    }

    /// Fetches shards, which leave by the next judgement. Returns whether plans are set aside.
    fn leave(evidence: &mut Evidence<char, u32>, count: u32, slowest: u32, now: Instant) -> bool {
        (0..count).for_each(|shard| evidence.fetched(shard, 's'));
        evidence.judge(&[job(slowest)], &HashMap::new(), now) == ['s']
    }

    #[test]
    fn plans_that_nobody_follows_are_set_aside_for_a_time() {
        let (mut evidence, now) = (Evidence::default(), start());
        assert!(!leave(&mut evidence, UNREAD_MAX, 5, now), "the job stands still");
        assert!(!leave(&mut evidence, 1, 6, now));
        assert!(leave(&mut evidence, 1, 7, now));
        assert!(evidence.set_aside().eq(['s']));
        evidence.judge(&[job(9)], &HashMap::new(), now + SET_ASIDE);
        assert_eq!(evidence.set_aside().count(), 0, "the plan is tried again");
        assert!(!leave(&mut evidence, UNREAD_MAX - 1, 20, now + SET_ASIDE), "counted anew");
    }

    #[test]
    fn any_number_of_a_pass_is_taken() {
        let late = Job { pass: u64::MAX, ..job(5) };
        let mut evidence = Evidence::<char, u32>::default();
        assert_eq!(evidence.judge(&[late.clone(), late], &HashMap::new(), start()), []);
    }

    #[test]
    fn one_read_clears_a_doubt_and_so_does_the_end_of_the_job() {
        let (mut evidence, now) = (Evidence::default(), start());
        leave(&mut evidence, UNREAD_MAX, 5, now);
        evidence.fetched(50, 's');
        evidence.judge(&[job(6)], &HashMap::from([(50, false)]), now);
        evidence.judge(&[job(6)], &HashMap::from([(50, true)]), now);
        assert!(!leave(&mut evidence, UNREAD_MAX - 1, 9, now));
        evidence.judge(&[], &HashMap::new(), now);
        assert!(!leave(&mut evidence, UNREAD_MAX - 1, 30, now));
        assert!(leave(&mut evidence, 1, 32, now));
    }
}
