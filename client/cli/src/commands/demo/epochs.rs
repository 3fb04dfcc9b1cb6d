//! Runs the epochs: compares each batch with its source, and counts each sample.

use std::{task::Poll, time::Duration};

use larder_client::{
    Batch, Dataset, Epoch, Loader, Sources,
    sampler::{Last, Shuffle},
};

use super::{BATCH_SIZE, check_signals, images::Images, report::EpochFigures};
use crate::{
    context::Context,
    error::{Exit, Failure},
};

const PREFETCH: usize = 3;
/// A wait for a batch notices a signal within this time.
const TICK: Duration = Duration::from_millis(50);

/// A loader of all samples.
pub(super) struct Epochs<'a> {
    dataset: &'a Dataset,
    images: &'a Images,
    loader: Loader,
}

impl<'a> Epochs<'a> {
    pub(super) fn new(
        dataset: &'a Dataset,
        images: &'a Images,
        seed: u64,
    ) -> Result<Self, Failure> {
        let loader = dataset.loader().batch_size(BATCH_SIZE).seed(seed);
        let loader = loader.shuffle(Shuffle::Global).last(Last::Uneven).prefetch(PREFETCH);
        Ok(Self { dataset, images, loader: loader.build()? })
    }

    /// Reads and compares one epoch, counted from 0.
    pub(super) fn run(&mut self, context: &Context, number: u64) -> Result<EpochFigures, Failure> {
        let (requests_before, bytes_before) = self.asked_of_origin();
        let samples = self.images.samples();
        let name = format!("epoch {}{}", number + 1, if number == 0 { ", cold" } else { "" });
        let progress = context.progress(&name);
        progress.items(&name, samples);
        let (mut seen, mut sources) = (Vec::new(), Sources::default());
        let begun = context.now();
        let mut batches = self.loader.epoch(number)?;
        while let Some(batch) = next(&mut batches)? {
            self.images.check(&batch)?;
            seen.extend_from_slice(batch.samples());
            sources += batch.sources();
            progress.add(batch.len() as u64);
        }
        let seconds = begun.elapsed().as_secs_f64();
        drop(batches);
        seen.sort_unstable();
        let complete = self.loader.digest() == self.loader.expected_digest();
        if !(complete && seen.into_iter().eq(0..samples)) {
            return Err(Failure::new(Exit::Data, "not every sample came exactly once")
                .hint("this is a defect of Larder: please report it"));
        }
        let (requests, bytes) = self.asked_of_origin();
        Ok(EpochFigures {
            epoch: number + 1,
            samples,
            seconds,
            rows_local: sources.rows_local,
            rows_remote: sources.rows_remote,
            rows_origin: sources.rows_origin,
            origin_requests: requests - requests_before,
            origin_bytes: bytes - bytes_before,
            bytes: sources.bytes,
        })
    }

    /// The requests of all nodes to the origin, and the bytes that they read there.
    fn asked_of_origin(&self) -> (u64, u64) {
        let said = self.dataset.cluster().map(|cluster| cluster.describe()).unwrap_or_default();
        let counters = said.into_iter().filter_map(|said| said.answer.ok()?.counters);
        counters.fold((0, 0), |(requests, bytes), counters| {
            (requests + counters.origin_requests, bytes + counters.origin_bytes)
        })
    }
}

/// The next batch, unless a signal comes first.
fn next(batches: &mut Epoch) -> Result<Option<Batch>, Failure> {
    loop {
        check_signals()?;
        if let Poll::Ready(batch) = batches.poll(TICK) {
            return Ok(batch.transpose()?);
        }
    }
}
