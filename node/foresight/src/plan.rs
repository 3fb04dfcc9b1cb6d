//! From the plans that readers announced to the uses of a node's shards.

use larder_order::ShardOrder;

use crate::Use;

/// Windows ahead of the fastest reader that are known of a job without a rate.
const WINDOWS_WITHOUT_RATE: u32 = 2;

/// Milliseconds of a window of a job without a rate.
const WINDOW_WITHOUT_RATE_MS: f64 = 1000.0;

/// A job's announced order, and how far it is.
#[derive(Debug, Clone)]
pub struct ReadPlan {
    /// The order of the pass that the job is in, and of the next one if there is one.
    pub passes: Vec<ShardOrder>,
    /// The window of the present pass that its slowest reader is in.
    pub slowest: u32,
    /// The window that its fastest reader is in. From [`ShardOrder::windows`] on they count in the
    /// next pass.
    pub fastest: u32,
    /// Windows a second, over the last minute: finite, and above 0. `None` until the job has one.
    pub rate: Option<f64>,
}

impl ReadPlan {
    /// The uses of these shards from now on, in any order, with times in milliseconds from now. A
    /// shard is its index among those of the node, and its number in the snapshot.
    ///
    /// About 50 nanoseconds for each shard and pass.
    pub fn uses(&self, shards: impl IntoIterator<Item = (u32, u32)>) -> Vec<Use> {
        let mut uses = Vec::new();
        for (index, number) in shards {
            let mut before = 0;
            for order in &self.passes {
                let window = order.window_of(number).map(|window| before + window);
                uses.extend(window.and_then(|window| self.use_in(index, window)));
                before += order.windows();
            }
        }
        uses
    }

    /// The use of a shard in a window, which counts from the begin of the present pass. `None` if
    /// the window is behind all readers, or too far ahead.
    fn use_in(&self, shard: u32, window: u32) -> Option<Use> {
        let is_known =
            self.rate.is_some() || window <= self.fastest.saturating_add(WINDOWS_WITHOUT_RATE);
        if window < self.slowest || !is_known {
            return None;
        }
        let window_ms = self.rate.map_or(WINDOW_WITHOUT_RATE_MS, |rate| 1000.0 / rate);
        let after = |windows: u32| milliseconds(f64::from(windows) * window_ms);
        let begin = after(window.saturating_sub(self.fastest));
        Some(Use::new(shard, begin..after(window + 1 - self.slowest)))
    }
}

fn milliseconds(time: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never below zero")]
    let time = time as u64;
    time
}

/// Joins the uses of all plans by their begin, and keeps the first `most`. What lies behind them
/// counts as later than all.
pub fn joined(plans: impl IntoIterator<Item = Vec<Use>>, most: usize) -> Vec<Use> {
    let mut uses: Vec<Use> = plans.into_iter().flatten().collect();
    uses.sort_unstable_by_key(|one| (one.time.start, one.time.end, one.shard));
    uses.truncate(most);
    uses
}

#[cfg(test)]
mod tests {
    use larder_order::{DatasetShape, DeclaredShards};

    use super::*;

    fn order(shards: usize, key: u128, width: u32) -> ShardOrder {
        let shape = DatasetShape::from_rows(vec![1; shards]).unwrap();
        ShardOrder::new(DeclaredShards::of(&shape), Some(key), width)
    }

    fn all(shards: u32) -> impl Iterator<Item = (u32, u32)> {
        (0..shards).map(|shard| (shard, shard))
    }

    #[test]
    fn each_pass_uses_a_shard_until_the_slowest_reader_leaves() {
        let passes = vec![order(10, 1, 3), order(10, 2, 3)];
        let plan = ReadPlan { passes: passes.clone(), slowest: 1, fastest: 2, rate: Some(2.0) };
        let uses = joined([plan.uses(all(10))], 100);
        assert_eq!(uses.len(), 7 + 10, "the first window is behind all readers");
        for one in &uses {
            let window = match one.time.start {
                0 => passes[0].window_of(one.shard).unwrap(),
                later => 2 + u32::try_from(later / 500).unwrap(),
            };
            assert!(window >= 1);
            assert_eq!(one.time.end, u64::from(window) * 500, "until the slowest reader leaves");
            let (pass, within) = if window < 4 { (0, window) } else { (1, window - 4) };
            assert_eq!(passes[pass].window_of(one.shard), Some(within));
        }
        assert!(uses.is_sorted_by_key(|one| one.time.start));
    }

    #[test]
    fn job_without_a_rate_is_known_two_windows_ahead() {
        let passes = vec![order(10, 1, 1), order(10, 2, 1)];
        let plan = ReadPlan { passes, slowest: 8, fastest: 9, rate: None };
        let mut uses = plan.uses(all(10));
        uses.sort_by_key(|one| one.time.end);
        let times: Vec<_> = uses.iter().map(|one| (one.time.start, one.time.end)).collect();
        assert_eq!(times, [(0, 1000), (0, 2000), (1000, 3000), (2000, 4000)]);
    }

    #[test]
    fn joined_keeps_the_soonest() {
        let uses = |begins: [u64; 2]| begins.map(|begin| Use::new(0, begin..begin + 1)).to_vec();
        let joined = joined([uses([5, 40]), uses([1, 30])], 3);
        let begins: Vec<u64> = joined.iter().map(|one| one.time.start).collect();
        assert_eq!(begins, [1, 5, 30]);
    }
}
