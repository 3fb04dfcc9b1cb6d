use std::collections::HashSet;
use std::num::NonZeroU32;

use xxhash_rust::xxh3::xxh3_64;

use super::super::{DatasetShape, ORDER_VERSION};
use super::*;

fn window(shards: u32) -> Shuffle {
    Shuffle::Window { shards: NonZeroU32::new(shards).unwrap() }
}

fn view(shape: &DatasetShape, range: Range<u64>) -> View {
    View::all([0xA5; 32], shape.clone()).select(range).unwrap()
}

fn order(shape: &DatasetShape, range: Range<u64>, seed: u64, shuffle: Shuffle) -> Order {
    let view = view(shape, range);
    Order::new(PassId::new(&view, seed, 0, shuffle), &view).unwrap()
}

fn samples(order: &Order) -> Vec<u64> {
    let mut samples = Vec::new();
    order.fill(0..order.len(), &mut samples);
    samples
}

/// A few random selections on top of each other.
fn selected(view: View, random: &mut fastrand::Rng) -> View {
    let mut view = view;
    for _ in 0..random.usize(..4) {
        view = match random.u32(..3) {
            0 => {
                let start = random.u64(..=view.len());
                view.select(start..random.u64(start..=view.len()))
            }
            1 => {
                let taken: Vec<u64> = (0..view.len()).filter(|_| random.u32(..3) > 0).collect();
                view.select(taken)
            }
            _ => {
                let seed = random.u64(..);
                view.split(&[0.25, 0.75], seed)
                    .map(|mut parts| parts.swap_remove(random.usize(..2)))
            }
        }
        .unwrap();
    }
    view
}

/// Datasets with shards of uneven size, some of them empty, and selections that cut shards in two.
fn cases() -> impl Iterator<Item = (DatasetShape, Order)> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..300).map(move |seed| {
        let shards = random.u32(0..30);
        let rows: Vec<_> = (0..shards).map(|_| random.u32(0..20).saturating_sub(3)).collect();
        let shape = DatasetShape::from_rows(rows).unwrap();
        let view = selected(View::all([0xA5; 32], shape.clone()), &mut random);
        let shuffle = match seed % 4 {
            0 => Shuffle::None,
            1 => Shuffle::Global,
            _ => window(random.u32(1..40)),
        };
        let order = Order::new(PassId::new(&view, seed, 0, shuffle), &view).unwrap();
        (shape, order)
    })
}

#[test]
fn declared_samples_and_positions_map_one_to_one() {
    for (shape, order) in cases() {
        let samples = samples(&order);
        assert_eq!(samples.len() as u64, order.len());
        for (position, &sample) in (0..).zip(&samples) {
            assert!(order.view().index_of(sample).is_some(), "{}", order.pass_id());
            assert_eq!(order.sample_at(position), sample, "{}", order.pass_id());
            assert_eq!(order.position_of(sample), Some(position), "{}", order.pass_id());
        }
        let undeclared = (0..=shape.samples()).filter(|sample| !samples.contains(sample));
        for sample in undeclared {
            assert_eq!(order.position_of(sample), None);
        }
    }
}

#[test]
fn part_of_an_order_equals_that_part_of_the_whole() {
    let mut random = fastrand::Rng::with_seed(3);
    for (_, order) in cases() {
        let whole = samples(&order);
        let end = random.u64(..=order.len());
        let start = random.u64(..=end);
        let mut part = vec![99];
        order.fill(start..end, &mut part);
        let (start, end) = (usize::try_from(start).unwrap(), usize::try_from(end).unwrap());
        assert_eq!(part[1..], whole[start..end]);
    }
}

#[test]
fn a_shard_is_used_only_within_its_next_use() {
    for (shape, order) in cases() {
        let samples = samples(&order);
        let from = order.len() / 3;
        for (position, &sample) in (0..).zip(&samples) {
            let shard = shape.shard_of(sample).unwrap();
            let used = order.next_use(shard, 0).unwrap();
            assert!(used.contains(&position), "shard {shard} outside {used:?}");
            if position >= from {
                let left = order.next_use(shard, from).unwrap();
                assert_eq!(left, used.start.max(from)..used.end);
            }
        }
        for shard in 0..shape.shard_count() + 2 {
            let declared = samples.iter().any(|&sample| shape.shard_of(sample) == Some(shard));
            assert_eq!(order.next_use(shard, 0).is_some(), declared);
            assert_eq!(order.next_use(shard, order.len()), None);
        }
    }
}

#[test]
fn coming_shards_are_sorted_by_next_use() {
    for (shape, order) in cases() {
        for from in [0, order.len() / 2, order.len().saturating_sub(1), order.len()] {
            let to_come: Vec<_> = order.shards_from(from).collect();
            let starts: Vec<_> =
                to_come.iter().map(|&shard| order.next_use(shard, from).unwrap().start).collect();
            assert!(starts.is_sorted(), "{}: {starts:?}", order.pass_id());
            let set: HashSet<_> = to_come.iter().copied().collect();
            assert_eq!(set.len(), to_come.len());
            let used = |shard: &u32| order.next_use(*shard, from).is_some();
            assert_eq!(set, (0..shape.shard_count()).filter(used).collect());
        }
    }
}

#[test]
fn window_holds_its_number_of_shards() {
    let shape = DatasetShape::from_rows([10; 23]).unwrap();
    let order = order(&shape, 0..230, 1, window(5));
    let samples = samples(&order);
    let mut seen = HashSet::new();
    for part in samples.chunks(50) {
        let shards: HashSet<_> = part.iter().map(|&sample| shape.shard_of(sample)).collect();
        assert_eq!(shards.len(), part.len() / 10);
        assert!(seen.is_disjoint(&shards));
        assert!(!part.is_sorted());
        seen.extend(shards);
    }
}

/// Each window against the plain model of it: the declared samples of as many declared shards.
#[test]
fn window_has_all_declared_samples_of_its_shards() {
    let windows = cases().filter_map(|(shape, order)| match order.pass_id().shuffle() {
        Shuffle::Window { shards } => Some((shape, shards.get() as usize, order)),
        _ => None,
    });
    for (shape, width, order) in windows {
        let samples = samples(&order);
        let mut left = &samples[..];
        let in_order: Vec<u32> = order.shards_from(0).collect();
        for shards in in_order.chunks(width) {
            let declared = order.view().samples();
            let mut model: Vec<u64> = declared
                .filter(|&sample| shards.contains(&shape.shard_of(sample).unwrap()))
                .collect();
            let (window, rest) = left.split_at(model.len());
            let mut window = window.to_vec();
            window.sort_unstable();
            model.sort_unstable();
            assert_eq!(window, model, "{}", order.pass_id());
            left = rest;
        }
        assert!(left.is_empty());
    }
}

#[test]
fn samples_keep_their_order_without_a_shuffle() {
    let shape = DatasetShape::from_rows([3, 4, 5]).unwrap();
    assert_eq!(samples(&order(&shape, 2..9, 1, Shuffle::None)), (2..9).collect::<Vec<_>>());
}

#[test]
fn another_seed_epoch_or_selection_gives_an_unrelated_order() {
    let shape = DatasetShape::from_rows([100; 100]).unwrap();
    for shuffle in [window(8), Shuffle::Global] {
        let base = order(&shape, 0..10_000, 1, shuffle);
        let next = Order::new(base.pass_id().next_epoch(), &view(&shape, 0..10_000)).unwrap();
        for other in
            [next, order(&shape, 0..10_000, 2, shuffle), order(&shape, 0..9_999, 1, shuffle)]
        {
            let (a, b) = (samples(&base), samples(&other));
            let equal = a.iter().zip(&b).filter(|(a, b)| a == b).count();
            assert!(equal <= 12, "{equal} of 10,000 in place: {}", other.pass_id());
        }
    }
}

#[test]
fn a_pass_is_refused_for_another_view_or_order_version() {
    let whole = View::all([1; 32], DatasetShape::from_rows([10, 10]).unwrap());
    let pass_id = PassId::new(&whole, 0, 0, Shuffle::Global);
    let part = whole.select(0..10).unwrap();
    assert!(matches!(Order::new(pass_id, &part), Err(Error::View { .. })));
    let text = pass_id.to_string();
    let later: PassId = format!("{}2", &text[..text.len() - 1]).parse().unwrap();
    let error = Order::new(later, &whole).unwrap_err();
    assert_eq!(error, Error::OrderVersion { found: 2, supported: 1 });
}

/// The order itself, pinned. If this fails, jobs that are under way can't resume with this build:
/// either the change was a mistake, or it is a decision and `ORDER_VERSION` must rise with it.
#[test]
fn shard_keys_tell_the_window_of_each_position_in_both_passes() {
    for (shape, order) in cases() {
        let Some(keys) = order.shard_keys() else {
            assert_eq!(order.pass_id().shuffle(), Shuffle::Global);
            continue;
        };
        let next = Order::new(order.pass_id().next_epoch(), order.view()).unwrap();
        for (pass, told) in [order, next].iter().zip(keys.orders()) {
            let keys = pass.shard_keys().unwrap();
            for (position, &sample) in (0..).zip(&samples(pass)) {
                let window = told.window_of(shape.shard_of(sample).unwrap());
                assert_eq!(window, Some(pass.window_at(position, &keys)), "{}", pass.pass_id());
            }
            assert_eq!(pass.window_at(pass.len(), &keys), told.windows());
        }
    }
}

#[test]
fn the_order_of_version_1_never_changes() {
    assert_eq!(ORDER_VERSION, 1);
    let uneven = DatasetShape::from_rows((0..200).map(|shard| 50 + shard * 7 % 31)).unwrap();
    let huge = DatasetShape::from_rows([u32::MAX; 1000]).unwrap();
    let hash = |shape: &DatasetShape, range: Range<u64>, shuffle, from: u64| {
        let order = order(shape, range, 42, shuffle);
        let mut samples = Vec::new();
        order.fill(from..from + 400, &mut samples);
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        xxh3_64(&bytes)
    };
    let all = |shape: &DatasetShape| 0..shape.samples();
    let hashes = [
        hash(&uneven, all(&uneven), Shuffle::Global, 0),
        hash(&uneven, 100..700, Shuffle::Global, 200),
        hash(&uneven, all(&uneven), window(8), 300),
        hash(&uneven, 1000..9000, window(64), 4000),
        hash(&uneven, all(&uneven), window(1), 0),
        hash(&huge, all(&huge), Shuffle::Global, 1 << 40),
        hash(&huge, all(&huge), window(64), 1 << 40),
    ];
    assert_eq!(hashes, GOLDEN, "{hashes:#018x?}");
    let first: Vec<_> = samples(&order(&uneven, 0..16, 0, Shuffle::Global));
    assert_eq!(first, FIRST);
}

/// Hashes of 400 samples each.
const GOLDEN: [u64; 7] = [
    0x7112_0986_9E27_7B0E,
    0x5298_1289_8331_E9E8,
    0x42B1_4C5A_1590_15FF,
    0xDBCA_EE2A_6314_B3C3,
    0x7F47_ABD7_2C71_C1FE,
    0x2C45_563C_BADA_F554,
    0x1579_4D71_497D_0537,
];

/// Sixteen samples, to be seen by eye.
const FIRST: [u64; 16] = [13, 1, 4, 10, 6, 15, 11, 5, 0, 12, 7, 14, 8, 3, 9, 2];
