//! The workers: each performs one fill at a time, from memory to seal.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_dataset::Shard;
use larder_extent::{ExtentId, Filling, PagePreference, Sealed};
use larder_wire::{Error, ErrorKind, limits};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::{task, time};
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::Xxh3Default;

use super::{Reader, ShardPlan};
use crate::cache::{Cache, GaveUp, Job};
use crate::errors;
use crate::flight::{Flight, Working};

/// Times a whole shard is read when it does not have the checksum that the manifest pins: bytes can
/// be damaged on their way once.
const CHECKSUM_TRIES: u32 = 2;

/// Starts the workers; they end with `stopping`.
pub(crate) fn start_workers(
    cache: &Arc<Cache>,
    reader: &Arc<Reader>,
    runtime: &Handle,
    stopping: &CancellationToken,
) {
    let filler = Arc::new(Filler {
        reader: Arc::clone(reader),
        memory: Semaphore::new(limits::FILLS_TAKING_MEMORY_MAX),
        gets: Semaphore::new(limits::FILL_WORKERS),
    });
    for _ in 0..limits::FILLS_IN_FLIGHT_MAX {
        let (cache, filler) = (Arc::clone(cache), Arc::clone(&filler));
        let work = work(cache, filler);
        let stopping = stopping.clone();
        runtime.spawn(async move { stopping.run_until_cancelled_owned(work).await });
    }
}

async fn work(cache: Arc<Cache>, filler: Arc<Filler>) {
    loop {
        let job = cache.next_job().await;
        let (id, filler) = (job.flight().id(), Arc::clone(&filler));
        // A task of its own, so that a panic ends this fill and neither the worker nor the node.
        // Its set ends it with the worker.
        let mut fill = task::JoinSet::new();
        fill.spawn(async move { filler.fill(job).await });
        if let Some(Err(death)) = fill.join_next().await {
            tracing::error!(shard = %id, "a fill died and is handed over: {death}");
        }
    }
}

/// What the workers share.
struct Filler {
    reader: Arc<Reader>,
    /// Fills that take memory at once: in turn, so that the first can read while the next take theirs.
    memory: Semaphore,
    /// GETs of parts at once, over all fills.
    gets: Semaphore,
}

impl Filler {
    async fn fill(&self, job: Job) {
        job.flight().begin_attempt();
        let filled = time::timeout(limits::FILL_DEADLINE, self.try_fill(&job)).await;
        match filled {
            Ok(Ok(sealed)) => job.complete(sealed),
            Ok(Err(gave_up)) => job.give_up(gave_up),
            Err(_) => job.give_up(GaveUp::from(Error::new(
                ErrorKind::OriginUnavailable,
                format!("it took longer than {} s to read", limits::FILL_DEADLINE.as_secs()),
            ))),
        }
    }

    async fn try_fill(&self, job: &Job) -> Result<Sealed, GaveUp> {
        let plan = ShardPlan::new(job.dataset().manifest(), job.shard());
        let plan = plan.map_err(errors::of_extent)?;
        for _ in 0..CHECKSUM_TRIES {
            let filling = self.take_memory(job, &plan).await?;
            self.read_parts(job, &plan, &filling).await?;
            if let Some(sealed) = seal(job, filling).await? {
                return Ok(sealed);
            }
        }
        let why = Error::new(
            ErrorKind::DataLoss,
            "its bytes don't have the checksum that the manifest pins; the object was changed \
             without a new etag, or is damaged: index the dataset again",
        );
        Err(GaveUp { why, place: None, attempts: CHECKSUM_TRIES })
    }

    /// The extent that an earlier worker began, or a new one.
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

    async fn read_parts(
        &self,
        job: &Job,
        plan: &ShardPlan,
        filling: &Arc<Filling>,
    ) -> Result<(), GaveUp> {
        let parts = (0..plan.reads.len()).map(|index| self.read_part(job, plan, filling, index));
        stream::iter(parts).buffer_unordered(limits::FILL_WORKERS).try_collect::<()>().await
    }

    /// Reads one part, unless an earlier worker did.
    async fn read_part(
        &self,
        job: &Job,
        plan: &ShardPlan,
        filling: &Arc<Filling>,
        index: usize,
    ) -> Result<(), GaveUp> {
        let Some(mut part) = filling.take_part(index) else {
            return Ok(());
        };
        let read = &plan.reads[index];
        self.reader.read(job.dataset(), read, &self.gets, &mut part).await?;
        part.finish().map_err(errors::of_extent)?;
        job.flight().part_is_in();
        Ok(())
    }
}

/// Seals, unless the bytes don't have the checksum that the manifest pins: then all is forgotten.
async fn seal(job: &Job, filling: Arc<Filling>) -> Result<Option<Sealed>, GaveUp> {
    let (sealed, _working) = on_memory(job.flight(), move || filling.seal()).await;
    let sealed = sealed.map_err(errors::of_extent)?;
    if holds(&sealed, job.dataset().manifest().shard(job.shard())) {
        return Ok(Some(sealed));
    }
    job.flight().begin_again();
    Ok(None)
}

fn holds(sealed: &Sealed, shard: Shard) -> bool {
    let Some(pinned) = shard.checksum else {
        return true;
    };
    let mut hasher = Xxh3Default::new();
    sealed.unit_crcs().for_each(|crc| hasher.update(&crc.to_le_bytes()));
    hasher.digest() == pinned
}

/// Runs what takes or seals memory for a flight on a blocking thread. The memory stays counted for as
/// long as the result, also when the caller is stopped and nobody takes it.
async fn on_memory<T: Send + 'static>(
    flight: &Arc<Flight>,
    work: impl FnOnce() -> T + Send + 'static,
) -> (T, Working) {
    let working = flight.work();
    off_thread(move || (work(), working)).await
}

/// Runs what blocks on a blocking thread; its panic is the caller's.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(death) => match death.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::cache::Found;
    use crate::testing::{Folder, Kitchen, until};

    #[test]
    fn memory_in_a_thread_that_outlives_its_fill_stays_counted_until_it_is_gone() {
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
