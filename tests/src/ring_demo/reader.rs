//! A training loop without a pause: it reads the dataset again and again while its ring changes,
//! compares every row, and notes how long each batch took to be fetched.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use larder_client::sampler::{Last, Shuffle};
use larder_client::{Batch, Dataset, Epoch, Error, Loader};
use larder_origin::demo_data;

/// Samples of one read.
const BATCH_SIZE: u32 = 32;
/// How soon a wait for a batch notices that it is to end.
const TICK: Duration = Duration::from_millis(50);
/// The pause after a read that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// One batch: the time it took to be fetched, or why it failed.
pub(super) type Read = Result<Duration, String>;

/// A reader on a thread of its own. Ends when dropped.
pub(super) struct Reader {
    noted: Arc<Noted>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Noted {
    end: AtomicBool,
    reads: Mutex<Vec<Read>>,
}

impl Reader {
    pub(super) fn start(dataset: &Dataset, seed: u64) -> Self {
        let mut loader = loader(dataset, BATCH_SIZE, seed);
        let noted = Arc::new(Noted::default());
        let at_work = Arc::clone(&noted);
        let read = move || {
            for epoch in 0.. {
                if at_work.end.load(Relaxed) {
                    break;
                }
                at_work.read(&mut loader, epoch);
            }
        };
        Self { noted, thread: Some(thread::spawn(read)) }
    }

    /// The number of reads so far.
    ///
    /// # Panics
    /// When the reader ended: a byte was wrong, or a sample was missing.
    pub(super) fn count(&self) -> usize {
        assert!(
            self.thread.as_ref().is_some_and(|thread| !thread.is_finished()),
            "the reader found a fault"
        );
        self.noted.reads().len()
    }

    /// The reads after the first `count`.
    ///
    /// # Panics
    /// As [`count`](Self::count).
    pub(super) fn since(&self, count: usize) -> Vec<Read> {
        self.count();
        self.noted.reads()[count..].to_vec()
    }

    /// Ends the reader. Returns all its reads.
    ///
    /// # Panics
    /// As [`count`](Self::count).
    pub(super) fn end(&mut self) -> Vec<Read> {
        let reads = self.since(0);
        self.stop();
        reads
    }

    fn stop(&mut self) {
        self.noted.end.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has said why it panicked, if it did.
            let _ = thread.join();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Noted {
    fn reads(&self) -> MutexGuard<'_, Vec<Read>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one epoch, up to its end or to a read that fails.
    fn read(&self, loader: &mut Loader, epoch: u64) {
        let mut batches = loader.epoch(epoch).expect("an epoch");
        let end = || self.end.load(Relaxed);
        while !end() {
            match poll_batch(&mut batches) {
                Poll::Pending => {}
                Poll::Ready(Some(Ok(batch))) => self.reads().push(Ok(batch.fetching())),
                Poll::Ready(Some(Err(error))) => {
                    self.reads().push(Err(error.to_string()));
                    return thread::park_timeout(PAUSE);
                }
                Poll::Ready(None) => {
                    drop(batches);
                    let whole = loader.digest() == loader.expected_digest();
                    return assert!(whole, "the reader's epoch {epoch} is incomplete");
                }
            }
        }
    }
}

/// Batches of all samples, shuffled by `seed`.
pub(super) fn loader(dataset: &Dataset, batch_size: u32, seed: u64) -> Loader {
    let loader = dataset.loader().batch_size(batch_size).seed(seed).prefetch(1);
    loader.shuffle(Shuffle::Global).last(Last::Uneven).build().expect("the dataset has samples")
}

/// The next batch, compared with its source. `check` runs again and again while it waits.
pub(super) fn next_batch(batches: &mut Epoch, check: impl Fn()) -> Option<Result<Batch, Error>> {
    loop {
        check();
        if let Poll::Ready(batch) = poll_batch(batches) {
            return batch;
        }
    }
}

fn poll_batch(batches: &mut Epoch) -> Poll<Option<Result<Batch, Error>>> {
    batches.poll(TICK).map_ok(|batch| {
        for (row, &sample) in batch.samples().iter().enumerate() {
            let (image, label) = demo_data::sample(sample);
            let right = batch.tensor("image").row(row) == image
                && batch.tensor("label").row(row) == label.to_le_bytes();
            assert!(right, "sample {sample} came with other bytes than were written");
        }
        batch
    })
}

/// The 99th percentile of the reads that did not fail, in seconds.
pub(super) fn p99(reads: &[Read]) -> Option<f64> {
    let mut times: Vec<Duration> = reads.iter().flatten().copied().collect();
    times.sort_unstable();
    let time = times.get((times.len() * 99).div_ceil(100).checked_sub(1)?);
    time.map(Duration::as_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_1_of_100_reads_exceeds_the_99th_percentile() {
        let p99 = |seconds: &[u64]| {
            p99(&seconds.iter().map(|&it| Ok(Duration::from_secs(it))).collect::<Vec<_>>())
        };
        assert_eq!(p99(&[]), None);
        assert_eq!(p99(&[7]), Some(7.0));
        assert_eq!(p99(&(1..=100).rev().collect::<Vec<_>>()), Some(99.0));
        assert_eq!(p99(&(1..=101).collect::<Vec<_>>()), Some(100.0));
        assert_eq!(p99(&(1..=200).collect::<Vec<_>>()), Some(198.0));
    }
}
