//! Tests of one agent, event by event, beside a coordinator and a planner that always answer.

mod stand;

use std::time::Duration;

use super::*;
use crate::{
    announcement::Settled,
    plan::{Edit, RingPlan},
    record::State,
    testing::{dataset, long, member, record},
};
use stand::Stand;

const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

#[test]
fn joins_within_a_window_are_one_change() {
    let ring = record(&["a"]);
    let wish = ring.joined(member("b", 1)).unwrap().record.joined(member("c", 1)).unwrap().record;
    let mut stand = Stand::new(wish);
    assert_eq!(stand.change().edits.len(), 2);
    assert_eq!(stand.version(), 1, "reads go by the ring that is committed");
    stand.settle("b");
    stand.pass(30);
    assert_eq!(stand.version(), 1, "c has not got its shards");
    stand.settle("c");
    stand.pass(1);
    assert_eq!(stand.version(), 2);
    assert_eq!(stand.ids(), ["a", "b", "c"]);
    assert_eq!(stand.agent.installed(), 2);
}

#[test]
fn join_waits_a_while_for_other_joins() {
    let mut stand = Stand::new(record(&["a"]));
    stand.come("b");
    stand.write(|record| record.joined(member("b", 1)));
    stand.pass(3);
    stand.come("c");
    stand.write(|record| record.joined(member("c", 1)));
    stand.pass(4);
    assert!(stand.record.change.is_none(), "c may not be the last one");
    stand.pass(2);
    assert_eq!(stand.change().edits.len(), 2);
}

#[test]
fn absent_member_is_removed_after_the_grace_period() {
    let mut stand = Stand::new(record(&FIVE));
    stand.gone("c");
    stand.pass(Timing::REAL.death_grace.as_secs() - 2);
    assert_eq!(stand.version(), 1);
    stand.pass(4);
    assert_eq!((stand.version(), stand.state("c")), (2, Some(State::Down)));
    stand.come("c");
    stand.pass(Timing::REAL.return_hold.as_secs() - 2);
    assert!(stand.record.change.is_none());
    stand.pass(4);
    assert_eq!(stand.change().edits, [Edit::Put(member("c", 1))]);
}

#[test]
fn member_back_within_the_grace_period_causes_no_write() {
    let mut stand = Stand::new(record(&FIVE));
    stand.gone("c");
    stand.pass(Timing::REAL.death_grace.as_secs() - 2);
    stand.come("c");
    stand.pass(120);
    assert_eq!((stand.version(), stand.writes), (1, 0));
}

#[test]
fn grace_period_grows_with_each_flap() {
    let mut stand = Stand::new(record(&FIVE));
    for _ in 0..2 {
        stand.gone("c");
        stand.pass(5);
        stand.come("c");
        stand.pass(5);
    }
    stand.gone("c");
    // Lost three times: four times the grace.
    stand.pass(4 * Timing::REAL.death_grace.as_secs() - 2);
    assert_eq!(stand.version(), 1);
    stand.pass(4);
    assert_eq!(stand.version(), 2);
}

#[test]
fn absence_counts_from_the_first_answer() {
    let mut stand = Stand::deaf(record(&FIVE));
    stand.alive.remove("c");
    stand.tell_alive();
    stand.pass(20);
    stand.answers = true;
    stand.pass(Timing::REAL.death_grace.as_secs() - 2);
    assert_eq!(stand.version(), 1, "c may have been there until the first answer");
    stand.pass(10);
    assert_eq!(stand.version(), 2);
}

#[test]
fn many_absent_members_are_removed_only_by_an_operator() {
    let mut stand = Stand::new(record(&FIVE));
    stand.gone("d");
    stand.gone("e");
    stand.pass(300);
    assert_eq!(stand.version(), 1);
    assert!(stand.agent.braked());
    assert_eq!(stand.alarms("more than a quarter"), 1);
    stand.command(Command::Remove(vec!["d".to_owned(), "e".to_owned()])).unwrap();
    stand.pass(2);
    assert_eq!((stand.version(), stand.ids()), (2, vec!["a", "b", "c"]));
}

#[test]
fn drain_ends_at_its_deadline_even_if_shards_remain() {
    let mut stand = Stand::new(record(&FIVE));
    let deadline = Some(Duration::from_secs(20));
    stand.command(Command::Drain { id: "b".to_owned(), deadline }).unwrap();
    stand.pass(17);
    assert_eq!(stand.change().edits, [Edit::Remove("b".to_owned())]);
    stand.pass(5);
    assert_eq!((stand.version(), stand.state("b")), (2, None));
}

#[test]
fn drain_with_a_deadline_does_not_wait_for_another_change() {
    let mut stand = Stand::new(record(&FIVE));
    stand.pulls = false;
    stand.command(Command::Drain { id: "b".to_owned(), deadline: None }).unwrap();
    stand.command(Steer::Pause.any()).unwrap();
    stand.command(Command::Drain { id: "c".to_owned(), deadline: None }).unwrap();
    stand.pass(60);
    let out =
        |ids: &[&str]| ids.iter().map(|id| Edit::Remove((*id).to_owned())).collect::<Vec<_>>();
    assert_eq!(stand.change().edits, out(&["b"]), "d can wait");
    let deadline = Some(Duration::from_secs(20));
    stand.command(Command::Drain { id: "d".to_owned(), deadline }).unwrap();
    stand.pass(2);
    let change = stand.change();
    assert_eq!((&change.edits, change.number, change.paused), (&out(&["b", "d"]), 2, false));
    let first = stand.record.history.last().unwrap();
    assert!(!first.committed && first.words.contains("for change 2"), "{}", first.words);
    stand.pass(20);
    assert_eq!((stand.version(), stand.state("b"), stand.state("d")), (2, None, None));
}

#[test]
fn drain_deadline_ends_pause_and_rate_of_its_change() {
    let mut stand = Stand::new(record(&FIVE));
    stand.pulls = false;
    let drain = |deadline| Command::Drain { id: "b".to_owned(), deadline };
    let deadline = Some(Duration::from_secs(20));
    stand.command(drain(None)).unwrap();
    stand.command(Steer::Pause.any()).unwrap();
    stand.command(Steer::Rate(Some(1)).any()).unwrap();
    stand.command(drain(deadline)).unwrap();
    assert_eq!((stand.change().paused, stand.change().rate), (false, None));
    // An operator's later command holds until the deadline is given again.
    stand.command(Steer::Pause.any()).unwrap();
    stand.pass(5);
    assert!(stand.change().paused);
    stand.command(drain(deadline)).unwrap();
    assert!(!stand.change().paused);
    stand.pass(20);
    assert_eq!((stand.version(), stand.state("b")), (2, None));
}

#[test]
fn slow_plan_is_awaited_while_it_is_wanted() {
    let mut stand = Stand::new(record(&FIVE));
    stand.plans = false;
    stand.command(Command::Drain { id: "b".to_owned(), deadline: None }).unwrap();
    stand.pass(60);
    assert_eq!(stand.planned, 1);
    stand.finish_plans();
    stand.pass(1);
    assert_eq!(stand.change().edits, [Edit::Remove("b".to_owned())]);
}

#[test]
fn obsolete_or_lost_plan_does_not_block_the_agent() {
    let mut stand = Stand::new(record(&FIVE));
    stand.plans = false;
    stand.command(Command::Drain { id: "b".to_owned(), deadline: None }).unwrap();
    stand.pass(1);
    stand.gone("c");
    stand.pass(Timing::REAL.death_grace.as_secs() + 5);
    assert_eq!(stand.planned, 2, "c is dead");
    stand.pass(Timing::REAL.plan_timeout.as_secs());
    assert_eq!(stand.planned, 3);
    stand.plans = true;
    stand.pass(Timing::REAL.plan_timeout.as_secs());
    assert_eq!((stand.version(), stand.state("c")), (2, Some(State::Down)));
}

#[test]
fn two_nodes_of_one_name_do_not_race_for_the_record() {
    let mut stand = Stand::new(record(&FIVE));
    let other = Member { control: "http://elsewhere:1".to_owned(), ..member("a", 1) };
    stand.write(|record| record.readdressed(&other));
    stand.pass(1);
    assert_eq!(stand.writes, 1, "it may have moved");
    stand.write(|record| record.readdressed(&other));
    stand.pass(Timing::REAL.readdress_interval.as_secs() - 5);
    assert_eq!(stand.writes, 1);
    stand.pass(10);
    assert_eq!(stand.writes, 2);
}

#[test]
fn agent_does_not_write_itself_while_its_name_is_taken() {
    let mut stand = Stand::new(record(&FIVE));
    let other = Member { control: "http://elsewhere:1".to_owned(), ..member("a", 1) };
    stand.come_twice("a");
    stand.write(|record| record.readdressed(&other));
    assert_eq!(stand.writes, 0);
    stand.come("a");
    stand.pass(1);
    assert_eq!(stand.writes, 1);
}

#[test]
fn deadline_does_not_remove_the_last_member_that_stays() {
    let mut stand = Stand::new(record(&["a", "b"]).joined(member("c", 1)).unwrap().record);
    let deadline = Some(Duration::from_secs(20));
    stand.command(Command::Drain { id: "a".to_owned(), deadline }).unwrap();
    stand.pass(2);
    let put = Edit::Put(member("c", 1));
    assert_eq!(stand.change().edits, [put.clone(), Edit::Remove("a".to_owned())]);
    stand.command(Command::Drain { id: "b".to_owned(), deadline }).unwrap_err();
    assert_eq!(stand.change().edits, [put, Edit::Remove("a".to_owned())]);
}

#[test]
fn transfers_yield_to_reads_without_a_deadline_or_rate() {
    let drain = |deadline, rate| {
        let mut stand = Stand::new(record(&["a", "b"]));
        stand.pulls = false;
        stand.command(Command::Drain { id: "b".to_owned(), deadline }).unwrap();
        let begun = (stand.pulled, stand.yielded);
        stand.command(Steer::Rate(rate).any()).unwrap();
        stand.pulls = true;
        stand.finish_pulls();
        stand.pass(60);
        (begun, stand.pulled > begun.0, stand.yielded > begun.1)
    };
    assert_eq!(drain(None, None), ((4, 4), true, true));
    assert_eq!(drain(None, Some(1 << 30)), ((4, 4), true, false));
    assert_eq!(drain(Some(Duration::from_secs(90)), None), ((4, 0), true, false));
}

#[test]
fn leftover_transfers_do_not_yield_during_another_deadline() {
    let mut stand = Stand::new(record(&FIVE));
    stand.pulls = false;
    let deadline = Some(Duration::from_secs(20));
    stand.command(Command::Drain { id: "b".to_owned(), deadline }).unwrap();
    stand.pass(22);
    assert_eq!((stand.version(), stand.state("b")), (2, None));
    stand.command(Command::Drain { id: "c".to_owned(), deadline }).unwrap();
    let begun = (stand.pulled, stand.yielded);
    stand.pulls = true;
    stand.finish_pulls();
    stand.pass(5);
    assert!(stand.pulled > begun.0);
    assert_eq!(stand.yielded, begun.1);
}

#[test]
fn aborted_join_is_held_and_keeps_the_ring() {
    let mut stand = Stand::new(record(&["a"]).joined(member("b", 1)).unwrap().record);
    assert_eq!(stand.change().edits.len(), 1);
    stand.command(Steer::Abort.any()).unwrap();
    stand.pass(120);
    assert!(stand.record.change.is_none());
    assert_eq!((stand.version(), stand.state("b")), (1, Some(State::Held)));
    let refused = stand.command(Steer::Abort.any()).unwrap_err();
    assert!(refused.contains("no change is in flight"), "{refused}");
}

#[test]
fn steering_one_change_does_not_affect_another() {
    let mut stand = Stand::new(record(&["a"]).joined(member("b", 1)).unwrap().record);
    let steer = |steer, change| Command::Steer { steer, change: Some(change) };
    stand.command(Steer::Abort.any()).unwrap();
    stand.come("c");
    stand.write(|record| record.joined(member("c", 1)));
    stand.pass(20);
    assert_eq!(stand.change().number, 2);
    for each in [Steer::Pause, Steer::Resume, Steer::Rate(Some(1))] {
        let refused = stand.command(steer(each, 1)).unwrap_err();
        assert!(refused.contains("change 1 is not in flight, change 2 is"), "{refused}");
    }
    stand.command(steer(Steer::Abort, 1)).expect("it is aborted already");
    assert_eq!(
        (stand.change().number, stand.change().paused, stand.change().rate),
        (2, false, None)
    );
    stand.command(steer(Steer::Pause, 2)).unwrap();
    assert!(stand.change().paused);
    stand.command(steer(Steer::Abort, 2)).unwrap();
    assert!(stand.record.change.is_none());
    let refused = stand.command(steer(Steer::Pause, 2)).unwrap_err();
    assert!(refused.contains("no other is"), "{refused}");
}

#[test]
fn paused_change_neither_transfers_nor_commits() {
    let mut stand = Stand::new(record(&["a", "b"]));
    stand.pulls = false;
    stand.command(Command::Drain { id: "b".to_owned(), deadline: None }).unwrap();
    let begun = stand.pulled;
    assert!(begun > 0, "a is to have what b has");
    stand.command(Steer::Pause.any()).unwrap();
    stand.pulls = true;
    stand.finish_pulls();
    stand.pass(60);
    assert_eq!((stand.pulled, stand.version()), (begun, 1));
    stand.command(Steer::Resume.any()).unwrap();
    stand.pass(2);
    assert_eq!(stand.version(), 2);
}

#[test]
fn a_plan_for_a_ring_that_moved_on_is_refused() {
    let mut stand = Stand::new(record(&FIVE));
    let Answer::Planned(planned) = stand
        .command(Command::Plan { edits: vec![Edit::Remove("b".to_owned())], replicas: None })
        .unwrap()
    else {
        panic!("a plan was asked for");
    };
    assert_eq!(stand.writes, 0, "a plan changes nothing");
    stand.gone("c");
    stand.pass(Timing::REAL.death_grace.as_secs() + 2);
    assert_eq!(stand.version(), 2);
    let apply = Command::Apply { planned, rate: None, asked_by: "op".to_owned() };
    assert!(stand.command(apply).unwrap_err().contains("plan again"));
}

#[test]
fn no_member_expires_while_the_coordinator_is_away() {
    let mut stand = Stand::new(record(&FIVE));
    stand.gone("c");
    stand.pass(20);
    stand.tell(Event::Away);
    stand.answers = false;
    stand.pass(120);
    assert!(stand.command(Steer::Pause.any()).unwrap_err().contains("does not answer"));
    stand.answers = true;
    stand.tell(Event::Back);
    stand.pass(Timing::REAL.death_grace.as_secs() - 2);
    assert_eq!(stand.version(), 1, "absences count anew");
    stand.pass(10);
    assert_eq!(stand.version(), 2);
}

#[test]
fn outcome_of_a_write_is_read_before_the_next_write() {
    let mut stand = Stand::new(record(&FIVE));
    stand.loses_answers = true;
    let drained = stand.command(Command::Drain { id: "b".to_owned(), deadline: None });
    assert_eq!(drained, Ok(Answer::Done));
    stand.pass(60);
    assert_eq!(stand.writes, 2, "the drain and its change, each once");
}

#[test]
fn join_request_is_kept_for_the_grace_period() {
    let mut stand = Stand::new(record(&["a", "b"]));
    stand.pass(100);
    // The record shows the joiner before its announcement arrives.
    stand.write(|record| record.joined(member("c", 1)));
    stand.pass(Timing::REAL.death_grace.as_secs() - 3);
    assert_eq!(stand.state("c"), Some(State::Joining));
    stand.pass(10);
    assert_eq!(stand.state("c"), None);
}

#[test]
fn moved_member_is_updated_by_a_plan_unless_aborted() {
    let mut elsewhere = record(&["a", "c"]);
    elsewhere.members[0].member.host = "where-it-was".to_owned();
    let moved = Stand::new(elsewhere.clone());
    assert_eq!(moved.version(), 2, "there was nothing to move");
    assert_eq!(moved.record.entry("a").unwrap().member, member("a", 1));

    let mut stand = Stand::new(elsewhere.joined(member("b", 1)).unwrap().record);
    assert_eq!(stand.change().edits, ["b", "a"].map(|id| Edit::Put(member(id, 1))));
    stand.command(Steer::Abort.any()).unwrap();
    stand.pass(60);
    assert!(stand.record.change.is_none(), "the operator's word stands");
    stand.command(Command::Drain { id: "c".to_owned(), deadline: None }).unwrap();
    stand.pass(60);
    assert_eq!((stand.version(), stand.ids()), (3, vec!["a"]));
    assert_eq!(stand.record.entry("a").unwrap().member, member("a", 1), "with the next ring");
}

#[test]
fn old_copy_is_dropped_after_the_new_owner_confirms() {
    let mut stand = Stand::new(record(&["a"]).joined(member("b", 1)).unwrap().record);
    stand.settle("b");
    stand.pass(1);
    assert_eq!(stand.version(), 2);
    assert!(stand.dropped > 0, "b has said so of the plan that is committed");

    let mut silent = Stand::new(record(&["a"]).joined(member("b", 1)).unwrap().record);
    // It restarted: its announcements from before no longer count.
    silent.restarts_at_commit = Some("b");
    silent.settle("b");
    silent.pass(20);
    assert_eq!((silent.version(), silent.dropped), (2, 0));
}

#[test]
fn agent_that_slept_restarts_all_absence_timers() {
    let mut stand = Stand::new(record(&FIVE));
    stand.gone("c");
    stand.pass(20);
    stand.sleep(Timing::REAL.announcement_ttl.as_secs() * 3);
    stand.pass(Timing::REAL.death_grace.as_secs() - 2);
    assert_eq!(stand.version(), 1);
    stand.pass(10);
    assert_eq!(stand.version(), 2);
}

#[test]
fn absence_is_confirmed_by_a_read_before_removal() {
    let mut stand = Stand::new(record(&FIVE));
    stand.gone("c");
    stand.pass(Timing::REAL.death_grace.as_secs() - 2);
    stand.come_unseen("c");
    stand.pass(60);
    assert_eq!((stand.version(), stand.writes), (1, 0));
}

#[test]
fn record_of_another_cluster_is_refused_with_an_alarm() {
    let mut stand = Stand::new(record(&FIVE));
    let ours = stand.agent.record().cloned();
    stand.strange = true;
    // By a watch, with the same revision as ours, and by answers.
    stand.tell(Event::Record(stand.stored()));
    assert_eq!(stand.alarms("is one of cluster 01010101010101010101010101010101"), 1);
    stand.gone("c");
    stand.pass(120);
    assert!(stand.alarms("the record of cluster 02020202020202020202020202020202") > 4);
    assert_eq!((stand.agent.record().cloned(), stand.writes), (ours, 0));
}

#[test]
fn restored_coordinator_raises_an_alarm() {
    let before = record(&FIVE);
    let mut stand = Stand::new(before.clone());
    stand.come("f");
    stand.write(|record| record.joined(member("f", 1)));
    stand.pass(1);
    assert_eq!(stand.alarms("it was put back"), 0);
    stand.put_back(before);
    stand.gone("c");
    stand.pass(120);
    assert!(stand.alarms("it was put back") > 0);
    assert_eq!(stand.version(), 1, "nothing is decided by what is not taken");
}

#[test]
fn write_refused_by_another_cluster_is_retried_slowly() {
    let mut stand = Stand::new(record(&FIVE));
    stand.strange = true;
    let drain = Command::Drain { id: "b".to_owned(), deadline: None };
    stand.tell(Event::Command(Ticket(1), drain));
    stand.pass(100);
    assert!((1..5).contains(&stand.writes), "{} writes", stand.writes);
}

#[test]
fn refusing_coordinator_is_asked_less_often() {
    let mut stand = Stand::new(record(&FIVE));
    (stand.refuses, stand.asked) = (true, 0);
    stand.pass(90);
    assert!((5..=11).contains(&stand.asked), "asked {} times", stand.asked);
    (stand.refuses, stand.asked) = (false, 0);
    stand.tell(Event::Back);
    assert_eq!(stand.asked, 1, "it is there again: no wait");
}

#[test]
fn ring_is_settled_when_no_move_or_drop_remains() {
    let mut stand = Stand::new(record(&["a"]).joined(member("b", 1)).unwrap().record);
    let plan = stand.change().plan;
    stand.settle("b");
    stand.pass(20);
    assert_eq!((stand.version(), stand.record.settling), (2, Some(plan)));
    assert!(stand.dropped > 0 && stand.alive["a"].settled[0].clean, "a has dropped all");
    stand.say("b", Settled { plan, gaps: 0, clean: true });
    stand.pass(1);
    assert_eq!((stand.version(), stand.record.settling), (2, None));
    let again = Command::Apply { planned: stand.planned(plan), rate: None, asked_by: "op".into() };
    assert_eq!(stand.command(again), Ok(Answer::Done), "it is done, however often it is asked");
}

#[test]
fn gaps_of_a_new_owner_keep_old_copies_but_end_settling() {
    let mut stand = Stand::new(record(&["a"]).joined(member("b", 1)).unwrap().record);
    let plan = stand.change().plan;
    stand.say("b", Settled { plan, gaps: 1, clean: true });
    stand.pass(20);
    assert_eq!((stand.version(), stand.record.settling, stand.dropped), (2, None, 0));
}

#[test]
fn last_member_drains_only_after_another_joins() {
    let mut stand = Stand::new(record(&["a", "b"]));
    stand.command(Command::Drain { id: "a".to_owned(), deadline: None }).unwrap();
    stand.command(Steer::Abort.any()).unwrap();
    stand.write(|record| record.draining("a", None));
    stand.write(|record| record.condemned(&["b".to_owned()]));
    stand.pass(120);
    assert_eq!((stand.ids(), stand.alarms("not done")), (vec!["a"], 0));
    stand.come("c");
    stand.write(|record| record.joined(member("c", 1)));
    stand.pass(10);
    let edits = [Edit::Remove("a".to_owned()), Edit::Put(member("c", 1))];
    assert_eq!(stand.change().edits, edits);
}

#[test]
fn absence_of_a_silent_member_counts_from_its_record_entry() {
    let mut stand = Stand::new(record(&FIVE));
    stand.pass(100);
    stand.write(|record| record.joined(member("f", 1)));
    let plan = stand.plan(vec![Edit::Put(member("f", 1))]);
    stand.write(|record| {
        record.recast(&RingPlan::decode(&plan).unwrap(), BlobId::of(&plan), "me", "so it is")
    });
    assert_eq!(stand.version(), 2);
    stand.pass(Timing::REAL.death_grace.as_secs() - 2);
    assert_eq!(stand.version(), 2);
    stand.pass(5);
    assert_eq!(stand.version(), 3);
}

#[test]
fn dataset_without_room_in_the_record_blocks_nothing() {
    let full = record(&FIVE).opened(&long(0..32)).unwrap().record;
    let mut stand = Stand::new(full);
    stand.pulls = false;
    stand.write(|record| record.draining("e", None));
    stand.pass(5);
    assert!(stand.record.change.is_some());
    let [newcomer] = long(40..41).try_into().unwrap();
    stand.tell(Event::Opened(newcomer.clone()));
    stand.pass(5);
    assert!(!stand.record.datasets.contains(&newcomer));
    // Everything else goes on meanwhile.
    let plan = stand.change().plan;
    for id in ["b", "c", "d"] {
        stand.say(id, Settled { plan, gaps: 0, clean: true });
    }
    stand.finish_pulls();
    stand.pass(30);
    assert_eq!((stand.version(), stand.record.settling), (2, None));
    assert!(stand.record.datasets.contains(&newcomer), "now the oldest had to go");
    assert!(!stand.record.datasets.contains(&long(0..1)[0]));
}

#[test]
fn forgotten_dataset_is_reported_again_after_a_while() {
    let mut stand = Stand::new(record(&["a"]));
    stand.tell(Event::Opened(dataset(200)));
    assert_eq!(stand.record.datasets, [dataset(200)]);
    stand.write(|record| record.opened(&long(0..32)));
    stand.write(|record| record.opened(&long(40..41)));
    assert!(!stand.record.datasets.contains(&dataset(200)));
    let writes = stand.writes;
    for _ in 0..60 {
        stand.pass(1);
        stand.tell(Event::Opened(dataset(200)));
    }
    assert_eq!(stand.writes, writes, "more is in use than there is room for: that is no race");
    stand.sleep(Timing::REAL.dataset_told_interval.as_secs());
    stand.tell(Event::Opened(dataset(200)));
    stand.pass(20);
    assert_eq!(stand.record.datasets.last(), Some(&dataset(200)));
}
