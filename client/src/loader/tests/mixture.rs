//! Loaders of several datasets.

use super::*;
use crate::sampler::{Stop, View};

/// As [`manifest`], but with `samples` samples, reversed tensors and other shards.
fn other(samples: u64, image: &[u64], object: &str) -> Manifest {
    let image_bytes = image.iter().product();
    let tensors = [("label", Dtype::I64, &[][..], 8), ("image", Dtype::U8, image, image_bytes)];
    manifest_of(&format!("file:///{object}"), samples, 23 * 7, &tensors)
}

pub(super) fn sources() -> Vec<LoaderSource> {
    let manifests = [manifest(), other(97, &[3, 5], "b"), other(31, &[3, 5], "c")];
    manifests.into_iter().map(source).collect()
}

fn mixed(sources: Vec<LoaderSource>, weights: &[f64], stop: Stop) -> LoaderBuilder {
    let views = sources.iter().map(|source| all_samples(source.manifest()).unwrap()).collect();
    mixed_views(sources, views, weights, stop)
}

fn mixed_views(
    sources: Vec<LoaderSource>,
    views: Vec<View>,
    weights: &[f64],
    stop: Stop,
) -> LoaderBuilder {
    let mixture = Mixture::new(views.into_iter().zip(weights.iter().copied()), 4, stop).unwrap();
    LoaderBuilder::new(sources, mixture)
}

pub(super) fn builder() -> LoaderBuilder {
    mixed(sources(), &[0.5, 0.3, 0.2], Stop::All)
}

/// Checks every byte of a batch. Returns dataset and sample of each row, without padding.
pub(super) fn checked(batch: &Batch) -> Vec<(u32, u64)> {
    let (image, label) = (batch.tensor("image"), batch.tensor("label"));
    let datasets = batch.datasets().expect("a mixture");
    let rows: Vec<(u32, u64)> =
        datasets.iter().copied().zip(batch.samples().iter().copied()).collect();
    assert_eq!(rows.len(), batch.len());
    for (index, &(dataset, sample)) in rows.iter().enumerate() {
        // The first dataset begins with the image, the others with the label.
        let (of_image, of_label) = if dataset == 0 { (0, 1) } else { (1, 0) };
        assert_eq!(image.row(index), row(sample, of_image, 15), "{dataset}: image of {sample}");
        assert_eq!(label.row(index), row(sample, of_label, 8), "{dataset}: label of {sample}");
    }
    assert_eq!(batch.passes().map(<[u64]>::len), Some(rows.len()));
    rows[..rows.len() - batch.padding()].to_vec()
}

#[test]
fn mixture_reads_each_row_from_its_dataset_and_digest_matches() {
    for mode in ["none", "window:3", "global"] {
        for (world, last) in [(1, Last::Drop), (2, Last::Pad), (3, Last::Uneven)] {
            let mut digests = Vec::new();
            let mut expected = None;
            let mut count = 0;
            for rank in 0..world {
                let builder = builder().batch_size(12).shuffle(shuffle(mode)).last(last);
                let mut loader = builder.seed(11).rank(rank, world).build().unwrap();
                for batch in loader.epoch(2).unwrap() {
                    let batch = batch.unwrap();
                    count += checked(&batch).len();
                    assert_eq!(batch.sources().rows_local, batch.len() as u64);
                }
                digests.push(loader.digest());
                expected = Some(loader.expected_digest());
            }
            let mut whole = digests.remove(0);
            digests.iter().for_each(|digest| whole.merge(digest).unwrap());
            assert_eq!(Some(whole), expected, "{mode}, {world} ranks, {last:?}");
            assert!(last == Last::Drop || count == 406, "{count}"); // twice the first dataset
        }
    }
}

#[test]
fn mixture_resumes_at_another_world_size() {
    for stopped_after in [0, 1, 7] {
        let mut alone = builder().batch_size(10).seed(5).last(Last::Uneven).build().unwrap();
        let whole: Vec<_> =
            alone.epoch(3).unwrap().flat_map(|batch| checked(&batch.unwrap())).collect();
        let mut first = builder().batch_size(10).seed(5).last(Last::Uneven).build().unwrap();
        let mut seen: Vec<_> = first
            .epoch(3)
            .unwrap()
            .take(stopped_after)
            .flat_map(|batch| checked(&batch.unwrap()))
            .collect();
        let saved = first.state().to_string();
        let mut ranks: Vec<_> = (0..3)
            .map(|rank| {
                let builder = builder().batch_size(4).last(Last::Uneven).rank(rank, 3);
                let mut loader = builder.resume(saved.parse().unwrap()).build().unwrap();
                let epoch = if stopped_after == 0 { 0 } else { 3 };
                loader.epoch(epoch).unwrap()
            })
            .collect();
        if stopped_after == 0 {
            continue; // nothing was saved of epoch 3
        }
        loop {
            let batches: Vec<_> = ranks.iter_mut().filter_map(Iterator::next).collect();
            if batches.is_empty() {
                break;
            }
            seen.extend(batches.into_iter().flat_map(|batch| checked(&batch.unwrap())));
        }
        assert_eq!(seen, whole, "stopped after {stopped_after}");
    }
}

#[test]
fn mixes_a_split_and_schedules_by_indices_of_the_split() {
    let sources = sources();
    let mut views: Vec<View> =
        sources.iter().map(|source| all_samples(source.manifest()).unwrap()).collect();
    let parts = views[0].split(&[0.5, 0.5], 1).unwrap();
    views[0] = parts[1].clone();
    let builder = mixed_views(sources, views, &[1.0, 1.0, 1.0], Stop::First);
    let loader = builder.batch_size(31).build().unwrap();
    let (mut loader, mut of_part) = (loader, 0);
    let schedule = loader.schedule(loader.state()).unwrap();
    for (number, batch) in (0..).zip(loader.epoch(0).unwrap()) {
        let (batch, scheduled) = (batch.unwrap(), schedule.batch(number).unwrap());
        assert_eq!(scheduled.datasets, batch.datasets().unwrap());
        for ((dataset, sample), &index) in checked(&batch).into_iter().zip(&scheduled.samples) {
            if dataset == 0 {
                assert_eq!(parts[1].sample_at(index), sample);
                of_part += 1;
            } else {
                assert_eq!(index, sample);
            }
        }
    }
    assert_eq!(of_part, 31);
}

#[test]
fn refuses_to_mix_different_tensors_and_names_the_difference() {
    let fails = |builder: LoaderBuilder, kind: ErrorKind, what: &str| {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(what), "{error}");
    };
    let refused = |builder, what: &str| fails(builder, ErrorKind::InvalidArgument, what);
    let with = |manifest: Manifest| {
        let mut sources = sources();
        sources.truncate(1);
        sources.push(source(manifest));
        mixed(sources, &[1.0, 1.0], Stop::First).shuffle(Shuffle::Global)
    };
    let wide = || other(9, &[3, 6], "wide");
    let image = || with(wide()).tensors(["image"]);
    refused(image(), "'image' is U8 [3, 6] where others have U8 [3, 5]");
    refused(image(), "file:///wide");
    let batch =
        with(wide()).batch_size(4).build().unwrap().epoch(0).unwrap().next().unwrap().unwrap();
    assert!(batch.tensors().len() == 1 && batch.get("label").is_some(), "those that all have");
    let sound = with(other(9, &[3, 5], "b")).tensors(["sound"]);
    fails(sound, ErrorKind::NotFound, "no tensor 'sound'");
    refused(with(other(9, &[3, 5], "b")).samples(0..5), "range of samples of a mixture");
}

/// State, digest, expected digest and samples after two batches of rank 1 of 2.
fn trace(builder: LoaderBuilder, mode: &str) -> [String; 4] {
    let builder = builder.batch_size(3).seed(11).rank(1, 2).shuffle(shuffle(mode));
    let mut loader = builder.build().unwrap();
    let batches: Vec<Batch> = loader.epoch(2).unwrap().take(2).map(Result::unwrap).collect();
    let rows: Vec<&[u64]> = batches.iter().map(Batch::samples).collect();
    let datasets: Vec<_> = batches.iter().filter_map(Batch::datasets).collect();
    let passes: Vec<_> = batches.iter().filter_map(Batch::passes).collect();
    let (digest, expected) = (loader.digest().sum(), loader.expected_digest().sum());
    [
        loader.state().to_string(),
        format!("{digest:032x}"),
        format!("{expected:032x}"),
        format!("{rows:?} {datasets:?} {passes:?}"),
    ]
}

/// Pinned: running jobs continue by them.
#[test]
fn orders_states_and_digests_of_jobs_never_change() {
    let alone = || {
        let mut sources = sources();
        sources.truncate(1);
        mixed(sources, &[1.0], Stop::First)
    };
    for (mode, pinned) in [("global", GLOBAL), ("window:3", WINDOWS)] {
        let found = [super::builder(), alone(), builder()].map(|builder| trace(builder, mode));
        assert_eq!(found, pinned, "{mode}: {found:#?}");
    }
}

const GLOBAL: [[&str; 4]; 3] = [
    [
        "larder-state/1/e14d71e85dfd83667e7ef9320567e48a/11/2/global/1/12",
        "cb0b2d2209f54e2497d3ebaf24ee3ef1",
        "5bca34108c5f5c4a702b50ba1c4253d8",
        "[[100, 120, 191], [55, 82, 149]] [] []",
    ],
    [
        "larder-state/1/302e9c03fc14dbcfc540ecb9a119b43d/11/2/global/1/12",
        "7a8d8649cb90fff9874e9c43339c7826",
        "dda74cb15b30da1af47bbf60e41defb8",
        "[[91, 63, 11], [26, 146, 196]] [[0, 0, 0], [0, 0, 0]] [[2, 2, 2], [2, 2, 2]]",
    ],
    [
        "larder-state/1/bbd571d44b95c6d4664555d38507b0dc/11/2/global/1/12",
        "73c9e82b7ca4107f301598bbaa34c6c3",
        "217240bc7dc8ee8fc0b7ed45aa911a04",
        "[[4, 100, 96], [66, 89, 19]] [[1, 0, 1], [1, 0, 2]] [[2, 2, 2], [2, 2, 5]]",
    ],
];
const WINDOWS: [[&str; 4]; 3] = [
    [
        "larder-state/1/e14d71e85dfd83667e7ef9320567e48a/11/2/window:3/1/12",
        "432a01e52d71ed55214b932159faa416",
        "dbb5fb0da704fca082ad6501f7e1316f",
        "[[91, 186, 188], [173, 189, 86]] [] []",
    ],
    [
        "larder-state/1/302e9c03fc14dbcfc540ecb9a119b43d/11/2/window:3/1/12",
        "583cd96d3436d379a16c4b930231d0d3",
        "a60e0e1f8559bc66a5d1370412f2e0ee",
        "[[50, 12, 57], [8, 47, 52]] [[0, 0, 0], [0, 0, 0]] [[2, 2, 2], [2, 2, 2]]",
    ],
    [
        "larder-state/1/bbd571d44b95c6d4664555d38507b0dc/11/2/window:3/1/12",
        "ff17f73a60c31ad0f49f86491755e2dd",
        "9c6df9e3c9e0d7f8e106f1ac0b76c05c",
        "[[24, 69, 43], [6, 81, 51]] [[2, 0, 1], [2, 0, 1]] [[5, 2, 2], [5, 2, 2]]",
    ],
];
