//! A training loop that never rests: it reads the dataset again and again while its ring changes.
//!
//! Every batch is compared with its source as it comes, and every whole epoch with its digest. How
//! long the rows of each batch took to be fetched is kept until it is asked for. A read that fails
//! is counted, and the next epoch begun.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
    thread::{self, JoinHandle},
    time::Duration,
};

use larder_client::{
    Dataset, Loader,
    sampler::{Last, Shuffle},
};

use super::super::{origin::Origin, source::Source};
use crate::error::{Exit, Failure};

/// Samples of one read.
pub(super) const BATCH_SIZE: u32 = 32;
/// How soon a reader hears that it is to end.
const WORD_INTERVAL: Duration = Duration::from_millis(50);
/// After a read that failed.
const REST: Duration = Duration::from_millis(100);

/// A reader at work on a thread of its own. Ends when dropped.
pub(super) struct Reader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    end: AtomicBool,
    noted: Mutex<Noted>,
}

/// What was noted since it was last asked for.
#[derive(Default)]
struct Noted {
    reads: Reads,
    /// Of all that was taken.
    sum: Sum,
    /// Bytes were wrong, or a sample did not come: the reader has ended.
    broken: Option<Failure>,
}

/// Reads within some time.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// How long each took that did not fail.
    times: Vec<Duration>,
    failed: u64,
    /// Why the first failed.
    first_failure: Option<String>,
}

/// All reads of a reader.
#[derive(Debug, Clone, Default)]
pub(super) struct Sum {
    pub(super) reads: u64,
    pub(super) failed: u64,
    /// Why the first failed.
    pub(super) first_failure: Option<String>,
}

impl Reader {
    /// Begins to read, shuffled by this seed.
    pub(super) fn start(dataset: &Dataset, origin: &Origin, seed: u64) -> Result<Self, Failure> {
        let loader = dataset.loader().batch_size(BATCH_SIZE).seed(seed).prefetch(1);
        let mut loader = loader.shuffle(Shuffle::Global).last(Last::Uneven).build()?;
        let mut source = Source::open(origin.files())?;
        let shared = Arc::new(Shared::default());
        let at_work = Arc::clone(&shared);
        let read = move || {
            let broken = (0..).try_for_each(|epoch| at_work.read(&mut loader, &mut source, epoch));
            at_work.noted().broken = broken.err().flatten();
        };
        let thread = thread::Builder::new().name("larder-reader".to_owned()).spawn(read);
        let thread = thread
            .map_err(|error| Failure::new(Exit::Failed, "no reader was started").why(error))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// How many reads were noted since they were last taken.
    ///
    /// # Errors
    /// When the reader found wrong bytes or a sample missing.
    pub(super) fn count(&self) -> Result<usize, Failure> {
        let mut noted = self.shared.noted();
        noted.broken.take().map_or_else(|| Ok(noted.reads.count()), Err)
    }

    /// The reads since they were last taken.
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub(super) fn take(&self) -> Result<Reads, Failure> {
        self.count()?;
        let mut noted = self.shared.noted();
        let reads = std::mem::take(&mut noted.reads);
        noted.sum.add(&reads);
        Ok(reads)
    }

    /// Ends it, and sums up.
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub(super) fn end(self) -> Result<Sum, Failure> {
        self.take()?;
        Ok(self.shared.noted().sum.clone())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.end.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A defect of the reader's own was printed where it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads an epoch up to its end or a failed read. `Err` ends the reader: with nothing when it
    /// was told to end.
    fn read(
        &self,
        loader: &mut Loader,
        source: &mut Source,
        epoch: u64,
    ) -> Result<(), Option<Failure>> {
        let mut batches = loader.epoch(epoch).map_err(Failure::from)?;
        loop {
            if self.end.load(Relaxed) {
                return Err(None);
            }
            match batches.poll(WORD_INTERVAL) {
                Poll::Pending => {}
                Poll::Ready(Some(Ok(batch))) => {
                    self.noted().reads.times.push(batch.fetching());
                    source.check(&batch)?;
                }
                Poll::Ready(Some(Err(error))) => {
                    self.noted().reads.note_failure(&error);
                    thread::park_timeout(REST);
                    return Ok(());
                }
                Poll::Ready(None) => break,
            }
        }
        if loader.digest() == loader.expected_digest() {
            return Ok(());
        }
        Err(Some(
            Failure::new(Exit::Data, "not every sample came exactly once")
                .why(format!("the digest of the reader's epoch {epoch} is not the expected one"))
                .hint("this is a defect of Larder: please report it"),
        ))
    }
}

impl Reads {
    fn note_failure(&mut self, error: &larder_client::Error) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| error.to_string());
    }

    /// Adds those of a later time.
    pub(super) fn extend(&mut self, later: Self) {
        self.times.extend(later.times);
        self.failed += later.failed;
        self.first_failure = self.first_failure.take().or(later.first_failure);
    }

    /// All of them.
    pub(super) fn count(&self) -> usize {
        self.times.len() + usize::try_from(self.failed).unwrap_or(usize::MAX)
    }

    /// Those that failed.
    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// Of a hundred reads, 99 took no longer. None if there were none.
    pub(super) fn p99(&self) -> Option<Duration> {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get((times.len() * 99).div_ceil(100).checked_sub(1)?).copied()
    }
}

impl Sum {
    fn add(&mut self, reads: &Reads) {
        self.reads += reads.count() as u64;
        self.failed += reads.failed;
        self.first_failure = self.first_failure.take().or_else(|| reads.first_failure.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(millis: impl Iterator<Item = u64>) -> Reads {
        Reads { times: millis.map(Duration::from_millis).collect(), ..Reads::default() }
    }

    #[test]
    fn of_a_hundred_reads_one_may_take_longer_than_the_99th_percentile() {
        assert_eq!(reads(std::iter::empty()).p99(), None);
        assert_eq!(reads([7].into_iter()).p99(), Some(Duration::from_millis(7)));
        assert_eq!(reads((1..=100).rev()).p99(), Some(Duration::from_millis(99)));
        assert_eq!(reads(1..=200).p99(), Some(Duration::from_millis(198)));
        assert_eq!(reads(1..=101).p99(), Some(Duration::from_millis(100)));
    }

    #[test]
    fn the_first_failure_is_the_one_that_is_told() {
        let mut sum = Sum::default();
        sum.add(&reads(1..=3));
        for what in ["one", "two"] {
            let mut failed = Reads::default();
            let error = larder_client::Error::new(larder_client::ErrorKind::Unavailable, what);
            failed.note_failure(&error);
            sum.add(&failed);
        }
        assert_eq!((sum.reads, sum.failed, sum.first_failure.as_deref()), (5, 2, Some("one")));
    }
}
