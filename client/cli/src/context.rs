//! The context of every command: its outputs, and access to a cluster and the origin.

use std::{fmt, future::Future, sync::Arc, time::Instant};

use larder_client::{
    Cluster, Dataset, HostNode, HostOptions, OpenOptions, admin::check_threads, host,
};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

use crate::{
    error::{Exit, Failure},
    global::Global,
    output::Output,
    progress::Bar,
};

/// Instead of addresses: read the origin directly.
const NO_NODES: &str = "none";

/// The advice if nodes are missing.
pub(crate) const NAME_NODES: &str =
    "say --cluster http://host:port of any node, or set LARDER_CLUSTER";

/// The surroundings of a command.
pub(crate) struct Context {
    pub(crate) output: Output,
    cluster: Option<String>,
    /// Whether `cluster` came from the command line, not from the environment.
    cluster_was_typed: bool,
}

impl Context {
    /// The context for a command line; `cluster_was_typed` says whether it has `--cluster`.
    pub(crate) fn new(global: &Global, cluster_was_typed: bool) -> Self {
        let cluster = global.cluster.clone().filter(|address| !address.is_empty());
        Self { output: Output::new(global), cluster, cluster_was_typed }
    }

    /// Whether `--cluster` was typed with an address.
    pub(crate) fn was_given_an_address(&self) -> bool {
        self.cluster_was_typed && self.cluster.is_some()
    }

    /// The nodes to read through: the named nodes, else the node of this host, if it runs.
    pub(crate) fn nodes(&self) -> Result<Option<Nodes>, Failure> {
        Ok(match self.cluster.as_deref() {
            Some(NO_NODES) => None,
            Some(addresses) => Some(Nodes::Named(addresses.to_owned())),
            None => HostNode::attach(&HostOptions::default())?.map(Nodes::OfHost),
        })
    }

    /// The nodes to inspect: those to read through, else the daemon of this host. A dataset may lie
    /// outside of a daemon's prefixes, so it is not read through unless it is named.
    pub(crate) fn nodes_to_inspect(&self) -> Result<Option<Nodes>, Failure> {
        match self.nodes()? {
            None => self.daemon(),
            nodes => Ok(nodes),
        }
    }

    /// The daemon of this host, unless the user named nodes, or none.
    fn daemon(&self) -> Result<Option<Nodes>, Failure> {
        let wanted = self.cluster.is_none();
        let address = if wanted { host::daemon_address()? } else { None };
        Ok(address.map(Nodes::Named))
    }

    /// The cluster whose members change: that of the daemon, if there is one, because a private
    /// node of this host is alone for ever.
    pub(crate) fn cluster_to_operate(&self) -> Result<Arc<Cluster>, Failure> {
        match self.daemon()?.as_ref().map(Nodes::connect).transpose()?.flatten() {
            Some(cluster) => Ok(cluster),
            None => self.cluster(),
        }
    }

    /// The nodes to inspect as a cluster, for commands that need a cluster.
    pub(crate) fn cluster(&self) -> Result<Arc<Cluster>, Failure> {
        let nodes = self.nodes_to_inspect()?;
        let cluster = nodes.as_ref().map(Nodes::connect).transpose()?.flatten();
        cluster.ok_or_else(|| {
            Failure::new(Exit::Usage, "no cluster is named, and no node of this host runs")
                .hint(NAME_NODES)
        })
    }

    pub(crate) fn progress(&self, doing: &str) -> Bar {
        Bar::start(&self.output, doing)
    }

    /// The time, to measure durations.
    #[expect(clippy::disallowed_methods, reason = "a command is the outermost shell")]
    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }

    /// Runs a future that asks the origin.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T, Failure> {
        Ok(runtime()?.block_on(future))
    }
}

fn runtime() -> Result<Runtime, Failure> {
    let failed = || Failure::new(Exit::Failed, "no runtime could be started");
    // Tokio panics if it can't start a thread for calls that block.
    check_threads(1).map_err(|why| failed().why(why))?;
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| failed().why(error))
}

/// Nodes to read through.
pub(crate) enum Nodes {
    /// At these addresses.
    Named(String),
    /// The node of this host. It runs at least as long as this value lives.
    OfHost(HostNode),
}

/// The source of the rows of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReadFrom {
    /// The named nodes.
    Cluster,
    /// The node of this host.
    Host,
    /// The origin itself.
    Origin,
}

impl Nodes {
    /// Options that open a dataset through these nodes.
    pub(crate) fn options(&self) -> OpenOptions {
        match self {
            Self::Named(addresses) => Dataset::options().cluster(addresses),
            Self::OfHost(_) => Dataset::options().host_node(HostOptions::default()),
        }
    }

    /// The cluster of these nodes, for other requests.
    pub(crate) fn connect(&self) -> Result<Option<Arc<Cluster>>, Failure> {
        Ok(match self {
            Self::Named(addresses) => Some(Cluster::connect(addresses)?),
            Self::OfHost(_) => Cluster::of_running_host(HostOptions::default())?,
        })
    }

    pub(crate) fn read_from(&self) -> ReadFrom {
        match self {
            Self::Named(_) => ReadFrom::Cluster,
            Self::OfHost(_) => ReadFrom::Host,
        }
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(addresses) => f.write_str(addresses),
            Self::OfHost(node) => write!(f, "this host (pid {})", node.pid()),
        }
    }
}

impl fmt::Display for ReadFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "the cluster",
            Self::Host => "the node of this host",
            Self::Origin => "the origin",
        })
    }
}
