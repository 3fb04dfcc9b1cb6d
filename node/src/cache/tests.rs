//! The cache and its fills over a folder, in this process.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use larder_base::{ErrorKind, RowRef, ShardId, limits};
use larder_extent::{Attached, ExtentId, Filling, PagePreference};

use super::{FoundShard, HolderId, Leased};
use crate::clock;
use crate::dataset::Dataset;
use crate::testing::{CacheFixture, Folder, landed, until};
use crate::{
    cache::{Priority, ShardPlan},
    fill::RowWanted,
};

const ANN: HolderId = HolderId(1);
const MIB: u64 = 1 << 20;

/// 16 shards of 64 rows of 4 KiB.
fn small() -> Folder {
    Folder::new(1024, 4096, 256 << 10, false)
}

#[test]
fn a_filled_shard_has_the_rows_of_its_file() {
    let folder = small();
    let fixture = CacheFixture::new(&folder, 16 * MIB);
    assert_eq!(fixture.dataset.manifest().shard_count(), 16);
    for shard in 0..16 {
        let sealed = fixture.get(shard).unwrap();
        folder.check(&fixture.dataset, shard, &sealed);
        assert!(matches!(fixture.find(shard), FoundShard::Resident(_)));
    }
    assert_eq!(fixture.counters.fills_completed.get(), 16);
    assert_eq!(fixture.counters.origin_bytes.get(), 1024 * 4096);
}

#[test]
fn a_cold_shard_is_read_once_for_64_threads() {
    let folder = small();
    let fixture = CacheFixture::new(&folder, 16 * MIB);
    let start = Barrier::new(64);
    let ask = || {
        start.wait();
        folder.check(&fixture.dataset, 3, &fixture.get(3).unwrap());
    };
    thread::scope(|scope| (0..64).for_each(|_| drop(scope.spawn(ask))));
    assert_eq!(fixture.counters.origin_bytes.get(), 256 << 10);
    assert!(fixture.counters.origin_requests.get() <= (256 << 10) / limits::FILL_PIECE_BYTES);
}

#[test]
fn background_fill_is_throttled_until_a_reader_waits() {
    let fixture = CacheFixture::unmanned(&small(), 1 << 20);
    let is_hurried = |priority| match fixture.cache.find(&fixture.dataset, &[0], priority).pop() {
        Some(FoundShard::InFlight(flight)) => flight.is_hurried(),
        _ => panic!("it is not in flight"),
    };
    assert!(!is_hurried(Priority::Background));
    assert!(!is_hurried(Priority::Background));
    assert!(is_hurried(Priority::Demand));
    assert!(is_hurried(Priority::Background), "somebody waits all the same");
}

#[test]
fn rows_of_a_shard_without_room_are_read_by_range() {
    let folder = small();
    let one = CacheFixture::extent_bytes(&folder, 64);
    let fixture = CacheFixture::new(&folder, 2 * one + 4096);
    fixture.get(0).unwrap();
    fixture.get(1).unwrap();
    assert!(matches!(fixture.find(2), FoundShard::NotKept));
    assert!(matches!(fixture.cache.lease(&fixture.dataset, 2, ANN), Leased::NotKept));
    let rows = [(2, 5), (2, 6), (15, 63), (2, 0)].map(|(shard, row)| RowRef { shard, row });
    let wanted: Vec<_> = (0..)
        .zip(rows)
        .map(|(index, row)| RowWanted { row, tensor: 0, at: index * 4096 })
        .collect();
    let requests = fixture.counters.origin_requests.get();
    let _room = fixture.read_through.reserve(4 * 4096);
    let mut target = vec![0; 4 * 4096];
    let places = fixture.places();
    fixture.read_through.read_rows(&fixture.dataset, &places, &wanted, &mut target).unwrap();
    for (RowRef { shard, row }, bytes) in rows.into_iter().zip(target.chunks(4096)) {
        assert_eq!(bytes, folder.row(shard as usize * 64 + row as usize));
    }
    assert_eq!(
        fixture.counters.origin_requests.get() - requests,
        2,
        "rows that lie close go together"
    );
    assert_eq!(fixture.cache.usage().resident.shards, 4, "two shards, manifest and leaf");
}

#[test]
fn rows_that_overlap_in_their_target_are_refused() {
    let folder = small();
    let fixture = CacheFixture::new(&folder, MIB);
    let wanted = |row, at| RowWanted { row: RowRef { shard: 0, row }, tensor: 0, at };
    for rows in [[wanted(0, 0), wanted(7, 4095)], [wanted(0, 0), wanted(7, 4097)]] {
        let (places, target) = (fixture.places(), &mut [0; 8192]);
        let refused = fixture.read_through.read_rows(&fixture.dataset, &places, &rows, target);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Internal);
    }
}

#[test]
fn fill_continues_with_its_parts_after_its_worker_died() {
    let folder = Folder::new(24, 1 << 20, 32 * MIB, false);
    let fixture = CacheFixture::unmanned(&folder, 32 * MIB);
    let FoundShard::InFlight(flight) = fixture.find(0) else { panic!("not in flight") };
    let leaf = folder.leaf(&fixture.dataset, 0);
    let plan = ShardPlan::new(fixture.dataset.manifest(), &leaf, 0).unwrap();
    let first_bytes = plan.gets[0].bytes();
    let doomed = async {
        let job = fixture.cache.next_job().await;
        let id = ExtentId::from_bytes(*flight.id().as_bytes());
        let filling =
            Filling::create(id, plan.layout.clone(), plan.parts(), PagePreference::Auto).unwrap();
        job.flight().begin_attempt();
        job.flight().begin(Arc::clone(&filling));
        let mut part = filling.take_part(0).unwrap();
        let rows = (0..8).flat_map(|row| folder.row(row)).collect::<Vec<_>>();
        part.write(&rows[..usize::try_from(first_bytes).unwrap()]).unwrap();
        part.finish().unwrap();
        let _half_done = filling.take_part(1).unwrap();
        job
    };
    drop(fixture.runtime.block_on(doomed));
    assert_eq!(fixture.cache.usage().queued, 1);
    fixture.start_workers();
    folder.check(&fixture.dataset, 0, &landed(&flight).unwrap());
    let read = fixture.counters.origin_bytes.get();
    assert_eq!(read, 24 * MIB - first_bytes, "the first part is not read again");
    assert_eq!(fixture.counters.fills_handed_over.get(), 1);
}

#[test]
fn fill_without_readers_is_dropped_with_its_worker() {
    let folder = small();
    let fixture = CacheFixture::unmanned(&folder, MIB);
    drop(fixture.find(0));
    drop(fixture.runtime.block_on(fixture.cache.next_job()));
    assert_eq!(fixture.cache.usage().filling.bytes, 0);
    assert_eq!(fixture.cache.usage().orphaned.bytes, 0);
    assert_eq!(fixture.cache.usage().queued, 0);
}

#[test]
fn fill_is_abandoned_after_repeated_worker_deaths() {
    let folder = small();
    let fixture = CacheFixture::unmanned(&folder, MIB);
    let FoundShard::InFlight(flight) = fixture.find(0) else { panic!("not in flight") };
    for _ in 0..3 {
        let job = fixture.runtime.block_on(fixture.cache.next_job());
        job.flight().begin_attempt();
        drop(job);
    }
    assert_eq!(landed(&flight).unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(fixture.cache.usage().filling.bytes, 0);
}

#[test]
fn changed_file_is_reported_and_not_reread_at_once() {
    let folder = small();
    let fixture = CacheFixture::new(&folder, MIB);
    OpenOptions::new().append(true).open(folder.file()).unwrap().write_all(b"more").unwrap();
    let why = fixture.get(4).unwrap_err();
    assert_eq!(why.kind(), ErrorKind::DataChanged);
    assert!(why.message().contains("rows.npy"), "{why}");
    let listed = fixture.cache.failures();
    assert_eq!((listed.len(), listed[0].shard, listed[0].attempts), (1, 4, 2));
    let place = listed[0].place.as_ref().unwrap();
    let offset = folder.offset(&fixture.dataset, 4);
    assert_eq!(place.object, folder.uri().join("rows.npy").unwrap());
    assert!(place.offset >= offset && place.offset + place.bytes <= offset + (256 << 10));
    let requests = fixture.counters.origin_requests.get();
    assert_eq!(fixture.get(4).unwrap_err().kind(), ErrorKind::DataChanged);
    assert_eq!(fixture.counters.origin_requests.get(), requests);
    until("the memory is back", || fixture.cache.usage().orphaned.bytes == 0);
    assert_eq!(fixture.cache.usage().filling.bytes, 0);
}

#[test]
fn missing_file_is_reported_as_changed() {
    let folder = small();
    let fixture = CacheFixture::new(&folder, MIB);
    fs::remove_file(folder.file()).unwrap();
    assert_eq!(fixture.get(0).unwrap_err().kind(), ErrorKind::DataChanged);
}

#[test]
fn shard_with_a_wrong_pinned_checksum_is_not_served() {
    let folder = Folder::new(256, 1000, 128_000, true);
    let fixture = CacheFixture::new(&folder, MIB);
    folder.check(&fixture.dataset, 0, &fixture.get(0).unwrap());
    folder.damage();
    let why = fixture.get(1).unwrap_err();
    assert_eq!(why.kind(), ErrorKind::DataLoss);
    assert_eq!(fixture.counters.origin_bytes.get(), 3 * 128_000, "it was read twice");
    until("the memory is back", || fixture.cache.usage().orphaned.bytes == 0);
}

#[test]
fn a_wrong_checksum_fails_only_the_snapshot_that_pins_it() {
    let folder = Folder::new(256, 1000, 128_000, false);
    let fixture = CacheFixture::unmanned(&folder, MIB);
    folder.damage();
    folder.index(128_000, true);
    let wrong = fixture.open(&folder);
    folder.damage();
    let id = |dataset: &Dataset| dataset.manifest().shard(1).id;
    assert_ne!(id(&wrong), id(&fixture.dataset), "the checksum is part of the id");
    fixture.start_workers();
    let Some(FoundShard::InFlight(flight)) =
        fixture.cache.find(&wrong, &[1], Priority::Demand).pop()
    else {
        panic!("not in flight")
    };
    let why = landed(&flight).unwrap_err();
    assert_eq!(why.kind(), ErrorKind::DataLoss, "{why}");
    assert!(why.message().ends_with("index the dataset again"), "{why}");
    folder.check(&fixture.dataset, 1, &fixture.get(1).unwrap());
}

#[test]
fn mapped_bytes_are_orphaned_until_the_client_unmaps() {
    let folder = small();
    let one = CacheFixture::extent_bytes(&folder, 64);
    let fixture = CacheFixture::new(&folder, one);
    let sealed = fixture.get(0).unwrap();
    let id = fixture.dataset.manifest().shard(0).id;
    let attached = Attached::shared(sealed.open_for_peer().unwrap(), sealed.id()).unwrap();
    fixture.cache.discard(id);
    assert_eq!(fixture.cache.usage().orphaned.bytes, one);
    drop(sealed);
    assert!(matches!(fixture.find(1), FoundShard::NotKept), "the bytes are not free");
    assert_eq!(attached.row(0, 9), folder.row(9));
    drop(attached);
    fixture.cache.release(ANN, id);
    until("the bytes are free", || fixture.cache.usage().orphaned.bytes == 0);
    folder.check(&fixture.dataset, 1, &fixture.get(1).unwrap());
}

#[test]
fn corrupt_shard_is_recalled_and_evicted_with_its_last_lease() {
    let folder = small();
    let fixture = CacheFixture::new(&folder, MIB);
    let recalls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&recalls);
    fixture.cache.on_recall(Box::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    fixture.get(0).unwrap();
    let id = fixture.dataset.manifest().shard(0).id;
    let Leased::Granted(leased) = fixture.cache.lease(&fixture.dataset, 0, ANN) else {
        panic!("not leased");
    };
    drop(leased);
    fixture.cache.discard(id);
    fixture.cache.discard(id);
    assert_eq!(recalls.load(Ordering::Relaxed), 1);
    assert!(matches!(fixture.find(0), FoundShard::NotKept));
    assert!(matches!(fixture.cache.lease(&fixture.dataset, 0, ANN), Leased::NotKept));
    assert_eq!(fixture.cache.release_all(ANN).ids, [id]);
    until("it is gone", || fixture.cache.usage().orphaned.bytes == 0);
    folder.check(&fixture.dataset, 0, &fixture.get(0).unwrap());
    assert_eq!(fixture.counters.fills_completed.get(), 2);
}

/// Creates a shard that was found corrupt while leased. Its last lease ended without an eviction.
fn condemned_and_left(fixture: &CacheFixture) -> ShardId {
    fixture.get(0).unwrap();
    let id = fixture.dataset.manifest().shard(0).id;
    assert!(matches!(fixture.cache.lease(&fixture.dataset, 0, ANN), Leased::Granted(_)));
    fixture.cache.discard(id);
    assert!(matches!(fixture.find(0), FoundShard::NotKept));
    assert!(fixture.cache.lock().store.release(id, ANN, clock::now()));
    id
}

#[test]
fn corrupt_shard_without_leases_is_filled_again_on_request() {
    let folder = small();
    let fixture = CacheFixture::new(&folder, MIB);
    condemned_and_left(&fixture);
    folder.check(&fixture.dataset, 0, &fixture.get(0).unwrap());
    assert_eq!(fixture.counters.fills_completed.get(), 2);
}

#[test]
fn corrupt_shard_evicted_otherwise_is_filled_again() {
    let folder = small();
    let fixture = CacheFixture::new(&folder, MIB);
    let id = condemned_and_left(&fixture);
    assert!(fixture.cache.let_go(id));
    folder.check(&fixture.dataset, 0, &fixture.get(0).unwrap());
    assert!(matches!(fixture.find(0), FoundShard::Resident(_)));
}

#[test]
fn a_lease_beyond_the_quota_is_refused() {
    let folder = small();
    let fixture = CacheFixture::new(&folder, CacheFixture::extent_bytes(&folder, 64));
    fixture.get(0).unwrap();
    let refused = fixture.cache.lease(&fixture.dataset, 0, ANN);
    let Leased::Failed(why) = refused else { panic!("{refused:?}") };
    assert_eq!(why.kind(), ErrorKind::ResourceExhausted);
    assert_eq!(fixture.cache.lock().store.holder_bytes(ANN), 0);
}

#[test]
fn budget_is_never_exceeded_under_many_requests() {
    let folder = small();
    let fixture = CacheFixture::new(&folder, 5 * CacheFixture::extent_bytes(&folder, 64));
    let done = AtomicBool::new(false);
    let ask = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let shard = random.u32(..16);
            match fixture.find(shard) {
                FoundShard::Resident(sealed) => folder.check(&fixture.dataset, shard, &sealed),
                FoundShard::InFlight(flight) => drop(landed(&flight)),
                FoundShard::NotKept if random.u8(..4) == 0 => {
                    fixture.cache.discard(fixture.dataset.manifest().shard(random.u32(..16)).id);
                }
                FoundShard::NotKept => {}
            }
        }
    };
    let watch = || {
        while !done.load(Ordering::Relaxed) {
            let usage = fixture.cache.usage();
            let used = usage.resident.bytes + usage.filling.bytes + usage.orphaned.bytes;
            assert!(used <= usage.limit_bytes, "{usage:?}");
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        scope.spawn(watch);
        let asking: Vec<_> = (0..8).map(|seed| scope.spawn(move || ask(seed))).collect();
        let ended: Vec<_> = asking.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    until("all that left is free", || fixture.cache.usage().orphaned.bytes == 0);
}

#[test]
fn closing_the_cache_fails_waiting_and_new_requests() {
    let folder = small();
    let fixture = CacheFixture::unmanned(&folder, MIB);
    let FoundShard::InFlight(flight) = fixture.find(0) else { panic!("not in flight") };
    fixture.cache.close();
    assert_eq!(landed(&flight).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(fixture.get(1).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(fixture.cache.usage().filling.bytes, 0);
}
