//! Limits of the process that a node runs in: it refuses to start, and names the limit.

use std::os::unix::process::CommandExt;
use std::process::Command;

use larder_tests::{node::binary, tool::said};
use nix::unistd::geteuid;

/// A user without processes, to whom limits apply.
const OTHER_USER: u32 = 65_533;

/// Starts a node after `limit` in a shell. Returns its exit code and its messages.
fn refused(limit: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("{limit} && exec timeout 20 \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, "bash"]).arg(binary("larder-node"));
    command.args(["--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"]);
    command.args(["--memory", "64MiB", "--origin", "file:///data"]);
    command.arg("--socket").arg(folder.path().join("larder.sock"));
    if geteuid().is_root() && limit.contains("-u") {
        command.uid(OTHER_USER);
    }
    let output = command.output().expect("a shell");
    (output.status.code(), said(&output))
}

#[test]
fn file_size_limit_below_a_shard_refuses_the_start() {
    let (code, told) = refused("ulimit -f 1024");
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("ulimit -f") && told.contains("64 MiB"), "{told}");
}

#[test]
fn thread_limit_refuses_the_start_without_a_panic() {
    let (code, told) = refused("ulimit -u 12");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("ulimit -u") && !told.contains("panicked"), "{told}");
}
