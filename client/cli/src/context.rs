//! The context of every command: its outputs, and access to a cluster and the origin.

use std::{future::Future, sync::Arc, time::Instant};

use larder_client::{Cluster, HostNode, HostOptions};
use tokio::runtime::{Builder, Runtime};

use crate::{
    error::{Exit, Failure},
    global::Global,
    nodes::Nodes,
    output::Output,
    progress::{Board, Progress},
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

    /// The same nodes as a cluster, for commands that need a cluster.
    pub(crate) fn cluster(&self) -> Result<Arc<Cluster>, Failure> {
        let nodes = self.nodes()?;
        let cluster = nodes.as_ref().map(Nodes::connect).transpose()?.flatten();
        cluster.ok_or_else(|| {
            Failure::new(Exit::Usage, "no cluster is named, and no node of this host runs")
                .hint(NAME_NODES)
        })
    }

    pub(crate) fn progress(&self, doing: &str) -> Progress {
        Progress::start(&self.output, doing)
    }

    pub(crate) fn board(&self) -> Board {
        Board::start(&self.output)
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
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(Exit::Failed, "no runtime could be started").why(error))
}
