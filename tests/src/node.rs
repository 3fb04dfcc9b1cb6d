//! `larder-node` as a real child process, and small rings of them.

pub mod memory_group;
pub mod scripted;
pub mod stranger;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use larder_wire::control::node_client::NodeClient;
use larder_wire::control::{DescribeRequest, NodeDescription, ReadPlan, TellPlansRequest};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tonic::transport::{Channel, Endpoint};

use crate::ports::free_ports;

/// How to start a node; the rest has the node's own defaults.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its name on the ring.
    pub node_id: String,
    /// `--memory`, as typed.
    pub memory: String,
    /// `--origin`, each.
    pub origins: Vec<String>,
    /// Control port on loopback; 0 takes any.
    pub port: u16,
    /// `--member`, each; none is a ring of one.
    pub members: Vec<String>,
    /// Environment in addition to the inherited one (S3 settings).
    pub env: Vec<(String, String)>,
    /// Further arguments, as typed.
    pub args: Vec<String>,
    /// The unix socket; by default one in a folder of its own.
    pub socket: Option<PathBuf>,
    /// Where it listens; beyond loopback only in a network namespace of the test's own.
    pub host: String,
    /// A program and its arguments to run it under, such as `ip netns exec ...`.
    pub wrapper: Vec<String>,
}

impl NodeOptions {
    /// A node called `node_id` over `origin` with 256 MiB.
    #[must_use]
    pub fn new(node_id: &str, origin: &str) -> Self {
        Self {
            node_id: node_id.to_owned(),
            memory: "256MiB".to_owned(),
            origins: vec![origin.to_owned()],
            port: 0,
            members: Vec::new(),
            env: Vec::new(),
            args: Vec::new(),
            socket: None,
            host: "127.0.0.1".to_owned(),
            wrapper: Vec::new(),
        }
    }
}

/// A running node. Killed on drop if nothing stopped it before.
pub struct NodeProcess {
    child: Child,
    ready: Value,
    _dir: tempfile::TempDir,
}

impl NodeProcess {
    /// Starts the node and waits until it says that it listens.
    ///
    /// # Panics
    /// When the binary is missing or the node refuses to start.
    #[must_use]
    pub fn start(options: &NodeOptions) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let socket = options.socket.clone().unwrap_or_else(|| dir.path().join("run/larder.sock"));
        let program = binary("larder-node").display().to_string();
        let words: Vec<&String> = options.wrapper.iter().chain([&program]).collect();
        let host = &options.host;
        let exposed = (host != "127.0.0.1").then_some("--insecure-listen-beyond-loopback");
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args(["-o", "json", "--exit-with-stdin"])
            .args(["--node-id", &options.node_id, "--memory", &options.memory])
            .args(["--listen", &format!("{host}:{}", options.port)])
            .args(["--data-listen", &format!("{host}:0")])
            .args(exposed)
            .arg("--socket")
            .arg(&socket)
            .args(options.origins.iter().flat_map(|origin| ["--origin", origin]))
            .args(options.members.iter().flat_map(|member| ["--member", member]))
            .args(&options.args)
            .env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "error".to_owned()))
            .envs(options.env.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("larder-node starts");
        let ready = first_line(&mut child);
        Self { child, ready, _dir: dir }
    }

    /// The address clients are given: `http://host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("http://{}", self.said("listen"))
    }

    /// The data plane's `host:port`.
    #[must_use]
    pub fn data_address(&self) -> String {
        self.said("data")
    }

    /// The unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        PathBuf::from(self.said("socket"))
    }

    fn said(&self, key: &str) -> String {
        self.ready[key].as_str().unwrap_or_else(|| panic!("no {key} in {}", self.ready)).to_owned()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid fits in an i32"))
    }

    /// The node's present status.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn describe(&self) -> NodeDescription {
        self.ask(async |mut node| node.describe(DescribeRequest {}).await)
    }

    /// Tells it read plans, as a client does.
    ///
    /// # Panics
    /// When it refuses them.
    pub fn tell_plans(&self, plans: Vec<ReadPlan>) {
        let request = TellPlansRequest { plans, node_id: String::new() };
        self.ask(async |mut node| node.tell_plans(request).await);
    }

    fn ask<A>(
        &self,
        call: impl AsyncFnOnce(NodeClient<Channel>) -> Result<tonic::Response<A>, tonic::Status>,
    ) -> A {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let asked = async {
            let endpoint = Endpoint::new(self.address()).expect("an address");
            call(NodeClient::new(endpoint.connect().await.expect("the node listens"))).await
        };
        runtime.expect("a runtime").block_on(asked).expect("the node answers").into_inner()
    }

    /// The value of one of its counters.
    ///
    /// # Panics
    /// When it does not answer, or has no such counter.
    #[must_use]
    pub fn metric(&self, name: &str) -> u64 {
        let (host, mut metrics) = (self.said("listen"), String::new());
        let mut stream = TcpStream::connect(&host).expect("the node listens");
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")
            .and_then(|()| stream.read_to_string(&mut metrics))
            .expect("the node answers");
        let of = |line: &str| {
            line.strip_prefix(name)?.strip_prefix('{')?.split(' ').nth(1)?.parse().ok()
        };
        metrics.lines().find_map(of).unwrap_or_else(|| panic!("no counter {name} in {metrics}"))
    }

    /// The bytes of its heap and stacks that are in memory.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn heap_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the node runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.expect("the kernel tells") << 10
    }

    /// The open files of the process.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn open_files(&self) -> Vec<String> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("the node runs");
        let name = |file: std::fs::DirEntry| std::fs::read_link(file.path()).ok();
        let mut names: Vec<String> =
            files.flatten().filter_map(name).map(|path| path.display().to_string()).collect();
        names.sort();
        names
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("our own child can be signalled");
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill_now(&mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().expect("our own child can be waited for");
    }

    /// SIGTERM; returns the exit code after the drain.
    pub fn stop(self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        self.ended()
    }

    /// Waits for its end; returns the exit code.
    ///
    /// # Panics
    /// When it can't be waited for.
    #[must_use]
    pub fn ended(mut self) -> Option<i32> {
        self.child.wait().expect("our own child can be waited for").code()
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill_now();
        }
    }
}

fn first_line(child: &mut Child) -> Value {
    let mut line = String::new();
    let stdout = child.stdout.take().expect("stdout was piped");
    let mut reader = BufReader::new(stdout);
    reader.read_line(&mut line).expect("the node's first line");
    // Whatever it prints later must not fill the pipe.
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    serde_json::from_str(&line).unwrap_or_else(|e| {
        let status = child.wait();
        panic!("larder-node did not start ({status:?}): {e} in {line:?}")
    })
}

/// Where cargo put a program of this workspace: beside this program, or beside the folder of this
/// test.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("the test's own path");
    let folder = exe.parent().expect("target/<profile>/<program>");
    let folder =
        if folder.ends_with("deps") { folder.parent().expect("its parent") } else { folder };
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing: `cargo build --workspace --bins --examples` first",
        path.display()
    );
    path
}

/// A ring of nodes on loopback with a fixed member list.
pub struct Cluster {
    /// What each node was started with; to start it again.
    pub options: Vec<NodeOptions>,
    /// The processes, in the same order.
    pub nodes: Vec<NodeProcess>,
}

impl Cluster {
    /// Starts nodes `a`, `b`, ... over one origin; `adjust` may change how each is started.
    #[must_use]
    pub fn start(count: usize, origin: &str, adjust: impl Fn(&mut NodeOptions)) -> Self {
        let names = (0..count).map(|i| char::from(b'a' + u8::try_from(i).expect("few nodes")));
        let ring: Vec<(String, u16)> =
            names.zip(free_ports(count)).map(|(name, port)| (name.to_string(), port)).collect();
        let members: Vec<String> =
            ring.iter().map(|(name, port)| format!("{name}=http://127.0.0.1:{port}")).collect();
        let options: Vec<NodeOptions> = ring
            .iter()
            .map(|(name, port)| {
                let mut options = NodeOptions::new(name, origin);
                options.port = *port;
                options.members.clone_from(&members);
                adjust(&mut options);
                options
            })
            .collect();
        let nodes = options.iter().map(NodeProcess::start).collect();
        Self { options, nodes }
    }

    /// All control addresses, for `--cluster`.
    #[must_use]
    pub fn address(&self) -> String {
        self.nodes.iter().map(NodeProcess::address).collect::<Vec<_>>().join(",")
    }

    /// Starts node `index` again after it was killed, at the same address.
    pub fn restart(&mut self, index: usize) {
        self.nodes[index] = NodeProcess::start(&self.options[index]);
    }
}
