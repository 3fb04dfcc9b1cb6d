//! One node a host: processes that name no cluster start a node, share it, and leave nothing
//! behind, even if any of them is killed at any time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use larder_origin::{Credentials, Options, S3Server};
use larder_tests::{ClientOptions, TrainingProcess, node::binary, repeats, until, words};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getsid, pipe};
use tempfile::TempDir;

pub(crate) const WORDS: &str = "s3://data/words";
/// The contents of the bucket by `words::write`: the samples, and the bytes of each.
const SAMPLES: u64 = 4 * 64;

/// A host of one user: a folder for the user's nodes, and an S3 server.
pub(crate) struct Host {
    run: TempDir,
    pub(crate) server: S3Server,
    _buckets: TempDir,
}

/// A process's message about the node it uses.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) pid: i32,
    pub(crate) started: bool,
}

impl Host {
    pub(crate) fn new() -> Self {
        let (run, buckets) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir());
        fs::set_permissions(run.path(), fs::Permissions::from_mode(0o700)).expect("ours");
        let buckets = buckets.expect("a folder");
        let server = S3Server::start(buckets.path(), &Options::default()).expect("an S3 server");
        words::write(&server.create_bucket("data").expect("a bucket").join("words"), 4, 64, 1024);
        let host = Self { run, server, _buckets: buckets };
        host.index(WORDS);
        host
    }

    /// The user's folder for what runs.
    pub(crate) fn folder(&self) -> &Path {
        self.run.path()
    }

    pub(crate) fn index(&self, uri: &str) {
        let mut index = Command::new(binary("larder"));
        let index = index.args(["dataset", "index", uri, "-q"]).stdout(Stdio::null());
        let index = index.envs(self.server.env());
        assert!(index.status().expect("larder runs").success());
        self.server.reset_counts();
    }

    pub(crate) fn env(&self, linger: &str) -> Vec<(String, String)> {
        let run = self.run.path().display().to_string();
        let own = [("XDG_RUNTIME_DIR", run.as_str()), ("LARDER_MEMORY", "128MiB")];
        let own = own.into_iter().chain([("LARDER_HOST_NODE_LINGER", linger)]);
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        own.chain(self.server.env()).collect()
    }

    /// A training process that names no cluster.
    fn train(&self, uri: &str, epochs: u64, linger: &str) -> TrainingProcess {
        Self::start(uri, epochs, self.env(linger), &[], &[])
    }

    /// A process that does not end and maps nothing: its rows come from the node or the origin.
    fn train_over_network(&self, uri: &str) -> TrainingProcess {
        Self::start(uri, u64::MAX, self.env("300ms"), &["--remote-only"], &[])
    }

    fn train_under(
        &self,
        wrapper: &[&str],
        uri: &str,
        epochs: u64,
        linger: &str,
    ) -> TrainingProcess {
        Self::start(uri, epochs, self.env(linger), &[], wrapper)
    }

    pub(crate) fn start(
        uri: &str,
        epochs: u64,
        env: Vec<(String, String)>,
        args: &[&str],
        wrapper: &[&str],
    ) -> TrainingProcess {
        TrainingProcess::start(&ClientOptions {
            program: env!("CARGO_BIN_EXE_larder-test-client"),
            uri,
            cluster: "host",
            epochs,
            seed: 1,
            batch_size: 32,
            env,
            args,
            wrapper,
        })
    }

    /// Returns the nodes that run or start in this host's folder.
    pub(crate) fn nodes(&self) -> Vec<i32> {
        nodes(self.run.path())
    }

    /// Returns the folders in which there is, or was, a node.
    fn folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.run.path().join("larder")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    /// Waits until no node runs, and checks that no folder is left.
    pub(crate) fn assert_left_clean(&self) {
        until("the node has ended", || self.nodes().is_empty());
        assert_eq!(self.folders(), Vec::<PathBuf>::new());
    }

    /// Returns the bytes of samples that were read from S3 twice, by its own count.
    fn read_again(&self) -> u64 {
        let counts = self.server.counts();
        assert_eq!(counts.reads.forgotten, 0);
        let objects = counts.reads.objects().map(|(object, _)| object);
        let data = objects.filter(|object| object.ends_with(".safetensors"));
        data.map(|object| counts.reads.again(object)).sum()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A failed test must leave no node.
        end_nodes(self.run.path());
    }
}

/// Returns the nodes that run or start in a folder. They are not children of the test.
fn nodes(folder: &Path) -> Vec<i32> {
    let mark = folder.display().to_string();
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_ours = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let program = line.split('\0').next().unwrap_or_default();
        program.ends_with("larder-node") && line.contains(&mark)
    };
    pids.filter(is_ours).collect()
}

/// Kills the nodes in a folder.
pub(crate) fn end_nodes(folder: &Path) {
    for pid in nodes(folder) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Returns the node that a process prints as the one it uses.
pub(crate) fn node_of(process: &mut TrainingProcess) -> Node {
    let line = process.wait_for("node ");
    let mut words = line.split(' ').skip(1);
    let pid = words.next().and_then(|pid| pid.parse().ok()).expect("a process id");
    Node { pid, started: words.next() == Some("started") }
}

/// Reads to the end, which must be a success: every sample once, no wrong byte.
pub(crate) fn finish(process: &mut TrainingProcess) {
    let (status, lines) = process.finish();
    assert!(status.success(), "{status}, {:?}", lines.last());
}

#[test]
fn eight_processes_start_one_node_and_read_each_byte_once() {
    let host = Host::new();
    let mut ranks: Vec<_> = (0..8).map(|_| host.train(WORDS, 2, "300ms")).collect();
    let nodes: Vec<Node> = ranks.iter_mut().map(node_of).collect();
    assert_eq!(nodes.iter().filter(|node| node.started).count(), 1, "{nodes:?}");
    assert!(nodes.iter().all(|node| node.pid == nodes[0].pid), "{nodes:?}");
    assert_eq!(host.nodes(), [nodes[0].pid]);
    ranks.iter_mut().for_each(finish);
    assert_eq!(host.read_again(), 0, "bytes were read twice, or past the node");
    assert!(host.server.counts().bytes_sent >= SAMPLES * 4096);
    host.assert_left_clean();
}

#[test]
fn restarted_job_finds_its_data_warm() {
    let host = Host::new();
    let mut first = host.train(WORDS, 1, "60s");
    let node = node_of(&mut first);
    finish(&mut first);
    host.server.reset_counts();
    let mut again = host.train(WORDS, 1, "60s");
    assert_eq!(node_of(&mut again), Node { started: false, ..node });
    finish(&mut again);
    let counts = host.server.counts();
    let data = counts.reads.objects().filter(|(object, _)| object.ends_with(".safetensors"));
    assert_eq!(data.count(), 0, "the second run read samples from S3");
}

#[test]
fn node_is_detached_and_survives_its_starter() {
    let host = Host::new();
    // A pipe that every started process inherits.
    let (inherited, _other_end) = pipe().expect("a pipe");
    let link = |pid: i32, fd: &str| fs::read_link(format!("/proc/{pid}/fd/{fd}"));
    let name =
        fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&inherited)));
    let name = name.expect("open");
    // As with launchers, each rank has a core of its own.
    let mut starter = host.train_under(&["taskset", "-c", "0"], WORDS, 1_000_000, "300ms");
    let node = node_of(&mut starter);
    assert!(node.started);
    let its_files = fs::read_dir(format!("/proc/{}/fd", node.pid)).expect("it runs").flatten();
    let its_files: Vec<PathBuf> =
        its_files.filter_map(|file| link(node.pid, file.file_name().to_str()?).ok()).collect();
    assert!(!its_files.contains(&name), "it inherited a file: {its_files:?}");
    let cores = |pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:"));
        line.expect("what cores it may use").to_owned()
    };
    assert_eq!(cores(node.pid), cores(nix::unistd::getpid().as_raw()), "all that we may use");
    let session = |pid| getsid(Some(Pid::from_raw(pid))).expect("it runs");
    assert_ne!(session(node.pid), getsid(None).expect("ours"));
    let mut other = host.train(WORDS, 3, "300ms");
    assert_eq!(node_of(&mut other), Node { started: false, ..node });
    starter.wait_for("batch");
    starter.kill_now();
    finish(&mut other);
    host.assert_left_clean();
}

#[test]
fn starter_killed_at_any_point_does_not_block_the_next() {
    let host = Host::new();
    for round in 0..repeats(12, 100) {
        let mut starter = host.train(WORDS, 1_000_000, "100ms");
        // The moment decides only which case is tested; all must pass.
        std::thread::park_timeout(Duration::from_millis(3 * u64::try_from(round).expect("few")));
        starter.kill_now();
        let mut next = host.train(WORDS, 1, "100ms");
        node_of(&mut next);
        finish(&mut next);
    }
    host.assert_left_clean();
}

/// Reads until all rows of a batch come from `from`: local, remote, origin.
fn wait_for_rows(process: &mut TrainingProcess, from: usize) {
    loop {
        let line = process.wait_for("batch ");
        let mut rows = line.split(' ').skip(1).enumerate();
        if rows.all(|(source, rows)| (source == from) == (rows != "0")) {
            return;
        }
    }
}

#[test]
fn users_of_a_killed_node_continue_on_a_new_one() {
    const REMOTE: usize = 1;
    let host = Host::new();
    for _ in 0..repeats(2, 10) {
        let mut ranks: Vec<_> = (0..3).map(|_| host.train_over_network(WORDS)).collect();
        let first = node_of(&mut ranks[0]);
        ranks.iter_mut().for_each(|rank| wait_for_rows(rank, REMOTE));
        kill(Pid::from_raw(first.pid), Signal::SIGKILL).expect("it runs");
        until("the node is gone", || !host.nodes().contains(&first.pid));
        until("another runs in its place", || !host.nodes().is_empty());
        // The process may still report batches that it had begun.
        host.server.reset_counts();
        ranks.iter_mut().for_each(|rank| wait_for_rows(rank, REMOTE));
        until("all read from one node again", || {
            host.server.reset_counts();
            ranks.iter_mut().for_each(|rank| (0..50).for_each(|_| wait_for_rows(rank, REMOTE)));
            host.server.counts().bytes_sent == 0
        });
        let nodes = host.nodes();
        assert!(nodes.len() == 1 && nodes[0] != first.pid, "{nodes:?} after {first:?}");
        ranks.iter_mut().for_each(TrainingProcess::kill_now);
        until("the node has ended", || host.nodes().is_empty());
    }
    host.assert_left_clean();
}

#[test]
fn files_of_a_killed_node_do_not_block_the_next() {
    let host = Host::new();
    let mut job = host.train(WORDS, 1, "60s");
    let node = node_of(&mut job);
    finish(&mut job);
    kill(Pid::from_raw(node.pid), Signal::SIGKILL).expect("it runs");
    until("the node is gone", || host.nodes().is_empty());
    assert_eq!(fs::read_dir(&host.folders()[0]).expect("a folder").count(), 1, "its socket");
    let mut next = host.train(WORDS, 1, "300ms");
    assert!(node_of(&mut next).started);
    finish(&mut next);
    host.assert_left_clean();
}

#[test]
fn datasets_in_two_buckets_are_read_through_one_node() {
    let host = Host::new();
    let other = host.server.create_bucket("other").expect("a bucket").join("words");
    words::write(&other, 2, 64, 1024);
    host.index("s3://other/words");
    let mut training = host.train(WORDS, 2, "300ms");
    let mut validation = host.train("s3://other/words", 2, "300ms");
    assert_eq!(node_of(&mut training).pid, node_of(&mut validation).pid);
    [&mut training, &mut validation].into_iter().for_each(finish);
    assert_eq!(host.read_again(), 0, "bytes were read twice, or past the node");
    host.assert_left_clean();
}

#[test]
fn same_address_on_another_endpoint_gets_another_node() {
    let (host, elsewhere) = (Host::new(), Host::new());
    let mut here = host.train(WORDS, 2, "300ms");
    // The same user on the same host, with settings for another server.
    let run = host.env("300ms").into_iter().find(|(name, _)| name == "XDG_RUNTIME_DIR");
    let env = elsewhere.env("300ms").into_iter().chain(run).collect();
    let mut there = Host::start(WORDS, 2, env, &[], &[]);
    assert_ne!(node_of(&mut here).pid, node_of(&mut there).pid);
    [&mut here, &mut there].into_iter().for_each(finish);
    for server in [&host.server, &elsewhere.server] {
        assert!(server.counts().bytes_sent >= SAMPLES * 4096, "each was read from its own server");
    }
    host.assert_left_clean();
}

/// Returns the standard error of a test process that fails.
fn failure(host: &Host, more: &[(&str, &str)]) -> String {
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    refused(host.env("300ms").into_iter().chain(more).collect())
}

/// Returns the standard error of a test process that fails with these variables.
fn refused(env: Vec<(String, String)>) -> String {
    let mut client = Command::new(env!("CARGO_BIN_EXE_larder-test-client"));
    client.args([WORDS, "host", "1", "1", "32"]).envs(env);
    let output = client.output().expect("it runs");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Temporary credentials: a key pair and a token.
pub(crate) fn temporary(key: &str, serial: u32) -> Credentials {
    Credentials {
        access_key: key.to_owned(),
        secret_key: format!("secret-{serial}"),
        session_token: Some(format!("token-{serial}")),
    }
}

#[test]
fn right_credentials_work_at_once_after_wrong_ones() {
    const LINGER: &str = "600s";
    let host = Host::new();
    host.server.set_credentials(temporary("KEY", 1));
    let with = |name: &str, value: Option<&str>| {
        let others = host.env(LINGER).into_iter().filter(|(other, _)| other != name);
        others.chain(value.map(|value| (name.to_owned(), value.to_owned()))).collect()
    };
    let cases: [(&str, Option<&str>, &str); 4] = [
        ("AWS_SECRET_ACCESS_KEY", Some("mistyped"), "SignatureDoesNotMatch"),
        ("AWS_SECRET_ACCESS_KEY", None, "AWS_SECRET_ACCESS_KEY is not set"),
        ("AWS_SESSION_TOKEN", None, "InvalidToken"),
        ("AWS_SESSION_TOKEN", Some("expired"), "InvalidToken"),
    ];
    let mut right = None;
    for (name, value, reason) in cases {
        let said = refused(with(name, value));
        assert!(said.contains(reason), "{said}");
        assert!(said.contains("the cache takes other keys at once"), "{said}");
        let mut job = host.train(WORDS, 1, LINGER);
        let node = node_of(&mut job);
        // The first job starts the node, and the others find it.
        assert_eq!(node.pid, *right.get_or_insert(node.pid));
        finish(&mut job);
        until("the node of the wrong credentials has ended", || host.nodes() == [node.pid]);
    }
}

#[test]
fn rotated_credentials_keep_the_node_and_its_memory() {
    const LINGER: &str = "60s";
    let host = Host::new();
    host.server.set_credentials(temporary("KEY", 1));
    let mut job = host.train(WORDS, 1, LINGER);
    let node = node_of(&mut job);
    finish(&mut job);
    for (key, serial) in [("KEY", 2), ("OTHER", 3)] {
        let expired = host.env(LINGER);
        host.server.set_credentials(temporary(key, serial));
        // Jobs with the expired credentials are refused, although the node has the data.
        let said = refused(expired);
        assert!(said.contains("PermissionDenied"), "{said}");
        host.server.reset_counts();
        let mut job = host.train(WORDS, 1, LINGER);
        assert_eq!(node_of(&mut job), Node { started: false, ..node });
        finish(&mut job);
        let sent = host.server.counts().bytes_sent;
        assert!(sent < SAMPLES * 1024 / 2, "{sent} bytes were read: the node is warm");
        assert_eq!(host.server.last_key().as_deref(), Some(key));
    }
}

#[test]
fn failed_start_is_an_error_with_reason_and_remedy() {
    let host = Host::new();
    let said = failure(&host, &[("LARDER_NODE_BIN", "/nowhere/larder-node")]);
    assert!(
        said.contains("no program /nowhere/larder-node") && said.contains("LARDER_NODE_BIN"),
        "{said}"
    );
    let said = failure(&host, &[("LARDER_MEMORY", "9000TiB")]);
    assert!(said.contains("did not start") && said.contains("does not fit"), "{said}");
    assert!(said.contains("LARDER_MEMORY") && !said.contains("--memory"), "{said}");
    let said = failure(&host, &[("LARDER_HOST_NODE", "../escape")]);
    assert!(said.contains("../escape"), "{said}");
    fs::set_permissions(host.run.path().join("larder"), fs::Permissions::from_mode(0o777))
        .expect("ours");
    let said = failure(&host, &[]);
    assert!(said.contains("777") && said.contains("lets others in"), "{said}");
    assert!(host.nodes().is_empty());
}

#[test]
fn tool_finds_the_host_node_that_refuses_others() {
    let host = Host::new();
    let larder = |more: &[&str]| {
        let mut larder = Command::new(binary("larder"));
        larder.args(["node", "ls", "-o", "json"]).args(more).envs(host.env("60s"));
        larder.output().expect("larder runs")
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let nothing = larder(&[]);
    let said = text(&nothing.stderr);
    assert!(!nothing.status.success() && said.contains("no node of this host runs"), "{said}");
    let mut training = host.train(WORDS, 1, "60s");
    let node = node_of(&mut training);
    finish(&mut training);
    let found = larder(&[]);
    assert!(found.status.success(), "{}", text(&found.stderr));
    let report: serde_json::Value = serde_json::from_slice(&found.stdout).expect("one JSON object");
    let listed = &report["nodes"][0];
    let socket = host.folders()[0].join("larder.sock").display().to_string();
    assert_eq!(listed["socket"], socket.as_str());
    // A client with the address but without the ticket is refused.
    let control = listed["control"].as_str().expect("an address").to_owned();
    let stranger = larder(&["--cluster", &control]);
    let said = text(&stranger.stderr) + &text(&stranger.stdout);
    assert!(!stranger.status.success() && said.contains("one user"), "{said}");
    assert_eq!(host.nodes(), [node.pid]);
}

#[test]
fn unknown_prefix_at_the_host_node_is_refused_with_a_hint() {
    let host = Host::new();
    let others = "s3://data/others";
    let folder = host.server.create_bucket("data").expect("a bucket").join("others");
    words::write(&folder, 1, 64, 1024);
    let mut training = host.train(WORDS, 1, "60s");
    node_of(&mut training);
    finish(&mut training);
    let larder = |words: &[&str]| {
        let mut larder = Command::new(binary("larder"));
        larder.args(words).args(["-o", "json"]).envs(host.env("60s")).output().expect("larder runs")
    };
    let explain = |uri: &str| larder(&["explain", &format!("{uri}#3")]);
    assert!(explain(WORDS).status.success());
    let refused = explain(others);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("never told to read s3://data/others"), "{said}");
    assert!(said.contains("larder.open") && !said.contains("--origin"), "{said}");
    let file = host.run.path().join("sample.npy").display().to_string();
    assert!(larder(&["dataset", "sample", others, "3", "--out", &file]).status.success());
    let explained = explain(others);
    assert!(explained.status.success(), "{}", String::from_utf8_lossy(&explained.stderr));
}

#[test]
fn tool_reads_through_the_host_node_unless_told_otherwise() {
    let host = Host::new();
    let mut training = host.train(WORDS, 1, "60s");
    node_of(&mut training);
    finish(&mut training);
    let larder = |words: &[&str]| {
        let mut larder = Command::new(binary("larder"));
        larder.args(words).args(["-o", "json"]).envs(host.env("60s"));
        larder.output().expect("larder runs")
    };
    let json = |words: &[&str]| -> serde_json::Value {
        let output = larder(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"))
    };
    host.server.reset_counts();
    let verified = json(&["dataset", "verify", WORDS]);
    assert_eq!((&verified["read_from"], &verified["rows_origin"]), (&"host".into(), &0.into()));
    let file = host.run.path().join("sample.npy");
    let file = file.to_str().expect("UTF-8");
    let sample = json(&["dataset", "sample", WORDS, "3", "--out", file]);
    assert_eq!(sample["read_from"], "host");
    assert_eq!(host.read_again(), 0, "the node had it all");
    let compared = json(&["dataset", "verify", WORDS, "--against-source"]);
    assert_eq!((&compared["verified"], &compared["against_source"]), (&true.into(), &true.into()));
    let bench = json(&["bench", WORDS, "--seconds", "1"]);
    let ways = bench["ways"].as_array().expect("ways").iter();
    assert_eq!(ways.map(|way| &way["way"]).collect::<Vec<_>>(), ["origin", "network", "local"]);
    let doctor = json(&["doctor"]);
    let checks = doctor["checks"].as_array().expect("checks");
    let found = |name: &str| checks.iter().find(|check| check["name"] == name).expect("a check");
    assert_eq!(found("cluster")["found"], "1 node, all up and of one mind");
    let socket = host.folders()[0].join("larder.sock").display().to_string();
    let said = found("socket")["found"].as_str().expect("words");
    assert!(said.starts_with(&format!("{socket} connects")), "{said}");

    let direct = json(&["dataset", "verify", WORDS, "--cluster", "none"]);
    assert_eq!(direct["read_from"], "origin");
    for option in ["--against-source", "--remote-only"] {
        let refused = larder(&["dataset", "verify", WORDS, "--cluster", "none", option]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(option) && said.contains("no nodes to read through"), "{said}");
    }
}

#[test]
fn host_folder_is_private_to_its_user() {
    let host = Host::new();
    let mut training = host.train(WORDS, 1, "60s");
    node_of(&mut training);
    finish(&mut training);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    for folder in host.folders() {
        assert_eq!(mode(&folder), 0o700);
        for file in fs::read_dir(&folder).expect("a folder").flatten() {
            assert_eq!(mode(&file.path()), 0o600, "{:?}", file.path());
        }
    }
}
