//! A real etcd as a child process, on loopback and in a folder of its own.
//!
//! etcd does not end with its parent. So a shell starts it, and a second shell kills it once its
//! standard input closes, which happens however the parent ends.

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::ports::free_ports;

/// Names the etcd to start. An empty name means none.
const NAMED_BY: &str = "LARDER_ETCD_SERVER";

/// Becomes etcd, in the process whose number the parent knows.
const KEEP: &str = r#"exec 3<&0; { read -r _ <&3; kill -KILL $$; } & exec "$@" 3<&-"#;

/// A running etcd. Killed on drop.
pub struct Etcd {
    child: Child,
    host: String,
    ports: Vec<u16>,
    home: TempDir,
}

impl Etcd {
    /// Finds the named etcd, else the first in `PATH`. `None` if there is none, or its name is
    /// empty.
    ///
    /// # Panics
    /// When the named etcd is missing.
    #[must_use]
    pub fn find() -> Option<PathBuf> {
        if let Some(named) = env::var_os(NAMED_BY).map(PathBuf::from) {
            let is_empty = named.as_os_str().is_empty();
            let hint = format!("hint: unset {NAMED_BY} to use the etcd in PATH");
            assert!(is_empty || named.is_file(), "there is no etcd at {}; {hint}", named.display());
            return Some(named).filter(|_| !is_empty);
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let mut found = env::split_paths(&path).map(|folder| folder.join("etcd"));
        found.find(|path| path.is_file())
    }

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
        // The second shell kills it now, before its process number is free for another process.
        drop(self.child.stdin.take());
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
    let program = Etcd::find();
    Command::new("/bin/sh")
        .args(["-c", KEEP, "sh"])
        .arg(program.expect("LARDER_ETCD_SERVER names an etcd, and `make test` fetches one"))
        .arg("--data-dir")
        .arg(home.path().join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
        .env("ETCD_UNSUPPORTED_ARCH", env::consts::ARCH)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell starts")
}
