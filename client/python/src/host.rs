//! The node of this host, and nodes that a program starts for others.

use std::path::PathBuf;

use larder_client::{
    HostNode,
    admin::Bytes,
    host::{ServeOptions, ServedNode},
};
use pyo3::prelude::*;

use crate::{
    error::OrRaise,
    wait::{Lock, interruptible},
};

/// A started node: its process id, its memory as shown to people, its log.
pub(crate) type StartedNode = (u32, String, PathBuf);

/// Facts of the node of this host, once, if this process started it.
pub(crate) fn started(node: &HostNode) -> Option<StartedNode> {
    node.claim_announcement()
        .then(|| (node.pid(), Bytes(node.memory_bytes()).to_string(), node.log().to_owned()))
}

/// A node that this process started and stops.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Node {
    /// Taken when it is stopped.
    node: Lock<Option<ServedNode>>,
    address: String,
    pid: u32,
}

#[pymethods]
impl Node {
    /// Starts a node.
    #[staticmethod]
    fn serve(
        py: Python<'_>,
        memory: Option<String>,
        origins: Vec<String>,
        listen: Option<String>,
        args: Vec<String>,
        node_bin: Option<PathBuf>,
    ) -> PyResult<Self> {
        let options = ServeOptions { memory, origins, listen, args, node_bin };
        let node = interruptible(py, move |_| larder_client::host::serve(&options))?;
        let (address, pid) = (node.address().to_owned(), node.pid());
        Ok(Self { node: Lock::new(Some(node)), address, pid })
    }

    /// The address that other programs name as their cluster.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    #[getter]
    fn pid(&self) -> u32 {
        self.pid
    }

    /// Stops it and waits for its end. Does nothing the second time.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let node = self.node.with(Option::take);
        py.detach(|| node.map_or(Ok(()), ServedNode::stop)).or_raise(py)
    }
}
