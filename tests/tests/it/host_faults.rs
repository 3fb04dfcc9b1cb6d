//! Faults of a node's own host: a log that can't be written, no descriptors left, and names.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use larder_tests::{NodeOptions, NodeProcess, node::binary, tool, words};
use tempfile::TempDir;

use crate::host_node::{Host, WORDS, finish, node_of};

/// A folder of datasets, and its address.
fn folder() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = format!("file://{}", folder.path().display());
    (folder, origin)
}

#[test]
fn node_with_an_unwritable_log_opens_serves_and_stops() {
    let (folder, origin) = folder();
    words::write(&folder.path().join("words"), 2, 64, 1024);
    let mut options = NodeOptions::new("a", &origin);
    options.wrapper = ["sh", "-c", "exec \"$0\" \"$@\" 2>/dev/full"].map(str::to_owned).to_vec();
    options.env = vec![("RUST_LOG".to_owned(), "debug".to_owned())];
    let node = NodeProcess::start(&options);
    let args = ["dataset", "verify", &format!("{origin}/words"), "-o", "json"];
    let verified = tool::json(&tool::larder(&node.address(), folder.path(), None, &args));
    assert_eq!((&verified["verified"], &verified["read_from"]), (&true.into(), &"cluster".into()));
    for name in ["larder_gathers_total", "larder_log_lines_dropped_total"] {
        assert!(node.metric(name) > 0, "{name}");
    }
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn host_node_with_an_unwritable_log_ends_after_its_linger() {
    let host = Host::new();
    let program = host.folder().join("node.sh");
    let run = format!("#!/bin/sh\nexec {} \"$@\" 2>/dev/full\n", binary("larder-node").display());
    fs::write(&program, run).expect("ours");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("ours");
    let program = ("LARDER_NODE_BIN".to_owned(), program.display().to_string());
    let env = host.env("300ms").into_iter().chain([program]).collect();
    let mut training = Host::start(WORDS, 1, env, &[], &[]);
    assert!(node_of(&mut training).started);
    finish(&mut training);
    host.assert_left_clean();
}

/// The answer to a request for `/healthz` on an open connection.
fn health(connection: &mut TcpStream) -> String {
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    connection.write_all(request).expect("the node listens");
    let mut answer = [0; 1024];
    let bytes = connection.read(&mut answer).expect("the node answers");
    String::from_utf8_lossy(&answer[..bytes]).into_owned()
}

#[test]
fn health_says_why_no_dataset_can_be_opened() {
    let (_folder, origin) = folder();
    let node = NodeProcess::start(&NodeOptions::new("a", &origin));
    let address = node.address();
    let address = address.strip_prefix("http://").expect("an address");
    let mut connection = TcpStream::connect(address).expect("the node listens");
    let limit_files = |files: u32| {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &node.pid().to_string(), &format!("--nofile={files}:")]);
        assert!(prlimit.status().expect("prlimit runs").success());
    };
    assert!(health(&mut connection).starts_with("HTTP/1.1 200"));
    limit_files(3);
    let refused = health(&mut connection);
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("LimitNOFILE"), "{refused}");
    limit_files(256);
    assert!(health(&mut connection).starts_with("HTTP/1.1 200"));
}

/// What a program runs under to find this name of the host in its `/etc/hosts`, and the short one.
fn under_name(folder: &Path, name: &str) -> Vec<String> {
    let hosts = folder.join(name);
    let short = nix::unistd::gethostname().expect("a name").into_string().expect("UTF-8");
    fs::write(&hosts, format!("127.0.0.1 localhost\n127.0.1.1 {name} {short}\n")).expect("ours");
    let mount = format!("mount --bind {} /etc/hosts && exec \"$0\" \"$@\"", hosts.display());
    ["unshare", "--mount", "sh", "-c", &mount].map(str::to_owned).to_vec()
}

#[test]
fn full_name_of_its_host_reaches_a_node_and_others_read_why_not() {
    const FULL_NAME: &str = "gpu01.corp.example";
    let (folder, origin) = folder();
    let mut options = NodeOptions::new("a", &origin);
    // All of 127.0.0.0/8, in which the name is.
    options.host = "0.0.0.0".to_owned();
    options.wrapper = under_name(folder.path(), FULL_NAME);
    let node = NodeProcess::start(&options);
    let address = node.address();
    let (_, port) = address.rsplit_once(':').expect("a port");
    let list = |name: &str| {
        let under = under_name(folder.path(), name);
        let mut larder = Command::new(&under[0]);
        larder.args(&under[1..]).arg(binary("larder")).args(["node", "ls", "--cluster"]);
        larder.arg(format!("http://{name}:{port}")).output().expect("larder runs")
    };
    let known = list(FULL_NAME);
    assert!(known.status.success(), "{}", tool::said(&known));
    let refused = tool::said(&list("evil.example"));
    assert!(refused.contains("this node is not called 'evil.example:"), "{refused}");
    assert!(!refused.contains("compression"), "{refused}");
}
