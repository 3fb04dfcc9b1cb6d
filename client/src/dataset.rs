//! A dataset: one snapshot or a part of its samples, opened through a node or from the origin.
//!
//! A node is asked first. It knows the snapshot of the tag and has the manifest. A node on this
//! host holds it as an extent that all processes share. Without a cluster, or if no node answers,
//! the manifest is read from the origin with the caller's own credentials. So are rows until nodes
//! answer.
//!
//! Thread rule: cheap to clone and to share. Opening and reading block the caller. Non-goals:
//! writing, and looking for a newer snapshot (open the dataset again).

use std::{fmt, iter, ops::Range, sync::Arc, time::Duration};

use larder_base::{SnapshotId, limits};
use larder_dataset::{DatasetRef, Manifest, OriginUri, Tensor, UriError};

use crate::{
    Advice, CancelToken, Cluster, DatasetName, Error, ErrorKind, FetchOptions, Fetcher,
    HostOptions, HostTensor, LoaderBuilder, Locality, RowRef,
    buffer::no_memory,
    fetch::{self, Asking},
    files, hints,
    loader::{self, Gather, Look, Mapped, Source, tensor_index},
    runtime,
    sampler::{self, DatasetShape, Selection, View},
};

mod indexed;
mod origin;
mod path;

pub use indexed::IndexedNow;
pub(crate) use origin::index_error;

/// An opened snapshot of a dataset, or a part of it by [`select`](Self::select) or
/// [`split`](Self::split). Cheap to clone. All parts share its connections and maps.
#[derive(Clone)]
pub struct Dataset {
    name: DatasetName,
    fetcher: Arc<Fetcher>,
    /// The samples of the snapshot that belong to it.
    view: View,
    indexed_now: Option<Arc<IndexedNow>>,
    opened_by_node: bool,
}

/// Options to open a dataset. Created by [`Dataset::options`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is opened before open()"]
pub struct OpenOptions {
    cluster: Option<String>,
    host: Option<HostOptions>,
    manifest: Option<String>,
    fetch: FetchOptions,
}

impl OpenOptions {
    /// Reads through nodes: one or more `http://host:port` of the cluster, separated by commas.
    /// Without this every row is read from the origin.
    pub fn cluster(self, addresses: impl Into<String>) -> Self {
        Self { cluster: Some(addresses.into()), ..self }
    }

    /// Reads through the node of this host, which is started if needed. A named cluster takes
    /// precedence.
    pub fn host_node(self, options: HostOptions) -> Self {
        Self { host: Some(options), ..self }
    }

    /// The place of the manifest, if it is not beside the data.
    pub fn manifest(self, uri: impl Into<String>) -> Self {
        Self { manifest: Some(uri.into()), ..self }
    }

    /// Whether to map the memory of nodes on this host. Default: yes.
    pub fn local(mut self, local: bool) -> Self {
        self.fetch.local = local;
        self
    }

    /// Reads these nodes, by id, over the network even if they are on this host, to test or measure
    /// the reads of other hosts.
    pub fn over_network<T: Into<String>>(mut self, nodes: impl IntoIterator<Item = T>) -> Self {
        self.fetch.over_network = nodes.into_iter().map(Into::into).collect();
        self
    }

    /// How long one read retries while nodes or the origin say "try again". Default: 120 seconds.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.fetch.patience = patience;
        self
    }

    /// Opens `uri`, as [`Dataset::open`].
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn open(self, uri: &str) -> Result<Dataset, Error> {
        let name = parse_name(uri, self.manifest.as_deref())?;
        files::check()?;
        let cluster = match (&self.cluster, &self.host) {
            (Some(addresses), _) => Some(Cluster::new(addresses)?),
            (None, Some(host)) => Some(cluster_of_host(host, &name)?),
            (None, None) => None,
        };
        let by_node = match &cluster {
            Some(cluster) => through_cluster(cluster, &name, self.fetch.local)?,
            None => None,
        };
        let opened_by_node = by_node.is_some();
        let (manifest, indexed_now) = match by_node {
            Some(opened) => opened,
            None => from_origin(&name)?,
        };
        if let Some(indexed) = &indexed_now {
            tracing::warn!("{} {indexed}", name.reference.uri());
        }
        let view = all_samples(&manifest)?;
        let fetcher = Fetcher::new(manifest, &name, cluster, self.fetch);
        if opened_by_node {
            fetcher.learn_owners();
        }
        let indexed_now = indexed_now.map(Arc::new);
        Ok(Dataset { name, fetcher, view, indexed_now, opened_by_node })
    }
}

/// Starts or finds the node of this host, and lets it read the dataset.
fn cluster_of_host(options: &HostOptions, name: &DatasetName) -> Result<Arc<Cluster>, Error> {
    let prefixes = iter::once(name.reference.uri()).chain(&name.manifest);
    Cluster::of_host(options.clone(), prefixes.map(ToString::to_string).collect())
}

/// A manifest, and the report of indexing if it was made now.
type Opened = (Manifest, Option<IndexedNow>);

/// Opens through a cluster. `None` if no node answers.
fn through_cluster(
    cluster: &Cluster,
    name: &DatasetName,
    local: bool,
) -> Result<Option<Opened>, Error> {
    let opened = cluster.open_dataset(name).map_err(|error| hints::of_node(error, cluster));
    let opened = opened.and_then(|opened| {
        let manifest = cluster.manifest(name, &opened, local)?;
        let indexed = IndexedNow::by_node(&manifest, opened);
        Ok((manifest, indexed))
    });
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.advice() == Advice::TryNextNode => {
            cluster.report_outage(name.reference.uri(), Some(&error));
            Ok(None)
        }
        Err(error) => {
            let uri = name.reference.uri();
            Err(hints::of_opening(error.context(format!("cannot open {uri}")), uri))
        }
    }
}

fn from_origin(name: &DatasetName) -> Result<Opened, Error> {
    let opened = larder_dataset::open(&name.reference, name.manifest.as_ref());
    let opened = runtime::block_on(name.told_if_long(opened))?
        .map_err(|error| origin::open_error(name, error))?;
    let indexed = IndexedNow::of(&opened);
    Ok((opened.manifest, indexed))
}

pub(crate) fn all_samples(manifest: &Manifest) -> Result<View, sampler::Error> {
    let rows = (0..manifest.shard_count()).map(|shard| manifest.shard(shard).rows);
    Ok(View::all(*manifest.snapshot().as_bytes(), DatasetShape::from_rows(rows)?))
}

fn parse_name(uri: &str, manifest: Option<&str>) -> Result<DatasetName, Error> {
    let reference = DatasetRef::parse(uri).map_err(|error| not_an_address(uri, error))?;
    Ok(DatasetName { reference, manifest: manifest.map(parse_uri).transpose()? })
}

/// Parses the address of a prefix or an object.
pub(crate) fn parse_uri(text: &str) -> Result<OriginUri, Error> {
    OriginUri::parse(text).map_err(|error| not_an_address(text, error))
}

fn not_an_address(text: &str, error: UriError) -> Error {
    let hint = match path::address_of(text) {
        Some(address) => format!("for the local folder write {address}"),
        None => "write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder, \
                 with @tag or without"
            .to_owned(),
    };
    Error::new(ErrorKind::InvalidArgument, format!("'{text}' is not the address of a dataset"))
        .because(error.why())
        .with_source(error)
        .hint(hint)
}

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
    #[must_use]
    pub fn snapshot(&self) -> SnapshotId {
        self.manifest().snapshot()
    }

    /// The number of samples in its view.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.view.len()
    }

    /// The samples of the snapshot that it has, and their order.
    #[must_use]
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

    /// The tensors of each sample.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        self.manifest().tensors()
    }

    /// The manifest of the snapshot.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        self.fetcher.manifest()
    }

    /// The name that it was opened by.
    #[must_use]
    pub fn name(&self) -> &DatasetName {
        &self.name
    }

    /// Its address, pinned to this snapshot. Opening it again, in any process, gives the same
    /// samples, even if the tag has moved.
    #[must_use]
    pub fn pinned_uri(&self) -> String {
        self.name.pinned(self.snapshot()).reference.to_string()
    }

    /// Its cluster, if one was named. Rows come from it whenever its nodes answer.
    #[must_use]
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.fetcher.cluster()
    }

    /// The fetcher of its rows.
    #[must_use]
    pub fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// The report of indexing, if it had no manifest when it was opened.
    #[must_use]
    pub fn indexed_now(&self) -> Option<&IndexedNow> {
        self.indexed_now.as_deref()
    }

    /// Whether a node opened it. If not, the manifest came from the origin, and so do rows until
    /// nodes answer.
    #[must_use]
    pub fn opened_by_node(&self) -> bool {
        self.opened_by_node
    }

    /// Reads one sample of one tensor, counted from 0 in the view: its bytes, little-endian, in C
    /// order.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such sample or tensor. Otherwise as [`Fetcher::gather`].
    pub fn read(&self, sample: u64, tensor: &str) -> Result<Vec<u8>, Error> {
        self.rows(sample..sample.saturating_add(1), tensor)
    }

    /// Reads consecutive samples of one tensor, back to back.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn rows(&self, samples: Range<u64>, tensor: &str) -> Result<Vec<u8>, Error> {
        let index = tensor_index(self.manifest(), tensor)?;
        let size = self.check(&samples, self.tensors()[index].row_bytes())?;
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
        let (manifest, column) = (self.manifest(), &self.tensors()[tensor]);
        if !column.is_ragged() {
            return Ok(rows.len() * usize::try_from(column.row_bytes()).expect("checked"));
        }
        let lengths = rows.iter().map(|at| manifest.row_in_region(at.shard, at.row, tensor).1);
        let begins = fetch::begins(column.name(), lengths, 0)?;
        Ok(begins.last().copied().unwrap_or(0))
    }

    /// Reads chosen samples of the view into their own memory, in this order. Takes these tensors
    /// or all.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such sample or tensor, or for more samples than one gather
    /// allows (65,536). Otherwise as [`Fetcher::gather`].
    pub fn take(
        &self,
        samples: &[u64],
        tensors: Option<&[String]>,
    ) -> Result<Vec<HostTensor>, Error> {
        self.take_unless(samples, tensors, &CancelToken::never())
    }

    /// As [`take`](Self::take), until `cancel` is cancelled.
    ///
    /// # Errors
    /// As [`take`](Self::take), and when it was cancelled.
    pub fn take_unless(
        &self,
        samples: &[u64],
        tensors: Option<&[String]>,
        cancel: &CancelToken,
    ) -> Result<Vec<HostTensor>, Error> {
        if let Some(&beyond) = samples.iter().find(|&&sample| sample >= self.samples()) {
            self.check(&(beyond..beyond.saturating_add(1)), 0)?;
        }
        let samples: Vec<u64> = samples.iter().map(|&index| self.view.sample_at(index)).collect();
        loader::take(self.manifest(), &self.gather(), &samples, tensors, cancel)
    }

    /// As [`take`](Self::take), but asks no node: `None` if a row is not mapped, or for invalid
    /// arguments.
    #[must_use]
    pub fn take_mapped(
        &self,
        samples: &[u64],
        tensors: Option<&[String]>,
    ) -> Option<Vec<HostTensor>> {
        let known = samples.iter().all(|&index| index < self.samples());
        let rows = samples.iter().filter_map(|&index| self.locate(index));
        if !known || !self.fetcher.has_mapped(rows.map(|row| row.shard)) {
            return None;
        }
        // A cancelled token makes the read fail as soon as it would wait.
        let cancel = CancelToken::new();
        cancel.cancel();
        self.take_unless(samples, tensors, &cancel).ok()
    }

    /// Reads consecutive samples of the view, for these tensors or all. Views them in place if they
    /// are rows of one shard in the memory of a node on this host. Otherwise as
    /// [`take`](Self::take).
    ///
    /// # Errors
    /// As [`take`](Self::take).
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
    /// As [`take_unless`](Self::take_unless).
    pub fn slice_unless(
        &self,
        samples: Range<u64>,
        tensors: Option<&[String]>,
        cancel: &CancelToken,
    ) -> Result<Vec<HostTensor>, Error> {
        match self.private_view(&samples, tensors, Asking::Node(cancel))? {
            Some(lent) => Ok(lent),
            None => self.take_unless(&samples.collect::<Vec<_>>(), tensors, cancel),
        }
    }

    /// As [`slice`](Self::slice), but asks no node: `None` if a row is not mapped.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such sample or tensor, or for more samples than one gather
    /// allows.
    pub fn slice_mapped(
        &self,
        samples: Range<u64>,
        tensors: Option<&[String]>,
    ) -> Result<Option<Vec<HostTensor>>, Error> {
        Ok(match self.private_view(&samples, tensors, Asking::Nobody)? {
            Some(lent) => Some(lent),
            None => self.take_mapped(&samples.collect::<Vec<_>>(), tensors),
        })
    }

    /// Checks the size of a slice, before anything is allocated.
    ///
    /// # Errors
    /// `InvalidArgument` for more samples than one gather allows (65,536).
    pub fn check_slice(samples: u64) -> Result<(), Error> {
        let limit = u64::from(limits::GATHER_ROWS_MAX);
        if samples <= limit {
            return Ok(());
        }
        let what = format!("a slice of {samples} samples, at most {limit}");
        let hint = "iterate a loader, or slice smaller";
        Err(Error::new(ErrorKind::InvalidArgument, what).hint(hint))
    }

    fn private_view(
        &self,
        samples: &Range<u64>,
        tensors: Option<&[String]>,
        asking: Asking<'_>,
    ) -> Result<Option<Vec<HostTensor>>, Error> {
        self.check(samples, 0)?;
        Self::check_slice(samples.end - samples.start)?;
        let Some((shard, rows)) = self.in_one_shard(samples) else {
            return Ok(None);
        };
        let look = |tensor| self.fetcher.look(shard, &rows, tensor, asking);
        loader::private_views(self.manifest(), look, (shard, &rows), tensors)
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
        LoaderBuilder::new(self.source())
    }

    /// The source that a loader reads.
    pub(crate) fn source(&self) -> Source {
        let fetcher = Arc::clone(&self.fetcher);
        let look: Arc<Look> =
            Arc::new(move |shard, rows, tensor| fetcher.look(shard, rows, tensor, Asking::Nobody));
        let fetcher = Arc::clone(&self.fetcher);
        let mapped: Arc<Mapped> = Arc::new(move |shard, cancel| {
            fetcher.mapped(shard, cancel.map_or(Asking::Nobody, Asking::Node))
        });
        Source {
            manifest: self.manifest().clone(),
            view: self.view.clone(),
            gather: self.gather(),
            look: Some(look),
            mapped: Some(mapped),
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
    #[must_use]
    pub fn nodes_here(&self) -> Vec<String> {
        self.cluster().map_or_else(Vec::new, |cluster| cluster.nodes_here())
    }

    fn gather(&self) -> Arc<Gather> {
        let fetcher = Arc::clone(&self.fetcher);
        Arc::new(move |rows, tensors, out, cancel| {
            fetcher.gather_unless(rows, tensors, out, cancel)
        })
    }

    fn locate(&self, index: u64) -> Option<RowRef> {
        self.manifest().locate(self.view.sample_at(index)).map(|(shard, row)| RowRef { shard, row })
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
