//! Epochs through a node that was empty at their begin, and the epoch after.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use larder_client::sampler::{Last, Shuffle};
use larder_client::{Batch, Dataset, Loader, RowRef, ShuffleMode};
use larder_tests::Garage;

use super::{data, origin};
use crate::Error;
use crate::children::Node;
use crate::measure::{Begun, Round, begin_over};

const BATCH: u32 = 256;
/// The interval between two checks of the fills.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Larder's contenders over one dataset.
pub(super) struct Epochs<'a> {
    garage: &'a Garage,
    uri: String,
    /// The node and loader of the last cold epoch, now warm.
    warm: RefCell<Option<(Node, Loader)>>,
    /// Seconds to the first batch: shuffled and cold, warm, in order and cold.
    first: RefCell<[Vec<f64>; 3]>,
}

impl<'a> Epochs<'a> {
    pub(super) fn new(garage: &'a Garage, uri: String) -> Self {
        Self { garage, uri, warm: RefCell::default(), first: RefCell::default() }
    }

    /// Seconds to the first batch of each round so far.
    pub(super) fn first_batches(&self) -> [Vec<f64>; 3] {
        self.first.borrow().clone()
    }

    /// Compares every sample of a cold epoch with the written data.
    pub(super) fn check(&self) -> Result<(), Error> {
        let node = self.cold_node()?;
        let mut loader = loader(&node.connect(&self.uri)?, ShuffleMode::Auto)?;
        for batch in loader.epoch(0)? {
            compare(&batch?)?;
        }
        if loader.digest() == loader.expected_digest() {
            return Ok(());
        }
        Err("an epoch did not have every sample once".into())
    }

    /// Asks for one row of each shard, until every shard is resident.
    pub(super) fn fill(&self) -> Result<Round, Error> {
        let node = self.cold_node()?;
        let begun = begin_over(Some(node.pid()), self.garage.pid());
        let dataset = node.connect(&self.uri)?;
        let shards = dataset.manifest().shard_count();
        let rows: Vec<RowRef> = (0..shards).map(|shard| RowRef { shard, row: 0 }).collect();
        let mut out = vec![0; rows.len() * data::IMAGE_BYTES];
        dataset.fetcher().gather(&rows, &[0], &mut [&mut out])?;
        let cluster = dataset.cluster().ok_or("the node does not answer")?;
        let resident = || -> Result<u64, Error> {
            let answers = cluster.shards(Some(dataset.snapshot()));
            answers.into_iter().try_fold(0, |sum, one| Ok(sum + one.answer?.resident))
        };
        while resident()? < shards.into() {
            pause();
        }
        Ok(begun.end(bytes_of(&dataset)))
    }

    /// A cold epoch, from the open of the dataset to the last of its shuffled samples.
    pub(super) fn cold(&self) -> Result<Round, Error> {
        // Two nodes at once would need twice the memory.
        *self.warm.borrow_mut() = None;
        let node = self.cold_node()?;
        let begun = begin_over(Some(node.pid()), self.garage.pid());
        let mut loader = loader(&node.connect(&self.uri)?, ShuffleMode::Auto)?;
        let round = self.epoch(&mut loader, 0, begun, 0)?;
        *self.warm.borrow_mut() = Some((node, loader));
        Ok(round)
    }

    /// The epoch after a cold one.
    pub(super) fn warm(&self) -> Result<Round, Error> {
        let mut warm = self.warm.borrow_mut();
        let (node, loader) = warm.as_mut().ok_or("there was no cold epoch before")?;
        let begun = begin_over(Some(node.pid()), self.garage.pid());
        self.epoch(loader, 1, begun, 1)
    }

    /// As [`cold`](Self::cold), without a shuffle.
    pub(super) fn cold_in_order(&self) -> Result<Round, Error> {
        *self.warm.borrow_mut() = None;
        let node = self.cold_node()?;
        let begun = begin_over(Some(node.pid()), self.garage.pid());
        let mut loader = loader(&node.connect(&self.uri)?, Shuffle::None.into())?;
        self.epoch(&mut loader, 0, begun, 2)
    }

    fn cold_node(&self) -> Result<Node, Error> {
        Node::start(&origin(), &self.garage.env())
    }

    fn epoch(
        &self,
        loader: &mut Loader,
        epoch: u64,
        begun: Begun,
        kind: usize,
    ) -> Result<Round, Error> {
        let (mut bytes, mut first) = (0, None);
        for batch in loader.epoch(epoch)? {
            let batch = batch?;
            first.get_or_insert_with(|| begun.so_far());
            bytes += batch.tensors().map(|tensor| black_box(tensor.bytes()).len()).sum::<usize>();
        }
        let first = first.ok_or("the epoch was empty")?;
        self.first.borrow_mut()[kind].push(first.as_secs_f64());
        Ok(begun.end(bytes))
    }
}

fn loader(dataset: &Dataset, shuffle: ShuffleMode) -> Result<Loader, Error> {
    Ok(dataset.loader().batch_size(BATCH).last(Last::Uneven).shuffle(shuffle).build()?)
}

fn bytes_of(dataset: &Dataset) -> usize {
    let samples = usize::try_from(dataset.samples()).expect("a small dataset");
    samples * (data::IMAGE_BYTES + 8)
}

fn compare(batch: &Batch) -> Result<(), Error> {
    for (row, &sample) in batch.samples().iter().enumerate() {
        let (words, _) = batch.tensor("image").row(row).as_chunks::<8>();
        let label = batch.tensor("label").row(row);
        if !words.iter().copied().eq(data::image(sample)) || label != sample.to_le_bytes() {
            return Err(format!("sample {sample} came with other bytes than were written").into());
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "another process is looked at")]
fn pause() {
    std::thread::sleep(LOOK_AGAIN);
}
