use super::*;

fn plan(positions: u64, start: u64, batch_size: u32, world: u32, last: Last) -> BatchPlan {
    let number = |n| NonZeroU32::new(n).unwrap();
    BatchPlan::new(positions, start, number(batch_size), number(world), last).unwrap()
}

fn shares(plan: &BatchPlan, batch: u64) -> Vec<Vec<BatchRow>> {
    (0..plan.world.get()).map(|rank| plan.share(batch, rank).unwrap().rows().collect()).collect()
}

fn own(shares: &[Vec<BatchRow>]) -> Vec<u64> {
    shares.iter().flatten().filter(|row| !row.padding).map(|row| row.position).collect()
}

#[test]
fn ranks_together_walk_the_positions_at_any_world_size() {
    for world in 1..9 {
        for batch_size in [1, 3, 16] {
            for start in [0, 5, 99, 100] {
                for last in [Last::Drop, Last::Pad, Last::Uneven] {
                    let plan = plan(100, start, batch_size, world, last);
                    let walked: Vec<_> = (0..plan.batches_in_epoch())
                        .flat_map(|batch| own(&shares(&plan, batch)))
                        .collect();
                    assert_eq!(walked, plan.delivered().collect::<Vec<_>>());
                    assert_eq!(plan.share(plan.batches_in_epoch(), 0), None);
                    assert_eq!(plan.share(0, world), None);
                }
            }
        }
    }
}

#[test]
fn only_drop_leaves_out_samples_and_less_than_a_global_batch() {
    assert_eq!(plan(100, 0, 8, 4, Last::Drop).batches_in_epoch(), 3);
    assert_eq!(plan(100, 0, 8, 4, Last::Drop).delivered(), 0..96);
    assert_eq!(plan(31, 0, 8, 4, Last::Drop).batches_in_epoch(), 0);
    assert_eq!(plan(100, 0, 8, 4, Last::Pad).batches_in_epoch(), 4);
    assert_eq!(plan(100, 7, 8, 4, Last::Uneven).delivered(), 7..100);
    assert_eq!(plan(0, 0, 8, 4, Last::Pad).batches_in_epoch(), 0);
    assert_eq!(plan(100, 100, 8, 4, Last::Pad).batches_in_epoch(), 0);
}

#[test]
fn padding_fills_every_rank_with_distinct_first_samples() {
    let plan = plan(22, 0, 4, 4, Last::Pad);
    let shares = shares(&plan, 1);
    assert!(shares.iter().all(|share| share.len() == 4));
    assert_eq!(own(&shares), (16..22).collect::<Vec<_>>());
    let padding: Vec<_> =
        shares.iter().flatten().filter(|row| row.padding).map(|row| row.position).collect();
    assert_eq!(padding, (0..10).collect::<Vec<_>>());
    assert!(shares.iter().all(|share| !share[0].padding), "each rank has a sample that counts");
}

#[test]
fn epoch_shorter_than_a_batch_repeats_samples_as_padding() {
    let plan = plan(3, 0, 4, 2, Last::Pad);
    let positions: Vec<_> = shares(&plan, 0).concat().iter().map(|row| row.position).collect();
    assert_eq!(positions, [0, 1, 0, 1, 2, 2, 0, 1]);
}

#[test]
fn uneven_last_batch_is_divided_as_evenly_as_possible() {
    let lens = |positions| -> Vec<_> {
        shares(&plan(positions, 0, 4, 4, Last::Uneven), 0).iter().map(Vec::len).collect()
    };
    assert_eq!(lens(10), [3, 3, 2, 2]);
    assert_eq!(lens(2), [1, 1, 0, 0]);
    assert!(plan(2, 0, 4, 4, Last::Uneven).share(0, 3).unwrap().is_empty());
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let plan = plan(u64::MAX, u64::MAX - 5, u32::MAX, u32::MAX, Last::Pad);
    assert_eq!(plan.batches_in_epoch(), 1);
    assert_eq!(plan.position_after(0), Some(u64::MAX));
    let share = plan.share(0, u32::MAX - 1).unwrap();
    assert_eq!(share.len(), u64::from(u32::MAX));
    assert_eq!(
        share.rows().next(),
        Some(BatchRow { position: share.padding_start, padding: true })
    );
}

#[test]
fn a_start_past_the_end_is_refused() {
    let one = NonZeroU32::MIN;
    let error = BatchPlan::new(10, 11, one, one, Last::Drop).unwrap_err();
    assert_eq!(error, Error::Position { position: 11, positions: 10 });
}
