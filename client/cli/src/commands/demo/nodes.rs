//! The demo's ring of nodes.

use std::net::TcpListener;

use super::{
    origin::Origin,
    process::{Child, Programs},
};
use crate::error::{Exit, Failure};

/// Starts nodes that make up one ring, each large enough for the whole dataset: how a ring of two
/// divides a few shards is a matter of luck.
pub(super) fn start(
    programs: &Programs,
    origin: &Origin,
    names: [&str; 2],
) -> Result<Vec<Child>, Failure> {
    let memory = format!("{}MiB", origin.bytes() / 4 * 5 / (1 << 20) + 64);
    let ports = free_ports(names.len())
        .map_err(|error| Failure::new(Exit::Failed, "no free port on 127.0.0.1").why(error))?;
    let members = names.iter().zip(&ports);
    let members: Vec<_> =
        members.map(|(name, port)| format!("{name}=http://127.0.0.1:{port}")).collect();
    let start = |(name, port): (&&str, &u16)| {
        let mut command = programs.command("larder-node");
        command
            .args(["-o", "json", "--exit-with-stdin", "--node-id", name, "--memory", &memory])
            .args(["--listen", &format!("127.0.0.1:{port}"), "--data-listen", "127.0.0.1:0"])
            .args(["--origin", origin.dataset()])
            .arg("--socket")
            .arg(programs.folder.join(format!("node-{name}/larder.sock")))
            .args(members.iter().flat_map(|member| ["--member", member]))
            .envs(origin.settings());
        Child::start(programs, &format!("larder-node-{name}"), &mut command)
    };
    names.iter().zip(&ports).map(start).collect()
}

/// Ports that were free a moment ago: a ring names its members before they start.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let listeners: std::io::Result<Vec<_>> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    listeners?.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
