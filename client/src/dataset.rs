//! A dataset: one snapshot, opened through a node or straight from the origin.
//!
//! A node is asked first: it knows which snapshot the tag names and holds the manifest, if on this
//! host then as an extent that all processes share. Without a cluster, or when none of its nodes
//! answers, the manifest is read from the origin with the caller's own credentials, and so are rows.
//!
//! Thread rule: cheap to clone and to share; opening and reading block the caller.
//! Non-goals: writing; looking for a newer snapshot (open the dataset again).

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use larder_dataset::{DatasetRef, Manifest, OriginUri, RowLocator, SnapshotId, Tensor};
use larder_wire::limits;

use crate::{
    Advice, Cluster, DatasetName, Error, ErrorKind, FetchOptions, Fetcher, HostTensor,
    LoaderBuilder, RowRef, Sources,
    loader::{self, Gather, tensor_index},
    runtime,
};

mod origin;

/// An opened snapshot of a dataset. Cheap to clone.
#[derive(Clone)]
pub struct Dataset {
    name: DatasetName,
    fetcher: Arc<Fetcher>,
    indexed_now: bool,
}

/// How a dataset is opened; made by [`Dataset::options`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is opened before open()"]
pub struct OpenOptions {
    cluster: Option<String>,
    manifest: Option<String>,
    fetch: FetchOptions,
}

impl OpenOptions {
    /// Nodes to read through: `http://host:port`, several separated by commas, any of the cluster.
    /// Without them every row is read from the origin.
    pub fn cluster(self, addresses: impl Into<String>) -> Self {
        Self { cluster: Some(addresses.into()), ..self }
    }

    /// Where the manifest lies when it is not beside the data.
    pub fn manifest(self, uri: impl Into<String>) -> Self {
        Self { manifest: Some(uri.into()), ..self }
    }

    /// Whether to map the memory of nodes on this host: by default yes.
    pub fn local(mut self, local: bool) -> Self {
        self.fetch.local = local;
        self
    }

    /// Reads these nodes, by id, over the network even if they are on this host: to see or to
    /// measure what other hosts get.
    pub fn over_network<T: Into<String>>(mut self, nodes: impl IntoIterator<Item = T>) -> Self {
        self.fetch.over_network = nodes.into_iter().map(Into::into).collect();
        self
    }

    /// How long one read goes on trying while nodes or the origin say "try again": by default 120
    /// seconds.
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
        let opened = match &self.cluster {
            Some(addresses) => through_cluster(addresses, &name, self.fetch.local)?,
            None => None,
        };
        let (manifest, cluster, indexed_now) = match opened {
            Some((manifest, cluster, indexed_now)) => (manifest, Some(cluster), indexed_now),
            None => {
                let opened = runtime::block_on(larder_dataset::open(
                    &name.reference,
                    name.manifest.as_ref(),
                ))
                .map_err(|error| origin::open_error(&name, error))?;
                (opened.manifest, None, opened.indexed_now)
            }
        };
        let fetcher = Fetcher::new(manifest, &name, cluster, self.fetch);
        Ok(Dataset { name, fetcher, indexed_now })
    }
}

/// What a node says, or `None` when no node answers.
fn through_cluster(
    addresses: &str,
    name: &DatasetName,
    local: bool,
) -> Result<Option<(Manifest, Arc<Cluster>, bool)>, Error> {
    let opened = Cluster::connect(addresses).and_then(|cluster| {
        let opened = cluster.open_dataset(name)?;
        let manifest = cluster.manifest(name, &opened, local)?;
        Ok((manifest, cluster, opened.indexed_now))
    });
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.advice() == Advice::TryNextNode => {
            tracing::warn!(%error, dataset = %name.reference.uri(), "no node answers: reading from the origin");
            Ok(None)
        }
        Err(error) => Err(error.context(format!("cannot open {}", name.reference.uri()))),
    }
}

fn parse_name(uri: &str, manifest: Option<&str>) -> Result<DatasetName, Error> {
    let invalid = |text: &str, error| {
        Error::new(ErrorKind::InvalidArgument, format!("'{text}' is not the address of a dataset"))
            .with_source(error)
            .hint("write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder, with @tag or without")
    };
    let reference = DatasetRef::parse(uri).map_err(|error| invalid(uri, error))?;
    let parse = |text| OriginUri::parse(text).map_err(|error| invalid(text, error));
    Ok(DatasetName { reference, manifest: manifest.map(parse).transpose()? })
}

impl Dataset {
    /// Opens a dataset: `s3://bucket/prefix`, also `gs://`, `az://` and `file://`, with `@tag` or
    /// without. `cluster` is as in [`OpenOptions::cluster`]. A prefix that was never indexed is
    /// indexed now, which reads the header of each of its files.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no address, `NotFound` and `PermissionDenied` from the node or
    /// the origin, `OriginUnavailable` when neither a node nor the origin answers.
    pub fn open(uri: &str, cluster: Option<&str>) -> Result<Self, Error> {
        let options = Self::options();
        cluster.into_iter().fold(options, OpenOptions::cluster).open(uri)
    }

    /// Ways to open a dataset other than the defaults.
    pub fn options() -> OpenOptions {
        OpenOptions::default()
    }

    /// The name of the snapshot: the same bytes, for ever.
    #[must_use]
    pub fn snapshot(&self) -> SnapshotId {
        self.manifest().snapshot()
    }

    /// Number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.manifest().samples()
    }

    /// The tensors of each sample.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        self.manifest().tensors()
    }

    /// The index of the snapshot.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        self.fetcher.manifest()
    }

    /// What it was opened as.
    #[must_use]
    pub fn name(&self) -> &DatasetName {
        &self.name
    }

    /// The cluster it is read through, if there is one that answered.
    #[must_use]
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.fetcher.cluster()
    }

    /// What reads its rows.
    #[must_use]
    pub fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// Whether it had no manifest, and was indexed when it was opened.
    #[must_use]
    pub fn indexed_now(&self) -> bool {
        self.indexed_now
    }

    /// One sample of one tensor: its bytes, little-endian, in C order.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such sample or tensor; else as [`Fetcher::gather`].
    pub fn read(&self, sample: u64, tensor: &str) -> Result<Vec<u8>, Error> {
        self.rows(sample..sample.saturating_add(1), tensor)
    }

    /// Consecutive samples of one tensor, back to back.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn rows(&self, samples: Range<u64>, tensor: &str) -> Result<Vec<u8>, Error> {
        let index = tensor_index(self.manifest(), tensor)?;
        let column = &self.tensors()[index];
        if column.locator() == RowLocator::Spans {
            let what = format!("tensor '{tensor}' has rows of different lengths");
            return Err(
                Error::new(ErrorKind::InvalidArgument, what).hint("such tensors can't be read yet")
            );
        }
        let size = self.check(&samples, column.row_bytes())?;
        let mut bytes = vec![0; size];
        let per_gather = u64::from(limits::GATHER_ROWS_MAX);
        let (mut rest, mut next) = (&mut bytes[..], samples.start);
        while next < samples.end {
            let end = samples.end.min(next + per_gather);
            let rows: Vec<RowRef> = (next..end).filter_map(|sample| self.locate(sample)).collect();
            let row_bytes = usize::try_from(column.row_bytes()).expect("a factor of the size");
            let (part, after) = rest.split_at_mut(rows.len() * row_bytes);
            self.fetcher.gather(&rows, &[index], &mut [part])?;
            (rest, next) = (after, end);
        }
        Ok(bytes)
    }

    /// Chosen samples of these tensors, or of all, in this order and in memory of their own.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such sample or tensor, or more samples than one gather may
    /// have (65,536); else as [`Fetcher::gather`].
    pub fn take(
        &self,
        samples: &[u64],
        tensors: Option<&[String]>,
    ) -> Result<Vec<HostTensor>, Error> {
        if let Some(&beyond) = samples.iter().find(|&&sample| sample >= self.samples()) {
            self.check(&(beyond..beyond.saturating_add(1)), 0)?;
        }
        loader::take(self.manifest(), &self.gather(), samples, tensors)
    }

    /// A loader of its batches; see [`Loader`](crate::Loader).
    pub fn loader(&self) -> LoaderBuilder {
        LoaderBuilder::new(self.manifest().clone(), self.gather(), self.cluster().cloned())
    }

    fn gather(&self) -> Arc<Gather> {
        let fetcher = Arc::clone(&self.fetcher);
        let gather = move |rows: &[RowRef],
                           tensors: &[usize],
                           out: &mut [&mut [u8]]|
              -> Result<Sources, Error> { fetcher.gather(rows, tensors, out) };
        Arc::new(gather)
    }

    fn locate(&self, sample: u64) -> Option<RowRef> {
        self.manifest().locate(sample).map(|(shard, row)| RowRef { shard, row })
    }

    /// Bytes of these samples.
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

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("name", &self.name)
            .field("manifest", self.manifest())
            .field("through_cluster", &self.cluster().is_some())
            .finish_non_exhaustive()
    }
}
