//! One shard shared by several snapshots, of which one pins a wrong checksum and one pins none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use larder_dataset::ShardId;
use larder_extent::{ExtentId, Filling, PagePreference, Sealed};
use larder_wire::{Error, ErrorKind, limits};

use super::{ANN, MIB};
use crate::cache::books::Look;
use crate::cache::{Awaited, Filled, Found, GaveUp, Group, Job, Leased};
use crate::catalog::Dataset;
use crate::clock;
use crate::fill::{Priority, ShardPlan};
use crate::pin::{self, Proof};
use crate::testing::{Folder, Kitchen, landed};
use Asker::{Any, Right, Wrong};

/// A caller, by the pin of its snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    Any,
    Right,
    Wrong,
}

const ORDERS: [[Asker; 3]; 6] = [
    [Any, Right, Wrong],
    [Any, Wrong, Right],
    [Right, Any, Wrong],
    [Right, Wrong, Any],
    [Wrong, Any, Right],
    [Wrong, Right, Any],
];

const SHARD_BYTES: u64 = 128_000;
/// The requested shard. Its last byte is the one that differs.
const SHARD: u32 = 1;

struct Shared {
    folder: Folder,
    kitchen: Kitchen,
    right: Arc<Dataset>,
    wrong: Arc<Dataset>,
}

impl Shared {
    fn unmanned() -> Self {
        let folder = Folder::new(256, 1000, SHARD_BYTES, false);
        let kitchen = Kitchen::unmanned(&folder, MIB);
        folder.damage();
        folder.index(SHARD_BYTES, true);
        let wrong = kitchen.open(&folder);
        folder.damage();
        folder.index(SHARD_BYTES, true);
        let right = kitchen.open(&folder);
        let pinned = |dataset: &Dataset| dataset.manifest().shard(SHARD).checksum.unwrap();
        assert_ne!(pinned(&right), pinned(&wrong));
        let id = |dataset: &Dataset| dataset.manifest().shard(SHARD).id;
        assert_eq!([id(&right), id(&wrong)], [id(&kitchen.dataset); 2], "one shard");
        Self { folder, kitchen, right, wrong }
    }

    fn manned() -> Self {
        let shared = Self::unmanned();
        shared.kitchen.start_workers();
        shared
    }

    fn dataset(&self, asker: Asker) -> &Arc<Dataset> {
        match asker {
            Any => &self.kitchen.dataset,
            Right => &self.right,
            Wrong => &self.wrong,
        }
    }

    fn find(&self, asker: Asker) -> Found {
        let dataset = self.dataset(asker);
        self.kitchen.cache.find(dataset, &[SHARD], Priority::Demand).pop().unwrap()
    }

    fn in_flight(&self, asker: Asker) -> Awaited {
        match self.find(asker) {
            Found::InFlight(flight) => flight,
            other => panic!("{asker:?} found {other:?}"),
        }
    }

    fn lease(&self, asker: Asker) -> Leased {
        self.kitchen.cache.lease(self.dataset(asker), SHARD, ANN)
    }

    /// Checks that each caller gets the shard, except the one with another checksum pinned.
    fn check(&self, asker: Asker, came: Result<Arc<Sealed>, Arc<Error>>) {
        match (asker, came) {
            (Any | Right, Ok(sealed)) => self.folder.check(self.dataset(asker), SHARD, &sealed),
            (Wrong, Err(why)) => {
                assert_eq!(why.kind(), ErrorKind::DataLoss, "{why}");
                assert!(why.message().starts_with("shard 1 of file://"), "{why}");
                assert!(why.message().ends_with("index the dataset again"), "{why}");
            }
            (asker, came) => panic!("{asker:?} got {came:?}"),
        }
    }

    fn ask(&self, asker: Asker) {
        let came = match self.find(asker) {
            Found::Resident(sealed) => Ok(sealed),
            Found::InFlight(flight) => landed(&flight),
            Found::NotKept => panic!("{asker:?} finds that it is not kept"),
        };
        self.check(asker, came);
    }

    fn id(&self) -> ShardId {
        self.right.manifest().shard(SHARD).id
    }

    /// Returns the outcome of a look by a caller, this much later.
    fn look_in(&self, asker: Asker, later: Duration) -> Look {
        let (dataset, now) = (self.dataset(asker), clock::now() + later);
        let pinned = dataset.manifest().shard(SHARD).checksum;
        let group = Group::Shards(dataset.snapshot());
        self.kitchen.cache.lock().look(self.id(), group, pinned, now)
    }

    /// Returns how often the shard was read from the origin.
    fn reads(&self) -> u64 {
        self.kitchen.counters.origin_bytes.get() / SHARD_BYTES
    }

    fn evictions(&self) -> u64 {
        self.kitchen.counters.evictions.get()
    }

    fn recalls(&self) -> Arc<AtomicUsize> {
        let recalls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&recalls);
        self.kitchen.cache.on_recall(Box::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        recalls
    }

    fn next_job(&self) -> Job {
        self.kitchen.runtime.block_on(self.kitchen.cache.next_job())
    }
}

#[test]
fn wrong_pin_fails_only_snapshots_that_have_it() {
    for order in ORDERS {
        let shared = Shared::manned();
        order.into_iter().for_each(|asker| shared.ask(asker));
        let (reads, discarded) = match order {
            [Wrong, ..] => (2, 0),
            // One read can't tell which bytes are right.
            [Any, Wrong, _] => (3, 1),
            _ => (1, 0),
        };
        assert_eq!((shared.reads(), shared.evictions()), (reads, discarded), "{order:?}");
        for asker in order.repeat(3) {
            shared.ask(asker);
        }
        assert_eq!((shared.reads(), shared.evictions()), (reads, discarded), "{order:?}");
        let listed = shared.kitchen.cache.failures();
        assert_eq!(listed.len(), usize::from(reads > 1), "once, not for each request: {order:?}");
    }
}

#[test]
fn readers_of_one_fill_get_what_they_pin_or_an_error() {
    for order in ORDERS {
        let shared = Shared::unmanned();
        let flights = order.map(|asker| shared.in_flight(asker));
        shared.kitchen.start_workers();
        for (asker, flight) in order.into_iter().zip(flights) {
            shared.check(asker, landed(&flight));
        }
        let wrong_first = order.iter().find(|&&asker| asker != Any) == Some(&Wrong);
        assert_eq!(shared.reads(), if wrong_first { 2 } else { 1 }, "{order:?}");
        order.into_iter().for_each(|asker| shared.ask(asker));
        assert_eq!(shared.evictions(), 0, "{order:?}");
    }
}

#[test]
fn wrong_checksum_is_listed_for_the_snapshot_that_pins_it() {
    let shared = Shared::unmanned();
    let flights = [Any, Wrong].map(|asker| shared.in_flight(asker));
    shared.kitchen.start_workers();
    assert!(landed(&flights[1]).is_err());
    let listed = shared.kitchen.cache.failures();
    let [failure] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((failure.snapshot, failure.shard), (shared.wrong.snapshot(), SHARD));
    assert_eq!((failure.attempts, failure.why.kind()), (2, ErrorKind::DataLoss));
    let counters = &shared.kitchen.counters;
    assert_eq!((counters.fills_completed.get(), counters.fills_failed.get()), (1, 1));
}

#[test]
fn leased_shard_stays_despite_another_pin() {
    let shared = Shared::manned();
    let recalls = shared.recalls();
    shared.ask(Right);
    assert!(matches!(shared.lease(Right), Leased::Granted(_)));
    shared.ask(Wrong);
    let Leased::Failed(why) = shared.lease(Wrong) else { panic!("leased to whom it is wrong for") };
    shared.check(Wrong, Err(why));
    assert!(matches!(shared.lease(Any), Leased::Granted(_)));
    assert_eq!((recalls.load(Ordering::Relaxed), shared.reads()), (0, 1));
}

#[test]
fn doubted_leased_shard_is_recalled_once() {
    let shared = Shared::manned();
    let recalls = shared.recalls();
    shared.ask(Any);
    assert!(matches!(shared.lease(Any), Leased::Granted(_)));
    assert!(matches!(shared.find(Wrong), Found::NotKept));
    assert_eq!(recalls.load(Ordering::Relaxed), 1);
    shared.kitchen.cache.release_all(ANN);
    [Wrong, Any].into_iter().for_each(|asker| shared.ask(asker));
    assert!(matches!(shared.lease(Any), Leased::Granted(_)));
    [Wrong, Any, Right].into_iter().for_each(|asker| shared.ask(asker));
    assert_eq!((recalls.load(Ordering::Relaxed), shared.reads()), (1, 3));
}

#[test]
fn damage_read_twice_is_replaced_after_the_origin_recovers() {
    let shared = Shared::manned();
    shared.folder.damage();
    let why = landed(&shared.in_flight(Right)).unwrap_err();
    assert_eq!(why.kind(), ErrorKind::DataLoss, "{why}");
    shared.folder.damage();
    assert!(matches!(shared.look_in(Right, Duration::ZERO), Look::Wrong), "believed for a while");
    let Look::Doubted(evicted) = shared.look_in(Right, limits::READ_TWICE_HOLD) else {
        panic!("kept for ever")
    };
    shared.kitchen.cache.bury(evicted);
    // `Right` is held off by its own failed fill. A shard read for another caller serves all.
    [Any, Right].into_iter().for_each(|asker| shared.ask(asker));
    assert!(matches!(shared.look_in(Wrong, limits::READ_TWICE_HOLD), Look::Wrong), "pinned");
    assert_eq!((shared.reads(), shared.evictions()), (3, 1));
}

#[test]
fn mapped_shard_is_not_condemned_over_another_pin() {
    let shared = Shared::manned();
    let recalls = shared.recalls();
    assert!(landed(&shared.in_flight(Wrong)).is_err());
    assert!(matches!(shared.lease(Any), Leased::Granted(_)));
    for _ in 0..3 {
        let look = shared.look_in(Wrong, 2 * limits::READ_TWICE_HOLD);
        assert!(matches!(look, Look::Wrong), "not condemned, and not to be had by range");
    }
    shared.ask(Any);
    assert_eq!((recalls.load(Ordering::Relaxed), shared.reads()), (0, 2));
    shared.kitchen.cache.release_all(ANN);
    let look = shared.look_in(Wrong, 2 * limits::READ_TWICE_HOLD);
    assert!(matches!(look, Look::Doubted(_)), "nobody maps it any more");
}

#[test]
fn peer_with_another_pin_gets_no_shard_and_evicts_none() {
    let shared = Shared::manned();
    shared.ask(Any);
    assert!(shared.kitchen.cache.resident(&shared.wrong, SHARD).is_none());
    assert!(shared.kitchen.cache.resident(&shared.right, SHARD).is_some());
    assert!(matches!(shared.find(Any), Found::Resident(_)));
    assert_eq!(shared.evictions(), 0);
}

#[test]
fn checksum_failure_is_retried_at_once_without_that_pin() {
    let shared = Shared::unmanned();
    let [wrong, any] = [Wrong, Any].map(|asker| shared.in_flight(asker));
    let job = shared.next_job();
    let pin = job.flight().pin().unwrap().clone();
    job.give_up(GaveUp::over(&pin, pin::not_met()));
    assert_eq!(landed(&wrong).unwrap_err().kind(), ErrorKind::DataLoss);
    assert_eq!(landed(&any).unwrap_err().kind(), ErrorKind::ResourceExhausted);
    shared.kitchen.start_workers();
    shared.ask(Any);
    // `Wrong` is held off, and does not discard the shard that another caller read.
    let why = landed(&shared.in_flight(Wrong)).unwrap_err();
    assert!(why.message().contains("differently each time"), "{why}");
    shared.ask(Any);
    shared.ask(Right);
    assert_eq!((shared.reads(), shared.evictions()), (1, 0));
}

#[test]
fn reader_joining_after_the_comparison_asks_again() {
    let shared = Shared::unmanned();
    let any = shared.in_flight(Any);
    let job = shared.next_job();
    let plan = ShardPlan::new(job.dataset().manifest(), SHARD).unwrap();
    let id = ExtentId::from_bytes(*job.flight().id().as_bytes());
    let filling = Filling::create(id, plan.layout.clone(), plan.parts(), PagePreference::Auto);
    let filling = filling.unwrap();
    let mut part = filling.take_part(0).unwrap();
    part.write(&(128..256).flat_map(|row| shared.folder.row(row)).collect::<Vec<_>>()).unwrap();
    part.finish().unwrap();
    let sealed = filling.seal().unwrap();
    let late = shared.in_flight(Wrong);
    job.complete(Filled { sealed, proof: Proof::None });
    shared.check(Any, landed(&any));
    assert_eq!(landed(&late).unwrap_err().kind(), ErrorKind::ResourceExhausted);
    assert!(shared.kitchen.cache.failures().is_empty(), "nothing is known of it yet");
    shared.kitchen.start_workers();
    shared.ask(Wrong);
}
