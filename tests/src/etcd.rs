//! A real etcd as a child process, on loopback and in a folder of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::ports::free_ports;

/// A running etcd. Killed on drop.
pub struct Etcd {
    child: Child,
    host: String,
    ports: Vec<u16>,
    home: TempDir,
}

impl Etcd {
    /// Starts it; it may not answer yet.
    ///
    /// # Panics
    /// When there is none: `make test` fetches one.
    #[must_use]
    pub fn start() -> Self {
        Self::start_on("127.0.0.1")
    }

    /// The same on an address of a network of the test's own.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_on(host: &str) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder");
        let (host, ports) = (host.to_owned(), free_ports(2));
        Self { child: spawn(&home, &host, &ports), host, ports, home }
    }

    /// The address for clients.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}:{}", self.host, self.ports[0])
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid fits in an i32");
        kill(Pid::from_raw(pid), signal).expect("our own child can be signalled");
    }

    /// Kills it with SIGKILL, and starts it again in the same folder.
    pub fn restart(&mut self) {
        self.end();
        self.child = spawn(&self.home, &self.host, &self.ports);
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().expect("our own child can be waited for");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(home: &TempDir, host: &str, ports: &[u16]) -> Child {
    let [client, peer] = [ports[0], ports[1]].map(|port| format!("http://{host}:{port}"));
    Command::new(program())
        .arg("--data-dir")
        .arg(home.path().join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
        .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts; LARDER_ETCD_SERVER names it, and `make test` fetches one")
}

fn program() -> PathBuf {
    std::env::var_os("LARDER_ETCD_SERVER").map_or_else(|| PathBuf::from("etcd"), PathBuf::from)
}
