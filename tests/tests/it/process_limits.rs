//! Limits of the process that a node or the tool runs in: it lives within them, or refuses to start
//! and names the limit.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use larder_client::Dataset;
use larder_tests::{NodeOptions, NodeProcess, node::binary, tool::said, words};
use nix::unistd::geteuid;

/// Users without processes, to whom limits apply: one for each test that limits their number.
const USERS: [u32; 2] = [65_532, 65_533];

/// Runs a program after `limit` in a shell, as `user` if this one is root. Returns its exit code
/// and its messages.
fn run(limit: &str, user: Option<u32>, program: &str, args: &[&str]) -> (Option<i32>, String) {
    let script = format!("{limit} && exec timeout 20 \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, "bash"]).arg(binary(program)).args(args);
    if let Some(user) = user.filter(|_| geteuid().is_root()) {
        command.uid(user);
    }
    let output = command.output().expect("a shell");
    (output.status.code(), said(&output))
}

fn start_node(limit: &str, user: Option<u32>) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("larder.sock").display().to_string();
    let listen = ["--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0", "--socket", &socket];
    let data = ["--memory", "64MiB", "--origin", "file:///data"];
    run(limit, user, "larder-node", &[&listen[..], &data].concat())
}

#[test]
fn file_size_limit_below_a_shard_refuses_the_start() {
    let (code, told) = start_node("ulimit -f 1024", None);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("ulimit -f") && told.contains("64 MiB"), "{told}");
}

#[test]
fn tool_that_may_start_no_thread_says_so() {
    let data = tempfile::tempdir().expect("a folder");
    let uri = format!("file://{}", data.path().display());
    let args = ["dataset", "show", &uri, "--cluster", "none"];
    let (code, told) = run("ulimit -u 2", Some(USERS[1]), "larder", &args);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("ulimit -u") && !told.contains("panicked"), "{told}");
}

#[test]
fn thread_limit_refuses_the_start_without_a_panic() {
    let (code, told) = start_node("ulimit -u 12", Some(USERS[0]));
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("ulimit -u") && !told.contains("panicked"), "{told}");
}

#[test]
fn shards_beyond_the_open_files_of_a_node_are_read_by_range() {
    let (samples, files) = (200, 160);
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("words");
    words::write(&data, samples, 1, 1024);
    let uri = format!("file://{}", data.display());
    let args = ["dataset", "index", &uri, "--shard-bytes", "4096"];
    assert_eq!(run("true", None, "larder", &args).0, Some(0));
    let log = folder.path().join("log");
    let script = format!("ulimit -n {files} && exec \"$0\" \"$@\" 2>{}", log.display());
    let mut options = NodeOptions::new("a", &uri);
    options.wrapper = vec!["sh".to_owned(), "-c".to_owned(), script];
    options.env = vec![("RUST_LOG".to_owned(), "info".to_owned())];
    let node = NodeProcess::start(&options);
    let dataset = Dataset::options().cluster(node.address()).local(false).open(&uri);
    let dataset = dataset.expect("opens");
    for _epoch in 0..2 {
        for sample in 0..u64::from(samples) {
            let row = dataset.read(sample, words::TENSOR).expect("the node gives it");
            assert!(words::is_right(sample, &row), "wrong bytes in sample {sample}");
        }
    }
    let counters = node.describe().counters.expect("counters");
    let shards_max = files / 2;
    assert_eq!(node.metric("larder_shards_max"), shards_max);
    assert_eq!(counters.fills_failed, 0);
    // The manifest and its leaf have places too.
    assert_eq!(counters.fills_completed, shards_max - 2);
    assert!(counters.rows_origin >= 2 * (u64::from(samples) - shards_max), "{counters:?}");
    let told = fs::read_to_string(&log).expect("a log");
    assert_eq!(told.matches("LimitNOFILE").count(), 1, "{told}");
}
