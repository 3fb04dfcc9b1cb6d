//! The nodes that a command reads through: the named nodes, else the node of this host, if it runs.

use std::{fmt, sync::Arc};

use larder_client::{Cluster, Dataset, HostNode, HostOptions, OpenOptions};
use serde::Serialize;

use crate::error::Failure;

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
