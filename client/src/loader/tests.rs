//! The loader over rows made up in memory: the batches it hands out, their order, and its state.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use larder_dataset::{
    ColumnSpec, DatasetRef, Dtype, GroupSpec, Manifest, ManifestBuilder, ObjectSpec, OriginUri,
    RowLocator, Rows, TensorSpec, WritePolicy,
};
use larder_extent::Attached;

use super::*;
use crate::{
    CancelToken, DatasetName, FetchOptions, Fetcher, Hop, LongestWait, RowRef, RowsView, Sources,
    dataset::all_samples,
    deadline::Deadline,
    fetch::{Gathered, RowSource},
    remote::Placed,
    sampler::{Last, Mixture, Order},
};

mod device;
mod given;
mod locality;
mod mixture;
mod options;

const SAMPLES: u64 = 203;

/// 203 samples of 15 bytes and of 8 bytes, in shards of 20 or 21 rows.
fn manifest() -> Manifest {
    let tensors = [("image", Dtype::U8, &[3, 5][..], 15), ("label", Dtype::I64, &[], 8)];
    manifest_of("file:///nowhere", SAMPLES, 23 * 21, &tensors)
}

/// A manifest with one file for each tensor: name, type, shape, and bytes of a row.
fn manifest_of(
    uri: &str,
    samples: u64,
    shard_bytes: u64,
    tensors: &[(&str, Dtype, &[u64], u64)],
) -> Manifest {
    let spec = |&(name, dtype, shape, row_bytes): &(&str, Dtype, &[u64], u64)| {
        let locator = RowLocator::Strided { row_bytes, stride_bytes: row_bytes };
        let (name, shape, layout) = (name.into(), shape.into(), larder_dataset::Layout::Column);
        let logical = larder_dataset::Logical::of(dtype);
        TensorSpec { name, dtype, logical, shape, locator, layout }
    };
    let uri = OriginUri::parse(uri).unwrap();
    let mut builder = ManifestBuilder::new(uri, tensors.iter().map(spec).collect(), shard_bytes);
    let object = |&(name, .., row_bytes): &(&str, Dtype, &[u64], u64)| {
        let (key, size_bytes) = (format!("{name}.npy"), samples * row_bytes);
        ObjectSpec { key, etag: None, version: None, size_bytes }
    };
    let column = |(object, &(.., stride)): (u32, &(&str, Dtype, &[u64], u64))| ColumnSpec {
        object,
        rows: Rows::Strided { begin: 0, stride },
    };
    let objects = tensors.iter().map(object).collect();
    let columns = (0..).zip(tensors).map(column).collect();
    builder.push(GroupSpec { rows: samples, objects, columns });
    builder.build().unwrap().manifest
}

/// The bytes of a sample's row.
fn row(sample: u64, tensor: usize, bytes: usize) -> Vec<u8> {
    let seed = sample * 31 + tensor as u64;
    (0..bytes as u64)
        .map(|i| (seed.wrapping_mul(2_654_435_761) >> (i % 24)).to_le_bytes()[0])
        .collect()
}

/// What a fake does after it has filled the rows of a gather.
type After = dyn Fn(Placed<'_>, Gathered, &CancelToken) -> Result<Gathered, Error> + Send + Sync;

/// Rows made up in memory.
struct FakeRows {
    manifest: Manifest,
    after: Option<Box<After>>,
    refuses_look: bool,
}

impl RowSource for FakeRows {
    fn gather(
        &self,
        placed: Placed<'_>,
        tensors: &[usize],
        out: &mut [&mut [u8]],
        cancel: &CancelToken,
    ) -> Result<Gathered, Error> {
        let mut bytes = 0;
        for (&tensor, out) in tensors.iter().zip(out.iter_mut()) {
            let row_bytes = usize::try_from(self.manifest.tensors()[tensor].row_bytes()).unwrap();
            for (place, at) in placed.iter() {
                let sample = self.manifest.shard(at.shard).first_sample + u64::from(at.row);
                let target = &mut out[place as usize * row_bytes..][..row_bytes];
                target.copy_from_slice(&row(sample, tensor, row_bytes));
                bytes += row_bytes as u64;
            }
        }
        let sources = Sources { rows_local: placed.rows.len() as u64, bytes, ..Sources::default() };
        let gathered = Gathered { sources, ..Gathered::default() };
        match &self.after {
            Some(after) => after(placed, gathered, cancel),
            None => Ok(gathered),
        }
    }

    fn look(&self, _: u32, _: &Range<u32>, _: usize, _: Option<&CancelToken>) -> Option<RowsView> {
        assert!(!self.refuses_look, "nothing is looked at");
        None
    }

    fn mapped(&self, _: u32, _: Option<&CancelToken>) -> Option<Arc<Attached>> {
        None
    }
}

fn builder() -> LoaderBuilder {
    alone(source(manifest()))
}

/// A builder of all samples of a source.
fn alone(source: LoaderSource) -> LoaderBuilder {
    let mixture = Mixture::single(all_samples(source.manifest()).unwrap());
    LoaderBuilder::new(vec![source], mixture)
}

fn source(manifest: Manifest) -> LoaderSource {
    source_of(FakeRows { manifest, after: None, refuses_look: false })
}

fn source_of(rows: FakeRows) -> LoaderSource {
    let reference = DatasetRef::parse(&rows.manifest.uri().to_string()).unwrap();
    let name = DatasetName { reference, manifest: None, write: WritePolicy::Auto };
    let fetcher = Fetcher::new(rows.manifest.clone(), &name, None, FetchOptions::default());
    let leaves = Arc::clone(fetcher.leaves());
    LoaderSource { leaves, columns: None, rows: Arc::new(rows), cluster: None }
}

/// A builder with a fake that does this after each gather.
fn after(
    after: impl Fn(Placed<'_>, Gathered, &CancelToken) -> Result<Gathered, Error>
    + Send
    + Sync
    + 'static,
) -> LoaderBuilder {
    let (manifest, after) = (manifest(), Some(Box::new(after) as Box<After>));
    alone(source_of(FakeRows { manifest, after, refuses_look: false }))
}

/// Checks every byte of a batch. Returns its samples without padding.
fn checked(batch: &Batch) -> &[u64] {
    let (image, label) = (batch.tensor("image"), batch.tensor("label"));
    assert_eq!(image.shape(), [batch.len() as u64, 3, 5]);
    assert_eq!(label.shape(), [batch.len() as u64]);
    for (index, &sample) in batch.samples().iter().enumerate() {
        assert_eq!(image.row(index), row(sample, 0, 15), "image of sample {sample}");
        assert_eq!(label.row(index), row(sample, 1, 8), "label of sample {sample}");
    }
    &batch.samples()[..batch.len() - batch.padding()]
}

fn shuffle(text: &str) -> ShuffleMode {
    text.parse().unwrap()
}

/// Counts the samples of an epoch and checks every byte.
fn drain(epoch: Epoch, seen: &mut BTreeMap<u64, usize>) -> u64 {
    let mut batches = 0;
    for batch in epoch {
        for &sample in checked(&batch.unwrap()) {
            *seen.entry(sample).or_default() += 1;
        }
        batches += 1;
    }
    batches
}

fn merged(loaders: &[Loader]) -> EpochDigest {
    let mut digest = loaders[0].digest();
    loaders[1..].iter().for_each(|loader| digest.merge(&loader.digest()).unwrap());
    digest
}

#[test]
fn epoch_has_each_sample_once_for_any_shuffle_world_and_ending() {
    for mode in ["none", "window:3", "global"] {
        for world in 1..=4 {
            for (last, lost) in [(Last::Pad, 0), (Last::Uneven, 0), (Last::Drop, 203 % (7 * world))]
            {
                let case = format!("{mode}, {world} ranks, {last:?}");
                let mut seen = BTreeMap::new();
                let mut loaders = Vec::new();
                let mut counts = Vec::new();
                for rank in 0..world {
                    let builder = builder().batch_size(7).shuffle(shuffle(mode)).last(last);
                    let mut loader = builder.seed(11).rank(rank, world).build().unwrap();
                    let epoch = loader.epoch(2).unwrap();
                    let promised = epoch.batches();
                    counts.push(drain(epoch, &mut seen));
                    assert_eq!(counts.last(), Some(&promised), "{case}");
                    loaders.push(loader);
                }
                assert!(seen.values().all(|&times| times == 1), "{case}");
                assert_eq!(seen.len() as u64, SAMPLES - u64::from(lost), "{case}");
                assert_eq!(merged(&loaders), loaders[0].expected_digest(), "{case}");
                assert!(last == Last::Uneven || counts.iter().all(|n| *n == counts[0]), "{case}");
                for loader in &loaders {
                    let next = LoaderState::new(loader.pass_id(3), 0);
                    assert_eq!(loader.state(), next, "{case}: at the start of the next epoch");
                }
            }
        }
    }
}

#[test]
fn rank_without_samples_skips_the_last_batch_in_equal_state() {
    let mut seen = BTreeMap::new();
    for (rank, batches) in [(0, 2), (1, 2), (2, 1)] {
        let builder = builder().batch_size(67).last(Last::Uneven).rank(rank, 3);
        let mut loader = builder.build().unwrap();
        assert_eq!(drain(loader.epoch(0).unwrap(), &mut seen), batches);
        assert_eq!(loader.state(), LoaderState::new(loader.pass_id(1), 0));
    }
    assert_eq!(seen.len() as u64, SAMPLES);
}

#[test]
fn resume_at_other_world_and_batch_size_loses_no_sample() {
    for (mode, (before, after)) in
        ["none", "window:2", "global"].iter().zip([(3, 2), (1, 4), (4, 1)])
    {
        for handed_out in [0, 1, 5] {
            let mut seen = BTreeMap::new();
            let mut digests = Vec::new();
            let mut states = Vec::new();
            for rank in 0..before {
                let builder = builder().batch_size(6).shuffle(shuffle(mode)).seed(5);
                let mut loader = builder.rank(rank, before).build().unwrap();
                for batch in loader.epoch(1).unwrap().take(handed_out) {
                    checked(&batch.unwrap())
                        .iter()
                        .for_each(|&sample| *seen.entry(sample).or_default() += 1);
                }
                states.push(loader.state());
                digests.push(loader.digest());
            }
            assert!(states.iter().all(|state| *state == states[0]));
            let saved = states[0].to_string();
            for rank in 0..after {
                // The state carries seed and shuffle.
                let builder = builder().batch_size(9).last(Last::Pad).rank(rank, after);
                let mut loader = builder.resume(saved.parse().unwrap()).build().unwrap();
                assert_eq!(loader.state(), states[0]);
                drain(loader.epoch(1).unwrap(), &mut seen);
                digests.push(loader.digest());
            }
            assert!(seen.values().all(|&times| times == 1));
            assert_eq!(seen.len() as u64, SAMPLES);
            let mut whole = digests.remove(0);
            digests.iter().for_each(|digest| whole.merge(digest).unwrap());
            let pass_id = states[0].pass_id();
            assert_eq!(whole, EpochDigest::of_samples(pass_id, 0..SAMPLES));
        }
    }
}

#[test]
fn resumed_epoch_has_the_expected_digest() {
    let mut first = builder().batch_size(10).seed(3).build().unwrap();
    first.epoch(0).unwrap().take(4).for_each(|batch| drop(batch.unwrap()));
    let mut second =
        builder().batch_size(7).last(Last::Uneven).resume(first.state()).build().unwrap();
    drain(second.epoch(0).unwrap(), &mut BTreeMap::new());
    assert_eq!(second.digest().count(), SAMPLES - 40);
    assert_eq!(second.digest(), second.expected_digest());
}

#[test]
fn ranks_together_walk_the_order_position_by_position() {
    let batch = |rank, world| {
        let builder = builder().batch_size(8 / world).seed(1).shuffle(Shuffle::Global);
        let mut loader = builder.rank(rank, world).build().unwrap();
        loader.epoch(4).unwrap().nth(3).unwrap().unwrap().samples().to_vec()
    };
    let alone = batch(0, 1);
    assert_eq!([batch(0, 2), batch(1, 2)].concat(), alone);
    assert_eq!([batch(0, 4), batch(1, 4), batch(2, 4), batch(3, 4)].concat(), alone);
}

#[test]
fn interleaved_workers_return_the_batches_of_one_loader() {
    for last in [Last::Drop, Last::Pad, Last::Uneven] {
        for (batch_size, workers) in [(10, 2), (10, 4), (50, 7), (101, 3)] {
            let epoch = |worker, workers| {
                let builder = builder().batch_size(batch_size).seed(3).last(last);
                let mut loader = builder.rank(1, 2).worker(worker, workers).build().unwrap();
                let epoch = loader.epoch(2).unwrap();
                let promised = epoch.batches();
                let batches: Vec<_> =
                    epoch.map(|batch| checked(&batch.unwrap()).to_vec()).collect();
                assert_eq!(batches.len() as u64, promised);
                batches
            };
            let alone = epoch(0, 1);
            let mut each: Vec<_> =
                (0..workers).map(|worker| epoch(worker, workers).into_iter()).collect();
            // As a DataLoader does: one batch of each worker in turn, skipping workers that are
            // done.
            let rounds = alone.len().div_ceil(workers as usize);
            let turns: Vec<_> = (0..rounds)
                .flat_map(|_| each.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>())
                .collect();
            assert_eq!(turns, alone, "{batch_size} x {workers}, {last:?}");
            assert!(each.iter_mut().all(|rest| rest.next().is_none()));
        }
    }
}

#[test]
fn worker_state_covers_the_whole_job_and_resumes_it() {
    let batches = |worker, resume: Option<LoaderState>, count: usize| {
        let mut builder = builder().batch_size(6).worker(worker, 3);
        if let Some(state) = resume {
            builder = builder.resume(state);
        }
        let mut loader = builder.build().unwrap();
        let epoch = loader.epoch(0).unwrap().take(count);
        let samples: Vec<_> = epoch.map(|batch| batch.unwrap().samples().to_vec()).collect();
        (samples, loader.state())
    };
    for worker in 0..3 {
        let (all, end) = batches(worker, None, 100);
        assert_eq!(end.pass_id().epoch(), 1);
        let (first, state) = batches(worker, None, 4);
        assert_eq!(state.next_position(), (3 * 3 + u64::from(worker) + 1) * 6);
        let (rest, _) = batches(2, Some(state), 100);
        assert_eq!([first, rest].concat(), all);
    }
}

#[test]
fn schedule_predicts_each_batch_and_the_state_after_it() {
    let mut loader = builder().batch_size(13).seed(2).rank(1, 3).last(Last::Pad).build().unwrap();
    let epoch: Vec<_> = loader.epoch(4).unwrap().map(Result::unwrap).collect();
    let schedule = loader.schedule(LoaderState::new(loader.pass_id(4), 0)).unwrap();
    assert_eq!(schedule.batches(), epoch.len() as u64);
    for (number, batch) in (0..).zip(&epoch) {
        let scheduled = schedule.batch(number).unwrap();
        assert_eq!(scheduled.samples, batch.samples());
        assert_eq!(scheduled.padding, batch.padding() as u64);
        assert_eq!(scheduled.state, batch.state());
    }
    assert_eq!(schedule.batch(schedule.batches()), None);
    let rest = loader.schedule(epoch[2].state()).unwrap();
    assert_eq!(rest.batch(0).unwrap().samples, epoch[3].samples());
}

/// Counts gathers. Until it is opened, it holds back all but the one with the first row.
#[derive(Default)]
struct Gate {
    begun: Mutex<u64>,
    changed: Condvar,
    is_open: AtomicBool,
}

impl Gate {
    fn pass(&self, placed: Placed<'_>) {
        let mut begun = self.begun.lock().unwrap();
        *begun += 1;
        self.changed.notify_all();
        let free = placed.rows.contains(&RowRef { shard: 0, row: 0 });
        let held = |_: &mut u64| !free && !self.is_open.load(SeqCst);
        drop(self.changed.wait_while(begun, held).unwrap());
    }

    fn wait_for(&self, count: u64) {
        drop(self.changed.wait_while(self.begun.lock().unwrap(), |begun| *begun < count).unwrap());
    }

    fn open(&self) {
        let held = self.begun.lock().unwrap();
        self.is_open.store(true, SeqCst);
        drop(held);
        self.changed.notify_all();
    }
}

#[test]
fn prefetched_batches_do_not_count_in_state_digest_or_stats() {
    let gate = Arc::<Gate>::default();
    let own = Arc::clone(&gate);
    let builder = after(move |placed, gathered, _| {
        own.pass(placed);
        Ok(gathered)
    });
    let builder = builder.shuffle(shuffle("none")).batch_size(10).prefetch(3);
    let mut loader = builder.build().unwrap();
    let mut epoch = loader.epoch(0).unwrap();
    gate.wait_for(3); // three in flight, none taken
    assert_eq!(loader.state().next_position(), 0);
    let batch = epoch.next().unwrap().unwrap();
    gate.wait_for(4);
    assert_eq!((loader.state().next_position(), loader.digest().count()), (10, 10));
    assert_eq!((loader.stats().batches, loader.stats().sources.rows_local), (1, 10));
    assert_eq!(batch.state(), loader.state());
    drop(epoch); // in the middle of three fetches
    gate.open();
    assert_eq!(loader.state().next_position(), 10);
}

#[test]
fn interrupted_epoch_restarts_unless_the_loader_is_resumed() {
    let mut loader = builder().batch_size(10).build().unwrap();
    let first =
        |loader: &mut Loader| loader.epoch(0).unwrap().next().unwrap().unwrap().samples().to_vec();
    let begin = first(&mut loader);
    assert_eq!(first(&mut loader), begin);
    let state = loader.state();
    loader.resume(state).unwrap();
    assert_ne!(first(&mut loader), begin);
    assert_eq!(first(&mut loader), begin, "a resume counts once");
    assert_eq!(loader.stats().batches, 4);
}

#[test]
fn resume_applies_to_its_epoch_after_other_epochs() {
    let mut loader = builder().batch_size(10).build().unwrap();
    let state = {
        let mut epoch = loader.epoch(3).unwrap();
        epoch.next().unwrap().unwrap().state()
    };
    let mut first = |epoch| loader.epoch(epoch).unwrap().next().unwrap().unwrap();
    let (of_three, of_four) = (first(3).samples().to_vec(), first(4).samples().to_vec());
    loader.resume(state).unwrap();
    drop(loader.prepare(3).unwrap());
    assert_eq!(loader.state(), state);
    let mut first = |epoch| loader.epoch(epoch).unwrap().next().unwrap().unwrap();
    assert_eq!(first(4).samples(), of_four);
    assert_eq!(first(3).state().next_position(), 20, "it goes on where the state stands");
    assert_eq!(first(3).samples(), of_three, "a resume counts once");
}

#[test]
fn source_error_comes_once_and_the_state_resumes_at_it() {
    let calls = AtomicU64::new(0);
    let failing = after(move |_, gathered, _| match calls.fetch_add(1, SeqCst) {
        3 => Err(Error::new(ErrorKind::OriginUnavailable, "the origin is away")),
        _ => Ok(gathered),
    });
    let builder = failing.batch_size(10).shuffle(Shuffle::Global);
    let mut loader = builder.prefetch(1).last(Last::Uneven).build().unwrap();
    let mut seen = BTreeMap::new();
    let mut epoch = loader.epoch(0).unwrap();
    for _ in 0..3 {
        let batch = epoch.next().unwrap().unwrap();
        checked(&batch).iter().for_each(|&sample| *seen.entry(sample).or_default() += 1);
    }
    assert_eq!(epoch.next().unwrap().unwrap_err().kind(), ErrorKind::OriginUnavailable);
    assert!(epoch.next().is_none());
    let state = loader.state();
    assert_eq!(state.next_position(), 30);
    loader.resume(state).unwrap();
    drain(loader.epoch(0).unwrap(), &mut seen);
    assert!(seen.len() as u64 == SAMPLES && seen.values().all(|&times| times == 1));
}

#[test]
fn loads_selected_samples_and_tensors_only() {
    let builder = builder().samples(50..61).tensors(["label"]).batch_size(4).last(Last::Pad);
    let mut loader = builder.shuffle(Shuffle::Global).build().unwrap();
    let mut seen = Vec::new();
    for batch in loader.epoch(0).unwrap() {
        let batch = batch.unwrap();
        assert!(batch.get("image").is_none());
        assert_eq!(batch.tensors().len(), 1);
        assert_eq!(batch.tensor("label").bytes().as_ptr().align_offset(4096), 0);
        seen.extend_from_slice(&batch.samples()[..batch.len() - batch.padding()]);
    }
    seen.sort_unstable();
    assert_eq!(seen, Vec::from_iter(50..61));
    assert_eq!((loader.stats().samples, loader.stats().padding), (11, 1));
}

#[test]
fn a_loader_of_no_tensors_is_refused() {
    let error = builder().tensors([""; 0]).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("no tensor is asked for"), "{error}");
}

#[test]
fn a_loader_of_an_unknown_tensor_is_refused_with_the_known_ones() {
    let error = builder().tensors(["image", "sound"]).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no tensor 'sound'"), "{error}");
    assert!(error.advice_text().unwrap().contains("image"), "{error}");
}

#[test]
fn two_epochs_of_one_loader_iterate_independently() {
    let mut loader = builder().batch_size(50).seed(9).build().unwrap();
    let (mut one, mut other) = (loader.epoch(0).unwrap(), loader.epoch(1).unwrap());
    one.next().unwrap().unwrap();
    assert_eq!(loader.state(), LoaderState::new(loader.pass_id(1), 0));
    other.next().unwrap().unwrap();
    one.next().unwrap().unwrap();
    assert_eq!(loader.state(), LoaderState::new(loader.pass_id(1), 50));
}

#[test]
fn settings_out_of_their_range_are_refused_with_the_range() {
    let refused = |builder: LoaderBuilder, what: &str| {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    refused(builder().batch_size(0), "batch size is 0");
    refused(builder().batch_size(65_537), "at most 65536");
    refused(builder().rank(2, 2), "rank 2 is not below");
    refused(builder().rank(0, 0), "world size is 0");
    refused(builder().worker(3, 3), "worker 3 is not below");
    refused(builder().worker(0, 0), "worker 0 is not below");
    refused(builder().prefetch(0), "1 to 64");
    refused(builder().prefetch(65), "1 to 64");
    refused(builder().tensors(["image", "image"]), "asked for twice");
    refused(builder().samples(0..204), "0..204");
    let other_view = builder().samples(0..100).build().unwrap().state();
    refused(builder().resume(other_view), "another snapshot or selection");
}

#[test]
fn auto_shuffle_follows_cluster_memory_when_all_nodes_answer() {
    let manifest = manifest();
    let memory = |budget_bytes, answered| {
        Some(crate::ClusterMemory { budget_bytes, resident_bytes: 0, members: 2, answered })
    };
    let window = Shuffle::Window { shards: sampler::WINDOW_SHARDS_DEFAULT };
    let view = all_samples(&manifest).unwrap();
    let whole = order::shuffle::Extent::of(std::iter::once((&manifest, &view)));
    assert_eq!(whole.bytes, manifest.total_bytes());
    let mixed_ten_times = std::iter::repeat_n((&manifest, &view), 10);
    assert_eq!(order::shuffle::Extent::of(mixed_ten_times), whole, "each shard counts once");
    let auto = |memory, world| order::shuffle::resolve_auto(whole, memory, world);
    assert_eq!(auto(memory(1 << 20, 2), 4).unwrap(), Shuffle::Global);
    assert_eq!(auto(memory(4000, 2), 4).unwrap().to_string(), "window:1");
    assert_eq!(auto(None, 4).unwrap(), window);
    assert_eq!(auto(memory(1 << 20, 1), 1).unwrap(), Shuffle::Global);
    assert_eq!(auto(memory(0, 0), 1).unwrap(), window);
    assert_eq!(auto(memory(1 << 20, 1), 2).unwrap_err().kind(), ErrorKind::Unavailable);
    let unknown = Some(crate::ClusterMemory::default());
    assert_eq!(auto(unknown, 1).unwrap(), window);
    assert_eq!(auto(unknown, 2).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn order_equals_that_of_the_sampler() {
    let mut loader = builder().batch_size(29).seed(77).shuffle(Shuffle::Global).build().unwrap();
    let samples: Vec<u64> =
        loader.epoch(6).unwrap().flat_map(|batch| batch.unwrap().samples().to_vec()).collect();
    let order = Order::new(loader.pass_id(6), &all_samples(&manifest()).unwrap()).unwrap();
    assert_eq!(samples, (0..SAMPLES).map(|position| order.sample_at(position)).collect::<Vec<_>>());
}

#[test]
fn slowest_batch_is_recorded_with_its_longest_wait() {
    let calls = AtomicU64::new(0);
    let wait = Duration::from_millis(300);
    let longest =
        LongestWait { hop: Hop::Network, waited: wait, shard: 3, node: Some("slow".to_owned()) };
    let told = longest.clone();
    let slow = after(move |_, mut gathered, cancel| {
        if calls.fetch_add(1, SeqCst) == 4 {
            Deadline::new(wait * 2, cancel).sleep(wait);
            gathered.sources.wait_nodes = wait;
            gathered.longest = Some(told.clone());
        }
        Ok(gathered)
    });
    let builder = slow.batch_size(20).prefetch(1);
    let mut loader = builder.build().unwrap();
    assert!(loader.slowest().is_empty());
    drain(loader.epoch(2).unwrap(), &mut BTreeMap::new());
    drain(loader.epoch(3).unwrap(), &mut BTreeMap::new());
    let slowest = loader.slowest();
    assert_eq!(slowest.len(), 20);
    let first = &slowest[0];
    assert_eq!((first.epoch, first.batch, first.longest.as_ref()), (2, 4, Some(&longest)));
    assert_eq!(first.hops[2], (Hop::Network, wait));
    assert!(first.fetching >= wait);
}
