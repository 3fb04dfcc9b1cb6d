//! The reads of a shard that no request has taken yet, in the order of need.
//!
//! A plan has many small reads. A request takes one of them, and those of its neighbours that fit
//! its length: see [`Gate`](crate::dataset::bucket::Gate). The rows that readers wait for come
//! first, and then the others in the order of their objects.
//!
//! Thread rule: the lock is held for microseconds. Non-goals: the order among shards.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use larder_dataset::Get;
use larder_extent::Filling;
use tokio_util::sync::CancellationToken;

use crate::cache::{InFlightFill, WantedRow};

/// The reads that are left.
#[derive(Debug)]
pub(super) struct Requests<'a> {
    gets: &'a [Get],
    /// For each region the bytes that reads fill, and the index of the read, by place.
    places: Vec<Vec<(Range<u64>, usize)>>,
    left: Mutex<Left>,
    all_taken: CancellationToken,
}

#[derive(Debug)]
struct Left {
    is_left: Vec<bool>,
    /// No read before this one is left.
    first: usize,
}

impl<'a> Requests<'a> {
    /// Lists the reads of parts that are not in.
    pub(super) fn new(gets: &'a [Get], filling: &Filling) -> Self {
        let mut places = vec![Vec::new(); filling.layout().region_count()];
        for (index, get) in gets.iter().enumerate() {
            for part in &get.parts {
                places[part.tensor].push((part.region.clone(), index));
            }
        }
        places.iter_mut().for_each(|region| region.sort_unstable_by_key(|(range, _)| range.start));
        let is_in = |get: &Get| {
            get.parts.iter().all(|part| filling.is_ready(part.tensor, part.region.clone()))
        };
        let is_left = gets.iter().map(|get| !is_in(get)).collect();
        let requests = Self {
            gets,
            places,
            left: Mutex::new(Left { is_left, first: 0 }),
            all_taken: CancellationToken::new(),
        };
        requests.look(&mut requests.lock());
        requests
    }

    /// Takes the reads of the next request, of about `bytes`, a power of two. `None`: none is left.
    pub(super) fn next(&self, flight: &InFlightFill, bytes: u64) -> Option<Range<usize>> {
        let mut left = self.lock();
        let wanted = flight.next_wanted(|row| self.find(&left, row));
        let at = wanted.or_else(|| self.look(&mut left))?;
        let mut range = at..at + 1;
        let joins = |left: &Left, one: usize| {
            left.is_left[one] && left.is_left[one + 1] && {
                let [first, second] = [&self.gets[one], &self.gets[one + 1]];
                first.is_near(second, bytes)
            }
        };
        while range.start > 0 && joins(&left, range.start - 1) {
            range.start -= 1;
        }
        while range.end < self.gets.len() && joins(&left, range.end - 1) {
            range.end += 1;
        }
        left.is_left[range.clone()].fill(false);
        self.look(&mut left);
        flight.next_wanted(|row| self.find(&left, row));
        Some(range)
    }

    /// Waits for `future` unless all reads are taken first.
    pub(super) async fn unless_all_taken<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.all_taken.run_until_cancelled(future).await
    }

    /// Returns the first read that is left.
    fn look(&self, left: &mut Left) -> Option<usize> {
        let next = left.is_left[left.first..].iter().position(|&is_left| is_left);
        left.first = next.map_or(left.is_left.len(), |next| left.first + next);
        if next.is_none() {
            self.all_taken.cancel();
        }
        next.map(|_| left.first)
    }

    /// Returns the first read that is left of those that fill a row.
    fn find(&self, left: &Left, row: &WantedRow) -> Option<usize> {
        let places = self.places.get(row.region)?;
        let first = places.partition_point(|(range, _)| range.end <= row.range.start);
        let touching = places[first..].iter().take_while(|(range, _)| range.start < row.range.end);
        touching.map(|&(_, index)| index).find(|&index| left.is_left[index])
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_base::{ShardId, limits};
    use larder_extent::{ExtentId, PagePreference};

    use super::*;
    use crate::cache::ShardPlan;
    use crate::testing::{CacheFixture, Folder};

    const ROW_BYTES: usize = 100_000;

    /// The plan of a shard of forty rows, each a read of its own, and an extent for it.
    fn shard() -> (ShardPlan, Arc<Filling>) {
        let folder = Folder::new(40, ROW_BYTES, 1 << 30, false);
        let fixture = CacheFixture::unmanned(&folder, 1 << 30);
        let leaf = folder.leaf(&fixture.dataset, 0);
        let plan = ShardPlan::new(fixture.dataset.manifest(), &leaf, 0).unwrap();
        let (id, parts) = (ExtentId::from_bytes([1; 16]), plan.parts());
        let filling = Filling::create(id, plan.layout.clone(), parts, PagePreference::Small);
        (plan, filling.unwrap())
    }

    fn row(reader: u64, row: u64) -> WantedRow {
        let bytes = ROW_BYTES as u64;
        WantedRow { reader, region: 0, range: row * bytes..(row + 1) * bytes }
    }

    fn all(requests: &Requests<'_>, flight: &InFlightFill, bytes: u64) -> Vec<Range<usize>> {
        std::iter::from_fn(|| requests.next(flight, bytes)).collect()
    }

    #[test]
    fn rows_that_readers_wait_for_are_requested_first_and_alone() {
        let (plan, filling) = shard();
        assert_eq!(plan.gets.len(), 40);
        let flight = InFlightFill::new(ShardId::from_bytes([1; 16]));
        for (reader, wanted) in [(0, 30), (0, 7), (1, 30), (1, 12)] {
            flight.want(row(reader, wanted));
        }
        let requests = Requests::new(&plan.gets, &filling);
        let first = [(); 3].map(|()| requests.next(&flight, limits::FILL_PIECE_BYTES).unwrap());
        assert_eq!(first.map(|gets| gets.start), [30, 7, 12]);
        let others = all(&requests, &flight, limits::FILL_PIECE_BYTES);
        assert!(others.into_iter().flatten().eq((0..40).filter(|at| ![7, 12, 30].contains(at))));
    }

    #[test]
    fn long_requests_are_blocks_whatever_readers_wait_for() {
        let (plan, filling) = shard();
        let flight = InFlightFill::new(ShardId::from_bytes([1; 16]));
        let requests = Requests::new(&plan.gets, &filling);
        flight.want(row(0, 25));
        let requests = all(&requests, &flight, 1 << 20);
        // The header of the file comes before its rows.
        assert_eq!(requests, [21..32, 0..11, 11..21, 32..40]);
    }

    #[test]
    fn parts_that_are_in_are_not_requested_again() {
        let (plan, filling) = shard();
        let flight = InFlightFill::new(ShardId::from_bytes([1; 16]));
        let mut part = filling.take_part(1).unwrap();
        part.write(&[7; ROW_BYTES]).unwrap();
        part.finish().unwrap();
        flight.want(row(0, 1));
        let requests = Requests::new(&plan.gets, &filling);
        let requests = all(&requests, &flight, limits::FILL_PART_BYTES);
        assert_eq!(requests, [0..1, 2..40]);
    }
}
