//! The epochs: every batch is compared with its source as it comes, and each sample is ticked off.

use std::{task::Poll, time::Duration};

use larder_client::{
    Batch, Dataset, Loader, Sources,
    sampler::{Last, Shuffle},
};

use super::{origin::Origin, report::Epoch, signals::Interrupt, source::Source};
use crate::{
    context::Context,
    error::{Exit, Failure},
    output::units,
};

const BATCH_SIZE: u32 = 128;
const PREFETCH: usize = 3;
/// How soon a signal is heard of while a batch is waited for.
const WORD_INTERVAL: Duration = Duration::from_millis(50);

/// A loader of all samples, and where they come from.
pub(super) struct Epochs<'a> {
    origin: &'a Origin,
    loader: Loader,
    source: Source,
}

impl<'a> Epochs<'a> {
    /// Shuffled by this seed; nothing is read yet.
    pub(super) fn new(dataset: &Dataset, origin: &'a Origin, seed: u64) -> Result<Self, Failure> {
        let source = Source::open(origin.files())?;
        if source.samples() != dataset.samples() {
            let why = format!("{} in the files, {} indexed", source.samples(), dataset.samples());
            return Err(Failure::new(Exit::Data, "samples are missing in the index").why(why));
        }
        let loader = dataset.loader().batch_size(BATCH_SIZE).seed(seed);
        let loader = loader.shuffle(Shuffle::Global).last(Last::Uneven).prefetch(PREFETCH);
        Ok(Self { origin, loader: loader.build()?, source })
    }

    /// Reads and checks one epoch, counted from 0.
    pub(super) fn run(
        &mut self,
        context: &Context,
        interrupt: &Interrupt,
        number: u64,
    ) -> Result<Epoch, Failure> {
        let before = self.origin.counts()?;
        let samples = self.source.samples();
        let mut seen = vec![false; usize::try_from(samples).expect("the demo is small")];
        let name =
            if number == 0 { "epoch 1, cold".to_owned() } else { format!("epoch {}", number + 1) };
        let progress = context.progress(&name);
        progress.items(&name, samples);
        let mut sources = Sources::default();
        let begun = context.now();
        let mut batches = self.loader.epoch(number)?;
        while let Some(batch) = next(&mut batches, interrupt)? {
            self.source.check(&batch)?;
            tick_off(&mut seen, batch.samples())?;
            sources += batch.sources();
            progress.add(batch.len() as u64);
            progress.say(&format!(
                "{name}: {} local, {} remote, {} from the origin",
                units::count(sources.rows_local),
                units::count(sources.rows_remote),
                units::count(sources.rows_origin),
            ));
        }
        let time = begun.elapsed();
        self.complete(&seen)?;
        let after = self.origin.counts()?;
        Ok(Epoch {
            epoch: number + 1,
            samples: seen.len() as u64,
            seconds: time.as_secs_f64(),
            rows_local: sources.rows_local,
            rows_remote: sources.rows_remote,
            rows_origin: sources.rows_origin,
            origin_requests: after.requests - before.requests,
            origin_bytes: after.bytes_sent - before.bytes_sent,
            bytes: sources.bytes,
        })
    }

    /// Fails unless all samples came in the epoch that is over.
    fn complete(&self, seen: &[bool]) -> Result<(), Failure> {
        if let Some(lost) = seen.iter().position(|seen| !seen) {
            return Err(lost_or_repeated(format!("sample {lost} never came")));
        }
        if self.loader.digest() != self.loader.expected_digest() {
            let why = "the digest of the epoch is not the expected one";
            return Err(lost_or_repeated(why.to_owned()));
        }
        Ok(())
    }
}

/// The next batch, unless a signal comes first.
fn next(
    batches: &mut larder_client::Epoch,
    interrupt: &Interrupt,
) -> Result<Option<Batch>, Failure> {
    loop {
        interrupt.check()?;
        if let Poll::Ready(batch) = batches.poll(WORD_INTERVAL) {
            return Ok(batch.transpose()?);
        }
    }
}

fn tick_off(seen: &mut [bool], samples: &[u64]) -> Result<(), Failure> {
    for &sample in samples {
        let seen = usize::try_from(sample).ok().and_then(|index| seen.get_mut(index));
        let seen = seen.ok_or_else(|| lost_or_repeated(format!("there is no sample {sample}")))?;
        if std::mem::replace(seen, true) {
            return Err(lost_or_repeated(format!("sample {sample} came twice")));
        }
    }
    Ok(())
}

fn lost_or_repeated(why: String) -> Failure {
    Failure::new(Exit::Data, "not every sample came exactly once")
        .why(why)
        .hint("this is a defect of Larder: please report it")
}
