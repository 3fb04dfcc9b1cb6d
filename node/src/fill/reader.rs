//! Reads one range from the origin, with retries. Stretches of it that an index has just read come
//! from memory.
//!
//! An error that may pass (a reset, a 503, a stall) is retried as often as the retry budget allows.
//! An error that would end the shard (denied, changed, gone) is confirmed by one more request.
//! Gateways and skewed clocks return such errors for valid requests. The second such answer is
//! final. So an object that really changed costs one extra request, and that one carries no bytes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_base::{Error, ErrorKind, limits};
use larder_dataset::{FetchError, OriginError, OriginUri};
use tokio::{task, time};

use crate::cache::{BytesHere, Counters, FailedRead, FoundRange, GaveUp, Retained};
use crate::clock;
use crate::dataset::Dataset;
use crate::dataset::bucket::{Bucket, Gate, Turn, Urgency, wait_after};
use crate::fill::{ByteSink, ObjectRange};

/// Tries of one part before its fill gives up. With the waits below about 15 seconds, which
/// outlasts the usual "slow down" of an object store.
const FILL_TRIES_MAX: u32 = 8;

/// Timeout between two pieces of a body. A retry continues a stalled read elsewhere.
const ORIGIN_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes from memory that are handed on before other tasks have a turn.
const HERE_STEP_BYTES: usize = 1 << 20;

/// Where and how urgently a read asks for its turns.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) urgency: Arc<Urgency>,
    /// The turn of the first try, if it has one already.
    pub(crate) turn: Option<Turn<'a>>,
}

impl<'a> Asking<'a> {
    /// Asks for each turn.
    pub(crate) fn at(gate: &'a Gate, urgency: &Arc<Urgency>) -> Self {
        Self { gate, urgency: Arc::clone(urgency), turn: None }
    }

    /// As [`at`](Self::at), as urgently as others do that wait for nothing else.
    pub(crate) fn in_turn(gate: &'a Gate) -> Self {
        Self::at(gate, &Arc::default())
    }

    async fn turn(&mut self) -> Turn<'a> {
        match self.turn.take() {
            Some(turn) => turn,
            None => self.gate.turn(&self.urgency).await,
        }
    }
}

/// Why a try failed.
enum Failed {
    Fetch(FetchError),
    /// The target refused the bytes. The origin is not at fault.
    Target(Error),
}

/// The state that all reads of a node share.
#[derive(Debug)]
pub(crate) struct Reader {
    counters: Arc<Counters>,
    retained: Arc<Retained>,
}

impl Reader {
    pub(crate) fn new(counters: Arc<Counters>, retained: &Arc<Retained>) -> Self {
        Self { counters, retained: Arc::clone(retained) }
    }

    /// Returns how many bytes of a range the origin would have to send now.
    pub(crate) fn missing_bytes(&self, read: &ObjectRange<'_>) -> u64 {
        let missing = |found: &FoundRange| match found {
            FoundRange::Here(_) => 0,
            FoundRange::Missing(range) => range.end - range.start,
        };
        self.find(read).iter().map(missing).sum()
    }

    /// Reads exactly the bytes of `read` into `target`, with retries. Each try takes a turn; a wait
    /// between two tries takes none.
    pub(crate) async fn read(
        &self,
        dataset: &Dataset,
        read: &ObjectRange<'_>,
        asking: Asking<'_>,
        target: &mut impl ByteSink,
    ) -> Result<(), GaveUp> {
        if self.retained.is_empty() {
            return self.read_missing(dataset, read, asking, target).await;
        }
        let here: Option<Vec<BytesHere>> =
            self.find(read).into_iter().map(FoundRange::here).collect();
        match here {
            Some(here) => {
                target.begin();
                for bytes in here {
                    hand_on(&bytes, |step| target.put(step)).await?;
                }
            }
            None => self.read_missing(dataset, read, asking, target).await?,
        }
        let (object, etag) = version(read);
        self.retained.used(&object, etag, &read.range);
        Ok(())
    }

    /// Returns the stretches of a range that are here, and those that are missing.
    fn find(&self, read: &ObjectRange<'_>) -> Vec<FoundRange> {
        if self.retained.is_empty() {
            return vec![FoundRange::Missing(read.range.clone())];
        }
        let (object, etag) = version(read);
        self.retained.find(&object, etag, &read.range)
    }

    /// Reads as [`read`](Self::read), if stretches of it are missing.
    async fn read_missing(
        &self,
        dataset: &Dataset,
        read: &ObjectRange<'_>,
        mut asking: Asking<'_>,
        target: &mut impl ByteSink,
    ) -> Result<(), GaveUp> {
        let bucket = dataset.bucket();
        let (mut tries, answers) = (1, bucket.answers());
        let mut confirming = false;
        bucket.retries.earn();
        loop {
            let turn = asking.turn().await;
            let tried = self.try_once(dataset, read, target, &turn).await;
            match &tried {
                Ok(()) => turn.succeeded(clock::now()),
                Err(Failed::Fetch(error)) if error.is_overload() => turn.was_too_much(),
                Err(_) => drop(turn),
            }
            let error = match tried {
                Ok(()) => {
                    bucket.answered();
                    return Ok(());
                }
                Err(Failed::Target(why)) => return Err(GaveUp::from(why)),
                Err(Failed::Fetch(error)) => error,
            };
            if error.is_retryable() {
                if !self.pause(bucket, &mut tries).await {
                    if !error.is_of_this_process() {
                        bucket.gave_up(answers);
                    }
                    return Err(gave_up(read, error, tries));
                }
            } else {
                bucket.answered();
                let doubted = error.may_be_spurious() && !confirming;
                if !doubted || !self.pause_to_confirm(bucket, &mut tries).await {
                    return Err(gave_up(read, error, tries));
                }
                confirming = true;
            }
            self.counters.origin_retries.add(1);
        }
    }

    /// Waits before the next try. Returns false if there is to be none. Without a retry in the
    /// budget it waits the longest time and counts that as a try. This bounds both the wait and the
    /// load on the origin.
    async fn pause(&self, bucket: &Bucket, tries: &mut u32) -> bool {
        while *tries < FILL_TRIES_MAX && !bucket.is_away() {
            let may = bucket.retries.spend(clock::now());
            let exponent = if may { *tries } else { u32::MAX };
            time::sleep(wait_after(exponent, |most| fastrand::u64(0..=most))).await;
            *tries += 1;
            if may {
                return !bucket.is_away();
            }
        }
        false
    }

    /// Waits a moment before a final answer is confirmed. Returns false if the retry budget is
    /// empty.
    async fn pause_to_confirm(&self, bucket: &Bucket, tries: &mut u32) -> bool {
        let may = bucket.retries.spend(clock::now());
        if may {
            time::sleep(limits::ORIGIN_CONFIRM_WAIT).await;
            *tries += 1;
        }
        may
    }

    async fn try_once(
        &self,
        dataset: &Dataset,
        read: &ObjectRange<'_>,
        target: &mut impl ByteSink,
        turn: &Turn<'_>,
    ) -> Result<(), Failed> {
        let came = AtomicU64::new(0);
        let mut full = None;
        target.begin();
        let origin = dataset.origin();
        let ObjectRange { leaf, object, .. } = read;
        let reading = async {
            for found in self.find(read) {
                match found {
                    FoundRange::Here(bytes) => {
                        let put = hand_on(&bytes, |step| target.put(step)).await;
                        put.map_err(Failed::Target)?;
                    }
                    FoundRange::Missing(range) => {
                        let mut sink = |chunk: &[u8]| {
                            if let Err(why) = target.put(chunk) {
                                full = Some(why);
                                return ControlFlow::Break(());
                            }
                            came.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                            turn.came(chunk.len());
                            ControlFlow::Continue(())
                        };
                        self.counters.origin_requests.add(1);
                        let read = origin.read_exact_range(leaf, *object, &range, &mut sink).await;
                        full.take().map_or(Ok(()), |why| Err(Failed::Target(why)))?;
                        read.map_err(Failed::Fetch)?;
                    }
                }
            }
            Ok(())
        };
        let outcome = unless_stalled(reading, &came, read, turn).await;
        self.counters.origin_bytes.add(came.load(Ordering::Relaxed));
        outcome
    }
}

/// Returns the version of the object that a range is of.
fn version<'a>(read: &ObjectRange<'a>) -> (OriginUri, Option<&'a str>) {
    (read.leaf.object_uri(read.object), read.leaf.object(read.object).etag)
}

/// Hands bytes from memory on, in steps.
async fn hand_on(
    bytes: &BytesHere,
    mut put: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    for step in bytes.as_ref().chunks(HERE_STEP_BYTES) {
        put(step)?;
        task::yield_now().await;
    }
    Ok(())
}

fn gave_up(read: &ObjectRange<'_>, error: FetchError, tries: u32) -> GaveUp {
    let object = read.leaf.object_uri(read.object);
    let place = FailedRead { object, offset: read.range.start, bytes: read.bytes() };
    let why = Error::new(ErrorKind::from(&error), error.to_string()).with_source(error);
    GaveUp { why, place: Some(place), attempts: tries }
}

/// Ends a read that receives no bytes, or next to none, while it is its turn.
async fn unless_stalled(
    reading: impl Future<Output = Result<(), Failed>>,
    came: &AtomicU64,
    read: &ObjectRange<'_>,
    turn: &Turn<'_>,
) -> Result<(), Failed> {
    let mut reading = std::pin::pin!(reading);
    let (mut seen, mut patience) = (0, limits::ORIGIN_FIRST_BYTE_TIMEOUT);
    loop {
        let before = turn.came_to_all();
        if let Ok(outcome) = time::timeout(patience, &mut reading).await {
            return outcome;
        }
        let now = came.load(Ordering::Relaxed);
        if turn.is_stalled(now - seen, before, patience) {
            let (seconds, wanted, came) = (patience.as_secs(), read.bytes(), now - seen);
            let why = format!("{came} bytes came in {seconds} s, after {seen} of {wanted}");
            let busy = OriginError::Busy { object: read.leaf.object_uri(read.object), why };
            return Err(Failed::Fetch(busy.into()));
        }
        (seen, patience) = (now, ORIGIN_STALL_TIMEOUT);
    }
}
