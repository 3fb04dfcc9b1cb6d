use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{DatasetShape, EpochDigest};

fn view(snapshot: u8, rows: &[u32]) -> View {
    View::all([snapshot; 32], DatasetShape::from_rows(rows.iter().copied()).unwrap())
}

fn samples(count: u64) -> Stop {
    Stop::Samples(NonZeroU64::new(count).unwrap())
}

fn order(mixture: &Mixture, epoch: u64, shuffle: &str) -> JobOrder {
    JobOrder::new(mixture.pass_id(3, epoch, shuffle.parse().unwrap()), mixture).unwrap()
}

fn draws(order: &JobOrder, positions: Range<u64>) -> Draws {
    let mut draws = Draws::new(order.pass_id());
    order.fill(positions, &mut draws);
    draws
}

fn filled(order: &JobOrder, positions: Range<u64>) -> Vec<(u32, u64)> {
    let draws = draws(order, positions);
    (0..draws.len()).map(|place| draws.at(place)).collect()
}

fn stop() -> impl Strategy<Value = Stop> {
    prop_oneof![Just(Stop::First), Just(Stop::All), (300..600_u64).prop_map(samples)]
}

/// A few small sources with weights no further apart than 8 to 1.
fn sources() -> impl Strategy<Value = Vec<(View, f64)>> {
    vec((vec(1..9_u32, 1..6), 1..9_u32), 1..6).prop_map(|sources| {
        let source =
            |(i, (rows, weight)): (u8, (Vec<u32>, u32))| (view(i, &rows), f64::from(weight));
        (0..).zip(sources).map(source).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn counts_of_samples_of_a_source_differ_by_at_most_one(
        sources in sources(),
        stop in stop(),
        seed in any::<u64>(),
        first in prop_oneof![Just(0), 0..1_000_000_u64],
        shuffle in prop_oneof![Just("none"), Just("window:2"), Just("global")],
    ) {
        // A small source may have too small a share of a short epoch.
        let Ok(mixture) = Mixture::new(sources, seed, stop) else { return Ok(()) };
        let mut times: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        let mut once = BTreeSet::new();
        for (number, view) in (0..).zip(mixture.views()) {
            times.extend(view.samples().map(|sample| ((number, sample), 0)));
        }
        for epoch in first..first + 4 {
            let order = order(&mixture, epoch, shuffle);
            let drawn = filled(&order, 0..order.len());
            let draws = draws(&order, 0..order.len());
            let mut digest = EpochDigest::new(order.pass_id());
            draws.add_to(&mut digest, draws.len());
            prop_assert_eq!(order.digest(0..order.len()), digest);
            for (draw, &pass) in drawn.iter().zip(draws.passes().unwrap()) {
                prop_assert!(once.insert((*draw, pass)), "{:?} twice in pass {}", draw, pass);
            }
            for (number, draws) in (0..).zip(mixture.draws()) {
                let count = drawn.iter().filter(|(source, _)| *source == number).count() as u64;
                prop_assert_eq!(count, draws);
            }
            for row in drawn {
                *times.get_mut(&row).unwrap() += 1;
            }
            let spread = |number| {
                let of_source = times.range((number, 0)..(number + 1, 0)).map(|(_, times)| *times);
                (of_source.clone().min().unwrap(), of_source.max().unwrap())
            };
            for number in 0..u32::try_from(mixture.views().len()).unwrap() {
                let (least, most) = spread(number);
                // Begun in mid-pass, the first pass counts in part.
                prop_assert!(most - least <= 1 + u64::from(first > 0), "{}: {}..{}", number, least, most);
            }
        }
    }

    #[test]
    fn part_of_an_order_equals_that_part_of_the_whole(
        sources in sources(),
        stop in stop(),
        epoch in 0..9_u64,
        parts in vec(any::<u64>(), 1..8),
    ) {
        let Ok(mixture) = Mixture::new(sources, 1, stop) else { return Ok(()) };
        let whole = filled(&order(&mixture, epoch, "window:2"), 0..mixture.len());
        let order = order(&mixture, epoch, "window:2");
        for part in parts {
            let start = part % mixture.len();
            let end = (start + part / mixture.len() % 50).min(mixture.len());
            let range = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
            prop_assert_eq!(&filled(&order, start..end), &whole[range]);
        }
    }

    #[test]
    fn a_source_is_drawn_from_in_the_order_of_its_passes(
        sources in sources(),
        stop in stop(),
        shuffle in prop_oneof![Just("none"), Just("window:2"), Just("global")],
    ) {
        let Ok(mixture) = Mixture::new(sources, 1, stop) else { return Ok(()) };
        for (number, view) in (0..).zip(mixture.views()) {
            let mut drawn = (0..3).flat_map(|epoch| {
                let order = order(&mixture, epoch, shuffle);
                let rows = filled(&order, 0..order.len()).into_iter();
                rows.filter(|(source, _)| *source == number).map(|(_, sample)| sample)
            });
            let at = |pass| order(&mixture, 0, shuffle).pass(number as usize, pass);
            for pass in 0.. {
                let order = at(pass);
                let model = (0..view.len()).map(|position| order.sample_at(position));
                let (model, found): (Vec<_>, Vec<_>) = model.zip(&mut drawn).unzip();
                prop_assert_eq!(&model, &found);
                if found.len() as u64 != view.len() {
                    break;
                }
            }
        }
    }
}

#[test]
fn stop_first_repeats_nothing_and_stop_all_omits_nothing() {
    let sources = || [(view(0, &[50, 50]), 0.25), (view(1, &[500]), 0.5), (view(2, &[90]), 0.25)];
    let first = Mixture::new(sources(), 0, Stop::First).unwrap();
    assert_eq!(first.draws().collect::<Vec<_>>(), [90, 180, 90]);
    let all = Mixture::new(sources(), 0, Stop::All).unwrap();
    assert_eq!(all.draws().collect::<Vec<_>>(), [250, 500, 250]);
    let fixed = Mixture::new(sources(), 0, samples(1_002)).unwrap();
    assert_eq!(fixed.draws().sum::<u64>(), 1_002);
    for epoch in 0..2 {
        let mut drawn = filled(&order(&first, epoch, "global"), 0..first.len());
        drawn.sort_unstable();
        drawn.dedup();
        let once = drawn.len() as u64;
        assert!(once == first.len() || epoch > 0, "{once}");
        let mut drawn = filled(&order(&all, epoch, "global"), 0..all.len());
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 690, "every sample of every source");
    }
}

#[test]
fn every_batch_has_the_proportions_of_the_mixture() {
    let sources = [(view(0, &[70_000]), 0.7), (view(1, &[50_000]), 0.2), (view(2, &[1_000]), 0.1)];
    let mixture = Mixture::new(sources, 9, samples(100_000)).unwrap();
    let order = order(&mixture, 0, "global");
    for batch in (0..order.len() - 256).step_by(256) {
        let rows = filled(&order, batch..batch + 256);
        for (number, due) in [(0, 179.2), (1, 51.2), (2, 25.6)] {
            let count = rows.iter().filter(|(source, _)| *source == number).count() as f64;
            assert!((count - due).abs() <= 2.0, "{count} where {due} are due");
        }
    }
}

#[test]
fn refuses_invalid_mixtures_with_a_reason() {
    let refused = |sources: &[(u32, f64)], stop, why: &str| {
        let sources = sources.iter().map(|&(rows, weight)| (view(0, &[rows]), weight));
        let error = Mixture::new(sources, 0, stop).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&[], Stop::First, "0 datasets where 1 to 256");
    refused(&[(1, 1.0); 257], Stop::First, "257 datasets");
    refused(&[(1, 1.0), (0, 1.0)], Stop::First, "dataset 1 has no samples");
    refused(&[(1, 1.0), (1, 0.0)], Stop::First, "weight 0 of dataset 1");
    refused(&[(1, f64::NAN)], Stop::First, "weight NaN of dataset 0");
    refused(&[(1, f64::INFINITY)], Stop::First, "weight inf of dataset 0");
    refused(
        &[(9, 1e-9), (1, 1.0)],
        Stop::First,
        "dataset 0 would not be drawn from once in an epoch of 1",
    );
    refused(&[(9, 1e-300), (1, 1.0)], Stop::All, "too long to count");
    refused(&[(9, 1.0), (9, 1.0)], samples(1), "dataset 1 would not be drawn");
}

#[test]
fn another_source_weight_order_or_seed_is_another_mixture() {
    let (a, b) = (view(0, &[100]), view(1, &[100]));
    let digest = |sources: [(&View, f64); 2], seed| {
        let sources = sources.map(|(view, weight)| (view.clone(), weight));
        Mixture::new(sources, seed, Stop::First).unwrap().digest()
    };
    let digests = [
        digest([(&a, 1.0), (&b, 1.0)], 0),
        digest([(&b, 1.0), (&a, 1.0)], 0),
        digest([(&a, 1.0), (&b, 2.0)], 0),
        digest([(&a, 1.0), (&b, 1.0)], 1),
        digest([(&a, 1.0), (&a, 1.0)], 0),
    ];
    for (i, digest) in digests.iter().enumerate() {
        assert!(!digests[..i].contains(digest), "mixture {i} repeats");
    }
    assert_eq!(digest([(&a, 0.7), (&b, 0.7)], 0), digests[0], "only proportions count");
}

#[test]
fn source_mixed_in_twice_has_two_orders() {
    let twice = [(view(0, &[1_000]), 1.0), (view(0, &[1_000]), 1.0)];
    let mixture = Mixture::new(twice, 0, Stop::First).unwrap();
    let rows = filled(&order(&mixture, 0, "global"), 0..mixture.len());
    let of = |number| rows.iter().filter(move |row| row.0 == number).map(|row| row.1);
    let equal = of(0).zip(of(1)).filter(|(a, b)| a == b).count();
    assert!(equal < 10, "{equal} of 1,000 at the same place");
}

#[test]
fn a_pass_of_another_mixture_is_refused() {
    let mixture = |seed| Mixture::new([(view(0, &[9]), 1.0)], seed, Stop::First).unwrap();
    let pass_id = mixture(0).pass_id(0, 0, Shuffle::Global);
    assert!(matches!(JobOrder::new(pass_id, &mixture(1)), Err(Error::View { .. })));
}

/// The order itself, pinned, as that of a single view is.
#[test]
fn the_order_of_a_mixture_never_changes() {
    let sources = [(view(0, &[30, 20]), 0.5), (view(1, &[11]), 0.3), (view(2, &[7, 8]), 0.2)];
    let mixture = Mixture::new(sources, 9, samples(50)).unwrap();
    assert_eq!(u128::from_be_bytes(mixture.digest()), DIGEST, "mixture");
    let found = filled(&order(&mixture, 1, "global"), 20..32);
    assert_eq!(found, FOUND, "{found:?}");
}

const DIGEST: u128 = 0xcb7b_2d1d_22c5_8304_70c2_c929_6438_a95e;
const FOUND: [(u32, u64); 12] = [
    (0, 42),
    (2, 7),
    (0, 26),
    (1, 7),
    (0, 25),
    (2, 12),
    (0, 31),
    (1, 2),
    (0, 3),
    (1, 3),
    (0, 29),
    (2, 6),
];

#[test]
fn places_tell_the_next_draw_of_each_source() {
    let sources = [(view(1, &[3, 4]), 1.0), (view(2, &[9, 2, 8]), 2.5)];
    let mixture = Mixture::new(sources, 5, samples(40)).unwrap();
    for epoch in 0..3 {
        let order = order(&mixture, epoch, "window:2");
        let draws = draws(&order, 0..order.len());
        for place in 0..draws.len() {
            let (source, sample) = draws.at(place);
            let next = order.places(place as u64)[source as usize];
            assert_eq!(next.pass, draws.pass(place));
            assert_eq!(order.pass(source as usize, next.pass).sample_at(next.position), sample);
        }
        // At the end they are those of the next epoch's begin.
        let next = JobOrder::new(order.pass_id().next_epoch(), &mixture).unwrap();
        assert_eq!(order.places(order.len()), next.places(0));
    }
}
