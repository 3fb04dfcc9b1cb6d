//! `larder-cluster-demo`, as `make demo DEMO_ARGS=--cluster` runs it: a ring that changes while it
//! is read, and nothing left behind.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use larder_tests::{is_left_to_full, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The demo of a ring, in a folder of the test's own.
fn demo(home: &Path) -> Command {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_larder-cluster-demo"));
    demo.args(["--cluster", "--samples", "512", "-o", "json"]).env("TMPDIR", home);
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
fn ring_changes_as_planned(etcd: Option<&str>) {
    let home = tempfile::tempdir().expect("a temporary folder");
    let mut demo = demo(home.path());
    if let Some(etcd) = etcd {
        demo.env("LARDER_ETCD_SERVER", etcd);
    }
    let output = demo.output().expect("the demo starts");
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

/// Stops it once it says that it begins with this step.
fn assert_interrupt_leaves_nothing_at(step: &str, signal: Signal) {
    let home = tempfile::tempdir().expect("a temporary folder");
    let mut running = demo(home.path()).spawn().expect("the demo starts");
    let mut said = BufReader::new(running.stderr.take().expect("it was piped"));
    let mut line = String::new();
    while !line.starts_with(step) {
        line.clear();
        let read = said.read_line(&mut line).expect("the words of the demo");
        assert!(read > 0, "the demo ended without {step:?}");
    }
    send(&running, signal);
    let status = running.wait().expect("our own child can be waited for");
    if signal != Signal::SIGKILL {
        let mut error = String::new();
        said.read_to_string(&mut error).expect("the words of the demo");
        assert_eq!(status.code(), Some(130), "{error}");
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
fn ring_of_the_demo_changes_as_planned_with_etcd() {
    if is_left_to_full("the demo on etcd") {
        return;
    }
    ring_changes_as_planned(None);
}

#[test]
fn ring_of_the_demo_changes_as_planned_in_embedded_mode() {
    ring_changes_as_planned(Some(""));
}

#[test]
fn interrupted_demo_leaves_nothing_behind() {
    assert_interrupt_leaves_nothing_at("writing", Signal::SIGINT);
    assert_interrupt_leaves_nothing_at("starting nodes", Signal::SIGTERM);
    assert_interrupt_leaves_nothing_at("node d joins", Signal::SIGINT);
}

#[test]
fn programs_of_a_demo_end_with_it() {
    assert_interrupt_leaves_nothing_at("node d joins", Signal::SIGKILL);
}

#[test]
fn missing_etcd_program_is_an_error_with_a_hint() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let output = demo(home.path()).env("LARDER_ETCD_SERVER", "/nowhere/etcd").output();
    let output = output.expect("the demo starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/nowhere/etcd") && said.contains("hint: "), "{said}");
    assert_nothing_is_left(home.path());
}
