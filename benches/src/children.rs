//! The serving processes: a release `larder-node` and the bare row server. Both end with this
//! process.

use std::io::{BufRead, BufReader};
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
        let folder = tempfile::tempdir()?;
        let program = std::env::current_exe()?.with_file_name("larder-node");
        let mut command = Command::new(&program);
        command
            .args(["-o", "json", "--exit-with-stdin", "--node-id", "bench", "--memory", "4GiB"])
            .args(["--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"])
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

/// The places of samples.
pub(crate) fn refs(dataset: &Dataset, rows: &[u32]) -> Vec<RowRef> {
    let locate = |&row: &u32| dataset.manifest().locate(row.into());
    rows.iter().filter_map(locate).map(|(shard, row)| RowRef { shard, row }).collect()
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
