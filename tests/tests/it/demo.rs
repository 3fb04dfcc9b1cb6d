//! `larder demo --cluster`, as a user or a script runs it: a ring that changes while clients read,
//! and nothing left behind.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use larder_tests::{is_left_to_full, node::binary, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The demo of a ring, in a folder of the test's own.
fn demo(home: &Path) -> Command {
    let mut demo = Command::new(binary("larder"));
    demo.args(["demo", "--cluster", "--samples", "512", "-o", "json"]).env("TMPDIR", home);
    demo.stdout(Stdio::piped()).stderr(Stdio::piped());
    demo
}

/// Fails if any file or process of a demo in that folder is still there.
fn assert_nothing_is_left(home: &Path) {
    let left: Vec<_> = fs::read_dir(home).expect("the test's folder").collect();
    assert!(left.is_empty(), "{left:?}");
    let running = running_in(home);
    assert!(running.is_empty(), "{running:?}");
}

/// Returns the processes with this folder in their arguments.
fn running_in(home: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("Linux").filter_map(Result::ok);
    let words = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    let words = words.map(|it| String::from_utf8_lossy(&it).replace('\0', " "));
    words.filter(|it| it.contains(&*home.to_string_lossy())).collect()
}

/// Runs it to its end and checks its output.
fn the_ring_changes_as_planned(etcd: Option<&str>) {
    let home = tempfile::tempdir().expect("a temporary folder");
    let mut demo = demo(home.path());
    if let Some(etcd) = etcd {
        demo.env("LARDER_ETCD_SERVER", etcd);
    }
    let output = demo.output().expect("larder starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
    let said: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let coordinator = if etcd.is_none() { "etcd" } else { "embedded" };
    assert_eq!(said["coordinator"], coordinator, "{said}");
    assert_eq!((&said["verified"], &said["reads_failed"]), (&true.into(), &0.into()), "{said}");
    for change in [&said["rebalance"], &said["drain"]] {
        let number = |key: &str| change[key].as_f64().unwrap_or_else(|| panic!("{key} in {said}"));
        assert!(number("bytes_ideal") > 0.0 && number("bytes_planned") > 0.0, "{said}");
        let ratio = number("bytes_moved") / number("bytes_planned");
        assert!((0.99..=1.05).contains(&ratio), "{ratio} of the plan was moved: {said}");
        assert!(number("reads") > 0.0 && number("reads_failed") == 0.0, "{said}");
        assert!(number("p99_before") > 0.0 && number("p99_during") > 0.0, "{said}");
    }
    let after = &said["epochs"][1];
    assert_eq!((&after["rows_remote"], &after["rows_origin"]), (&512.into(), &0.into()), "{said}");
    assert_nothing_is_left(home.path());
}

/// Stops it once this file is in its folder.
fn nothing_is_left_when_stopped_at(file: &str, signal: Signal) {
    let home = tempfile::tempdir().expect("a temporary folder");
    let running = demo(home.path()).spawn().expect("larder starts");
    let there = |folder: fs::DirEntry| folder.path().join(file).exists();
    until(&format!("the demo has {file}"), || {
        fs::read_dir(home.path()).expect("the test's folder").filter_map(Result::ok).any(there)
    });
    send(&running, signal);
    let output = running.wait_with_output().expect("our own child can be waited for");
    let error = String::from_utf8_lossy(&output.stderr);
    if signal != Signal::SIGKILL {
        assert_eq!(output.status.code(), Some(130), "{error}");
        return assert_nothing_is_left(home.path());
    }
    // No program is left to remove the files, but its processes end by themselves.
    until("its programs are gone", || running_in(home.path()).is_empty());
}

fn send(process: &Child, signal: Signal) {
    let pid = i32::try_from(process.id()).expect("a pid fits in an i32");
    kill(Pid::from_raw(pid), signal).expect("our own child can be signalled");
}

#[test]
fn the_ring_of_the_demo_changes_as_planned_by_etcd() {
    if is_left_to_full("the demo on etcd") {
        return;
    }
    the_ring_changes_as_planned(None);
}

#[test]
fn the_ring_of_the_demo_changes_as_planned_by_one_of_its_nodes() {
    the_ring_changes_as_planned(Some(""));
}

#[test]
fn nothing_is_left_of_a_demo_that_is_interrupted() {
    nothing_is_left_when_stopped_at("etcd.log", Signal::SIGINT);
    nothing_is_left_when_stopped_at("larder-node-c.log", Signal::SIGTERM);
    nothing_is_left_when_stopped_at("larder-node-d.log", Signal::SIGINT);
}

#[test]
fn no_program_of_a_demo_outlives_it() {
    nothing_is_left_when_stopped_at("larder-node-d.log", Signal::SIGKILL);
}

#[test]
fn an_etcd_that_is_named_and_missing_is_said() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let output = demo(home.path()).env("LARDER_ETCD_SERVER", "/nowhere/etcd").output();
    let output = output.expect("larder starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("/nowhere/etcd") && said.contains("hint: "), "{said}");
    assert_nothing_is_left(home.path());
}
