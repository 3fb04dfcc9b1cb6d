use std::collections::BTreeSet;
use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Split, SplitSide};
use super::*;

fn view(rows: &[u32]) -> View {
    View::all([7; 32], DatasetShape::from_rows(rows.iter().copied()).unwrap())
}

fn hundred() -> View {
    view(&[30, 0, 1, 49, 20])
}

fn samples(view: &View) -> Vec<u64> {
    (0..view.len()).map(|index| view.sample_at(index)).collect()
}

/// A change of a view in a test. Numbers are taken modulo the number of samples.
#[derive(Debug, Clone)]
enum Change {
    Range(u64, u64),
    Every(u64, u64),
    Split(Vec<u8>, usize, u64),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(start, end)| Change::Range(start, end)),
        (1..5_u64, any::<u64>()).prop_map(|(step, from)| Change::Every(step, from)),
        (vec(1..20_u8, 1..6), any::<usize>(), any::<u64>())
            .prop_map(|(weights, part, seed)| Change::Split(weights, part, seed)),
    ]
}

fn fractions(weights: &[u8]) -> Vec<f64> {
    let sum: f64 = weights.iter().copied().map(f64::from).sum();
    weights.iter().map(|&weight| f64::from(weight) / sum).collect()
}

/// The view after `change`, checked against lists of samples.
fn changed(before: &View, change: &Change) -> View {
    let list = samples(before);
    let place = |index: u64| usize::try_from(index).unwrap();
    match change {
        Change::Range(a, b) => {
            let (a, b) = (a % (before.len() + 1), b % (before.len() + 1));
            let view = before.select(a.min(b)..a.max(b)).unwrap();
            assert_eq!(samples(&view), list[place(a.min(b))..place(a.max(b))]);
            view
        }
        Change::Every(step, from) => {
            let indices: Vec<u64> = (from % step..before.len()).step_by(place(*step)).collect();
            let view = before.select(indices.clone()).unwrap();
            let model: Vec<u64> = indices.iter().map(|&index| list[place(index)]).collect();
            assert_eq!(samples(&view), model);
            view
        }
        Change::Split(weights, part, seed) => {
            let parts = before.split(&fractions(weights), *seed).unwrap();
            check_split(before, &parts, &fractions(weights));
            parts[part % parts.len()].clone()
        }
    }
}

/// The law of a split: disjoint, complete, exact in all, and even over shards.
fn check_split(whole: &View, parts: &[View], fractions: &[f64]) {
    let mut all: Vec<u64> = parts.iter().flat_map(samples).collect();
    let mut declared = samples(whole);
    all.sort_unstable();
    declared.sort_unstable();
    assert_eq!(all, declared, "each sample in exactly one part");
    // Each cut on the way to a part rounds once.
    let cuts = f64::from(parts.len().next_power_of_two().ilog2());
    for (part, fraction) in parts.iter().zip(fractions) {
        let exact = |rows: u64| rows as f64 * fraction;
        assert!((part.len() as f64 - exact(whole.len())).abs() <= 1.0, "{fraction} of {whole:?}");
        for shard in 0..whole.shape().shard_count() {
            let (own, rows) = (part.shape().rows(shard), whole.shape().rows(shard));
            assert!((own as f64 - exact(rows)).abs() <= cuts.max(1.0) + 1.0, "{own} of {rows}");
        }
    }
}

proptest! {
    #[test]
    fn chain_of_selections_equals_selection_from_lists(
        rows in vec(0..40_u32, 0..12),
        changes in vec(change(), 0..5),
    ) {
        let whole = view(&rows);
        let mut view = whole.clone();
        for change in &changes {
            view = changed(&view, change);
        }
        let list = samples(&view);
        prop_assert_eq!(view.samples().collect::<Vec<_>>(), list.clone());
        let shape = view.shape().clone();
        let declared: BTreeSet<u64> = list.iter().copied().collect();
        prop_assert_eq!(declared.len(), list.len());
        for sample in 0..=whole.len() {
            let index = list.iter().position(|&found| found == sample).map(|index| index as u64);
            prop_assert_eq!(view.index_of(sample), index, "sample {}", sample);
        }
        for (index, &sample) in (0..).zip(&list) {
            // The rows of a shard stay together, and shards in their order.
            prop_assert_eq!(shape.shard_of(index), whole.shape().shard_of(sample));
        }
        let again = view.selections().try_fold(whole, |view, selection| view.select(selection.clone()));
        prop_assert_eq!(&again.unwrap(), &view, "selections lead to the view again");
    }
}

#[test]
fn equal_sample_sets_have_one_digest() {
    let all = hundred();
    let range = |range: Range<u64>| all.select(range).unwrap();
    assert_eq!(range(0..100), all);
    assert_eq!(all.select((0..100).collect::<Vec<_>>()).unwrap(), all);
    assert_eq!(range(50..50), range(9..9));
    assert_eq!(all.select(Vec::new()).unwrap(), range(0..0));
    assert_eq!(range(10..90).select(5..20).unwrap(), range(15..30));
    assert_eq!(range(10..90).select(vec![5, 6, 7]).unwrap(), range(15..18));
    let listed = all.select(vec![3, 10, 40, 41, 42, 99]).unwrap();
    assert_eq!(listed.select(1..6).unwrap().select(vec![1, 2, 3]).unwrap(), range(40..43));
    assert_eq!(listed.select(vec![0, 5]).unwrap(), all.select(vec![3, 99]).unwrap());
    assert_eq!(range(2..99).select(vec![1, 8, 38]).unwrap(), listed.select(0..3).unwrap());
    let parts = all.split(&[1.0], 3).unwrap();
    assert_eq!(parts, std::slice::from_ref(&all), "a part that is the whole is the whole");
    let parts = all.select(4..5).unwrap().split(&[0.2, 0.3, 0.5], 3).unwrap();
    assert!(parts.iter().filter(|part| part.is_empty()).all(|part| *part == range(0..0)));
    assert!(parts.contains(&range(4..5)));
}

#[test]
fn another_snapshot_or_another_selection_has_another_digest() {
    let all = hundred();
    let part = |seed, first, side| all.select(Split { seed, first, side }).unwrap();
    let views = [
        all.clone(),
        View::all([8; 32], DatasetShape::from_rows([100]).unwrap()),
        all.select(0..99).unwrap(),
        all.select(1..100).unwrap(),
        all.select(vec![0, 2]).unwrap(),
        all.select(vec![0, 3]).unwrap(),
        part(1, 10, SplitSide::First),
        part(1, 10, SplitSide::Rest),
        part(2, 10, SplitSide::First),
        part(1, 11, SplitSide::First),
        part(1, 10, SplitSide::First).select(0..9).unwrap(),
        part(1, 10, SplitSide::First)
            .select(Split { seed: 1, first: 5, side: SplitSide::First })
            .unwrap(),
    ];
    for (i, view) in views.iter().enumerate() {
        assert!(!views[..i].contains(view), "view {i} repeats");
    }
}

#[test]
fn refuses_invalid_selections_with_a_reason() {
    let view = hundred();
    for range in [0..101, 101..101, Range { start: 5, end: 4 }] {
        assert_eq!(view.select(range.clone()), Err(Error::Selection { range, samples: 100 }));
    }
    assert_eq!(view.select(vec![1, 100]), Err(Error::Index { index: 100, samples: 100 }));
    let disordered = |before, found, at| Err(Error::IndexOrder { before, found, at });
    assert_eq!(view.select(vec![1, 2, 2]), disordered(2, 2, 2));
    assert_eq!(view.select(vec![7, 2, 3]), disordered(7, 2, 1));
    let part = Split { seed: 0, first: 101, side: SplitSide::Rest };
    assert_eq!(view.select(part), Err(Error::Split { first: 101, samples: 100 }));
    let refused = |fractions: &[f64], why: &str| {
        let error = view.split(fractions, 0).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&[], "0 parts where");
    refused(&[0.5, 0.4], "add up to 0.9");
    refused(&[0.5, f64::NAN], "NaN is not above 0");
    refused(&[1.5, -0.5], "-0.5 is not above 0");
    refused(&[f64::INFINITY], "add up to inf");
    let mut deep = view;
    let error = loop {
        match deep.select(Split { seed: 0, first: 1, side: SplitSide::Rest }) {
            Ok(part) => deep = part,
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::Steps { limit: 16 });
    assert_eq!((deep.selections().len(), deep.len()), (16, 84));
}

#[test]
fn split_draws_every_sample_equally_often() {
    for rows in [&[1; 60][..], &[7, 20, 3, 30], &[60]] {
        let whole = view(rows);
        let mut drawn = [0_u32; 60];
        for seed in 0..2_000 {
            let parts = whole.split(&[0.9, 0.1], seed).unwrap();
            parts[1].samples().for_each(|sample| drawn[usize::try_from(sample).unwrap()] += 1);
        }
        assert_eq!(drawn.iter().sum::<u32>(), 12_000);
        // 200 expected; the standard deviation is 13.4.
        assert!(drawn.iter().all(|drawn| (140..=260).contains(drawn)), "{drawn:?}");
    }
}

#[test]
fn the_same_seed_gives_unrelated_splits_of_different_sets() {
    let whole = view(&[500; 4]);
    let halves = whole.split(&[0.5, 0.5], 1).unwrap();
    let again = halves[0].split(&[0.5, 0.5], 1).unwrap();
    assert_eq!(again[0].len(), 500);
    let other = whole.select(1..2_000).unwrap().split(&[0.5, 0.5], 1).unwrap();
    let common = other[0].samples().filter(|&sample| halves[0].index_of(sample).is_some()).count();
    assert!((430..570).contains(&common), "{common} of 1,000");
}

/// Views and splits, pinned. If this fails, a job that was told to leave some samples out may train
/// on them: either the change was a mistake, or digests must say that the law is another one.
#[test]
fn names_and_members_of_views_never_change() {
    let all = hundred();
    let parts = all.split(&[0.8, 0.1, 0.1], 5).unwrap();
    let deep = parts[0].select(10..60).unwrap().select(vec![0, 7, 33]).unwrap();
    let digests = [&all, &all.select(3..9).unwrap(), &parts[0], &parts[1], &parts[2], &deep]
        .map(|view| u128::from_be_bytes(view.digest()));
    assert_eq!(digests, DIGESTS, "{digests:#034x?}");
    assert_eq!(samples(&parts[1]), PART, "{:?}", samples(&parts[1]));
    assert_eq!(samples(&deep), DEEP, "{:?}", samples(&deep));
}

const DIGESTS: [u128; 6] = [
    0xeabc_0cf8_8f21_dfb5_1546_22cf_662f_3715,
    0x3076_7b34_d26d_5b51_8337_7d93_6a5b_134d,
    0x617f_a06e_5c04_eb6d_1e65_0685_db93_d4c4,
    0x51a7_16c4_4e2a_4d74_7c21_745c_6ae6_41bd,
    0xbd4d_a997_6244_76bc_cb4a_729b_74ba_e0f8,
    0x99e6_8e82_7030_8229_1842_5671_fa33_165a,
];
const PART: [u64; 10] = [22, 23, 7, 36, 63, 79, 40, 59, 96, 95];
const DEEP: [u64; 3] = [4, 24, 31];
