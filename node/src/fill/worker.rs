//! The fill workers. Each performs one fill at a time, from memory to seal.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_extent::{ExtentId, Filling, PagePreference, Part, Sealed};
use larder_wire::{Error, ErrorKind, limits};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::{task, time};
use tokio_util::sync::CancellationToken;

use super::compare::{Reads, Verdict};
use super::lender::Lender;
use super::{Reader, ShardPlan};
use crate::cache::{Cache, Filled, GaveUp, Job};
use crate::counters::Counters;
use crate::errors;
use crate::flight::{Flight, Working};
use crate::pace::Pace;
use crate::peers::Peers;
use crate::pin::{self, Pin};

/// The state that the workers share.
pub(crate) struct Filler {
    reader: Arc<Reader>,
    peers: Arc<Peers>,
    counters: Arc<Counters>,
    pace: Arc<Pace>,
    /// Bounds the fills that allocate at once. In turn, so that the first fill reads while the next
    /// allocate.
    memory: Semaphore,
    /// Bounds the GETs of parts at once, over all fills.
    gets: Semaphore,
    /// Bounds the parts with overlapping rows that are hashed at once, over all fills.
    hashing: Arc<Semaphore>,
}

impl Filler {
    /// Creates a filler that reads from `peers` if they hold the shard, else from the origin.
    pub(crate) fn new(
        reader: &Arc<Reader>,
        peers: Arc<Peers>,
        counters: &Arc<Counters>,
        pace: &Arc<Pace>,
    ) -> Arc<Self> {
        Arc::new(Self {
            reader: Arc::clone(reader),
            peers,
            counters: Arc::clone(counters),
            pace: Arc::clone(pace),
            memory: Semaphore::new(limits::FILLS_TAKING_MEMORY_MAX),
            gets: Semaphore::new(limits::FILL_WORKERS),
            hashing: Arc::new(Semaphore::new(limits::FILL_PARTS_HASHED_MAX)),
        })
    }

    /// Starts the workers. They end with `stopping`.
    pub(crate) fn start_workers(
        self: &Arc<Self>,
        cache: &Arc<Cache>,
        runtime: &Handle,
        stopping: &CancellationToken,
    ) {
        for _ in 0..limits::FILLS_IN_FLIGHT_MAX {
            let work = Arc::clone(self).work(Arc::clone(cache));
            let stopping = stopping.clone();
            runtime.spawn(async move { stopping.run_until_cancelled_owned(work).await });
        }
    }

    async fn work(self: Arc<Self>, cache: Arc<Cache>) {
        loop {
            let job = cache.next_job().await;
            let (id, filler) = (job.flight().id(), Arc::clone(&self));
            // A task of its own, so that a panic ends this fill and not the worker. The set aborts
            // the task if the worker ends.
            let mut fill = task::JoinSet::new();
            fill.spawn(async move { filler.fill(job).await });
            if let Some(Err(death)) = fill.join_next().await {
                tracing::error!(shard = %id, "a fill died and is handed over: {death}");
            }
        }
    }

    async fn fill(&self, job: Job) {
        job.flight().begin_attempt();
        let filled = time::timeout(limits::FILL_DEADLINE, self.try_fill(&job)).await;
        match filled {
            Ok(Ok(filled)) => job.complete(filled),
            Ok(Err(gave_up)) => job.give_up(gave_up),
            Err(_) => job.give_up(GaveUp::from(Error::new(
                ErrorKind::OriginUnavailable,
                format!("it took longer than {} s to read", limits::FILL_DEADLINE.as_secs()),
            ))),
        }
    }

    async fn try_fill(&self, job: &Job) -> Result<Filled, GaveUp> {
        let plan = ShardPlan::new(job.dataset().manifest(), job.shard());
        let plan = plan.map_err(errors::of_extent)?;
        let (flight, mut reads, mut may_borrow) = (job.flight(), Reads::default(), true);
        loop {
            let filling = self.take_memory(job, &plan).await?;
            self.read_parts(job, &plan, &filling, may_borrow).await?;
            let sealed = seal(job, filling).await?;
            let pin = flight.pin();
            let verdict = reads.judge(sealed.digest(), pin.map(Pin::checksum), flight.lent());
            if let Verdict::Serve(proof) = verdict {
                return Ok(Filled { sealed, proof });
            }
            drop(sealed);
            flight.begin_again();
            match (verdict, pin) {
                (Verdict::GiveUp, Some(pin)) => return Err(GaveUp::over(pin, pin::not_met())),
                (Verdict::ReadFromOrigin, _) => {
                    tracing::warn!(shard = %flight.id(), "a peer gave wrong bytes: read again from the origin");
                    may_borrow = false;
                }
                _ => {}
            }
        }
    }

    /// Returns the extent that an earlier worker began, or creates one.
    async fn take_memory(&self, job: &Job, plan: &ShardPlan) -> Result<Arc<Filling>, GaveUp> {
        if let Some(begun) = job.flight().begun() {
            return Ok(begun);
        }
        let _turn = self.memory.acquire().await.expect("the semaphore is never closed");
        let (layout, parts) = (plan.layout.clone(), plan.parts());
        let id = ExtentId::from_bytes(*job.flight().id().as_bytes());
        let create = move || Filling::create(id, layout, parts, PagePreference::Auto);
        let (created, _working) = on_memory(job.flight(), create).await;
        let filling = created.map_err(errors::of_extent)?;
        job.flight().begin(Arc::clone(&filling));
        Ok(filling)
    }

    /// Reads the missing parts.
    async fn read_parts(
        &self,
        job: &Job,
        plan: &ShardPlan,
        filling: &Arc<Filling>,
        may_borrow: bool,
    ) -> Result<(), GaveUp> {
        let lender = if may_borrow { self.find_lender(job, plan, filling).await } else { None };
        let read = |index| self.read_part(job, plan, filling, lender.as_ref(), index);
        let parts = stream::iter((0..plan.reads.len()).map(read));
        parts.buffer_unordered(limits::FILL_WORKERS).try_collect::<()>().await
    }

    /// Reads the first missing part from a peer. Returns the peer that gave it.
    async fn find_lender<'a>(
        &'a self,
        job: &'a Job,
        plan: &ShardPlan,
        filling: &Arc<Filling>,
    ) -> Option<Lender<'a>> {
        let holders = self.peers.holders(job.dataset().snapshot(), job.flight().id());
        if holders.is_empty() {
            return None;
        }
        let mut part = (0..plan.reads.len()).find_map(|index| filling.take_part(index))?;
        let read = &plan.reads[part.index()];
        let lender =
            Lender::find(job, holders, (&self.counters, &self.pace), read, &mut part).await?;
        // Only the comparison of the whole shard shows whether the peer's memory is still intact.
        job.flight().withhold();
        self.finish(job.flight(), part).await.ok()?;
        Some(lender)
    }

    /// Reads one part, unless an earlier worker did.
    async fn read_part(
        &self,
        job: &Job,
        plan: &ShardPlan,
        filling: &Arc<Filling>,
        lender: Option<&Lender<'_>>,
        index: usize,
    ) -> Result<(), GaveUp> {
        let Some(mut part) = filling.take_part(index) else {
            return Ok(());
        };
        let read = &plan.reads[index];
        let lent = match lender {
            Some(lender) => lender.read(read, &mut part).await,
            None => false,
        };
        if !lent {
            self.reader.read(job.dataset(), read, &self.gets, &mut part).await?;
        }
        self.finish(job.flight(), part).await.map_err(GaveUp::from)
    }

    /// Lets readers see a written part. Hashing overlapping rows may take seconds, so it runs on a
    /// blocking thread.
    async fn finish(&self, flight: &Arc<Flight>, part: Part) -> Result<(), Error> {
        let finished = if part.has_rows_to_hash() {
            let turn = Arc::clone(&self.hashing).acquire_owned().await;
            let turn = turn.expect("the semaphore is never closed");
            let finish = move || {
                let finished = part.finish();
                drop(turn);
                finished
            };
            on_memory(flight, finish).await.0
        } else {
            part.finish()
        };
        finished.map_err(errors::of_extent)?;
        flight.part_is_in();
        Ok(())
    }
}

async fn seal(job: &Job, filling: Arc<Filling>) -> Result<Sealed, GaveUp> {
    let (sealed, _working) = on_memory(job.flight(), move || filling.seal()).await;
    Ok(sealed.map_err(errors::of_extent)?)
}

/// Allocates, hashes or seals memory of a flight on a blocking thread. The memory stays counted
/// while the result lives, even if the calling task is stopped.
async fn on_memory<T: Send + 'static>(
    flight: &Arc<Flight>,
    work: impl FnOnce() -> T + Send + 'static,
) -> (T, Working) {
    let working = flight.work();
    off_thread(move || (work(), working)).await
}

/// Runs blocking work on a blocking thread. Its panic becomes the caller's.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(death) => match death.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;
    use larder_dataset::ShardId;
    use larder_extent::{Layout, PartSpec, Region};
    use tokio::runtime::Builder;

    use super::*;
    use crate::cache::Found;
    use crate::testing::{Folder, Kitchen, member, placed, until};

    /// Returns the only part, all written, of an extent of four rows of 100 bytes.
    fn written(stride_bytes: u64) -> Part {
        let layout =
            Layout::new(&[Region::Rows { rows: 4, row_bytes: 100, stride_bytes }]).unwrap();
        let range = 0..layout.region_bytes(0);
        let bytes = vec![7; usize::try_from(range.end).unwrap()];
        let parts = vec![PartSpec { region: 0, range }];
        let id = ExtentId::from_bytes([1; 16]);
        let filling = Filling::create(id, layout, parts, PagePreference::Small).unwrap();
        let mut part = filling.take_part(0).unwrap();
        part.write(&bytes).unwrap();
        part
    }

    #[test]
    fn overlapping_rows_are_hashed_on_blocking_threads() {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let counters = Arc::default();
        let peers = Peers::new("n1", placed(1, vec![member("n1", "127.0.0.1:1")]));
        let reader = Arc::new(Reader::new(Arc::clone(&counters)));
        let filler = Filler::new(&reader, Arc::new(peers), &counters, &Arc::default());
        let flight = Arc::new(Flight::new(ShardId::from_bytes([1; 16])));
        runtime.block_on(async {
            let (let_go, busy) = mpsc::sync_channel(1);
            let only_thread = task::spawn_blocking(move || busy.recv());
            let ordinary = filler.finish(&flight, written(100)).now_or_never();
            ordinary.expect("an ordinary part waits for nothing").unwrap();
            let overlapping = {
                let (filler, flight) = (Arc::clone(&filler), Arc::clone(&flight));
                task::spawn(async move { filler.finish(&flight, written(10)).await })
            };
            while !flight.is_worked_on() && !overlapping.is_finished() {
                task::yield_now().await;
            }
            assert!(!overlapping.is_finished(), "hashed on the thread of the runtime");
            let_go.send(()).unwrap();
            overlapping.await.unwrap().unwrap();
            only_thread.await.unwrap().unwrap();
        });
    }

    #[test]
    fn memory_in_a_thread_that_outlives_its_fill_stays_counted() {
        let folder = Folder::new(64, 4096, 256 << 10, false);
        let one = Kitchen::extent_bytes(&folder, 64);
        let kitchen = Kitchen::unmanned(&folder, one);
        let Found::InFlight(awaited) = kitchen.find(0) else { panic!("not in flight") };
        let (begun, has_begun) = mpsc::sync_channel(1);
        let (end, may_end) = mpsc::sync_channel::<()>(1);
        let slow = move || {
            begun.send(()).unwrap();
            may_end.recv()
        };
        kitchen.runtime.block_on(async {
            let job = kitchen.cache.next_job().await;
            let flight = Arc::clone(job.flight());
            let fill = task::spawn(async move { on_memory(&flight, slow).await.0 });
            task::spawn_blocking(move || has_begun.recv()).await.unwrap().unwrap();
            fill.abort();
            assert!(fill.await.unwrap_err().is_cancelled());
            job.give_up(GaveUp::from(Error::new(ErrorKind::OriginUnavailable, "too slow")));
        });
        drop(awaited);
        until("the fill has ended", || kitchen.cache.usage().filling.bytes == 0);
        assert_eq!(kitchen.cache.usage().orphaned.bytes, one, "a thread still works on it");
        end.send(()).unwrap();
        until("its memory is free", || kitchen.cache.usage().orphaned.bytes == 0);
    }
}
