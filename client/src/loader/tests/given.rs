//! Batches in memory that the caller gave.

use super::*;
use crate::{CallerMemory, HostTensor};

/// Memory with a number, and the count of those that are alive.
struct Numbered {
    number: usize,
    bytes: Box<[u8]>,
    _alive: Arc<()>,
}

impl CallerMemory for Numbered {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Gives memory of the wanted size, less `missing` bytes.
#[derive(Default)]
struct Giver {
    given: usize,
    missing: usize,
    alive: Arc<()>,
}

impl Giver {
    fn make(&mut self, bytes: usize) -> Box<Numbered> {
        let (number, bytes) = (self.given, vec![0xee; bytes - self.missing].into());
        self.given += 1;
        Box::new(Numbered { number, bytes, _alive: Arc::clone(&self.alive) })
    }

    fn begin(&mut self, loader: &mut Loader, epoch: u64) -> Epoch {
        let mut prepared = loader.prepare(epoch).unwrap();
        while let Some(bytes) = prepared.wanted() {
            prepared.give(self.make(bytes));
        }
        prepared.begin().unwrap()
    }

    fn next(&mut self, epoch: &mut Epoch) -> Option<Batch> {
        while let Some(bytes) = epoch.wanted() {
            epoch.give(self.make(bytes));
        }
        epoch.next().map(Result::unwrap)
    }

    /// How many of the given memories are alive.
    fn alive(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }

    /// Waits until `left` are alive.
    fn wait_for(&self, left: usize) {
        let deadline = crate::process::now() + Duration::from_secs(60);
        while self.alive() != left {
            assert!(crate::process::now() < deadline, "{} are alive, not {left}", self.alive());
            std::thread::yield_now();
        }
    }
}

/// The number of the memory that holds all tensors of a batch, and the offset of each tensor.
fn places(tensors: &[HostTensor]) -> (usize, Vec<usize>) {
    let place = |tensor: &HostTensor| {
        let (memory, offset) = tensor.memory.given().expect("given memory");
        let memory = memory.downcast_ref::<Numbered>().expect("what was given");
        let at = memory.bytes.as_ptr_range().start.wrapping_add(offset);
        assert_eq!(tensor.memory.base().as_ptr().cast_const(), at);
        (memory.number, offset)
    };
    let (numbers, offsets): (Vec<usize>, Vec<usize>) = tensors.iter().map(place).unzip();
    assert!(numbers.iter().all(|&number| number == numbers[0]), "all in one");
    (numbers[0], offsets)
}

#[test]
fn each_batch_uses_the_given_memory_and_releases_it() {
    for (prefetch, last) in [(1, Last::Drop), (3, Last::Uneven), (8, Last::Pad)] {
        let builder = builder().batch_size(7).prefetch(prefetch).last(last);
        let mut loader = builder.seed(3).shuffle(Shuffle::Global).build().unwrap();
        let (mut giver, mut seen) = (Giver::default(), BTreeMap::<u64, usize>::new());
        let mut epoch = giver.begin(&mut loader, 0);
        // Up to eight small batches may lie ready too, and one is given in advance.
        assert_eq!(giver.given, (prefetch + 8 + 1).min(29));
        let mut number = 0;
        while let Some(batch) = giver.next(&mut epoch) {
            checked(&batch).iter().for_each(|&sample| *seen.entry(sample).or_default() += 1);
            let tensors = batch.into_tensors().unwrap();
            assert_eq!(places(&tensors), (number, vec![0, 4096]));
            number += 1;
        }
        assert_eq!((number as u64, giver.given), (epoch.batches(), number), "one for each batch");
        assert!(seen.values().all(|&times| times == 1));
        drop(epoch);
        giver.wait_for(0);
    }
}

#[test]
fn held_batches_keep_their_bytes() {
    let mut loader = builder().batch_size(3).shuffle(Shuffle::Global).build().unwrap();
    let mut giver = Giver::default();
    let mut epoch = giver.begin(&mut loader, 0);
    let kept: Vec<Batch> = std::iter::from_fn(|| giver.next(&mut epoch)).collect();
    assert_eq!(kept.len(), 67);
    kept.iter().for_each(|batch| assert_eq!(checked(batch).len(), 3));
    assert_eq!(giver.alive(), 67);
}

#[test]
fn dropped_epoch_releases_the_given_memory() {
    let mut loader = builder().batch_size(7).prefetch(4).build().unwrap();
    let mut giver = Giver::default();
    let (mut one, mut other) = (giver.begin(&mut loader, 0), giver.begin(&mut loader, 1));
    let kept = giver.next(&mut one).unwrap();
    giver.next(&mut other).unwrap();
    drop((one, other));
    giver.wait_for(1);
    checked(&kept);
    drop(kept);
    giver.wait_for(0);
    drop(giver.begin(&mut loader, 2));
    giver.wait_for(0);
}

#[test]
fn missing_small_and_surplus_given_memory_is_tolerated() {
    let mut loader = builder().batch_size(7).prefetch(2).build().unwrap();
    let mut giver = Giver { missing: 1, ..Giver::default() };
    let mut epoch = giver.begin(&mut loader, 0);
    let small = giver.next(&mut epoch).unwrap();
    checked(&small);
    assert!(small.into_tensors().unwrap().iter().all(|tensor| tensor.memory.given().is_none()));
    // First no memory is given, and later more than is wanted.
    let mut seen = BTreeMap::new();
    for _ in 0..20 {
        let batch = epoch.next().unwrap().unwrap();
        checked(&batch).iter().for_each(|&sample| *seen.entry(sample).or_default() += 1);
    }
    giver.missing = 0;
    for _ in 0..100 {
        epoch.give(giver.make(8192));
    }
    assert!(giver.alive() <= 2 + 8 + 1, "{} are kept", giver.alive());
    assert_eq!(drain(epoch, &mut seen), 8);
    let mut ordinary = loader.epoch(0).unwrap();
    assert_eq!(ordinary.wanted(), None);
    ordinary.give(giver.make(8192));
    giver.wait_for(0);
}

#[test]
fn resumed_epochs_and_mixtures_use_given_memory() {
    let mut loader = builder().batch_size(20).shuffle(Shuffle::Global).build().unwrap();
    let expected: Vec<Vec<u64>> =
        loader.epoch(4).unwrap().map(|batch| batch.unwrap().samples().to_vec()).collect();
    let mut giver = Giver::default();
    let mut epoch = giver.begin(&mut loader, 4);
    let first = giver.next(&mut epoch).unwrap();
    loader.resume(first.state()).unwrap();
    let mut rest = giver.begin(&mut loader, 4);
    for samples in &expected[1..] {
        let batch = giver.next(&mut rest).unwrap();
        assert_eq!(checked(&batch), samples);
        places(&batch.into_tensors().unwrap());
    }
    assert!(giver.next(&mut rest).is_none());

    let mut loader = mixture::builder().batch_size(12).build().unwrap();
    let mut epoch = giver.begin(&mut loader, 0);
    while let Some(batch) = giver.next(&mut epoch) {
        mixture::checked(&batch);
        places(&batch.into_tensors().unwrap());
    }
}

#[test]
fn mappable_rows_are_gathered_into_given_memory() {
    let rows = FakeRows { manifest: manifest(), after: None, refuses_look: true };
    let builder = alone(source_of(rows)).batch_size(5).shuffle(Shuffle::None);
    let mut loader = builder.build().unwrap();
    let mut giver = Giver::default();
    let mut epoch = giver.begin(&mut loader, 0);
    while let Some(batch) = giver.next(&mut epoch) {
        checked(&batch);
        places(&batch.into_tensors().unwrap());
    }
    assert_eq!(loader.epoch(0).unwrap().next().unwrap().unwrap_err().kind(), ErrorKind::Internal);
}
