//! Counts of the server's work.
//!
//! A request counts before its answer, and bytes count when the connection takes them. So a client
//! that has its answer finds it in the counts. One lock guards the counts for nanoseconds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::fault::Fault;

/// Ranges in memory, about 24 MB. Later ones only count in [`ObjectReads::forgotten`].
const RANGES_MAX: usize = 1_000_000;

/// The server's work since its start or the last reset.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// HTTP requests of any kind, refused ones included.
    pub requests: u64,
    /// GET requests: object reads and lists.
    pub get_requests: u64,
    /// GETs answered with an object's bytes (200 or 206), faulty answers included.
    pub object_reads: u64,
    /// Body bytes handed to connections, of any answer.
    pub bytes_sent: u64,
    /// Faults injected, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The bytes that were read, by object.
    #[serde(skip)]
    pub reads: ObjectReads,
}

impl Counts {
    /// Returns the number of injected faults of all kinds.
    #[must_use]
    pub fn faults_injected(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// The requested and granted ranges, by object (`bucket/key`), in order of arrival.
#[derive(Clone, Debug, Default)]
pub struct ObjectReads {
    ranges: BTreeMap<String, Vec<Range<u64>>>,
    /// For each range its number among all reads.
    arrivals: BTreeMap<String, Vec<usize>>,
    remembered: usize,
    /// Reads after the limit, without a stored range. A test that proves something asserts 0.
    pub forgotten: u64,
}

impl ObjectReads {
    /// Returns the ranges read of one object, named `bucket/key`.
    #[must_use]
    pub fn of(&self, object: &str) -> &[Range<u64>] {
        self.ranges.get(object).map_or(&[], Vec::as_slice)
    }

    /// Returns all reads in order of arrival: the object, and the range.
    #[must_use]
    pub fn in_order(&self) -> Vec<(&str, Range<u64>)> {
        let mut reads = Vec::new();
        for (object, ranges) in &self.ranges {
            let arrivals = self.arrivals[object].iter();
            reads.extend(arrivals.zip(ranges).map(|(at, range)| (at, object.as_str(), range)));
        }
        reads.sort_unstable_by_key(|(at, ..)| *at);
        reads.into_iter().map(|(_, object, range)| (object, range.clone())).collect()
    }

    /// Returns the number of bytes of an object that were read more than once.
    #[must_use]
    pub fn again(&self, object: &str) -> u64 {
        let mut reads = self.of(object).to_vec();
        reads.sort_by_key(|read| read.start);
        let mut read_to = 0;
        let overlap = |read: Range<u64>| {
            let again = read.end.min(read_to).saturating_sub(read.start);
            read_to = read_to.max(read.end);
            again
        };
        reads.into_iter().map(overlap).sum()
    }

    /// Returns all objects that were read.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &[Range<u64>])> {
        self.ranges.iter().map(|(object, ranges)| (object.as_str(), ranges.as_slice()))
    }

    /// Returns the bytes read more than once, counting each repetition. 0: no byte was read twice.
    #[must_use]
    pub fn bytes_read_again(&self) -> u64 {
        self.ranges.values().map(|ranges| overlap_bytes(ranges)).sum()
    }

    fn add(&mut self, object: &str, range: Range<u64>) {
        if self.remembered == RANGES_MAX {
            self.forgotten += 1;
            return;
        }
        self.remembered += 1;
        match self.ranges.get_mut(object).zip(self.arrivals.get_mut(object)) {
            Some((ranges, arrivals)) => {
                ranges.push(range);
                arrivals.push(self.remembered);
            }
            None => {
                self.ranges.insert(object.to_owned(), vec![range]);
                self.arrivals.insert(object.to_owned(), vec![self.remembered]);
            }
        }
    }
}

/// Returns the bytes of `ranges` beyond their union.
fn overlap_bytes(ranges: &[Range<u64>]) -> u64 {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.start);
    let (mut again, mut covered_to) = (0, 0);
    for range in sorted {
        again += covered_to.min(range.end).saturating_sub(range.start);
        covered_to = covered_to.max(range.end);
    }
    again
}

/// The counters behind [`Counts`], shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct Counters(Mutex<Counts>);

impl Counters {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn snapshot(&self) -> Counts {
        self.lock().clone()
    }

    /// Returns the counts without the list of ranges, which may be long.
    pub(crate) fn summary(&self) -> Counts {
        let counts = self.lock();
        Counts { faults: counts.faults.clone(), reads: ObjectReads::default(), ..*counts }
    }

    pub(crate) fn reset(&self) {
        let emptied = std::mem::take(&mut *self.lock());
        drop(emptied);
    }

    pub(crate) fn request(&self, is_get: bool) {
        let mut counts = self.lock();
        counts.requests += 1;
        counts.get_requests += u64::from(is_get);
    }

    pub(crate) fn object_read(&self, object: &str, range: Range<u64>) {
        let mut counts = self.lock();
        counts.object_reads += 1;
        counts.reads.add(object, range);
    }

    pub(crate) fn fault(&self, fault: Fault) {
        *self.lock().faults.entry(fault.name()).or_default() += 1;
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.lock().bytes_sent += u64::try_from(bytes).expect("usize is at most 64 bits");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_beyond_the_union_count_as_reread() {
        assert_eq!(overlap_bytes(&[0..10, 10..20]), 0);
        assert_eq!(overlap_bytes(&[5..10, 0..6]), 1);
        assert_eq!(overlap_bytes(&[0..10, 2..4, 8..12]), 4);
        assert_eq!(overlap_bytes(&[0..10, 0..10, 0..10]), 20);
    }
}
