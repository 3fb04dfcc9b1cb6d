//! A node that a process starts for others, and stops when it is done.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Child, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use larder_base::ErrorKind;
use larder_extent::fork_count;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;

use super::{folder, launch, messages::Messages};
use crate::Error;

/// A node that was told to stop is killed after this. It is longer than the node drains.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TICK: Duration = Duration::from_millis(20);

/// Options of [`serve`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServeOptions {
    /// Memory for shards, such as `8GiB`, or `50%` of the available memory. Default:
    /// `LARDER_MEMORY`, or half.
    pub memory: Option<String>,
    /// The prefixes that it may read, at least one.
    pub origins: Vec<String>,
    /// Its address `host:port`. Default: any port on loopback.
    pub listen: Option<String>,
    /// Further arguments of `larder-node`.
    pub args: Vec<String>,
    /// As in [`HostOptions`](super::HostOptions).
    pub node_bin: Option<PathBuf>,
}

/// A running node. It stops when this is dropped, and when this process ends.
#[derive(Debug)]
pub struct ServedNode {
    child: Child,
    /// The process that started it. A forked child must not stop its parent's node.
    owner: u32,
    address: String,
    socket: PathBuf,
}

/// The first line of a node's output.
#[derive(Deserialize)]
struct Listening {
    listen: String,
    socket: PathBuf,
}

/// Starts a node for this process and for others that get its address.
///
/// # Errors
/// - `InvalidArgument` without an origin.
/// - `NotFound` if the program is missing.
/// - `Unavailable`, with its last messages, if it does not start.
pub fn serve(options: &ServeOptions) -> Result<ServedNode, Error> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if options.origins.is_empty() {
        let what = "a node needs the prefixes that it may read";
        return Err(Error::new(ErrorKind::InvalidArgument, what)
            .hint("name at least one origin, such as s3://bucket/data"));
    }
    let program = launch::find_program(options.node_bin.as_deref())?;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("served-{}-{number}/larder.sock", std::process::id());
    let socket = folder::make_base()?.join(name);
    let mut command = launch::node(&program, options.memory.clone())?;
    command
        .arg("--exit-with-stdin")
        .args(["--listen", options.listen.as_deref().unwrap_or("127.0.0.1:0")])
        .arg("--socket")
        .arg(&socket)
        .args(options.origins.iter().flat_map(|origin| ["--origin", origin]))
        .args(&options.args)
        .env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let failed = |why: String| launch::not_started(&program).because(why);
    let mut child = command.spawn().map_err(|why| failed(why.to_string()))?;
    let messages = Messages::of(child.stderr.take().expect("it was piped"));
    let said = launch::first_line(child.stdout.take().expect("it was piped"));
    let mut node =
        ServedNode { child, owner: fork_count(), address: String::new(), socket: PathBuf::new() };
    let messages = messages.map_err(|why| failed(why.to_string()))?;
    let listening = said.ok().and_then(|line| serde_json::from_str::<Listening>(&line).ok());
    let Some(listening) = listening else {
        let _ = node.child.kill();
        return Err(failed(messages.last()).hint("larder-node --help lists its settings"));
    };
    messages.pass_on();
    node.address = format!("http://{}", listening.listen);
    node.socket = listening.socket;
    Ok(node)
}

impl ServedNode {
    /// Its control address, `http://host:port`. Other processes name it as their cluster.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its unix socket.
    pub fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it: the node finishes its current requests. Waits for its end.
    ///
    /// # Errors
    /// `Internal` if it ended with an error, or had to be killed.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.owner != fork_count() {
            return Ok(());
        }
        let failed = |why: String| {
            Error::new(ErrorKind::Internal, "the node did not stop in order").because(why)
        };
        drop(self.child.stdin.take().map(|mut stdin| stdin.flush()));
        // The child was not waited for, so its number is still its own. A forked child may keep its
        // standard input open, so the signal is needed too.
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        for _ in 0..STOP_TIMEOUT.as_millis() / STOP_TICK.as_millis() {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(failed(status.to_string())),
                Ok(None) => std::thread::park_timeout(STOP_TICK),
                Err(why) => return Err(failed(why.to_string())),
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        Err(failed(format!("it took more than {} s", STOP_TIMEOUT.as_secs())))
    }
}

impl Drop for ServedNode {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // A drop can't report an error.
            let _ = self.end();
        }
    }
}
