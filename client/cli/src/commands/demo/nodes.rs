//! The demo's two nodes: one ring with fixed members.

use std::{io, net::TcpListener};

use larder_client::host::{ServeOptions, ServedNode, serve};

use super::images::Images;
use crate::error::{Exit, Failure};

/// Starts the nodes. Each has room for more than the whole dataset: a ring of two may divide a few
/// shards unevenly.
pub(super) fn start(images: &Images, names: [&str; 2]) -> Result<[ServedNode; 2], Failure> {
    let ports = free_ports();
    let ports = ports
        .map_err(|error| Failure::new(Exit::Failed, "no port is free on 127.0.0.1").why(error))?;
    let member = |node: usize| format!("{}=http://127.0.0.1:{}", names[node], ports[node]);
    let start = |node: usize| {
        let args = ["--node-id", names[node], "--data-listen", "127.0.0.1:0"].map(str::to_owned);
        let members = (0..names.len()).flat_map(|other| ["--member".to_owned(), member(other)]);
        serve(&ServeOptions {
            memory: Some(format!("{}MiB", images.bytes() / 4 * 5 / (1 << 20) + 64)),
            origins: vec![images.uri()],
            listen: Some(format!("127.0.0.1:{}", ports[node])),
            args: args.into_iter().chain(members).collect(),
            node_bin: None,
        })
    };
    Ok([start(0)?, start(1)?])
}

/// Two ports that were free a moment ago: each node is told the ports of both.
fn free_ports() -> io::Result<[u16; 2]> {
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}
