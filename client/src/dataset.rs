//! A dataset: one snapshot or a part of its samples, opened through a node or from the origin.
//!
//! Thread rule: cheap to clone and to share. Opening and reading block the caller. Non-goals:
//! writing, and looking for a newer snapshot (open the dataset again).

use std::{fmt, ops::Range, sync::Arc};

use larder_base::{SnapshotId, limits};
use larder_dataset::{Manifest, Snapshot, Tensor};

use crate::{
    CancelToken, Cluster, DatasetName, Error, ErrorKind, Fetcher, HostTensor, LoaderBuilder,
    Locality, RowRef, RowsWait, Take, fetch,
    loader::{self, LoaderSource, tensor_index},
    memory::{BufferPool, no_memory},
    sampler::{self, DatasetShape, Selection, View},
};

mod added;
mod address;
mod index;
mod keys;
mod mixture;
mod open;

pub use index::{IndexedNow, index_prefix};
pub use mixture::Mixture;
pub use open::OpenOptions;

/// An opened snapshot of a dataset, or a part of it by [`select`](Self::select) or
/// [`split`](Self::split). Cheap to clone. All parts share its connections and maps.
#[derive(Clone)]
pub struct Dataset {
    name: DatasetName,
    fetcher: Arc<Fetcher>,
    /// The samples of the snapshot that belong to it.
    view: View,
    /// The names of its columns, or all of the snapshot.
    columns: Option<Arc<[String]>>,
    indexed_now: Option<Arc<IndexedNow>>,
    opened_by_node: bool,
    /// Memory of rows that were taken, for the next ones.
    buffers: Arc<BufferPool>,
    keys: Arc<keys::KeyManifest>,
}

/// The view of every sample of a snapshot.
pub(crate) fn all_samples(manifest: &Manifest) -> Result<View, sampler::Error> {
    let rows = (0..manifest.shard_count()).map(|shard| manifest.shard(shard).rows);
    Ok(View::all(*manifest.snapshot().as_bytes(), DatasetShape::from_rows(rows)?))
}

/// Idle buffers of a dataset, for several threads that take rows.
const IDLE_MAX: usize = 8;
const IDLE_BYTES_MAX: usize = 256 << 20;

impl Dataset {
    /// Opens a dataset: `s3://bucket/prefix`, `gs://`, `az://` or `file://`, with `@tag` or
    /// without. `cluster` is as in [`OpenOptions::cluster`]. Indexes a prefix without a manifest,
    /// which reads the header of each of its files.
    ///
    /// # Errors
    /// - `InvalidArgument` for an invalid address.
    /// - `NotFound` and `PermissionDenied` from the node or the origin.
    /// - `OriginUnavailable` if neither a node nor the origin answers.
    pub fn open(uri: &str, cluster: Option<&str>) -> Result<Self, Error> {
        let options = Self::options();
        cluster.into_iter().fold(options, OpenOptions::cluster).open(uri)
    }

    /// Options to open a dataset.
    pub fn options() -> OpenOptions {
        OpenOptions::default()
    }

    /// The id of the snapshot. It always names the same bytes.
    pub fn snapshot(&self) -> SnapshotId {
        self.manifest().snapshot()
    }

    /// The number of samples in its view.
    pub fn samples(&self) -> u64 {
        self.view.len()
    }

    /// The samples of the snapshot that it has, and their order.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Selects samples: a range, indices in ascending order, or a [`Split`](crate::sampler::Split).
    /// All count from 0 in this dataset.
    ///
    /// # Errors
    /// `InvalidArgument` if the selection exceeds the samples or is otherwise wrong; see
    /// [`View::select`].
    pub fn select(&self, selection: impl Into<Selection>) -> Result<Self, Error> {
        let view = self.view.select(selection).map_err(cannot_select)?;
        Ok(Self { view, ..self.clone() })
    }

    /// Splits the samples at random into disjoint parts that cover all of them: `split(&[0.9, 0.1],
    /// 0)` for training and validation. Every process and rank gets the same parts; see
    /// [`View::split`].
    ///
    /// # Errors
    /// `InvalidArgument` if a fraction is not above 0 or the sum is not 1.
    pub fn split(&self, fractions: &[f64], seed: u64) -> Result<Vec<Self>, Error> {
        let views = self.view.split(fractions, seed).map_err(cannot_select)?;
        Ok(views.into_iter().map(|view| Self { view, ..self.clone() }).collect())
    }

    /// Chooses columns, in this order. Reads and loaders that name no tensors gather these.
    ///
    /// # Errors
    /// `NotFound` for a column that the snapshot does not have. `InvalidArgument` for no column, or
    /// one that comes twice.
    pub fn with_columns(&self, names: &[String]) -> Result<Self, Error> {
        loader::check_columns(self.manifest(), names)?;
        Ok(Self { columns: Some(names.into()), ..self.clone() })
    }

    /// The tensors of each sample: the chosen columns, or all of the snapshot.
    pub fn tensors(&self) -> Vec<&Tensor> {
        let all = self.manifest().tensors();
        let Some(names) = &self.columns else { return all.iter().collect() };
        names.iter().filter_map(|name| all.iter().find(|tensor| tensor.name() == name)).collect()
    }

    /// The manifest of the snapshot.
    pub fn manifest(&self) -> &Manifest {
        self.fetcher.manifest()
    }

    /// The manifest with all its leaves, for tools that look at objects. Reads the missing leaves.
    ///
    /// # Errors
    /// The last error of the nodes and the origin.
    pub fn whole_manifest(&self) -> Result<Snapshot, Error> {
        self.fetcher.leaves().snapshot()
    }

    /// The name that it was opened by.
    pub fn name(&self) -> &DatasetName {
        &self.name
    }

    /// Its address, pinned to this snapshot. Opening it again, in any process, gives the same
    /// samples, even if the tag has moved.
    pub fn pinned_uri(&self) -> String {
        self.name.pinned(self.snapshot()).reference.to_string()
    }

    /// Whether it maps the memory of a node on this host.
    fn local(&self) -> bool {
        self.fetcher.options().local
    }

    /// Its cluster, if one was named. Rows come from it whenever its nodes answer.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.fetcher.cluster()
    }

    /// The fetcher of its rows.
    pub fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// The report of indexing, if it had no manifest when it was opened.
    pub fn indexed_now(&self) -> Option<&IndexedNow> {
        self.indexed_now.as_deref()
    }

    /// Whether a node opened it. If not, the manifest came from the origin, and so do rows until
    /// nodes answer.
    pub fn opened_by_node(&self) -> bool {
        self.opened_by_node
    }

    /// Reads one sample of one tensor, counted from 0 in the view: its bytes, little-endian, in C
    /// order.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such sample, `NotFound` for a tensor. Otherwise as
    /// [`Fetcher::gather`].
    pub fn read(&self, sample: u64, tensor: &str) -> Result<Vec<u8>, Error> {
        self.rows(sample..sample.saturating_add(1), tensor)
    }

    /// Reads consecutive samples of one tensor, back to back.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn rows(&self, samples: Range<u64>, tensor: &str) -> Result<Vec<u8>, Error> {
        let index = tensor_index(self.manifest(), tensor)?;
        let size = self.check(&samples, self.manifest().tensors()[index].row_bytes())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| no_memory(size))?;
        let per_gather = u64::from(limits::GATHER_ROWS_MAX);
        let mut next = samples.start;
        while next < samples.end {
            let end = samples.end.min(next + per_gather);
            let rows: Vec<RowRef> = (next..end).filter_map(|sample| self.locate(sample)).collect();
            let (begin, more) = (bytes.len(), self.bytes_of(&rows, index)?);
            bytes.try_reserve(more).map_err(|_| no_memory(more))?;
            bytes.resize(begin + more, 0);
            self.fetcher.gather(&rows, &[index], &mut [&mut bytes[begin..]])?;
            next = end;
        }
        Ok(bytes)
    }

    /// The bytes of these rows of a tensor, if they fit one gather.
    fn bytes_of(&self, rows: &[RowRef], tensor: usize) -> Result<usize, Error> {
        let column = &self.manifest().tensors()[tensor];
        if !column.is_ragged() {
            return Ok(rows.len() * usize::try_from(column.row_bytes()).expect("checked"));
        }
        let places = self.fetcher.leaves().places(rows)?;
        let lengths = rows.iter().map(|&row| places.row(row, tensor).1);
        let begins = fetch::begins(column.name(), lengths, 0)?;
        Ok(begins.last().copied().unwrap_or(0))
    }

    /// Chooses samples of the view, to be read into new memory or into the caller's: these tensors
    /// or its columns. Keeps the order of the indices. An index may come twice, and a negative one
    /// counts from the end.
    ///
    /// ```no_run
    /// # let dataset = larder_client::Dataset::open("s3://bucket/imagenet", None)?;
    /// let rows = dataset.take(&[3, 17, -1], None)?;
    /// let mut buffers: Vec<_> = rows.bytes().into_iter().map(|bytes| vec![0; bytes]).collect();
    /// let mut out: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    /// rows.into(&mut out)?;
    /// # Ok::<(), larder_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no such tensor. `InvalidArgument` for an index outside the dataset,
    /// and for more bytes than memory can hold.
    pub fn take(&self, indices: &[i64], tensors: Option<&[String]>) -> Result<Take, Error> {
        self.check_indices(indices)?;
        self.take_samples(indices.iter().map(|&index| self.resolve(index)), tensors)
    }

    /// The number of the sample at an index, which may count from the end.
    ///
    /// # Errors
    /// `InvalidArgument` if the index is outside the dataset.
    pub fn position(&self, index: i64) -> Result<u64, Error> {
        self.check_indices(&[index])?;
        Ok(self.resolve(index))
    }

    /// As [`position`](Self::position), for an index in the dataset.
    fn resolve(&self, index: i64) -> u64 {
        u64::try_from(index).unwrap_or_else(|_| self.samples() - index.unsigned_abs())
    }

    /// # Errors
    /// `InvalidArgument` with the first index that is outside the dataset, and its place in the
    /// list.
    pub fn check_indices(&self, indices: &[i64]) -> Result<(), Error> {
        let samples = i64::try_from(self.samples()).unwrap_or(i64::MAX);
        let is_outside = |&index: &i64| index >= samples || index < -samples;
        match indices.iter().position(is_outside) {
            Some(place) => {
                let listed = (indices.len() > 1).then_some(place);
                Err(self.no_sample(indices[place], listed))
            }
            None => Ok(()),
        }
    }

    /// The error for an index outside the dataset, at this place of a list of indices.
    pub fn no_sample(&self, index: impl fmt::Display, place: Option<usize>) -> Error {
        let listed = place.map(|place| format!(", which is index {place} of the list"));
        let what = format!("there is no sample {index}{}", listed.unwrap_or_default());
        let samples = self.samples();
        let hint = format!("the dataset has {samples}, counted from 0; -1 is the last one");
        Error::new(ErrorKind::InvalidArgument, what).hint(hint)
    }

    /// Samples that the view has.
    fn take_samples(
        &self,
        samples: impl Iterator<Item = u64>,
        tensors: Option<&[String]>,
    ) -> Result<Take, Error> {
        let locator = self.manifest().sample_locator();
        let located = |index| locator.locate(self.view.sample_at(index)).expect("in the view");
        let rows: Vec<RowRef> = samples.map(located).collect();
        let tensors = tensors.or(self.columns.as_deref());
        Take::new(Arc::clone(&self.fetcher), rows, tensors, Arc::clone(&self.buffers))
    }

    /// Reads consecutive samples of the view, for these tensors or its columns. Views them in place
    /// if they are rows of one shard in the memory of a node on this host. Otherwise as
    /// [`Take::read`].
    ///
    /// # Errors
    /// `NotFound` if there is no such tensor. `InvalidArgument` for a sample that does not exist.
    /// Otherwise as [`Take::read`].
    pub fn slice(
        &self,
        samples: Range<u64>,
        tensors: Option<&[String]>,
    ) -> Result<Vec<HostTensor>, Error> {
        self.slice_unless(samples, tensors, &CancelToken::never())
    }

    /// As [`slice`](Self::slice), until `cancel` is cancelled.
    ///
    /// # Errors
    /// As [`slice`](Self::slice), and when it was cancelled.
    pub fn slice_unless(
        &self,
        samples: Range<u64>,
        tensors: Option<&[String]>,
        cancel: &CancelToken,
    ) -> Result<Vec<HostTensor>, Error> {
        self.check(&samples, 0)?;
        let tensors = tensors.or(self.columns.as_deref());
        match self.private_view(&samples, tensors, cancel)? {
            Some(lent) => Ok(lent),
            None => self.take_samples(samples, tensors)?.read_unless(cancel),
        }
    }

    /// Follows the fills that a read of these samples waits for, for a program that reads them on
    /// another thread.
    pub fn follow(&self, samples: Range<u64>) -> RowsWait {
        let take = self.check(&samples, 0).and_then(|_| self.take_samples(samples, None));
        take.map_or_else(|_| RowsWait::begin(Vec::new(), ""), |take| take.follow())
    }

    fn private_view(
        &self,
        samples: &Range<u64>,
        tensors: Option<&[String]>,
        cancel: &CancelToken,
    ) -> Result<Option<Vec<HostTensor>>, Error> {
        let Some((shard, rows)) = self.in_one_shard(samples) else {
            return Ok(None);
        };
        loader::private_views(&self.fetcher, shard, &rows, tensors, cancel)
    }

    /// The rows of these samples, if they are consecutive in one shard.
    fn in_one_shard(&self, samples: &Range<u64>) -> Option<(u32, Range<u32>)> {
        if samples.is_empty() {
            return None;
        }
        let first = self.view.sample_at(samples.start);
        let mut wanted = samples.clone().zip(first..);
        if !wanted.all(|(index, sample)| self.view.sample_at(index) == sample) {
            return None;
        }
        let (begin, end) = (self.locate(samples.start)?, self.locate(samples.end - 1)?);
        (begin.shard == end.shard).then_some((begin.shard, begin.row..end.row + 1))
    }

    /// A builder of a loader; see [`Loader`](crate::Loader).
    pub fn loader(&self) -> LoaderBuilder {
        Mixture::from(self.clone()).loader()
    }

    /// The source that a loader reads.
    fn source(&self) -> LoaderSource {
        LoaderSource {
            leaves: Arc::clone(self.fetcher.leaves()),
            columns: self.columns.clone(),
            rows: Arc::<Fetcher>::clone(&self.fetcher),
            cluster: self.cluster().cloned(),
        }
    }

    /// Makes a locality, by which the ranks of a job can divide its batches, from the cluster's
    /// current placement. `ranks` names the nodes on each rank's host: the result of
    /// [`Dataset::nodes_here`] there, the id of a node, or the host's name on the ring. Ranks with
    /// a common name share a host. A rank without names is on a host without a node.
    ///
    /// Call it in one process, for all ranks: see [`Locality`].
    ///
    /// # Errors
    /// - `InvalidArgument` for no rank or too many, or if the ring knows no given name.
    /// - `Unavailable` until a node of the cluster has answered.
    pub fn locality(&self, ranks: &[Vec<String>]) -> Result<Locality, Error> {
        Locality::of(&[self.fetcher()], ranks)
    }

    /// The ids of the cluster's nodes on the host of this process, found by their sockets. Asks
    /// every node for its socket, and waits at most two seconds.
    pub fn nodes_here(&self) -> Vec<String> {
        self.cluster().map_or_else(Vec::new, |cluster| cluster.nodes_here())
    }

    fn locate(&self, index: u64) -> Option<RowRef> {
        self.manifest().locate(self.view.sample_at(index))
    }

    /// Checks these samples, and returns their bytes.
    fn check(&self, samples: &Range<u64>, row_bytes: u64) -> Result<usize, Error> {
        let Range { start, end } = *samples;
        if start > end || end > self.samples() {
            let what = match end.checked_sub(start) {
                Some(1) => format!("there is no sample {start}"),
                _ => format!("there are no samples {start}..{end}"),
            };
            let hint = format!("the dataset has {} samples, counted from 0", self.samples());
            return Err(Error::new(ErrorKind::InvalidArgument, what).hint(hint));
        }
        let bytes =
            (end - start).checked_mul(row_bytes).and_then(|bytes| isize::try_from(bytes).ok());
        bytes.map(isize::unsigned_abs).ok_or_else(|| {
            let what = format!("samples {start}..{end} are more bytes than memory can hold");
            Error::new(ErrorKind::InvalidArgument, what).hint("read fewer at once")
        })
    }
}

fn cannot_select(error: sampler::Error) -> Error {
    Error::new(ErrorKind::InvalidArgument, "cannot select these samples").with_source(error)
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("name", &self.name)
            .field("manifest", self.manifest())
            .field("view", &self.view)
            .field("cluster", &self.cluster())
            .finish_non_exhaustive()
    }
}
