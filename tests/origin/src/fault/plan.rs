//! Assigns faults to reads by a seed and the read's number, so a run can be repeated.

use std::time::Duration;

use super::{Fault, RequestKind};

/// The length of a stall, unless the plan sets another.
const STALL: Duration = Duration::from_secs(30);

/// The faults for the requests for some objects: reads, unless it says otherwise.
///
/// The plan counts the requests that it applies to, from all clients together. The seed, the read's
/// number and the odds decide its fault. Parallel reads get their numbers in order of arrival.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    seed: u64,
    odds: Vec<(Fault, f64)>,
    kinds: Vec<RequestKind>,
    keys: Vec<String>,
    injections_left: u64,
    stall: Duration,
    reads: u64,
}

/// One fault for the current read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Injection {
    pub(crate) fault: Fault,
    /// Decides places in the body.
    pub(crate) seed: u64,
    pub(crate) stall: Duration,
}

impl FaultPlan {
    /// Makes a plan without faults, to add odds to.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            odds: Vec::new(),
            kinds: vec![RequestKind::Get],
            keys: Vec::new(),
            injections_left: u64::MAX,
            stall: STALL,
            reads: 0,
        }
    }

    /// Makes a plan in which every read meets `fault`.
    #[must_use]
    pub fn always(fault: Fault) -> Self {
        Self::seeded(0).with(fault, 1.0)
    }

    /// Makes a plan in which only the first read meets `fault`.
    #[must_use]
    pub fn once(fault: Fault) -> Self {
        Self::always(fault).limit(1)
    }

    /// Adds a fault that a read meets with this probability.
    ///
    /// # Panics
    /// When the probabilities added so far exceed 1.
    #[must_use]
    pub fn with(mut self, fault: Fault, probability: f64) -> Self {
        self.odds.push((fault, probability));
        let sum: f64 = self.odds.iter().map(|(_, probability)| probability).sum();
        assert!((0.0..=1.000_001).contains(&sum), "the probabilities of the faults sum to {sum}");
        self
    }

    /// Adds `faults` that a read meets with this probability in all, each equally likely.
    ///
    /// # Panics
    /// When the probabilities added so far exceed 1.
    #[must_use]
    pub fn with_any_of(self, faults: &[Fault], probability: f64) -> Self {
        let count = f64::from(u32::try_from(faults.len()).expect("there are fewer kinds of fault"));
        faults.iter().fold(self, |plan, fault| plan.with(*fault, probability / count))
    }

    /// Applies the plan to these kinds of request in place of reads.
    #[must_use]
    pub fn on(mut self, kinds: &[RequestKind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }

    /// Limits the plan to objects with a `bucket/key` that contains `part`. Adds to earlier calls.
    #[must_use]
    pub fn keys_containing(mut self, part: &str) -> Self {
        self.keys.push(part.to_owned());
        self
    }

    /// Limits the plan to `count` faults in all.
    #[must_use]
    pub fn limit(mut self, count: u64) -> Self {
        self.injections_left = count;
        self
    }

    /// Sets the length of stalls (default 30 s). A client that hangs up ends a stall.
    #[must_use]
    pub fn stall(mut self, duration: Duration) -> Self {
        self.stall = duration;
        self
    }

    /// Returns the fault for the next request, which is for `object`.
    pub(crate) fn next(&mut self, kind: RequestKind, object: &str) -> Option<Injection> {
        let applies =
            self.kinds.contains(&kind) && self.keys.iter().all(|part| object.contains(part));
        if self.injections_left == 0 || !applies {
            return None;
        }
        // Two draws a read, from a generator for this read.
        let mut random =
            fastrand::Rng::with_seed(self.seed ^ self.reads.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.reads += 1;
        let mut draw = random.f64();
        let fault = self.odds.iter().find_map(|(fault, probability)| {
            draw -= probability;
            (draw < 0.0).then_some(*fault)
        })?;
        self.injections_left -= 1;
        Some(Injection { fault, seed: random.u64(..), stall: self.stall })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(plan: &mut FaultPlan, reads: usize) -> Vec<Option<Fault>> {
        (0..reads)
            .map(|_| plan.next(RequestKind::Get, "bucket/key").map(|injection| injection.fault))
            .collect()
    }

    #[test]
    fn same_seed_gives_the_same_faults_in_the_same_order() {
        let plan = FaultPlan::seeded(7).with_any_of(Fault::ALL, 0.5);
        let first = faults(&mut plan.clone(), 1000);
        assert_eq!(first, faults(&mut plan.clone(), 1000));
        assert_ne!(first, faults(&mut FaultPlan::seeded(8).with_any_of(Fault::ALL, 0.5), 1000));
        let met = first.iter().flatten().count();
        assert!((400..600).contains(&met), "{met}");
    }

    #[test]
    fn a_plan_applies_to_its_keys_and_stops_at_its_limit() {
        let mut plan = FaultPlan::always(Fault::SlowDown).keys_containing("part-0").limit(2);
        assert!(plan.next(RequestKind::Get, "bucket/other").is_none());
        assert!(plan.next(RequestKind::Get, "bucket/part-00").is_some());
        assert!(plan.next(RequestKind::Get, "bucket/part-01").is_some());
        assert!(plan.next(RequestKind::Get, "bucket/part-02").is_none());
    }

    #[test]
    #[should_panic(expected = "sum to")]
    fn odds_beyond_certainty_are_refused() {
        let _ = FaultPlan::always(Fault::SlowDown).with(Fault::BitFlipped, 0.5);
    }
}
