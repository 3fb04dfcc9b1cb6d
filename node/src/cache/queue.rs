//! The queue of admitted fills that have not begun, most urgent first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use larder_base::ShardId;
use larder_store::FillPermit;

use crate::cache::InFlightFill;
use crate::dataset::Dataset;
use crate::dataset::bucket::FillShare;

/// How urgent a fill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// A reader waits for its rows.
    Demand,
    /// A reader will want it soon.
    Prefetch,
    /// It must be here in the end. Readers must not notice its transfer.
    Background,
}

/// One fill that waits for a worker.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) dataset: Arc<Dataset>,
    /// The index of the shard in that dataset.
    pub(crate) shard: u32,
    pub(crate) flight: Arc<InFlightFill>,
    pub(crate) permit: FillPermit<ShardId>,
}

type QueueKey = (Priority, u64);

/// A queue of at most `limit` fills: in order of priority, then of arrival.
#[derive(Debug)]
pub(crate) struct Queue {
    limit: usize,
    arrivals: u64,
    fills: BTreeMap<QueueKey, Queued>,
    places: HashMap<ShardId, QueueKey>,
}

/// The outcome of adding a fill to the queue.
#[derive(Debug)]
pub(crate) enum Pushed {
    /// The fill is queued.
    Queued,
    /// The fill is queued in place of this one, which was less urgent.
    Displaced(Queued),
    /// The fill is not queued: all queued fills are at least as urgent.
    Full(Queued),
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, arrivals: 0, fills: BTreeMap::new(), places: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.fills.len()
    }

    /// Adds a fill. In a full queue it displaces the youngest of the least urgent fills, if that
    /// one is less urgent than the new fill.
    pub(crate) fn push(&mut self, queued: Queued, priority: Priority) -> Pushed {
        if self.fills.len() < self.limit {
            self.insert(queued, priority);
            return Pushed::Queued;
        }
        match self.fills.last_entry() {
            Some(last) if last.key().0 > priority => {
                let displaced = last.remove();
                self.places.remove(&displaced.flight.id());
                self.insert(queued, priority);
                Pushed::Displaced(displaced)
            }
            _ => Pushed::Full(queued),
        }
    }

    /// Takes back a fill that lost its worker, even into a full queue. There are no more such fills
    /// than workers.
    pub(crate) fn push_again(&mut self, queued: Queued) {
        self.insert(queued, Priority::Demand);
    }

    /// Moves a queued fill forward if another request for it is more urgent.
    pub(crate) fn raise(&mut self, id: ShardId, priority: Priority) {
        if let Some(&place) = self.places.get(&id).filter(|place| place.0 > priority)
            && let Some(queued) = self.fills.remove(&place)
        {
            self.insert(queued, priority);
        }
    }

    /// Takes the most urgent fill of those whose buckets have a share of the workers left.
    pub(crate) fn pop(&mut self) -> Option<(Queued, FillShare)> {
        let begun = |(&place, queued): (&QueueKey, &Queued)| {
            queued.dataset.bucket().begin_fill().map(|share| (place, share))
        };
        let (place, share) = self.fills.iter().find_map(begun)?;
        let queued = self.fills.remove(&place)?;
        self.places.remove(&queued.flight.id());
        Some((queued, share))
    }

    /// Takes all fills.
    pub(crate) fn into_all(self) -> impl Iterator<Item = Queued> {
        self.fills.into_values()
    }

    fn insert(&mut self, queued: Queued, priority: Priority) {
        self.arrivals += 1;
        let place = (priority, self.arrivals);
        self.places.insert(queued.flight.id(), place);
        self.fills.insert(place, queued);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use larder_store::{Budget, KeepWhatYouHave, Outcome, Store};

    use super::*;
    use crate::clock;
    use crate::testing::{CacheFixture, Folder};

    /// Creates fills by number, as a store admits them.
    struct Admission {
        store: Store<ShardId, u8, Arc<InFlightFill>, ()>,
        fixture: CacheFixture,
        now: Instant,
    }

    impl Admission {
        fn new() -> Self {
            let store = Store::new(Budget::new(1 << 20), KeepWhatYouHave::default(), 0);
            let folder = Folder::new(2, 64, 4096, false);
            Self { store, fixture: CacheFixture::unmanned(&folder, 0), now: clock::now() }
        }

        fn fill(&mut self, number: u8) -> Queued {
            let id = ShardId::from_bytes([number; 16]);
            let make = || Arc::new(InFlightFill::new(id));
            let outcome = self.store.request(id, 0, 1, self.now, make);
            let Outcome::Admitted { handle, permit } = outcome else { panic!("{outcome:?}") };
            let dataset = Arc::clone(&self.fixture.dataset);
            Queued { dataset, shard: 0, flight: handle, permit }
        }
    }

    fn number(queued: &Queued) -> u8 {
        queued.flight.id().as_bytes()[0]
    }

    fn numbers(queue: &mut Queue) -> Vec<u8> {
        std::iter::from_fn(|| queue.pop()).map(|(queued, _)| number(&queued)).collect()
    }

    #[test]
    fn demand_precedes_prefetch_in_order_of_arrival() {
        let (mut admission, mut queue) = (Admission::new(), Queue::new(9));
        for (fill, priority) in [Priority::Prefetch, Priority::Demand].repeat(2).iter().enumerate()
        {
            let fill = admission.fill(u8::try_from(fill).unwrap());
            assert!(matches!(queue.push(fill, *priority), Pushed::Queued));
        }
        queue.raise(ShardId::from_bytes([2; 16]), Priority::Demand);
        queue.raise(ShardId::from_bytes([77; 16]), Priority::Demand);
        assert_eq!(numbers(&mut queue), [1, 3, 2, 0]);
    }

    #[test]
    fn demand_displaces_only_the_youngest_prefetch_when_full() {
        let (mut admission, mut queue) = (Admission::new(), Queue::new(2));
        let _ = queue.push(admission.fill(0), Priority::Prefetch);
        let _ = queue.push(admission.fill(1), Priority::Prefetch);
        let full = queue.push(admission.fill(2), Priority::Prefetch);
        assert!(matches!(full, Pushed::Full(fill) if number(&fill) == 2));
        let displaced = queue.push(admission.fill(3), Priority::Demand);
        assert!(matches!(displaced, Pushed::Displaced(fill) if number(&fill) == 1));
        let _ = queue.push(admission.fill(4), Priority::Demand);
        let full = queue.push(admission.fill(5), Priority::Demand);
        assert!(matches!(full, Pushed::Full(fill) if number(&fill) == 5));
        assert_eq!(numbers(&mut queue), [3, 4]);
    }

    #[test]
    fn fill_that_lost_its_worker_is_queued_when_full() {
        let (mut admission, mut queue) = (Admission::new(), Queue::new(1));
        let _ = queue.push(admission.fill(0), Priority::Prefetch);
        queue.push_again(admission.fill(1));
        assert_eq!(numbers(&mut queue), [1, 0]);
        assert_eq!(queue.len(), 0);
    }
}
