//! The serving processes: a release `larder-node` and the bare row server. Both end with this
//! process.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use larder_client::{Dataset, RowRef};
use serde_json::Value;
use tempfile::TempDir;

use crate::Error;
use crate::matrix::Matrix;

/// The hidden first argument that makes this program the bare row server.
pub(crate) const BARE_ARGUMENT: &str = "__bare-server";

/// The most passes over a dataset until all of it is resident.
const WARM_PASSES_MAX: usize = 50;

/// A child and the first line that it printed. Killed on drop.
struct Server {
    child: Child,
    line: String,
}

impl Server {
    fn start(command: &mut Command) -> Result<Self, Error> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("standard output was piped")?;
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(Self { child, line })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bare row server.
pub(crate) struct Bare(Server);

impl Bare {
    pub(crate) fn start(data: &Path, shape: usize) -> Result<Self, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        Ok(Self(Server::start(command.arg(BARE_ARGUMENT).arg(data).arg(shape.to_string()))?))
    }

    pub(crate) fn address(&self) -> &str {
        self.0.line.trim()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.child.id()
    }
}

/// A node over an origin.
pub(crate) struct Node {
    server: Server,
    address: String,
    _socket: TempDir,
}

impl Node {
    /// Starts `larder-node` of the same build; `env` has the settings of its origin.
    pub(crate) fn start(origin: &str, env: &[(String, String)]) -> Result<Self, Error> {
        let ports = ["--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"];
        Self::start_as("bench", 4 << 30, &ports, origin, env)
    }

    /// Starts it with a name, memory in bytes and further options.
    fn start_as(
        name: &str,
        memory: u64,
        more: &[&str],
        origin: &str,
        env: &[(String, String)],
    ) -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        let program = std::env::current_exe()?.with_file_name("larder-node");
        let mut command = Command::new(&program);
        command
            .args(["-o", "json", "--exit-with-stdin", "--node-id", name])
            .args(["--memory", &memory.to_string()])
            .args(more)
            .args(["--origin", origin])
            .arg("--socket")
            .arg(folder.path().join("run/larder.sock"))
            .envs(env.iter().cloned())
            .env("RUST_LOG", "error");
        let server = Server::start(&mut command)
            .map_err(|error| format!("{} (is it built?): {error}", program.display()))?;
        let ready: Value = serde_json::from_str(&server.line)?;
        let listen = ready["listen"].as_str().ok_or("the node does not say where it listens")?;
        let address = format!("http://{listen}");
        Ok(Self { server, address, _socket: folder })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.child.id()
    }

    /// Opens a dataset through it, without warming it.
    pub(crate) fn connect(&self, uri: &str) -> Result<Dataset, Error> {
        Ok(Dataset::open(uri, Some(&self.address))?)
    }

    /// Opens a dataset, waits until all of it is resident (and mapped, if `local`), and compares
    /// one batch.
    pub(crate) fn open(&self, data: &Path, local: bool, matrix: &Matrix) -> Result<Dataset, Error> {
        let options = Dataset::options().cluster(&self.address).local(local);
        let dataset = options.open(&format!("file://{}", data.display()))?;
        let shape = matrix.shape();
        let all: Vec<u32> = (0..shape.rows()).collect();
        let mut out = vec![0; shape.batch_bytes()];
        for _ in 0..WARM_PASSES_MAX {
            let mut warm = true;
            for rows in all.chunks_exact(shape.batch) {
                let sources =
                    dataset.fetcher().gather(&refs(&dataset, rows), &[0], &mut [&mut out])?;
                let from = if local { sources.rows_local } else { sources.rows_remote };
                warm &= from == rows.len() as u64;
            }
            if warm {
                check(&dataset, matrix, &mut out)?;
                return Ok(dataset);
            }
        }
        Err(format!("{} does not become resident", data.display()).into())
    }
}

/// Nodes of one ring over an origin.
pub(crate) struct Ring {
    nodes: Vec<Node>,
}

impl Ring {
    /// Starts so many nodes with so much memory each.
    pub(crate) fn start(
        origin: &str,
        env: &[(String, String)],
        count: usize,
        memory: u64,
    ) -> Result<Self, Error> {
        let free = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0"));
        let free = free.collect::<Result<Vec<_>, _>>()?;
        let ports: Vec<String> = free
            .iter()
            .map(|port| Ok(port.local_addr()?.to_string()))
            .collect::<Result<_, Error>>()?;
        drop(free);
        let member = |index: usize| format!("node-{index}=http://{}", ports[2 * index]);
        let members: Vec<String> = (0..count).map(member).collect();
        let start = |index: usize| {
            let mut more =
                vec!["--listen", &*ports[2 * index], "--data-listen", &*ports[2 * index + 1]];
            more.extend(members.iter().flat_map(|member| ["--member", member]));
            Node::start_as(&format!("node-{index}"), memory, &more, origin, env)
        };
        Ok(Self { nodes: (0..count).map(start).collect::<Result<_, _>>()? })
    }

    pub(crate) fn address(&self) -> &str {
        self.nodes[0].address()
    }

    /// Kills the last node. It stays a member of the ring.
    pub(crate) fn kill_last(&mut self) {
        self.nodes.pop();
    }

    /// The process of the first node.
    pub(crate) fn pid(&self) -> u32 {
        self.nodes[0].pid()
    }
}

/// The places of samples.
pub(crate) fn refs(dataset: &Dataset, rows: &[u32]) -> Vec<RowRef> {
    let locate = |&row: &u32| dataset.manifest().locate(row.into());
    rows.iter().filter_map(locate).collect()
}

fn check(dataset: &Dataset, matrix: &Matrix, out: &mut [u8]) -> Result<(), Error> {
    let rows = &matrix.shape().batches(1)[0];
    dataset.fetcher().gather(&refs(dataset, rows), &[0], &mut [&mut *out])?;
    let mut places = out.chunks_exact(matrix.row_bytes());
    if rows.iter().all(|&row| places.next() == Some(matrix.row(row))) {
        return Ok(());
    }
    Err("a row that was delivered is not that of the file".into())
}
