//! A client in a process of its own: this test binary, started again for the role.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use larder_base::{RowRef, SnapshotId, Ticket};
use larder_wire::data::{Attach, Gather};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Client, TestNode};

const SOCKET: &str = "LARDER_TEST_SOCKET";
const SNAPSHOT: &str = "LARDER_TEST_SNAPSHOT";
const ROLE: &str = "LARDER_TEST_ROLE";

/// A running client.
pub(super) struct ClientProcess {
    process: Child,
    /// The process that it forked.
    heir: Option<SocketHolder>,
}

/// A process that keeps its parent's socket open. Killed when dropped.
pub(super) struct SocketHolder(Pid);

impl SocketHolder {
    pub(super) fn is_alive(&self) -> bool {
        kill(self.0, None).is_ok()
    }
}

impl Drop for SocketHolder {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

impl ClientProcess {
    /// Starts a client that attaches two shards. Returns when it has them.
    pub(super) fn start(node: &TestNode, forks: bool) -> Self {
        Self::start_as(node, if forks { "fork" } else { "alone" })
    }

    /// Starts a client that forked and then waits for a row that never arrives.
    pub(super) fn start_waiting(node: &TestNode) -> Self {
        Self::start_as(node, "wait")
    }

    fn start_as(node: &TestNode, role: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "serve::tests::client_process::plays_a_client"])
            .env(SOCKET, node.socket_path())
            .env(SNAPSHOT, node.dataset.snapshot().to_string())
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).find_map(|line| {
            let (_, heir) = line.split_once("ready ")?;
            Some(heir.trim().parse::<i32>().unwrap())
        });
        let heir = ready.expect("the client said that it is ready");
        let heir = (heir != 0).then(|| SocketHolder(Pid::from_raw(heir)));
        Self { process, heir }
    }

    /// Kills it with SIGKILL. Returns the process that lives on, if there is one.
    pub(super) fn kill(mut self) -> SocketHolder {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.heir.take().unwrap_or(SocketHolder(Pid::from_raw(i32::MAX)))
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Does nothing unless a test started it.
#[test]
fn plays_a_client() {
    let (Ok(socket), Ok(role)) = (std::env::var(SOCKET), std::env::var(ROLE)) else { return };
    let snapshot: SnapshotId = std::env::var(SNAPSHOT).unwrap().parse().unwrap();
    let mut client = Client::new(UnixStream::connect(socket).unwrap());
    client.hello(Ticket::from_bytes([0; 16])).unwrap();
    let heir = if role == "alone" { 0 } else { leave_an_heir(&client.socket) };
    let held: Vec<_> = if role == "wait" {
        let rows = vec![RowRef { shard: 0, row: 0 }];
        let wanted = Gather { snapshot, ring_version: 1, tensors: vec![0], rows, verify: false };
        client.send(|out| wanted.encode(42, out));
        Vec::new()
    } else {
        [0, 1].map(|shard| client.attach(Attach { snapshot, shard })).into()
    };
    println!("ready {heir}");
    std::io::stdout().flush().unwrap();
    // Until killed, or until the test that started it is gone.
    let _ = std::io::stdin().lines().next();
    drop(held);
}

/// Starts a process that has this socket open, as a forked child has.
fn leave_an_heir(socket: &UnixStream) -> u32 {
    fcntl(socket.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let heir = Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    heir.unwrap().id()
}
