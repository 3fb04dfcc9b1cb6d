//! Tests of the store's promises, one by one. `tests/model` tries them in all combinations.

use super::*;
use crate::holder::HolderId;
use crate::orphan::LEAVING_FOR;
use crate::test_clock;
use std::time::Duration;

const ANN: HolderId = HolderId(1);
const BEN: HolderId = HolderId(2);
const IDLE: Duration = Duration::from_mins(10);

type Shelf = Store<u32, char, &'static str, &'static str>;

fn shelf(limit_bytes: u64) -> (Shelf, Instant) {
    let store = Store::new(Budget::new(limit_bytes), KeepWhatYouHave::default(), 50);
    (store, test_clock::start())
}

fn ask(store: &mut Shelf, id: u32, group: char, bytes: u64, now: Instant) -> Answer {
    store.request(id, group, bytes, now, || "fill")
}

type Answer = Outcome<u32, &'static str, &'static str>;

fn admitted(outcome: Answer) -> FillPermit<u32> {
    match outcome {
        Outcome::Admitted { permit, .. } => permit,
        other => panic!("not admitted: {other:?}"),
    }
}

fn in_flight(outcome: Answer) -> Waiter<u32> {
    match outcome {
        Outcome::InFlight { waiter, .. } => waiter,
        other => panic!("not in flight: {other:?}"),
    }
}

fn refused(outcome: Answer) -> (Why, Vec<Evicted<u32, &'static str>>) {
    match outcome {
        Outcome::NoRoom { reason, evicted } => (reason.why, evicted),
        other => panic!("not refused: {other:?}"),
    }
}

fn fill(store: &mut Shelf, id: u32, group: char, bytes: u64, now: Instant) {
    let permit = admitted(ask(store, id, group, bytes, now));
    store.complete(permit, "shard", now).unwrap();
}

#[test]
fn first_request_fills_and_later_requests_wait() {
    let (mut store, now) = shelf(100);
    let permit = admitted(ask(&mut store, 1, 'a', 60, now));
    let waiters: Vec<_> = (0..64).map(|_| in_flight(ask(&mut store, 1, 'a', 60, now))).collect();
    assert_eq!(store.budget().used_bytes(), 60);
    assert_eq!(store.complete(permit, "shard", now).unwrap(), "fill");
    assert!(matches!(ask(&mut store, 1, 'a', 60, now), Outcome::Resident("shard")));
    waiters.into_iter().for_each(|waiter| store.leave(waiter));
}

#[test]
fn data_in_a_shard_handle_is_evicted_with_the_shard() {
    let (mut store, now) = shelf(100);
    let permit = admitted(ask(&mut store, 1, 'a', 60, now));
    assert!(store.handle_mut(1).is_none(), "it is not here yet");
    store.complete(permit, "shard", now).unwrap();
    *store.handle_mut(1).unwrap() = "noted";
    assert_eq!(store.get(1, 'a', now), Some("noted"));
    assert_eq!(store.evict(1, now).unwrap().handle, "noted");
    assert!(store.handle_mut(1).is_none());
}

#[test]
fn handle_is_created_only_after_admission() {
    let (mut store, now) = shelf(100);
    let outcome = store.request(1, 'a', 101, now, || panic!("made without admission"));
    let (why, _) = refused(outcome);
    assert_eq!(why, Why::LargerThanBudget { limit_bytes: 100 });
}

#[test]
fn failed_fill_with_waiters_is_retried_exactly_once() {
    let (mut store, now) = shelf(100);
    let permit = admitted(ask(&mut store, 1, 'a', 60, now));
    let waiter = in_flight(ask(&mut store, 1, 'a', 60, now));
    let HandOver::Retry { handle, permit, waiters } = store.fail(permit, now).unwrap() else {
        panic!("dropped although somebody waits");
    };
    assert_eq!((handle, waiters), ("fill", 1));
    assert_eq!(store.budget().filling().bytes, 60);
    store.leave(waiter);
    let HandOver::Dropped(orphan) = store.fail(permit, now).unwrap() else {
        panic!("retried although nobody waits");
    };
    assert_eq!(store.budget().orphaned().bytes, 60);
    store.freed(orphan.token);
    assert_eq!(store.budget().free_bytes(), 100);
    assert_eq!(store.groups(), []);
}

#[test]
fn fill_without_waiters_still_completes() {
    let (mut store, now) = shelf(100);
    let permit = admitted(ask(&mut store, 1, 'a', 60, now));
    let waiter = in_flight(ask(&mut store, 1, 'a', 60, now));
    store.leave(waiter);
    store.complete(permit, "shard", now).unwrap();
    assert_eq!(store.get(1, 'a', now), Some("shard"));
}

#[test]
fn abandoned_fill_ends_despite_waiters() {
    let (mut store, now) = shelf(100);
    let permit = admitted(ask(&mut store, 1, 'a', 60, now));
    let old = in_flight(ask(&mut store, 1, 'a', 60, now));
    let orphan = store.give_up(permit, now).unwrap();
    store.freed(orphan.token);
    let permit = admitted(ask(&mut store, 1, 'a', 60, now));
    let _new = in_flight(ask(&mut store, 1, 'a', 60, now));
    store.leave(old);
    assert!(matches!(store.fail(permit, now), Ok(HandOver::Retry { waiters: 1, .. })));
}

#[test]
fn revoked_fill_permits_change_nothing() {
    let (mut store, now) = shelf(100);
    let mut planted = Vec::new();
    planted.push(admitted(ask(&mut store, 1, 'a', 60, now)));
    let _waiter = in_flight(ask(&mut store, 1, 'a', 60, now));
    let mut permit = None;
    for _ in 0..3 {
        let Some(HandOver::Retry { permit: next, .. }) = store.revoke(1, now) else {
            panic!("not handed over");
        };
        planted.extend(permit.replace(next));
    }
    let before = (store.shards(), store.budget().used_bytes());
    assert_eq!(store.fail(planted.pop().unwrap(), now).unwrap_err(), StalePermit);
    assert_eq!(store.give_up(planted.pop().unwrap(), now).unwrap_err(), StalePermit);
    let refused = store.complete(planted.pop().unwrap(), "wrong", now).unwrap_err();
    assert_eq!(refused.handle, "wrong");
    assert_eq!((store.shards(), store.budget().used_bytes()), before);
    store.complete(permit.unwrap(), "right", now).unwrap();
    assert_eq!(store.get(1, 'a', now), Some("right"));
}

#[test]
fn permit_of_an_earlier_fill_is_refused() {
    let (mut store, now) = shelf(100);
    let planted = admitted(ask(&mut store, 1, 'a', 60, now));
    let Some(HandOver::Dropped(orphan)) = store.revoke(1, now) else { panic!("not dropped") };
    store.freed(orphan.token);
    let permit = admitted(ask(&mut store, 1, 'a', 60, now));
    assert!(store.complete(planted, "wrong", now).is_err());
    store.complete(permit, "right", now).unwrap();
    assert!(store.revoke(1, now).is_none());
    assert_eq!(store.get(1, 'a', now), Some("right"));
}

#[test]
fn scan_larger_than_the_budget_evicts_no_shard_in_use() {
    let (mut store, now) = shelf(100);
    fill(&mut store, 0, 'b', 10, now);
    store.open_group('b', now);
    (1..10).for_each(|id| fill(&mut store, id, 'a', 10, now));
    let later = now + 3 * IDLE;
    for id in 10..1_000 {
        let (why, evicted) = refused(ask(&mut store, id, 'a', 10, later));
        assert_eq!((why, evicted.len()), (Why::InUse, 0));
    }
    assert_eq!(store.budget().resident().shards, 10);
}

#[test]
fn shards_of_a_finished_job_are_evicted_as_needed() {
    let (mut store, now) = shelf(100);
    store.open_group('a', now);
    (0..10).for_each(|id| fill(&mut store, id, 'a', 10, now));
    assert!(store.close_group('a', now + IDLE));
    let early = now + 2 * IDLE - LOOK_AGAIN_AFTER;
    assert_eq!(refused(ask(&mut store, 10, 'b', 15, early)).0, Why::InUse);
    let (why, evicted) = refused(ask(&mut store, 10, 'b', 15, now + 2 * IDLE));
    assert_eq!(why, Why::Leaving);
    assert_eq!(evicted.iter().map(|shard| shard.id).collect::<Vec<_>>(), [0, 1]);
    for shard in evicted {
        assert!(matches!(ask(&mut store, 10, 'b', 15, early), Outcome::NoRoom { .. }));
        store.freed(shard.token);
    }
    fill(&mut store, 10, 'b', 15, now + 2 * IDLE);
}

#[test]
fn waits_for_leaving_bytes_before_evicting_more() {
    let (mut store, now) = shelf(100);
    (0..10).for_each(|id| fill(&mut store, id, 'a', 10, now));
    let later = now + IDLE;
    let (_, evicted) = refused(ask(&mut store, 10, 'b', 10, later));
    assert_eq!(evicted.len(), 1);
    assert_eq!(refused(ask(&mut store, 11, 'b', 10, later)).1.len(), 0);
    // A process still maps the first one; another has to go.
    let (why, more) = refused(ask(&mut store, 11, 'b', 10, later + LEAVING_FOR));
    assert_eq!((why, more.len()), (Why::Leaving, 1));
    assert_eq!(store.budget().orphaned().shards, 2);
}

#[test]
fn full_cache_in_use_is_searched_at_most_once_a_second() {
    let (mut store, now) = shelf(10);
    fill(&mut store, 1, 'a', 10, now);
    let later = now + IDLE;
    let early = later - Duration::from_millis(1);
    assert_eq!(refused(ask(&mut store, 2, 'b', 10, early)).0, Why::InUse);
    assert_eq!(refused(ask(&mut store, 2, 'b', 10, later)).0, Why::InUse);
    assert_eq!(refused(ask(&mut store, 2, 'b', 10, early + LOOK_AGAIN_AFTER)).1.len(), 1);
}

#[test]
fn shared_shard_stays_while_either_group_is_in_use() {
    let (mut store, now) = shelf(10);
    fill(&mut store, 1, 'a', 10, now);
    store.open_group('b', now);
    assert!(matches!(ask(&mut store, 1, 'b', 10, now), Outcome::Resident(_)));
    let later = now + 2 * IDLE;
    assert_eq!(refused(ask(&mut store, 2, 'c', 10, later)).0, Why::InUse);
    assert!(store.close_group('b', later));
    assert_eq!(refused(ask(&mut store, 2, 'c', 10, later + IDLE)).1.len(), 1);
}

#[test]
fn lease_protects_its_group_until_idle_after_release() {
    let (mut store, now) = shelf(20);
    fill(&mut store, 1, 'a', 10, now);
    fill(&mut store, 2, 'a', 10, now);
    assert_eq!(store.lease(1, ANN, now), Ok("shard"));
    assert_eq!(store.lease(1, BEN, now), Ok("shard"));
    let end = now + 5 * IDLE;
    assert_eq!(refused(ask(&mut store, 3, 'b', 10, end)).0, Why::InUse);
    assert_eq!(store.evict(1, end).unwrap_err(), CannotEvict::Leased { holders: 2 });
    assert!(store.release(1, ANN, end));
    assert_eq!(store.release_all(BEN, end).ids, [1]);
    assert_eq!(refused(ask(&mut store, 3, 'b', 10, end)).0, Why::InUse);
    assert_eq!(refused(ask(&mut store, 3, 'b', 10, end + IDLE)).1.len(), 1);
}

#[test]
fn holder_is_charged_once_per_shard_up_to_its_quota() {
    let (mut store, now) = shelf(100);
    (0..3).for_each(|id| fill(&mut store, id, 'a', 25, now));
    for id in [0, 0, 1, 0] {
        store.lease(id, ANN, now).unwrap();
    }
    assert_eq!(store.holder_bytes(ANN), 50);
    let refusal = store.lease(2, ANN, now).unwrap_err();
    let expected = LeaseRefused::OverQuota { needed_bytes: 25, held_bytes: 50, quota_bytes: 50 };
    assert_eq!(refusal, expected);
    store.lease(2, BEN, now).unwrap();
    store.release(1, ANN, now);
    store.lease(2, ANN, now).unwrap();
    assert_eq!(store.release_all(ANN, now), Released { ids: vec![0, 2], bytes: 50 });
    assert_eq!(store.holder_bytes(ANN), 0);
    assert_eq!(store.holders().len(), 1);
}

#[test]
fn release_without_a_lease_changes_nothing() {
    let (mut store, now) = shelf(100);
    fill(&mut store, 1, 'a', 25, now);
    store.lease(1, ANN, now).unwrap();
    assert!(!store.release(1, BEN, now));
    assert!(!store.release(9, ANN, now));
    assert!(!store.close_group('a', now));
    assert_eq!(store.release_all(BEN, now), Released { ids: vec![], bytes: 0 });
    assert_eq!(store.holder_bytes(ANN), 25);
    assert!(store.release(1, ANN, now));
    assert!(!store.release(1, ANN, now));
}

#[test]
fn only_resident_shards_can_be_leased_or_evicted() {
    let (mut store, now) = shelf(100);
    let _permit = admitted(ask(&mut store, 1, 'a', 25, now));
    assert_eq!(store.lease(1, ANN, now), Err(LeaseRefused::NotResident));
    assert_eq!(store.lease(2, ANN, now), Err(LeaseRefused::NotResident));
    assert_eq!(store.evict(1, now).unwrap_err(), CannotEvict::NotResident);
    assert_eq!(store.get(1, 'a', now), None);
}

#[test]
fn shards_are_listed_in_order_each_before_its_orphan() {
    let (mut store, now) = shelf(100);
    for id in [3, 1, 2] {
        fill(&mut store, id, 'a', 10, now);
    }
    let _orphan = store.evict(1, now).unwrap();
    let _permit = admitted(ask(&mut store, 1, 'b', 10, now));
    let shown: Vec<_> = store.shards().into_iter().map(|shard| (shard.id, shard.state)).collect();
    let resident = ShardState::Resident { holders: 0, since: now, last_used: now };
    let filling = ShardState::Filling { waiters: 0, since: now };
    let orphaned = ShardState::Orphaned { since: now };
    assert_eq!(shown, [(1, filling), (1, orphaned), (2, resident), (3, resident)]);
    let groups: Vec<_> = store.groups().iter().map(|view| (view.group, view.shards)).collect();
    assert_eq!(groups, [('a', 2), ('b', 1)]);
}

#[test]
fn refusal_names_needed_and_free_bytes_and_a_remedy() {
    let (mut store, now) = shelf(100);
    fill(&mut store, 1, 'a', 70, now);
    let Outcome::NoRoom { reason, .. } = ask(&mut store, 2, 'a', 31, now) else { panic!("room") };
    let expected = "no room for a shard of 31 B, 30 B are free: what is here is in use and \
                    stays; read rows from the origin instead";
    assert_eq!(reason.to_string(), expected);
}
