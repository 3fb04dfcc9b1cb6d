//! The leaves of a manifest: where rows of different lengths lie, and which objects hold them.
//!
//! A leaf comes from a node, mapped where the node is on this host. Without nodes it comes from the
//! origin. The most recent leaves are kept.
//!
//! Thread rule: any thread; a missing leaf blocks its caller. Each process has its own. Non-goals:
//! checking leaves, which [`Leaf::over`] does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use larder_base::{ErrorKind, RowRef};
use larder_dataset::{
    DatasetError, Leaf, LeafFiles, Manifest, Origin, OriginError, RowPlaces, Snapshot, Tensor,
};
use tokio::sync::OnceCell;

use super::Target;
use crate::{
    Advice, Error,
    process::{PerProcess, variables},
    runtime,
};

/// Bytes of manifest leaves that a client keeps in memory: the places of eight million rows of one
/// tensor.
const LEAVES_BYTES_MAX: u64 = 64 << 20;

/// The leaves of one snapshot.
pub(crate) struct Leaves {
    target: Arc<Target>,
    origin: PerProcess<OnceCell<Origin>>,
    files: PerProcess<OnceCell<LeafFiles>>,
    kept: PerProcess<Mutex<KeptLeaves>>,
    /// All leaves, if they were given at the beginning.
    given: Vec<Leaf>,
}

/// The leaves in memory, each with the time of its last use.
#[derive(Default)]
struct KeptLeaves {
    leaves: BTreeMap<u32, (Leaf, u64)>,
    bytes: u64,
    uses: u64,
}

impl Leaves {
    /// `given` are all leaves, or none.
    pub(crate) fn new(target: Arc<Target>, given: Vec<Leaf>) -> Arc<Self> {
        let (origin, files, kept) = (PerProcess::new(), PerProcess::new(), PerProcess::new());
        Arc::new(Self { target, origin, files, kept, given })
    }

    /// The manifest.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.target.manifest
    }

    /// The places of these rows. Rows of one length need no leaf.
    ///
    /// # Errors
    /// The last error of the nodes and the origin, if a leaf is missing.
    pub(crate) fn places(&self, rows: &[RowRef]) -> Result<RowPlaces, Error> {
        if !self.manifest().tensors().iter().any(Tensor::is_ragged) {
            return Ok(RowPlaces::even(self.manifest()));
        }
        self.of_shards(rows.iter().map(|row| row.shard))
    }

    /// The places of the rows of these shards, with their leaves.
    ///
    /// # Errors
    /// As [`places`](Self::places).
    pub(crate) fn of_shards(&self, shards: impl Iterator<Item = u32>) -> Result<RowPlaces, Error> {
        let leaves = self.numbers(shards).into_iter().map(|number| self.get(number));
        Ok(RowPlaces::of(self.manifest(), leaves.collect::<Result<_, _>>()?))
    }

    /// As [`of_shards`](Self::of_shards), without asking a node: when none answers.
    ///
    /// # Errors
    /// The origin's.
    pub(super) async fn of_shards_at_origin(
        &self,
        shards: impl Iterator<Item = u32>,
    ) -> Result<RowPlaces, Error> {
        let mut leaves = Vec::new();
        for number in self.numbers(shards) {
            leaves.push(match self.here(number) {
                Some(leaf) => leaf,
                None => self.read_at_origin(number).await?,
            });
        }
        leaves.iter().for_each(|leaf| self.kept(|kept| kept.keep(leaf)));
        Ok(RowPlaces::of(self.manifest(), leaves))
    }

    /// The numbers of the leaves of these shards, each once.
    fn numbers(&self, shards: impl Iterator<Item = u32>) -> Vec<u32> {
        let (mut numbers, mut before) = (Vec::new(), None);
        for shard in shards {
            if before.replace(shard) != Some(shard) {
                numbers.push(self.manifest().leaf_of(shard));
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The places of the rows of a shard, if no node or origin need be asked.
    pub(crate) fn places_here(&self, shard: u32) -> Option<RowPlaces> {
        if !self.manifest().tensors().iter().any(Tensor::is_ragged) {
            return Some(RowPlaces::even(self.manifest()));
        }
        let leaf = self.here(self.manifest().leaf_of(shard))?;
        Some(RowPlaces::of(self.manifest(), vec![leaf]))
    }

    /// The manifest with all its leaves.
    ///
    /// # Errors
    /// As [`places`](Self::places).
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Error> {
        let leaves = (0..self.manifest().leaf_count()).map(|number| self.get(number));
        let leaves = leaves.collect::<Result<_, _>>()?;
        Ok(Snapshot { manifest: self.manifest().clone(), leaves })
    }

    /// The connection to the origin with this process's credentials, made at first use, and again
    /// when they have changed.
    pub(super) async fn origin(&self) -> Result<Origin, Error> {
        let cell = self.origin.get(|_| OnceCell::new());
        let (uri, variables) = (self.manifest().uri(), variables::latest());
        let connect = || Origin::connect_by(uri, &variables);
        let origin = cell.get_or_try_init(connect).await.map_err(from_origin)?;
        if !origin.has_way_by(&variables) {
            origin.also_by(&connect().await.map_err(from_origin)?);
        }
        Ok(origin.clone())
    }

    /// A leaf, from memory, a node or the origin.
    ///
    /// # Panics
    /// If there is no such leaf.
    fn get(&self, number: u32) -> Result<Leaf, Error> {
        if let Some(leaf) = self.here(number) {
            return Ok(leaf);
        }
        let leaf = match self.ask_cluster(number)? {
            Some(leaf) => leaf,
            None => runtime::block_on(self.read_at_origin(number))??,
        };
        self.kept(|kept| kept.keep(&leaf));
        Ok(leaf)
    }

    fn here(&self, number: u32) -> Option<Leaf> {
        let given = self.given.get(number as usize).cloned();
        given.or_else(|| self.kept(|kept| kept.find(number)))
    }

    /// `None` if no node answers, or there is no cluster.
    fn ask_cluster(&self, number: u32) -> Result<Option<Leaf>, Error> {
        let Target { manifest, pinned, cluster, options, .. } = &*self.target;
        let Some(cluster) = cluster else {
            return Ok(None);
        };
        match cluster.leaf(pinned, manifest, number, options.local) {
            Ok(leaf) => Ok(Some(leaf)),
            Err(error) if error.advice() == Advice::TryNextNode => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read_at_origin(&self, number: u32) -> Result<Leaf, Error> {
        let (origin, cell) = (self.origin().await?, self.files.get(|_| OnceCell::new()));
        let manifest = self.manifest();
        let find = || LeafFiles::find(&origin, manifest, self.target.name.manifest.as_ref());
        let files = cell.get_or_try_init(find).await.map_err(from_dataset)?;
        files.load(manifest, number).await.map_err(from_dataset)
    }

    fn kept<T>(&self, change: impl FnOnce(&mut KeptLeaves) -> T) -> T {
        let kept = self.kept.get(|_| Mutex::default());
        change(&mut kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeptLeaves {
    fn find(&mut self, number: u32) -> Option<Leaf> {
        self.uses += 1;
        let (leaf, used) = self.leaves.get_mut(&number)?;
        *used = self.uses;
        Some(leaf.clone())
    }

    /// Keeps a leaf. Drops the least recently used ones beyond the limit.
    fn keep(&mut self, leaf: &Leaf) {
        let bytes = |leaf: &Leaf| leaf.as_bytes().len() as u64;
        self.uses += 1;
        if self.leaves.insert(leaf.number(), (leaf.clone(), self.uses)).is_none() {
            self.bytes += bytes(leaf);
        }
        while self.bytes > LEAVES_BYTES_MAX && self.leaves.len() > 1 {
            let oldest = self.leaves.iter().min_by_key(|(_, (_, used))| *used);
            let Some((&number, (leaf, _))) = oldest else { return };
            self.bytes -= bytes(leaf);
            self.leaves.remove(&number);
        }
    }
}

fn from_origin(error: OriginError) -> Error {
    let kind = ErrorKind::from(&error);
    Error::new(kind, "cannot reach the origin").with_source(error)
}

fn from_dataset(error: DatasetError) -> Error {
    let (kind, hint) = (ErrorKind::from(&error), error.hint());
    let error = Error::new(kind, "cannot read a leaf of the manifest").with_source(error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error.hint("index the dataset again"),
    }
}
