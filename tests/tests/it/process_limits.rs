//! Limits of the process that a node or the tool runs in: it refuses to start, and names the limit.

use std::os::unix::process::CommandExt;
use std::process::Command;

use larder_tests::{node::binary, tool::said};
use nix::unistd::geteuid;

/// A user without processes, to whom limits apply.
const OTHER_USER: u32 = 65_533;

/// Runs a program after `limit` in a shell. Returns its exit code and its messages.
fn run(limit: &str, program: &str, args: &[&str]) -> (Option<i32>, String) {
    let script = format!("{limit} && exec timeout 20 \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, "bash"]).arg(binary(program)).args(args);
    if geteuid().is_root() && limit.contains("-u") {
        command.uid(OTHER_USER);
    }
    let output = command.output().expect("a shell");
    (output.status.code(), said(&output))
}

fn start_node(limit: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("larder.sock").display().to_string();
    let listen = ["--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0", "--socket", &socket];
    let data = ["--memory", "64MiB", "--origin", "file:///data"];
    run(limit, "larder-node", &[&listen[..], &data].concat())
}

#[test]
fn file_size_limit_below_a_shard_refuses_the_start() {
    let (code, told) = start_node("ulimit -f 1024");
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("ulimit -f") && told.contains("64 MiB"), "{told}");
}

#[test]
fn tool_that_may_start_no_thread_says_so() {
    let data = tempfile::tempdir().expect("a folder");
    let uri = format!("file://{}", data.path().display());
    let (code, told) =
        run("ulimit -u 2", "larder", &["dataset", "show", &uri, "--cluster", "none"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("ulimit -u") && !told.contains("panicked"), "{told}");
}

#[test]
fn thread_limit_refuses_the_start_without_a_panic() {
    let (code, told) = start_node("ulimit -u 12");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("ulimit -u") && !told.contains("panicked"), "{told}");
}
