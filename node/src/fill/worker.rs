//! The fill workers. Each performs one fill at a time, from memory to seal.

use std::{ops::Range, sync::Arc};

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_base::{Error, ErrorKind, limits};
use larder_dataset::{BlocksRead, Get, Leaf, MakeError};
use larder_extent::{ExtentId, Filling, PagePreference, Part, Sealed};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::{task, time};
use tokio_util::sync::CancellationToken;

use super::maker::{MakerInput, StoredBlocks, cannot_be_made};
use super::peer_source::PeerSource;
use super::requests::Requests;
use super::{Asking, Maker, PartsRun, Reader};
use crate::cache::{
    Cache, Counters, FillJob, GaveUp, InFlightFill, ShardPlan, Working, extent_error,
};
use crate::catalog::leaves::Leaves;
use crate::fill::{ByteSink, GetParts, ObjectRange, Peers, TransferThrottle};

/// Workers of all buckets together. A bucket has its own share of them, at most a quarter.
const FILL_WORKERS: usize = 4 * limits::FILLS_IN_FLIGHT_MAX;

/// Fills that have their memory taken in huge pages at once. That is work for a core (0.1 s per
/// GiB), and a fill reads nothing before it has its memory. Side by side they would all be ready
/// late, and the origin idle until then.
const FILLS_TAKING_MEMORY_MAX: usize = 2;

/// Parts of fills hashed row by row at once after they are complete, because their rows overlap
/// much. Each is work for a core, for seconds at worst.
const FILL_PARTS_HASHED_MAX: usize = 4;

/// The state that the workers share.
pub(crate) struct Filler {
    reader: Arc<Reader>,
    maker: Arc<Maker>,
    leaves: Arc<Leaves>,
    peers: Arc<Peers>,
    counters: Arc<Counters>,
    throttle: Arc<TransferThrottle>,
    /// Fills that take memory at once: in turn, so that the first can read while the next take
    /// theirs.
    memory: Semaphore,
    /// Bounds the parts with overlapping rows that are hashed at once, over all fills.
    hashing: Arc<Semaphore>,
}

impl Filler {
    /// Creates a filler that reads from `peers` if they hold the shard, else from the origin.
    pub(crate) fn new(
        reader: &Arc<Reader>,
        maker: &Arc<Maker>,
        leaves: &Arc<Leaves>,
        peers: Arc<Peers>,
        counters: &Arc<Counters>,
        throttle: &Arc<TransferThrottle>,
    ) -> Arc<Self> {
        Arc::new(Self {
            reader: Arc::clone(reader),
            maker: Arc::clone(maker),
            leaves: Arc::clone(leaves),
            peers,
            counters: Arc::clone(counters),
            throttle: Arc::clone(throttle),
            memory: Semaphore::new(FILLS_TAKING_MEMORY_MAX),
            hashing: Arc::new(Semaphore::new(FILL_PARTS_HASHED_MAX)),
        })
    }

    /// Starts the workers. They end with `stopping`.
    pub(crate) fn start_workers(
        self: &Arc<Self>,
        cache: &Arc<Cache>,
        runtime: &Handle,
        stopping: &CancellationToken,
    ) {
        for _ in 0..FILL_WORKERS {
            let work = Arc::clone(self).work(Arc::clone(cache));
            let stopping = stopping.clone();
            runtime.spawn(async move { stopping.run_until_cancelled_owned(work).await });
        }
    }

    async fn work(self: Arc<Self>, cache: Arc<Cache>) {
        loop {
            let job = cache.next_job().await;
            let (id, filler) = (job.flight().id(), Arc::clone(&self));
            // A task of its own, so that a panic ends this fill and neither the worker nor the
            // node. Its set ends it with the worker.
            let mut fill = task::JoinSet::new();
            fill.spawn(async move { filler.fill(job).await });
            if let Some(Err(death)) = fill.join_next().await {
                tracing::error!(shard = %id, "a fill died and is handed over: {death}");
            }
        }
    }

    async fn fill(&self, job: FillJob) {
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

    /// Fills a shard until its digest is the one that is wanted: the checksum that the manifest
    /// pins, or the digest that a peer says when it gave some of the bytes.
    async fn try_fill(&self, job: &FillJob) -> Result<Sealed, GaveUp> {
        let (manifest, shard) = (job.dataset().manifest(), job.shard());
        let leaf = &self.leaves.get(job.dataset(), manifest.leaf_of(shard)).await?;
        let plan = &ShardPlan::new(manifest, leaf, shard).map_err(extent_error)?;
        let pinned = manifest.shard(shard).checksum;
        let (flight, mut may_borrow, mut unlike) = (job.flight(), true, None);
        loop {
            let filling = self.take_memory(job, plan).await?;
            let mut fill = Fill { filler: self, job, leaf, plan, filling, peer: None };
            if may_borrow {
                fill.peer = fill.find_peer().await;
            }
            fill.read_parts().await?;
            let sealed = fill.seal().await?;
            let (digest, lent) = (sealed.digest(), flight.lent());
            if pinned.or(lent).is_none_or(|wanted| wanted == digest) {
                return Ok(sealed);
            }
            drop(sealed);
            flight.begin_again();
            if lent.is_some() {
                tracing::warn!(shard = %flight.id(), "a peer gave wrong bytes: read again from the origin");
                may_borrow = false;
            } else if let Some(before) = unlike.replace(digest) {
                return Err(not_as_pinned(before == digest));
            }
        }
    }

    /// Returns the extent that an earlier worker began, or creates one.
    async fn take_memory(&self, job: &FillJob, plan: &ShardPlan) -> Result<Arc<Filling>, GaveUp> {
        if let Some(begun) = job.flight().begun() {
            return Ok(begun);
        }
        let _turn = self.memory.acquire().await.expect("the semaphore is never closed");
        let (layout, parts) = (plan.layout.clone(), plan.parts());
        let id = ExtentId::from_bytes(*job.flight().id().as_bytes());
        let create = move || Filling::create(id, layout, parts, PagePreference::Auto);
        let (created, _working) = on_memory(job.flight(), create).await;
        let filling = created.map_err(extent_error)?;
        job.flight().begin(Arc::clone(&filling));
        Ok(filling)
    }

    /// Lets readers have parts that are written. Overlapping rows are hashed first. That may take
    /// seconds, so a blocking thread does it.
    async fn finish(
        &self,
        flight: &Arc<InFlightFill>,
        parts: impl IntoIterator<Item = Part>,
    ) -> Result<(), Error> {
        for part in parts {
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
            finished.map_err(extent_error)?;
        }
        flight.parts_are_in();
        Ok(())
    }
}

/// One pass over the parts of a shard, from a peer or the origin into an extent.
struct Fill<'a> {
    filler: &'a Filler,
    job: &'a FillJob,
    leaf: &'a Leaf,
    plan: &'a ShardPlan,
    filling: Arc<Filling>,
    /// The peer that gave the first parts.
    peer: Option<PeerSource<'a>>,
}

impl<'a> Fill<'a> {
    /// Reads the first missing parts from a peer. Returns the peer that gave them.
    async fn find_peer(&self) -> Option<PeerSource<'a>> {
        let &Self { filler, job, ref filling, .. } = self;
        let holders = filler.peers.holders(job.dataset().snapshot(), job.flight().id());
        if holders.is_empty() {
            return None;
        }
        let mut missing = (0..filling.parts().len()).filter_map(|index| filling.take_part(index));
        let mut run = PartsRun::from(missing.next()?);
        while let Some(part) = missing.next()
            && run.add(part, limits::FILL_PART_BYTES).is_none()
        {}
        let (counters, throttle) = (&filler.counters, &filler.throttle);
        let peer =
            PeerSource::find(job, holders, counters, throttle, &run.spec(), &mut run).await?;
        // The peer's memory may be damaged. That shows only when the whole shard is compared with
        // the digest that the peer took at its fill.
        job.flight().withhold();
        filler.finish(job.flight(), run.into_parts()).await.ok()?;
        Some(peer)
    }

    /// Reads the missing parts.
    async fn read_parts(&self) -> Result<(), GaveUp> {
        let &Self { job, plan, ref filling, .. } = self;
        // At once: they are in the leaf, and readers wait for all columns of a row.
        for (index, &tensor) in (plan.first_inline()..).zip(&plan.inline) {
            if let Some(mut part) = filling.take_part(index) {
                let manifest = job.dataset().manifest();
                part.put(manifest.inline_region(self.leaf, job.shard(), tensor))?;
                self.filler.finish(job.flight(), [part]).await?;
            }
        }
        let requests = &Requests::new(&plan.gets, filling);
        let reads = stream::iter((0..limits::FILL_GETS_MAX).map(|_| self.read_some(requests)));
        reads.buffer_unordered(limits::FILL_GETS_MAX).try_collect::<()>().await?;
        let makes = stream::iter((0..plan.blocks.len()).map(|index| self.make_blocks(index)));
        makes.buffer_unordered(limits::FILL_GETS_MAX).try_collect::<()>().await?;
        Ok(())
    }

    /// Makes requests, one after the other, until all reads are taken. What a request reads is
    /// decided when it has its turn.
    async fn read_some(&self, requests: &Requests<'_>) -> Result<(), GaveUp> {
        let (flight, gate) = (self.job.flight(), &self.job.dataset().bucket().gets);
        loop {
            let (turn, bytes) = if self.peer.is_some() {
                (None, limits::FILL_PART_BYTES)
            } else {
                let turn = requests.unless_all_taken(gate.turn(flight.urgency())).await;
                (turn, gate.request_bytes())
            };
            let Some(gets) = requests.next(flight, bytes) else { return Ok(()) };
            let asking = Asking { turn, ..Asking::at(gate, flight.urgency()) };
            self.read_gets(gets, asking).await?;
        }
    }

    /// Fills the parts of some reads from the peer, else from the origin by one request. Skips
    /// parts that are in.
    async fn read_gets(&self, gets: Range<usize>, asking: Asking<'_>) -> Result<(), GaveUp> {
        let &Self { filler, job, leaf, plan, .. } = self;
        let parts = self.missing_parts(plan.firsts[gets.start]..plan.firsts[gets.end]).await?;
        if parts.iter().all(Option::is_none) {
            return Ok(());
        }
        let get = &Get::of_all(&plan.gets[gets]);
        let wanted = ObjectRange { leaf, object: get.object, range: get.range.clone() };
        job.reads_from_origin(filler.reader.missing_bytes(&wanted));
        let mut sink = GetParts::new(job.dataset().manifest(), leaf, job.shard(), get, parts);
        filler.reader.read(job.dataset(), &wanted, asking, &mut sink).await?;
        Ok(filler.finish(job.flight(), sink.parts.into_iter().flatten()).await?)
    }

    /// Fills the parts of one read of blocks from the peer, else makes their rows. Skips parts that
    /// are in.
    async fn make_blocks(&self, index: usize) -> Result<(), GaveUp> {
        let &Self { filler, job, leaf, plan, .. } = self;
        let read = &plan.blocks[index];
        let parts = self.missing_parts(plan.parts_of_blocks(index)).await?;
        if parts.iter().all(Option::is_none) {
            return Ok(());
        }
        let wanted = ObjectRange { leaf, object: read.object, range: read.range.clone() };
        job.reads_from_origin(filler.reader.missing_bytes(&wanted));
        let (gate, urgency) = (&job.dataset().bucket().gets, job.flight().urgency());
        let stored = filler.maker.read(job.dataset(), leaf, read, gate, urgency).await?;
        let (manifest, shard) = (job.dataset().manifest().clone(), job.shard());
        let source = MakerInput { manifest, leaf: leaf.clone(), shard };
        let making = read.clone();
        let make = move || make_parts(&source, &making, &stored, parts);
        let made = on_memory(job.flight(), make).await.0.map_err(|gave_up| *gave_up)?;
        Ok(filler.finish(job.flight(), made).await?)
    }

    /// Takes the parts that are not in yet, and fills those that the peer gives. `None` stands for
    /// a part that is in.
    async fn missing_parts(&self, parts: Range<usize>) -> Result<Vec<Option<Part>>, GaveUp> {
        let first = parts.start;
        let mut parts: Vec<_> = parts.map(|part| self.filling.take_part(part)).collect();
        let Some(peer) = &self.peer else { return Ok(parts) };
        for mut row in runs_of(&mut parts) {
            if peer.read(&row.spec(), &mut row).await {
                self.filler.finish(self.job.flight(), row.into_parts()).await?;
            } else {
                row.into_parts().into_iter().for_each(|part| {
                    let index = part.index() - first;
                    parts[index] = Some(part);
                });
            }
        }
        Ok(parts)
    }

    async fn seal(self) -> Result<Sealed, GaveUp> {
        let filling = self.filling;
        let (sealed, _working) = on_memory(self.job.flight(), move || filling.seal()).await;
        Ok(sealed.map_err(extent_error)?)
    }
}

/// Takes the parts, and puts those together that a peer gives in one answer.
fn runs_of(parts: &mut [Option<Part>]) -> Vec<PartsRun> {
    let mut parts: Vec<_> = parts.iter_mut().filter_map(Option::take).collect();
    parts.sort_unstable_by_key(|part| (part.spec().region, part.spec().range.start));
    let mut rows: Vec<PartsRun> = Vec::new();
    for part in parts {
        let alone = match rows.last_mut() {
            Some(last) => last.add(part, limits::FILL_PART_BYTES),
            None => Some(part),
        };
        rows.extend(alone.map(PartsRun::from));
    }
    rows
}

/// Makes the rows of blocks and writes them to their parts. Returns the parts that were missing.
fn make_parts(
    source: &MakerInput,
    read: &BlocksRead,
    stored: &StoredBlocks,
    parts: Vec<Option<Part>>,
) -> Result<Vec<Part>, Box<GaveUp>> {
    let MakerInput { manifest, leaf, shard } = source;
    let (mut parts, mut made) = (parts.into_iter(), Vec::new());
    for block in &read.blocks {
        let cut = block.parts(limits::FILL_PART_BYTES);
        let mut own: Vec<_> = cut.zip(parts.by_ref()).collect();
        if own.iter().all(|(_, part)| part.is_none()) {
            continue;
        }
        let (mut at, mut next) = (block.region.start, 0);
        let put = |mut bytes: &[u8]| {
            while !bytes.is_empty() {
                let (range, part) = &mut own[next];
                let room = usize::try_from(range.end - at).unwrap_or(usize::MAX);
                let (now, rest) = bytes.split_at(room.min(bytes.len()));
                if let Some(part) = part {
                    part.put(now)?;
                }
                at += now.len() as u64;
                next += usize::from(at == range.end);
                bytes = rest;
            }
            Ok::<_, Error>(())
        };
        match manifest.make(leaf, *shard, block, read.stored(block, &stored.bytes), put) {
            Ok(()) => made.extend(own.into_iter().filter_map(|(_, part)| part)),
            Err(MakeError::Put(why)) => return Err(Box::new(why.into())),
            Err(MakeError::Damaged(damaged)) => {
                return Err(Box::new(cannot_be_made(block, damaged)));
            }
        }
    }
    Ok(made)
}

/// Why a shard can't be had that the origin gave twice, and never as the manifest pins it.
fn not_as_pinned(alike: bool) -> GaveUp {
    let why = if alike {
        "its bytes don't have the checksum that the manifest pins; the object was changed without a \
         new etag, or is damaged: index the dataset again"
    } else {
        "it was read twice and came differently each time, never with the checksum that the manifest \
         pins; something damages bytes at the origin or on their way: have that checked"
    };
    GaveUp { why: Error::new(ErrorKind::DataLoss, why), place: None, attempts: 2 }
}

/// Runs what takes, hashes or seals memory for a flight on a blocking thread. The memory stays
/// counted for as long as the result, also when the caller is stopped. A panic of the work becomes
/// the caller's.
async fn on_memory<T: Send + 'static>(
    flight: &Arc<InFlightFill>,
    work: impl FnOnce() -> T + Send + 'static,
) -> (T, Working) {
    let working = flight.work();
    match task::spawn_blocking(move || (work(), working)).await {
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
    use larder_base::ShardId;
    use larder_extent::{ExtentLayout, PartSpec, Region};
    use tokio::runtime::Builder;

    use super::*;
    use crate::cache::FoundShard;
    use crate::testing::{CacheFixture, Folder, member, placed, until};

    /// Returns the only part, all written, of an extent of four rows of 100 bytes.
    fn written(stride_bytes: u64) -> Part {
        let layout =
            ExtentLayout::new(&[Region::Rows { rows: 4, row_bytes: 100, stride_bytes }]).unwrap();
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
        let cache = crate::testing::cache(1 << 20);
        let reader = Arc::new(Reader::new(Arc::clone(&counters), cache.retained()));
        let leaves = Leaves::new(&cache, runtime.handle().clone());
        let maker = Maker::new(&cache, &reader);
        let filler =
            Filler::new(&reader, &maker, &leaves, Arc::new(peers), &counters, &Arc::default());
        let flight = Arc::new(InFlightFill::new(ShardId::from_bytes([1; 16])));
        runtime.block_on(async {
            let (let_go, busy) = mpsc::sync_channel(1);
            let only_thread = task::spawn_blocking(move || busy.recv());
            let ordinary = filler.finish(&flight, [written(100)]).now_or_never();
            ordinary.expect("an ordinary part waits for nothing").unwrap();
            let overlapping = {
                let (filler, flight) = (Arc::clone(&filler), Arc::clone(&flight));
                task::spawn(async move { filler.finish(&flight, [written(10)]).await })
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
        let one = CacheFixture::extent_bytes(&folder, 64);
        let fixture = CacheFixture::unmanned(&folder, one);
        let FoundShard::InFlight(awaited) = fixture.find(0) else { panic!("not in flight") };
        let (begun, has_begun) = mpsc::sync_channel(1);
        let (end, may_end) = mpsc::sync_channel::<()>(1);
        let slow = move || {
            begun.send(()).unwrap();
            may_end.recv()
        };
        fixture.runtime.block_on(async {
            let job = fixture.cache.next_job().await;
            let flight = Arc::clone(job.flight());
            let fill = task::spawn(async move { on_memory(&flight, slow).await.0 });
            task::spawn_blocking(move || has_begun.recv()).await.unwrap().unwrap();
            fill.abort();
            assert!(fill.await.unwrap_err().is_cancelled());
            job.give_up(GaveUp::from(Error::new(ErrorKind::OriginUnavailable, "too slow")));
        });
        drop(awaited);
        until("the fill has ended", || fixture.cache.usage().filling.bytes == 0);
        assert_eq!(fixture.cache.usage().orphaned.bytes, one, "a thread still works on it");
        end.send(()).unwrap();
        until("its memory is free", || fixture.cache.usage().orphaned.bytes == 0);
    }
}
