//! The leaves of open manifests: reads them into sealed extents, which the cache counts and evicts
//! like shards.
//!
//! A shard may be found in the cache only after its leaf was read once, and the shard's id was
//! compared with the bytes' places there. Otherwise a manifest with another dataset's ids could
//! read the shards cached under them. [`Leaves::ready`] does both.
//!
//! Thread rule: async; threads of the data plane wait for it. One leaf is read once, however many
//! callers ask. Non-goals: keeping leaves by force; one that was evicted is read again.

use std::ops::ControlFlow;
use std::sync::Arc;

use larder_base::{Error, ErrorKind, ShardId};
use larder_dataset::{Leaf, RowPlaces};
use larder_extent::{
    ExtentError, ExtentId, ExtentLayout, Filling, PagePreference, Part, PartSpec, Region, Sealed,
};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::cache::{Cache, extent_error};
use crate::catalog::dataset_error;
use crate::dataset::{Dataset, SealedBytes};
use crate::on_thread;

/// Leaves that are read at once.
const TURNS: usize = 16;

/// Reads and finds leaves.
#[derive(Debug)]
pub(crate) struct Leaves {
    cache: Arc<Cache>,
    runtime: Handle,
    /// A leaf is read under one of these locks, chosen by its id.
    turns: [Mutex<()>; TURNS],
}

impl Leaves {
    pub(crate) fn new(cache: &Arc<Cache>, runtime: Handle) -> Arc<Self> {
        let turns = std::array::from_fn(|_| Mutex::new(()));
        Arc::new(Self { cache: Arc::clone(cache), runtime, turns })
    }

    /// Makes sure that these shards may be looked for in the cache.
    ///
    /// # Errors
    /// The origin's, for a leaf. No room for it. A shard has an id that its bytes don't have.
    ///
    /// # Panics
    /// The dataset has no such shard.
    pub(crate) async fn ready(&self, dataset: &Arc<Dataset>, shards: &[u32]) -> Result<(), Error> {
        for &shard in shards {
            if !dataset.is_vouched(shard) {
                let leaf = self.get(dataset, dataset.manifest().leaf_of(shard)).await?;
                dataset.vouch(&leaf);
            }
            dataset.check_vouched(shard)?;
        }
        Ok(())
    }

    /// As [`places`](Self::places), if that needs no read of the origin.
    pub(crate) fn places_here(
        &self,
        dataset: &Arc<Dataset>,
        shards: &[u32],
        rows_differ: bool,
    ) -> Option<RowPlaces> {
        let manifest = dataset.manifest();
        if !shards.iter().all(|&shard| dataset.is_vouched(shard)) {
            return None;
        }
        if !rows_differ {
            return Some(RowPlaces::even(manifest));
        }
        let numbers = leaf_numbers(dataset, shards).into_iter();
        let here = |number| self.here(dataset, number, leaf_id(dataset, number)).ok()?;
        Some(RowPlaces::of(manifest, numbers.map(here).collect::<Option<_>>()?))
    }

    /// Returns the places of the rows of these shards, and makes sure that they may be looked for
    /// in the cache. Rows of one length have places without leaves.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    ///
    /// # Panics
    /// The dataset has no such shard.
    pub(crate) async fn places(
        &self,
        dataset: &Arc<Dataset>,
        shards: &[u32],
        rows_differ: bool,
    ) -> Result<RowPlaces, Error> {
        self.ready(dataset, shards).await?;
        if !rows_differ {
            return Ok(RowPlaces::even(dataset.manifest()));
        }
        Ok(RowPlaces::of(dataset.manifest(), self.of_shards(dataset, shards).await?))
    }

    /// Returns the leaves of these shards, each once.
    ///
    /// # Errors
    /// The origin's, or no room.
    ///
    /// # Panics
    /// The dataset has no such shard.
    pub(crate) async fn of_shards(
        &self,
        dataset: &Arc<Dataset>,
        shards: &[u32],
    ) -> Result<Vec<Leaf>, Error> {
        let mut leaves = Vec::new();
        for number in leaf_numbers(dataset, shards) {
            leaves.push(self.get(dataset, number).await?);
        }
        Ok(leaves)
    }

    /// Runs a request on a thread that is not of the runtime.
    pub(crate) fn wait<T>(&self, asking: impl Future<Output = T>) -> T {
        self.runtime.block_on(asking)
    }

    /// Returns a leaf, from memory or from the origin.
    ///
    /// # Errors
    /// The origin's, or no room.
    ///
    /// # Panics
    /// The dataset has no such leaf.
    pub(crate) async fn get(&self, dataset: &Arc<Dataset>, number: u32) -> Result<Leaf, Error> {
        let id = leaf_id(dataset, number);
        if let Some(leaf) = self.here(dataset, number, id)? {
            return Ok(leaf);
        }
        let turn = usize::from(id.as_bytes()[0]) % TURNS;
        let _turn = self.turns[turn].lock().await;
        if let Some(leaf) = self.here(dataset, number, id)? {
            return Ok(leaf);
        }
        self.read(dataset, number, id).await
    }

    /// Returns the extent of a leaf, to be handed to a client.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) async fn extent(
        &self,
        dataset: &Arc<Dataset>,
        number: u32,
    ) -> Result<Arc<Sealed>, Error> {
        self.get(dataset, number).await?;
        let found = self.cache.leaf(leaf_id(dataset, number), dataset.snapshot());
        found.map(|(sealed, _)| sealed).ok_or_else(|| {
            let message = "the leaf of the manifest was evicted at once; ask again";
            Error::new(ErrorKind::ResourceExhausted, message)
        })
    }

    /// Returns a leaf that is in memory. Another snapshot may share it.
    fn here(
        &self,
        dataset: &Arc<Dataset>,
        number: u32,
        id: ShardId,
    ) -> Result<Option<Leaf>, Error> {
        let Some((sealed, parsed)) = self.cache.leaf(id, dataset.snapshot()) else {
            return Ok(None);
        };
        if let Some(leaf) = parsed.filter(|leaf| leaf.is_of(dataset.manifest())) {
            return Ok(Some(leaf));
        }
        let leaf = parse(dataset, number, &sealed)?;
        self.cache.note_leaf(id, &leaf);
        Ok(Some(leaf))
    }

    async fn read(&self, dataset: &Arc<Dataset>, number: u32, id: ShardId) -> Result<Leaf, Error> {
        let (manifest, files) = (dataset.manifest(), dataset.leaf_files());
        let bytes = manifest.leaf_bytes(number);
        let layout = ExtentLayout::new(&[Region::Blocks { bytes }]).map_err(extent_error)?;
        let place = self.cache.admit_leaf(id, dataset.snapshot(), layout.total_bytes()).await?;
        let filling = on_thread(move || create(id, layout, bytes).map_err(extent_error)).await?;
        let mut part = filling.take_part(0);
        let mut failed = None;
        let mut sink = |chunk: &[u8]| {
            let written = part.as_mut().map_or(Ok(()), |part| part.write(chunk));
            match written {
                Ok(()) => ControlFlow::Continue(()),
                Err(why) => {
                    failed = Some(why);
                    ControlFlow::Break(())
                }
            }
        };
        let read = files.read(manifest, number, &mut sink).await;
        failed.map_or(Ok(()), |why| Err(extent_error(why)))?;
        read.map_err(dataset_error)?;
        let sealed = on_thread(move || {
            let finished = part.map_or(Ok(()), Part::finish);
            finished.and_then(|()| filling.seal()).map_err(extent_error)
        });
        let sealed = Arc::new(sealed.await?);
        let leaf = parse(dataset, number, &sealed)?;
        place.complete(&sealed, &leaf);
        Ok(leaf)
    }
}

/// Returns the numbers of the leaves of these shards, each once.
fn leaf_numbers(dataset: &Dataset, shards: &[u32]) -> Vec<u32> {
    let mut numbers: Vec<u32> =
        shards.iter().map(|&shard| dataset.manifest().leaf_of(shard)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Leaves, manifests and shards share one id space: all are 128 bits of a hash.
fn leaf_id(dataset: &Dataset, number: u32) -> ShardId {
    let sha256 = dataset.manifest().leaf_sha256(number);
    ShardId::from_bytes(*sha256.first_chunk().expect("a SHA-256 has 32 bytes"))
}

fn create(id: ShardId, layout: ExtentLayout, bytes: u64) -> Result<Arc<Filling>, ExtentError> {
    let parts = vec![PartSpec { region: 0, range: 0..bytes }];
    Filling::create(ExtentId::from_bytes(*id.as_bytes()), layout, parts, PagePreference::Auto)
}

fn parse(dataset: &Dataset, number: u32, sealed: &Arc<Sealed>) -> Result<Leaf, Error> {
    let bytes = Arc::new(SealedBytes(Arc::clone(sealed)));
    Leaf::over(dataset.manifest(), number, bytes)
        .map_err(|why| dataset_error(dataset.leaf_files().damaged(dataset.manifest(), number, why)))
}
