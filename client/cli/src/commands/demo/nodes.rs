//! The demo's nodes: one by one, or as a ring whose members are fixed.

use std::{
    net::{SocketAddr, TcpListener},
    process::Command,
};

use super::{
    origin::Origin,
    process::{Child, Programs},
};
use crate::error::{Exit, Failure};

/// A node that is about to be started, and does not know yet who else is in its ring.
pub(super) struct Node {
    name: String,
    pub(super) command: Command,
}

impl Node {
    /// A node that listens on this port of loopback, 0 for any. It has room for the whole dataset
    /// and more: how a ring of two divides a few shards is a matter of luck.
    pub(super) fn new(programs: &Programs, origin: &Origin, name: &str, port: u16) -> Self {
        let memory = format!("{}MiB", origin.bytes() / 4 * 5 / (1 << 20) + 64);
        let listen = SocketAddr::from(([127, 0, 0, 1], port));
        let mut command = programs.command("larder-node");
        command
            .args(["-o", "json", "--exit-with-stdin", "--node-id", name, "--memory", &memory])
            .args(["--listen", &listen.to_string(), "--data-listen", "127.0.0.1:0"])
            .args(["--origin", origin.dataset()])
            .arg("--socket")
            .arg(programs.folder.join(format!("node-{name}/larder.sock")))
            .envs(origin.settings());
        Self { name: name.to_owned(), command }
    }

    /// Starts it and waits until it listens.
    pub(super) fn start(mut self, programs: &Programs) -> Result<Child, Failure> {
        Child::start(programs, &format!("larder-node-{}", self.name), &mut self.command)
    }
}

/// Starts nodes that make up one ring.
pub(super) fn start(
    programs: &Programs,
    origin: &Origin,
    names: [&str; 2],
) -> Result<Vec<Child>, Failure> {
    let ports = free_ports(names.len())?;
    let members = names.iter().zip(&ports);
    let members: Vec<_> =
        members.map(|(name, port)| format!("{name}=http://127.0.0.1:{port}")).collect();
    let start = |(name, port): (&&str, &u16)| {
        let mut node = Node::new(programs, origin, name, *port);
        node.command.args(members.iter().flat_map(|member| ["--member", member]));
        node.start(programs)
    };
    names.iter().zip(&ports).map(start).collect()
}

/// Ports that were free a moment ago, for programs that are told before they start where all of
/// them listen.
pub(super) fn free_ports(count: usize) -> Result<Vec<u16>, Failure> {
    let failed = |error| Failure::new(Exit::Failed, "no free port on 127.0.0.1").why(error);
    let bind = |_| TcpListener::bind("127.0.0.1:0");
    let listeners: Vec<_> = (0..count).map(bind).collect::<Result<_, _>>().map_err(failed)?;
    let port = |listener: &TcpListener| Ok(listener.local_addr().map_err(failed)?.port());
    listeners.iter().map(port).collect()
}
