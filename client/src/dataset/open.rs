//! Opens a dataset: through a node, or straight from the origin.
//!
//! A node is asked first. It knows the snapshot of the tag and has the manifest. A node on this
//! host holds it as an extent that all processes share. Without a cluster, or if no node answers,
//! the manifest is read from the origin with the caller's own credentials. So are rows until nodes
//! answer.

use std::{
    iter,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use larder_dataset::{IndexProgress, Leaf, Manifest, OpenBudget, Origin, WritePolicy, open_in};

use super::{
    Dataset, IDLE_BYTES_MAX, IDLE_MAX,
    added::warn_if_added,
    address::find_name,
    all_samples,
    index::{IndexedNow, failed, index_files},
};
use crate::{
    Advice, Cluster, DatasetName, Error, FetchOptions, Fetcher, HostOptions, OpenDataset,
    memory::BufferPool,
    process,
    progress::{Progress, Reporter},
    runtime,
};

/// Options to open a dataset. Created by [`Dataset::options`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is opened before open()"]
pub struct OpenOptions {
    cluster: Option<String>,
    host: Option<HostOptions>,
    manifest: Option<String>,
    write: Option<WritePolicy>,
    fetch: FetchOptions,
    reporter: Reporter<'static>,
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

    /// Whether an index of the dataset may write beside the data. Default: as `LARDER_WRITE` says.
    pub fn write(self, policy: WritePolicy) -> Self {
        Self { write: Some(policy), ..self }
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

    /// Calls `report` with the progress of opening, about once a second and at each file that is
    /// indexed. Threads of this library call it.
    pub fn progress(self, report: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self { reporter: Reporter::new(report), ..self }
    }

    /// Opens `uri`, as [`Dataset::open`].
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn open(self, uri: &str) -> Result<Dataset, Error> {
        self.open_all(&[uri.to_owned()])
    }

    /// Opens the dataset of several addresses under one prefix, of files or of folders. Braces in
    /// them stand for several names: `s3://bucket/data/{000..146}.tar`. Indexes the files if they
    /// have no manifest.
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn open_all(self, uris: &[String]) -> Result<Dataset, Error> {
        let (name, files) = find_name(uris, self.manifest.as_deref(), self.write)?;
        let reporter = &self.reporter;
        process::check_files()?;
        let indexed_files = match &files {
            Some(files) => index_files(files, &name, reporter)?,
            None => None,
        };
        let cluster = match (&self.cluster, &self.host) {
            (Some(addresses), _) => Some(Cluster::new(addresses)?),
            (None, Some(host)) => Some(cluster_of_host(host, &name)?),
            (None, None) => None,
        };
        let (opened, opened_by_node) = read(&name, cluster.as_deref(), self.fetch.local, reporter)?;
        let OpenedSnapshot { manifest, leaves, indexed_by_node, indexed_now } = opened;
        let mut indexed_now = indexed_now.or(indexed_files);
        let view = all_samples(&manifest)?;
        let fetcher = Fetcher::with_leaves(manifest, leaves, &name, cluster, self.fetch);
        if let Some(by_node) = indexed_by_node {
            indexed_now = Some(IndexedNow::by_node(&fetcher.leaves().snapshot()?, by_node));
        }
        if let Some(indexed) = &indexed_now {
            let uri = name.reference.uri();
            tracing::warn!("{uri} {indexed}");
            indexed.warnings.iter().for_each(|warning| tracing::warn!("{uri}: {warning}"));
        }
        if indexed_now.is_none() {
            warn_if_added(&name, fetcher.manifest());
        }
        if opened_by_node {
            fetcher.learn_owners();
        }
        let indexed_now = indexed_now.map(Arc::new);
        let buffers = BufferPool::within(IDLE_MAX, IDLE_BYTES_MAX);
        let keys = Arc::default();
        Ok(Dataset {
            name,
            fetcher,
            view,
            columns: None,
            indexed_now,
            opened_by_node,
            buffers,
            keys,
        })
    }
}

/// Starts or finds the node of this host, and lets it read the dataset.
fn cluster_of_host(options: &HostOptions, name: &DatasetName) -> Result<Arc<Cluster>, Error> {
    let prefixes = iter::once(name.reference.uri()).chain(&name.manifest);
    Cluster::of_host(options.clone(), prefixes.map(ToString::to_string).collect())
}

/// An opened manifest.
pub(super) struct OpenedSnapshot {
    pub(super) manifest: Manifest,
    /// All its leaves, if this process indexed the prefix just now.
    leaves: Vec<Leaf>,
    /// The report of indexing, if this process indexed it now.
    indexed_now: Option<IndexedNow>,
    /// The answer of the node, if the node indexed it now.
    indexed_by_node: Option<OpenDataset>,
}

/// Reads the manifest that a name means: through the cluster if one of its nodes answers, else from
/// the origin. Also returns whether a node opened it.
///
/// # Errors
/// As [`Dataset::open`].
pub(super) fn read(
    name: &DatasetName,
    cluster: Option<&Cluster>,
    local: bool,
    reporter: &Reporter<'_>,
) -> Result<(OpenedSnapshot, bool), Error> {
    let by_node = match cluster {
        Some(cluster) => through_cluster(cluster, name, local, reporter)?,
        None => None,
    };
    match by_node {
        Some(opened) => Ok((opened, true)),
        None => Ok((from_origin(name, reporter)?, false)),
    }
}

/// Opens through a cluster. `None` if no node answers.
fn through_cluster(
    cluster: &Cluster,
    name: &DatasetName,
    local: bool,
    reporter: &Reporter<'_>,
) -> Result<Option<OpenedSnapshot>, Error> {
    let uri = name.reference.uri();
    let hinted = |error| cluster.hint_at_credentials(error, uri);
    let opened = cluster.open_reporting(name, reporter).map_err(hinted);
    let opened = opened.and_then(|opened| {
        let manifest = cluster.manifest(name, &opened, local)?;
        let indexed_by_node = opened.indexed_now.then_some(opened);
        Ok(OpenedSnapshot { manifest, leaves: Vec::new(), indexed_now: None, indexed_by_node })
    });
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.advice() == Advice::TryNextNode => {
            cluster.report_outage(uri, Some(&error));
            Ok(None)
        }
        Err(error) => Err(error.context(format!("cannot open {uri}")).hint_at_opening(uri)),
    }
}

/// An opening by this process.
struct Opening<'a> {
    policy: WritePolicy,
    reporter: &'a Reporter<'a>,
    latest: Mutex<Progress>,
}

impl Opening<'_> {
    /// Reports the latest progress, and why the store keeps it waiting.
    fn tell(&self, trouble: Option<String>) {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.reporter.report(latest.waiting(trouble));
    }
}

impl OpenBudget for Opening<'_> {
    fn write_policy(&self) -> Option<WritePolicy> {
        Some(self.policy)
    }

    fn indexes(&self, step: IndexProgress) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = step.into();
        self.reporter.report(step);
    }
}

fn from_origin(name: &DatasetName, reporter: &Reporter<'_>) -> Result<OpenedSnapshot, Error> {
    let uri = name.reference.uri();
    let latest = Mutex::new(Progress::of("opening"));
    let opening = Opening { policy: name.write, reporter, latest };
    let opened = runtime::block_on(async {
        let origin = Origin::connect(uri).await?;
        let opened = open_in(&origin, &name.reference, name.manifest.as_ref(), &opening);
        name.told_if_long(opened, reporter, || opening.tell(origin.trouble())).await
    })?;
    let opened = opened.map_err(|error| failed("open", uri, error))?;
    let indexed_now = IndexedNow::of(&opened);
    let larder_dataset::OpenedManifest { manifest, leaves, .. } = opened;
    Ok(OpenedSnapshot { manifest, leaves, indexed_now, indexed_by_node: None })
}
