use bytes::Bytes;

use super::*;
use crate::clock;

/// No snapshot is open.
fn any(_: SnapshotId) -> Option<u32> {
    None
}

/// A loader of a pass with 40 shards in 10 windows.
fn plan(reader: u8, first_window: u32, last_window: u32) -> ReadPlan {
    ReadPlan {
        reader: Bytes::copy_from_slice(&[reader; 16]),
        snapshot: Bytes::copy_from_slice(&[9; 32]),
        job: "resnet".to_owned(),
        pass: 3,
        shards: vec![0, 10, 20, 30],
        window_shards: 4,
        keys: Bytes::copy_from_slice(&[7; 32]),
        first_window,
        last_window,
        rate: Some(0.5),
    }
}

#[test]
fn loaders_in_step_are_one_job_and_distant_ones_are_others() {
    let (plans, now) = (ReadPlans::default(), clock::now());
    let ranks = vec![plan(1, 2, 3), plan(2, 1, 2), plan(3, 5, 5), plan(4, 9, 10)];
    plans.tell(ranks, true, any, now).unwrap();
    let mut other = plan(5, 2, 2);
    other.job = "vit".to_owned();
    plans.tell(vec![other], true, any, now).unwrap();
    let jobs: Vec<_> = plans
        .jobs(now)
        .iter()
        .map(|job| (job.name.to_string(), job.loaders, job.slowest, job.fastest))
        .collect();
    let resnet = |loaders, slowest, fastest| ("resnet".to_owned(), loaders, slowest, fastest);
    let vit = ("vit".to_owned(), 1, 2, 2);
    assert_eq!(jobs, [resnet(3, 1, 5), resnet(1, 9, 10), vit]);
    assert_eq!(plans.jobs(now)[0].keys.windows(), 10);
}

#[test]
fn plan_advances_by_its_rate_and_ends_after_five_seconds() {
    let (plans, now) = (ReadPlans::default(), clock::now());
    plans.tell(vec![plan(1, 4, 5)], true, any, now).unwrap();
    let later = |ms| now + Duration::from_millis(ms);
    let at = |ms| plans.jobs(later(ms)).pop().map(|job| (job.slowest, job.fastest));
    assert_eq!(at(1_999), Some((4, 5)));
    assert_eq!(at(2_000), Some((5, 6)));
    assert_eq!(at(4_999), Some((5, 6)));
    assert_eq!(at(5_000), None);
    assert!(plans.own(later(5_000)).is_empty());
    // Among many nodes, messages are rarer.
    plans.tell(vec![plan(1, 4, 5)], true, any, now).unwrap();
    assert_eq!(plans.interval(640), Duration::from_secs(10));
    assert!(at(29_999).is_some());
    assert_eq!(at(30_000), None);
}

#[test]
fn only_plans_of_own_clients_are_passed_on() {
    let (plans, now) = (ReadPlans::default(), clock::now());
    plans.tell(vec![plan(1, 4, 5)], true, any, now).unwrap();
    plans.tell(vec![plan(2, 4, 5)], false, any, now).unwrap();
    assert_eq!(plans.own(now), [plan(1, 4, 5)]);
    assert_eq!(plans.jobs(now)[0].loaders, 2);
    // The client's own word counts, until it is silent.
    plans.tell(vec![plan(1, 7, 7)], false, any, now).unwrap();
    assert_eq!(plans.own(now), [plan(1, 4, 5)]);
    assert_eq!(plans.jobs(now)[0].fastest, 5);
}

#[test]
fn plan_that_breaks_a_rule_is_refused_whole_with_its_value() {
    let (plans, now) = (ReadPlans::default(), clock::now());
    type Spoil = fn(&mut ReadPlan);
    let wrong: [(Spoil, &str); 12] = [
        (|plan| plan.reader = Bytes::from_static(&[1; 15]), "15 bytes, not 16"),
        (|plan| plan.snapshot = Bytes::new(), "snapshot has 0 bytes"),
        (|plan| plan.job = "j".repeat(65), "65 bytes; at most 64"),
        (|plan| plan.shards = vec![0, 10, 5, 3], "overlap"),
        (|plan| plan.shards = vec![0, 10, 5], "3 numbers"),
        (|plan| plan.shards = vec![3, 0], "hold no shard"),
        (|plan| plan.shards = (0..12_002).collect(), "12002 numbers"),
        (|plan| plan.window_shards = 0, "windows of 0 shards"),
        (|plan| plan.keys = Bytes::from_static(&[1; 16]), "16 bytes, not 0 or 32"),
        (|plan| plan.last_window = 21, "windows 4 to 21 of a pass with 10"),
        (|plan| plan.first_window = 6, "windows 6 to 5"),
        (|plan| plan.rate = Some(f64::NAN), "a rate of NaN"),
    ];
    for (spoil, says) in wrong {
        let mut spoilt = plan(2, 4, 5);
        spoil(&mut spoilt);
        let refused = plans.tell(vec![plan(1, 4, 5), spoilt], true, any, now).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.message().contains(says), "{refused}");
    }
    let refused = plans.tell(vec![plan(1, 4, 5)], true, |_| Some(49), now).unwrap_err();
    assert!(refused.message().contains("shard 49"), "{refused}");
    let many = (0..17).map(|reader| plan(reader, 0, 0)).collect();
    let refused = plans.tell(many, true, any, now).unwrap_err();
    assert!(refused.message().contains("17 read plans"), "{refused}");
    assert!(plans.jobs(now).is_empty());
}

#[test]
fn node_holds_no_more_plans_than_its_limits() {
    let (plans, now) = (ReadPlans::default(), clock::now());
    let long = |reader| {
        let stretches = (0..6_000).flat_map(|run| [run * 2, 1]);
        ReadPlan { shards: stretches.collect(), ..plan(reader, 0, 0) }
    };
    let fits = (0..30).take_while(|&reader| plans.tell(vec![long(reader)], true, any, now).is_ok());
    assert_eq!(fits.count(), 10);
    let refused = plans.tell(vec![long(99)], true, any, now).unwrap_err();
    assert!(refused.message().contains("a node holds 4096 plans and 1048576 bytes"), "{refused}");
    plans.tell(vec![long(0)], true, any, now).unwrap();
}
