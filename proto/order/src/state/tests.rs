use std::num::NonZeroU32;

use super::super::{BatchPlan, DatasetShape, EpochDigest, Last, Order, Shuffle, View};
use super::*;

/// A job that may be stopped: all ranks of one world after each other, batch by batch.
struct Job {
    delivered: Vec<u64>,
    digest: EpochDigest,
}

impl Job {
    /// Runs `batches` batches (or to the end) from a saved state, and saves the state again.
    fn run(
        &mut self,
        saved: &str,
        order: &Order,
        random: &mut fastrand::Rng,
        batches: u64,
        last: Last,
    ) -> (String, BatchPlan) {
        let state: LoaderState = saved.parse().unwrap();
        let batch_size = NonZeroU32::new(random.u32(1..20)).unwrap();
        let world = NonZeroU32::new(random.u32(1..9)).unwrap();
        let start = state.resume(order.pass_id(), order.len()).unwrap();
        let plan = BatchPlan::new(order.len(), start, batch_size, world, last).unwrap();
        let mut next = start;
        for batch in 0..plan.batches_in_epoch().min(batches) {
            for rank in 0..world.get() {
                let share = plan.share(batch, rank).unwrap();
                let samples: Vec<u64> =
                    share.rows().map(|row| order.sample_at(row.position)).collect();
                let mut digest = EpochDigest::new(order.pass_id());
                for (row, &sample) in share.rows().zip(&samples) {
                    if !row.padding {
                        digest.add(sample);
                        self.delivered.push(sample);
                    }
                }
                assert_eq!(samples.len() as u64, share.len());
                self.digest.merge(&digest).unwrap();
            }
            next = plan.position_after(batch).unwrap();
        }
        (LoaderState::new(order.pass_id(), next).to_string(), plan)
    }
}

fn random_order(random: &mut fastrand::Rng) -> Order {
    let shards = random.u32(1..30);
    let rows: Vec<_> = (0..shards).map(|_| random.u32(1..60)).collect();
    let shape = DatasetShape::from_rows(rows).unwrap();
    let end = random.u64(1..=shape.samples());
    let range = random.u64(..end)..end;
    let mut view = View::all([random.u8(..); 32], shape).select(range).unwrap();
    if random.bool() {
        view = view.split(&[0.7, 0.3], random.u64(..)).unwrap().swap_remove(0);
    }
    let shuffle = match random.u32(..3) {
        0 => Shuffle::None,
        1 => Shuffle::Global,
        _ => Shuffle::Window { shards: NonZeroU32::new(random.u32(1..10)).unwrap() },
    };
    let pass_id = PassId::new(&view, random.u64(..), random.u64(..9), shuffle);
    Order::new(pass_id, &view).unwrap()
}

#[test]
fn job_resumed_at_another_world_size_loses_no_sample() {
    for seed in 0..200 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let order = random_order(random);
        for last in [Last::Pad, Last::Uneven] {
            let mut job = Job { delivered: Vec::new(), digest: EpochDigest::new(order.pass_id()) };
            let mut saved = LoaderState::new(order.pass_id(), 0).to_string();
            for _ in 0..random.u32(1..5) {
                let batches = random.u64(..6);
                (saved, _) = job.run(&saved, &order, random, batches, last);
            }
            job.run(&saved, &order, random, u64::MAX, last);
            assert_eq!(
                job.digest,
                EpochDigest::of_samples(order.pass_id(), order.view().samples()),
                "seed {seed}"
            );
            assert!(
                (0..)
                    .zip(&job.delivered)
                    .all(|(position, &sample)| order.sample_at(position) == sample)
            );
            job.delivered.sort_unstable();
            let mut declared: Vec<_> = order.view().samples().collect();
            declared.sort_unstable();
            assert_eq!(job.delivered, declared, "seed {seed}");
        }
    }
}

#[test]
fn dropping_the_last_batch_delivers_a_prefix_of_the_epoch() {
    for seed in 0..200 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let order = random_order(random);
        let mut job = Job { delivered: Vec::new(), digest: EpochDigest::new(order.pass_id()) };
        let saved = LoaderState::new(order.pass_id(), 0).to_string();
        let (saved, _) = job.run(&saved, &order, random, 3, Last::Drop);
        let (_, plan) = job.run(&saved, &order, random, u64::MAX, Last::Drop);
        let end = plan.delivered().end;
        assert!(order.len() - end < plan.global_batch());
        assert_eq!(
            job.digest,
            EpochDigest::of_samples(order.pass_id(), (0..end).map(|at| order.sample_at(at)))
        );
        assert_eq!(job.delivered.len() as u64, end);
    }
}

#[test]
fn a_state_resumes_only_in_the_pass_it_was_saved_in() {
    let random = &mut fastrand::Rng::with_seed(5);
    let (order, other) = (random_order(random), random_order(random));
    let state = LoaderState::new(order.pass_id(), order.len());
    assert_eq!(state.resume(order.pass_id(), order.len()), Ok(order.len()));
    assert!(matches!(state.resume(other.pass_id(), other.len()), Err(Error::Pass { .. })));
    let past = LoaderState::new(order.pass_id(), order.len() + 1);
    assert!(matches!(past.resume(order.pass_id(), order.len()), Err(Error::Position { .. })));
}

#[test]
fn state_has_one_text_form_and_others_are_refused() {
    let view = View::all([1; 32], DatasetShape::from_rows([10]).unwrap());
    let state = LoaderState::new(PassId::new(&view, 7, 2, Shuffle::Global), 4);
    let text = state.to_string();
    assert_eq!(
        text,
        format!("larder-state/1/{:032x}/7/2/global/1/4", u128::from_be_bytes(view.digest()))
    );
    assert_eq!(text.parse(), Ok(state));
    for wrong in [
        text.replace("state/1", "state/2"),
        text.replace("larder", "lager"),
        text.replace("/4", "/04"),
        text.replace("/4", "/18446744073709551616"),
        format!("{text}/"),
        format!(" {text}"),
        text[..text.len() - 2].to_owned(),
        String::new(),
        "x".repeat(100_000),
    ] {
        let error = wrong.parse::<LoaderState>().unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}
