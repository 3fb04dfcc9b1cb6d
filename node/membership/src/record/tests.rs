//! Tests of the steps, their refusals, and the records that decoding accepts.

use std::time::Duration;

use larder_base::limits;

use super::*;
use crate::plan::{PlanBlobs, Planner, RingPlan, Task};
use crate::testing::{RingOnly, dataset, long, member, record};

fn planned(record: &Record, edits: &[Edit], urgent: bool) -> (RingPlan, BlobId) {
    let task = Task {
        base: record.version,
        members: record.ring_members(),
        scheme: record.scheme,
        replicas: record.scheme.replicas,
        placement: record.placement,
        edits: edits.to_vec(),
        urgent,
    };
    let PlanBlobs { plan, .. } = RingOnly::default().plan(&task, None).unwrap();
    (RingPlan::decode(&plan).unwrap(), BlobId::of(&plan))
}

fn ids(members: &[Member]) -> Vec<&str> {
    members.iter().map(|member| member.id.as_str()).collect()
}

fn staged(record: &Record, edits: &[Edit]) -> Record {
    let (plan, id) = planned(record, edits, false);
    record.staged(&plan, id, "test", Some(9)).unwrap().record
}

#[test]
fn planned_change_keeps_the_ring_until_commit() {
    let before = record(&["a", "b"]).joined(member("c", 3)).unwrap().record;
    let moving = staged(&before, &[Edit::Put(member("c", 3)), Edit::Remove("a".to_owned())]);
    assert_eq!(moving.version, before.version);
    assert_eq!(ids(&moving.ring_members()), ["a", "b"]);
    let after = moving.committed().unwrap().record;
    assert_eq!(after.version, before.version + 1);
    assert_eq!(ids(&after.ring_members()), ["b", "c"]);
    assert_eq!(ids(&after.previous_members().unwrap()), ["a", "b"]);
    assert_eq!(after.settling, moving.change.as_ref().map(|change| change.plan));
    assert!(after.history.last().unwrap().committed);
    assert!(after.committed().is_err());
}

#[test]
fn member_removed_by_a_plan_stays_removed() {
    let moving = staged(&record(&["a", "b"]), &[Edit::Remove("a".to_owned())]);
    assert_eq!(moving.entry("a").unwrap().state, State::Draining { deadline: None });
    assert!(moving.committed().unwrap().record.entry("a").is_none(), "it would be put in again");
}

#[test]
fn aborted_change_restores_the_record() {
    let before = record(&["a", "b"]);
    let after = staged(&before, &[Edit::Remove("a".to_owned())]).aborted("I say so", true).unwrap();
    assert!(after.words.contains("I say so"));
    assert_eq!(after.record.members, before.members);
    assert_eq!(after.record.version, before.version);
    assert!(!after.record.history.last().unwrap().committed);
}

#[test]
fn change_is_replaced_by_one_that_includes_it() {
    let before = record(&["a", "b", "c"]).joined(member("d", 3)).unwrap().record;
    let moving = staged(&before, &[Edit::Put(member("d", 3))]);
    let pressed = moving.draining("a", Some(Duration::from_secs(90))).unwrap().record;
    let (plan, id) =
        planned(&pressed, &[Edit::Put(member("d", 3)), Edit::Remove("a".to_owned())], false);
    let after = pressed.restaged(&plan, id, "test", "a is in a hurry").unwrap().record;
    assert_eq!((after.version, after.members == pressed.members), (before.version, true));
    let change = after.change.as_ref().unwrap();
    assert_eq!((change.number, change.plan, change.rate, change.paused), (2, id, None, false));
    let past = after.history.last().unwrap();
    assert_eq!((past.number, past.committed), (1, false));
    assert!(past.words.starts_with("change 1 is aborted for change 2, as a is in a hurry: d with"));
    assert_eq!(ids(&after.committed().unwrap().record.ring_members()), ["b", "c", "d"]);
    assert!(before.restaged(&plan, id, "test", "nothing is in flight").is_err());
}

#[test]
fn abort_by_an_operator_holds_joiners_and_ends_drains() {
    let before = record(&["a", "b"]).joined(member("c", 1)).unwrap().record;
    let draining = before.draining("a", None).unwrap().record;
    let moving = staged(&draining, &[Edit::Put(member("c", 1)), Edit::Remove("a".to_owned())]);
    let after = moving.aborted("I say so", true).unwrap().record;
    assert_eq!(after.entry("c").unwrap().state, State::Held);
    assert_eq!(after.entry("a").unwrap().state, State::Active);
    let by_plan = staged(&after, &[Edit::Put(member("c", 1))]).committed().unwrap().record;
    assert_eq!(by_plan.entry("c").unwrap().state, State::Active);
    let by_itself = moving.aborted("c is gone", false).unwrap().record;
    assert_eq!(by_itself.members, draining.members);
}

#[test]
fn a_plan_for_another_ring_is_refused() {
    let before = record(&["a", "b", "c"]);
    let (stale, id) = planned(&before, &[Edit::Remove("c".to_owned())], false);
    let moved_on = staged(&before, &[Edit::Remove("a".to_owned())]);
    let refused = moved_on.staged(&stale, id, "test", None).unwrap_err().to_string();
    assert!(refused.contains("in flight"), "{refused}");
    let committed = moved_on.committed().unwrap().record;
    let refused = committed.staged(&stale, id, "test", None).unwrap_err().to_string();
    assert!(refused.contains("plan again"), "{refused}");
    assert!(committed.recast(&stale, id, "me", "late").is_err());
}

#[test]
fn dead_member_leaves_at_once_and_can_return() {
    let before = record(&["a", "b", "c"]);
    let moving = staged(&before, &[Edit::Remove("b".to_owned())]);
    let (plan, id) = planned(&moving, &[Edit::Remove("c".to_owned())], true);
    let after = moving.recast(&plan, id, "me", "c is dead").unwrap().record;
    assert_eq!(ids(&after.ring_members()), ["a", "b"]);
    assert_eq!(after.entry("c").unwrap().state, State::Down);
    assert_eq!(after.change, None);
    assert_eq!(after.history.iter().map(|p| p.committed).collect::<Vec<_>>(), [false, true]);
    let back = staged(&after, &[Edit::Put(member("c", 1))]).committed().unwrap().record;
    assert_eq!(back.entry("c").unwrap().state, State::Active);
}

#[test]
fn history_says_when_and_by_whose_wish() {
    let before = staged(&record(&["a", "b", "c"]), &[Edit::Remove("b".to_owned())]);
    let mut first = before.committed().unwrap().record;
    first.date_history(Some(&before), 7);
    let second = staged(&first, &[Edit::Remove("c".to_owned())]);
    let mut third = second.committed().unwrap().record;
    third.date_history(Some(&second), 9);
    let mut unchanged = third.clone();
    unchanged.date_history(Some(&third), 11);
    let told = |past: &Past| (past.at_ms, past.asked_by.clone());
    let told: Vec<_> = unchanged.history.iter().map(told).collect();
    assert_eq!(told, [(7, "test".to_owned()), (9, "test".to_owned())]);
    assert_eq!(Record::decode(&unchanged.encode().unwrap()).unwrap(), unchanged);
}

/// A change that is over, as records had it before they said when.
#[derive(serde::Serialize)]
struct Undated(u64, BlobId, u64, bool, String);

#[test]
fn history_of_an_earlier_version_is_read() {
    let (id, words) = (BlobId::of(b"plan"), "change 1 is committed".to_owned());
    let bytes = larder_base::codec::encode(b"ldr-test", &Undated(1, id, 2, true, words.clone()));
    let past: Past = larder_base::codec::decode("it", b"ldr-test", &bytes, 1 << 10).unwrap();
    let (asked_by, at_ms) = (String::new(), 0);
    assert_eq!(
        past,
        Past { number: 1, plan: id, version: 2, committed: true, words, asked_by, at_ms }
    );
}

/// Returns the record after a death that ended a change steered by `steer`, and a plan for the
/// moves that are still open.
fn bereaved(steer: impl Fn(&Record) -> Record) -> (Record, RingPlan, BlobId) {
    let before = record(&["a", "b", "c"]).joined(member("d", 1)).unwrap().record;
    let moving = steer(&staged(&before, &[Edit::Put(member("d", 1))]));
    let (plan, id) = planned(&moving, &[Edit::Remove("c".to_owned())], true);
    let after = moving.recast(&plan, id, "me", "c is dead").unwrap().record;
    let after = Record::decode(&after.encode().unwrap()).unwrap();
    let (plan, id) = planned(&after, &[Edit::Put(member("d", 1))], false);
    (after, plan, id)
}

#[test]
fn pause_and_rate_outlive_the_death_of_a_member() {
    let (after, plan, id) =
        bereaved(|moving| moving.rated(Some(5)).unwrap().record.paused(true).unwrap().record);
    let again = after.begun(&plan, id, "a").unwrap();
    let change = again.record.change.as_ref().unwrap();
    assert_eq!((change.paused, change.rate, again.record.kept), (true, Some(5), None));
    assert!(again.words.contains("; paused, 5 B/s, as was said"), "{}", again.words);
    let resumed = again.record.paused(false).unwrap().record.committed().unwrap().record;
    assert_eq!((resumed.kept, ids(&resumed.ring_members()).len()), (None, 3));

    let (after, plan, id) = bereaved(|moving| moving.rated(None).unwrap().record);
    let again = after.begun(&plan, id, "a").unwrap().record;
    let change = again.change.as_ref().unwrap();
    assert_eq!((after.kept, change.paused, change.rate), (None, false, None));
}

#[test]
fn kept_settings_end_with_the_next_command_or_request() {
    let (after, plan, id) = bereaved(|moving| moving.paused(true).unwrap().record);
    assert!(after.kept.is_some());
    let change = after.staged(&plan, id, "me", None).unwrap().record.change.unwrap();
    assert!(!change.paused, "a plan that an operator applies is his word");
    let pressed = after.draining("a", Some(Duration::from_secs(9))).unwrap().record;
    assert_eq!(pressed.kept, None, "a deadline does not wait");
    let alone = after.forgotten(&["d".to_owned()]).unwrap().record;
    assert_eq!(alone.kept, None, "nobody waits for a change");
}

#[test]
fn operator_can_condemn_and_forget_members() {
    let before = record(&["a", "b"]).joined(member("c", 1)).unwrap().record;
    let gone = before.condemned(&["b".to_owned(), "c".to_owned()]).unwrap().record;
    assert!(gone.entry("c").is_none());
    assert_eq!(gone.entry("b").unwrap().state, State::Condemned);
    let (plan, id) = planned(&gone, &[Edit::Remove("b".to_owned())], true);
    let after = gone.recast(&plan, id, "me", "b was removed").unwrap().record;
    assert!(after.entry("b").is_none());
    assert!(after.condemned(&["a".to_owned()]).is_err(), "somebody must stay");
    assert!(after.condemned(&["nobody".to_owned()]).is_err());
}

#[test]
fn drain_can_be_undone_before_a_change_begins() {
    let draining = record(&["a", "b"]).draining("a", Some(Duration::from_secs(90))).unwrap().record;
    assert!(draining.draining("b", None).is_err(), "the last active one stays");
    assert_eq!(draining.undrained("a").unwrap().record.ring_members(), draining.ring_members());
    let moving = staged(&draining, &[Edit::Remove("a".to_owned())]);
    assert!(moving.undrained("a").unwrap_err().to_string().contains("abort"));
    assert!(moving.committed().unwrap().record.entry("a").is_none());
}

#[test]
fn new_address_changes_neither_ring_nor_change() {
    let moving = staged(&record(&["a", "b"]), &[Edit::Remove("b".to_owned())]);
    let control = "http://new:1".to_owned();
    let elsewhere = Member { control: control.clone(), zone: "east".to_owned(), ..member("a", 77) };
    let after = moving.readdressed(&elsewhere).unwrap().record;
    assert_eq!(after.version, moving.version);
    assert_eq!(after.entry("a").unwrap().member, Member { control, ..member("a", 1) });
    assert!(after.committed().is_ok());
}

#[test]
fn plan_can_move_a_member_to_another_zone() {
    let before = record(&["a", "b"]);
    let east = Member { zone: "east".to_owned(), ..member("a", 2) };
    let moving = staged(&before, &[Edit::Put(east.clone())]);
    assert_eq!(moving.ring_members(), before.ring_members());
    let control = "http://new:1".to_owned();
    let elsewhere = Member { control: control.clone(), ..east.clone() };
    let after = moving.readdressed(&elsewhere).unwrap().record.committed().unwrap().record;
    assert_eq!(after.entry("a").unwrap().member, Member { control, ..east });
    assert_eq!(after.previous_members().unwrap()[0].zone, "");
    let gone = staged(&after, &[Edit::Remove("b".to_owned())]).committed().unwrap().record;
    assert_eq!(gone.previous_members().unwrap().len(), 2);
}

#[test]
fn joining_member_can_change_zone_and_host() {
    let before = record(&["a"]).joined(member("b", 3)).unwrap().record;
    let east = Member { zone: "east".to_owned(), host: "h9".to_owned(), ..member("b", 1) };
    let after = before.readdressed(&east).unwrap().record;
    assert_eq!(after.entry("b").unwrap().member, Member { weight: 3, ..east });
}

#[test]
fn history_is_bounded_and_long_texts_are_cut() {
    let mut record = record(&["a", "b"]);
    for _ in 0..100 {
        let moving = staged(&record, &[Edit::Remove("b".to_owned())]);
        record = moving.aborted(&"é".repeat(1_000), false).unwrap().record;
    }
    assert_eq!(record.history.len(), step::RECORD_HISTORY_MAX);
    assert_eq!(record.history.last().unwrap().number, 100);
    assert!(record.encode().is_ok());
}

fn full() -> Record {
    let draining = record(&["a", "b", "c"]).draining("c", Some(Duration::from_secs(9))).unwrap();
    let opened = draining.record.opened(&[dataset(5), dataset(5)]).unwrap().record;
    let moved = staged(&opened, &[Edit::Remove("a".to_owned())]).committed().unwrap().record;
    staged(&moved, &[Edit::Remove("c".to_owned())]).paused(true).unwrap().record
}

#[test]
fn record_reads_back_and_lists_its_blobs() {
    let record = full();
    assert_eq!(Record::decode(&record.encode().unwrap()), Ok(record.clone()));
    assert_eq!(record.datasets.len(), 1);
    assert_eq!(record.blobs().len(), 2, "one settles, one moves");
}

#[test]
fn datasets_are_found_for_any_opening_order() {
    let opened = [7, 3, 9, 1].map(dataset);
    let record = record(&["a"]).opened(&opened).unwrap().record;
    for known in &opened {
        assert_eq!(record.dataset(known.snapshot), Some(known));
    }
    assert_eq!(record.dataset(dataset(2).snapshot), None);
}

#[test]
fn oldest_datasets_are_forgotten_to_leave_room() {
    let small = record(&["a"]).opened(&[dataset(9)]).unwrap().record;
    let full = small.opened(&long(100..131)).unwrap().record;
    assert_eq!(full.datasets.len(), 32);
    let Audit { record: more, words } = full.opened(&long(0..2)).unwrap();
    assert_eq!(words, "2 datasets opened, 2 forgotten for them");
    let mut kept = long(101..131);
    kept.extend(long(0..2));
    assert_eq!(more.datasets, kept, "the first that were opened went, the newest are last");
    let bytes = more.encode().unwrap();
    assert!(bytes.len() < limits::RECORD_BYTES_MAX / 2 + 1_000);
    assert_eq!(Record::decode(&bytes), Ok(more.clone()));
    assert!(more.opened(&long(0..2)).is_err(), "they are known");

    let mut crowd = record(&["a"]);
    for page in 0..5 {
        let some: Vec<_> = (page * 300..(page + 1) * 300).map(dataset).collect();
        crowd = crowd.opened(&some).unwrap().record;
    }
    assert_eq!(crowd.datasets.len(), limits::RECORD_DATASETS_MAX);
    assert_eq!(crowd.datasets.last(), Some(&dataset(1_499)));
}

#[test]
fn no_dataset_is_forgotten_while_shards_move() {
    let ring = record(&["a", "b", "c"]).opened(&long(0..32)).unwrap().record;
    let moving = staged(&ring, &[Edit::Remove("a".to_owned())]);
    assert!(moving.opened(&long(50..51)).is_err());
    let settling = moving.committed().unwrap().record;
    assert!(settling.opened(&long(50..51)).is_err());
    let short = settling.opened(&[dataset(60), long(50..51).remove(0)]).unwrap().record;
    assert_eq!(short.datasets.len(), 33, "what there is room for is noted");
    let rested = settling.settled().unwrap().record.opened(&long(50..51)).unwrap().record;
    assert_eq!(rested.datasets.len(), 32);
}

#[test]
fn bytes_that_are_not_a_record_are_refused() {
    let bytes = full().encode().unwrap();
    for cut in 0..bytes.len() {
        assert!(Record::decode(&bytes[..cut]).is_err());
    }
    for index in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[index] ^= 0x40;
        assert!(Record::decode(&flipped).is_err());
    }
    assert!(Record::decode(&vec![0; limits::RECORD_BYTES_MAX + 1]).is_err());
}

#[test]
fn record_that_breaks_its_rules_is_not_encoded() {
    let mut unsorted = full();
    unsorted.members.reverse();
    assert!(unsorted.encode().is_err());
    let mut empty = full();
    empty.members.clear();
    assert!(empty.encode().is_err());
    let mut twice = full();
    twice.datasets.push(dataset(5));
    assert!(twice.encode().is_err());
    let mut huge = full();
    huge.members[0].member.host = "h".repeat(60_000);
    huge.datasets[0].uri = "u".repeat(60_000);
    huge.history[0].words = "w".repeat(60_000);
    huge.members[1].member.host = "h".repeat(60_000);
    huge.members[1].member.control = "h".repeat(60_000);
    assert!(huge.encode().unwrap_err().to_string().contains("the limit is 262144"));
}
