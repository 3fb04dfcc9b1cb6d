//! Clients are killed, some with forked children left behind, some in namespaces of their own. The
//! node releases everything of theirs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use larder_origin::{Options, S3Server};
use larder_tests::{ClientOptions, NodeOptions, NodeProcess, TrainingProcess, repeats, words};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A node over an S3 server with a small `words` dataset in bucket `data`.
struct Scene {
    server: S3Server,
    node: NodeProcess,
    address: String,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new(adjust: impl FnOnce(&mut NodeOptions)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
        words::write(&server.create_bucket("data").expect("a bucket").join("words"), 4, 256, 1024);
        let mut options = NodeOptions::new("a", "s3://data");
        options.env = server.env();
        adjust(&mut options);
        let node = NodeProcess::start(&options);
        let address = node.address();
        Self { server, node, address, _dir: dir }
    }

    fn client(&self, seed: usize, epochs: u64, args: &[&str], wrapper: &[&str]) -> TrainingProcess {
        TrainingProcess::start(&ClientOptions {
            program: env!("CARGO_BIN_EXE_larder-test-client"),
            uri: "s3://data/words",
            cluster: &self.address,
            epochs,
            seed: u64::try_from(seed).expect("few"),
            batch_size: 16,
            env: self.server.env(),
            args,
            wrapper,
        })
    }

    /// Everything is resident and no client is connected: the node must return to this state.
    fn warm(&self) {
        assert!(self.client(0, 2, &[], &[]).finish().0.success());
    }
}

/// Forked children that outlive their killed parents at any time. Few, so that each is killed long
/// before its own timer ends it and the system gives its process id to another process.
const CHILDREN_ALIVE: usize = 16;

fn end(child: Option<Pid>) {
    let child = child.expect("a child that lives");
    kill(child, Signal::SIGKILL).expect("it lives until its timer or we end it");
}

/// Returns the node's open files except sockets: the node counts those of clients itself, and those
/// to the origin are a pool.
fn open_files(node: &NodeProcess) -> Vec<String> {
    node.open_files().into_iter().filter(|name| !name.starts_with("socket:")).collect()
}

/// Waits until `holds`, for at most `limit`.
fn eventually(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let start = now();
    while !holds() {
        assert!(now() - start < limit, "{what} did not come within {limit:?}");
        std::thread::yield_now();
    }
}

#[expect(clippy::disallowed_methods, reason = "the edge: a test that bounds its waiting")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn killed_clients_leak_no_leases_descriptors_or_bytes() {
    let scene = Scene::new(|_| {});
    scene.warm();
    eventually(Duration::from_secs(5), "the warm-up's end", || {
        scene.node.describe().load.unwrap_or_default().socket_connections == 0
    });
    let files_before = open_files(&scene.node);
    let resident_before = scene.node.describe().memory.unwrap_or_default().resident_bytes;
    let mut children = VecDeque::new();
    for round in 0..repeats(60, 10_000) {
        let args: &[&str] = if round % 4 == 3 { &["--child"] } else { &[] };
        let mut client = scene.client(round, 1_000_000, args, &[]);
        // At a random point: in the middle of starting, attaching, or reading.
        if round % 4 == 3 {
            let said = client.wait_for("child");
            let child = said.split_once(' ').expect("a pid").1.parse().expect("a pid");
            children.push_back(Pid::from_raw(child));
            if children.len() > CHILDREN_ALIVE {
                end(children.pop_front());
            }
        } else {
            for _ in 0..round % 4 {
                client.wait_for("batch");
            }
        }
        client.kill_now();
    }
    // Forked children still map, and hold TCP connections. Their leases are gone nevertheless.
    eventually(Duration::from_secs(1), "the last reaping", || {
        let load = scene.node.describe().load.unwrap_or_default();
        (load.leases, load.socket_connections) == (0, 0)
    });
    children.into_iter().for_each(|child| end(Some(child)));
    eventually(Duration::from_secs(1), "the last connection's end", || {
        scene.node.describe().load.unwrap_or_default().data_connections == 0
    });
    let memory = scene.node.describe().memory.unwrap_or_default();
    assert_eq!((memory.orphaned_bytes, memory.filling_bytes), (0, 0));
    assert_eq!(memory.resident_bytes, resident_before);
    eventually(Duration::from_secs(1), "the last descriptor's closing", || {
        open_files(&scene.node).len() <= files_before.len()
    });
}

#[test]
fn client_in_other_namespaces_and_uid_attaches_and_is_reaped() {
    if !nix::unistd::geteuid().is_root() {
        println!(
            "not root: a client under another uid can't be started here, so this was not tested"
        );
        return;
    }
    let dir = std::path::PathBuf::from(format!("/tmp/larder-test-{}", std::process::id()));
    let socket = dir.join("larder.sock");
    let scene = Scene::new(|options| {
        options.socket = Some(socket.clone());
        options.args = vec!["--socket-group".to_owned(), "nogroup".to_owned()];
    });
    scene.warm();
    let wrapper = [
        "unshare",
        "--pid",
        "--mount",
        "--fork",
        "--kill-child",
        "setpriv",
        "--pdeathsig=KILL",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let mut client = scene.client(1, 1_000_000, &[], &wrapper);
    // Soon it reads only mapped memory.
    client.wait_for("batch 16 0 0");
    assert!(scene.node.describe().load.unwrap_or_default().leases > 0);
    client.kill_now();
    eventually(Duration::from_secs(2), "its reaping", || {
        let load = scene.node.describe().load.unwrap_or_default();
        (load.leases, load.socket_connections) == (0, 0)
    });
    drop(scene);
    let _ = std::fs::remove_dir_all(dir);
}
