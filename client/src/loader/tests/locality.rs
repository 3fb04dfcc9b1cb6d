//! Batches that ranks divide by where their rows are held.

#![expect(clippy::cast_possible_truncation, reason = "a handful of hosts")]

use super::*;
use crate::{Locality, sampler::Error as SamplerError};

/// Hosts with two ranks each, and shards on the hosts in turn. One of the hosts has no rank.
fn locality(world: u32) -> Locality {
    let hosts: Vec<u16> = (0..world).map(|rank| (rank / 2) as u16).collect();
    let count = hosts[hosts.len() - 1] + 2;
    Locality::made_up(&hosts, &[&manifest()], |shard| (shard % u32::from(count)) as u16)
}

/// By global batch, the samples that each rank reads, without padding.
fn epoch_of(world: u32, make: impl Fn() -> LoaderBuilder) -> Vec<Vec<Vec<u64>>> {
    let mut batches = Vec::<Vec<Vec<u64>>>::new();
    for rank in 0..world {
        let mut loader = make().rank(rank, world).build().unwrap();
        for (number, batch) in loader.epoch(2).unwrap().enumerate() {
            let batch = batch.unwrap();
            batches.resize(batches.len().max(number + 1), Vec::new());
            batches[number].push(checked(&batch).to_vec());
        }
    }
    batches
}

fn sorted(ranks: &[Vec<u64>]) -> Vec<u64> {
    let mut samples = ranks.concat();
    samples.sort_unstable();
    samples
}

#[test]
fn locality_keeps_global_batches_and_counts_of_each_rank() {
    for mode in ["none", "window:3", "global"] {
        for world in 1..=5 {
            for last in [Last::Pad, Last::Uneven, Last::Drop] {
                let case = format!("{mode}, {world} ranks, {last:?}");
                let make = || builder().batch_size(7).shuffle(shuffle(mode)).last(last).seed(11);
                let slices = epoch_of(world, make);
                let divided = epoch_of(world, || make().locality(locality(world)));
                assert_eq!(slices.len(), divided.len(), "{case}");
                for (slices, divided) in slices.iter().zip(&divided) {
                    assert_eq!(sorted(slices), sorted(divided), "{case}");
                    let counts =
                        |ranks: &[Vec<u64>]| ranks.iter().map(Vec::len).collect::<Vec<_>>();
                    assert_eq!(counts(slices), counts(divided), "{case}");
                }
                assert!(world == 1 || slices != divided, "{case}: it makes no difference");
            }
        }
    }
}

#[test]
fn locality_keeps_digests_and_states_and_divides_among_workers() {
    let make = || builder().batch_size(5).seed(3).last(Last::Pad).shuffle(Shuffle::Global);
    let (mut digests, mut whole) = (Vec::new(), BTreeMap::new());
    let mut states = Vec::new();
    for rank in 0..4 {
        let alone = || make().rank(rank, 4).locality(locality(4));
        let batches = |mut loader: Loader| -> Vec<(Vec<u64>, LoaderState)> {
            let epoch = loader.epoch(0).unwrap();
            epoch
                .map(|batch| batch.unwrap())
                .map(|batch| (checked(&batch).to_vec(), batch.state()))
                .collect()
        };
        let together = batches(alone().build().unwrap());
        let lanes = [0, 1, 2].map(|worker| batches(alone().worker(worker, 3).build().unwrap()));
        for (number, batch) in together.iter().enumerate() {
            assert_eq!(*batch, lanes[number % 3][number / 3]);
        }
        let mut loader = alone().build().unwrap();
        drain(loader.epoch(0).unwrap(), &mut whole);
        digests.push(loader);
        states.push(together.into_iter().map(|(_, state)| state).collect::<Vec<_>>());
    }
    assert!(states.iter().all(|of_rank| *of_rank == states[0]));
    assert!(whole.len() as u64 == SAMPLES && whole.values().all(|&times| times == 1));
    assert_eq!(merged(&digests), digests[0].expected_digest());
}

#[test]
fn resumes_at_other_world_size_with_or_without_locality() {
    let divided = [Some(4), Some(2), None];
    for (before, after) in [(0, 1), (0, 2), (2, 0), (1, 2)] {
        let make = |index: usize, batch_size| {
            let world = divided[index].unwrap_or(3);
            let builder = builder().batch_size(batch_size).last(Last::Pad).seed(5);
            let builder =
                if divided[index].is_some() { builder.locality(locality(world)) } else { builder };
            (world, builder.shuffle(Shuffle::Global))
        };
        let (mut seen, mut digests, mut states) = (BTreeMap::new(), Vec::new(), Vec::new());
        let world = make(before, 6).0;
        for rank in 0..world {
            let mut loader = make(before, 6).1.rank(rank, world).build().unwrap();
            let begun = loader.epoch(1).unwrap().take(3);
            begun.for_each(|batch| {
                checked(&batch.unwrap())
                    .iter()
                    .for_each(|&sample| *seen.entry(sample).or_default() += 1);
            });
            states.push(loader.state());
            digests.push(loader);
        }
        assert!(states.iter().all(|state| *state == states[0]));
        let world = make(after, 9).0;
        for rank in 0..world {
            let builder = make(after, 9).1.rank(rank, world);
            let mut loader =
                builder.resume(states[0].to_string().parse().unwrap()).build().unwrap();
            drain(loader.epoch(1).unwrap(), &mut seen);
            digests.push(loader);
        }
        assert!(seen.len() as u64 == SAMPLES && seen.values().all(|&times| times == 1));
        let whole = EpochDigest::of_samples(states[0].pass_id(), 0..SAMPLES);
        assert_eq!(merged(&digests), whole);
    }
}

#[test]
fn locality_makes_ranks_read_rows_of_their_own_host() {
    let manifest = manifest();
    let hosts = [0, 0, 1, 1];
    let locality = Locality::made_up(&hosts, &[&manifest], |shard| (shard % 2) as u16);
    let (mut local, mut rows) = (0, 0);
    let make = || builder().batch_size(9).shuffle(Shuffle::Global).locality(locality.clone());
    for batch in epoch_of(4, make) {
        let held = |sample: &u64| (manifest.locate(*sample).unwrap().shard % 2) as u16;
        let most: usize = [0, 1]
            .map(|host| batch.concat().iter().filter(|sample| held(sample) == host).count().min(18))
            .iter()
            .sum();
        let of_rank = |(samples, &host): (&Vec<u64>, &u16)| {
            samples.iter().filter(|sample| held(sample) == host).count()
        };
        let found: usize = batch.iter().zip(&hosts).map(of_rank).sum();
        assert_eq!(found, most, "as many as can be");
        local += found;
        rows += batch.concat().len();
    }
    assert!(local * 10 > rows * 8, "{local} of {rows}");
}

#[test]
fn locality_divides_a_mixture() {
    let (sources, whole) =
        (mixture::sources(), || mixture::builder().batch_size(12).last(Last::Pad));
    let manifests: Vec<&Manifest> = sources.iter().map(LoaderSource::manifest).collect();
    let hosts = [0, 1, 1];
    let locality = Locality::made_up(&hosts, &manifests, |shard| (shard % 2) as u16);
    let mut digests = Vec::new();
    for rank in 0..3 {
        let mut loader = whole().rank(rank, 3).locality(locality.clone()).build().unwrap();
        for batch in loader.epoch(2).unwrap() {
            mixture::checked(&batch.unwrap());
        }
        digests.push(loader);
    }
    assert_eq!(merged(&digests), digests[0].expected_digest());
    let one = Locality::made_up(&hosts, &manifests[..1], |_| 0);
    let error = whole().rank(0, 3).locality(one).build().unwrap_err();
    assert!(error.to_string().contains("does not know snapshot"), "{error}");
}

#[test]
fn refuses_locality_of_other_ranks_and_reports_a_difference() {
    let error = builder().rank(0, 4).locality(locality(3)).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("3 ranks, and there are 4"), "{error}");
    let loader = |locality| {
        builder().shuffle(Shuffle::Global).rank(0, 4).locality(locality).build().unwrap()
    };
    let elsewhere = Locality::made_up(&[0, 0, 1, 1], &[&manifest()], |_| 1);
    let (mut one, other) = (loader(locality(4)), loader(elsewhere));
    assert_eq!(one.pass_id(1), other.pass_id(1), "they walk one order");
    let disagree = one.pass_name(1).agrees_with(&other.pass_name(1));
    assert!(matches!(disagree, Err(SamplerError::Division { .. })));
    let again = loader(Locality::from_bytes(&locality(4).to_bytes()).unwrap());
    assert_eq!(again.pass_name(1).agrees_with(&one.epoch(1).unwrap().name()), Ok(()));
}
