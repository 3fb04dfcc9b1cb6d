//! Other users of a host, and strangers on the network, can do nothing to a node that lasts.

mod frames;
mod memory;
mod openings;
mod pipes;
mod silence;
mod users;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use larder_tests::node::binary;
use larder_tests::tool::{larder, said};
use larder_tests::{NodeOptions, NodeProcess};
use nix::sys::signal::Signal;

const TOKEN: &str = "0123456789abcdef";

fn node(folder: &Path) -> NodeProcess {
    NodeProcess::start(&NodeOptions::new("a", &format!("file://{}", folder.display())))
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("own file");
}

#[test]
fn signals_of_other_uses_do_not_end_a_node() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = node(folder.path());
    for signal in [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
        node.signal(signal);
        assert_eq!(node.describe().node_id, "a", "after {signal}");
    }
    node.signal(Signal::SIGQUIT);
    assert_eq!(node.ended(), Some(0), "SIGQUIT stops it as SIGTERM does");
}

#[test]
fn token_that_others_can_read_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN).expect("a file");
    allow(&token, 0o644);
    let path = token.to_str().expect("UTF-8");
    let mut founder = Command::new(binary("larder-node"));
    founder.args(["--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0", "--memory", "64MiB"]);
    founder.args(["--origin", &format!("file://{}", folder.path().display())]);
    founder.arg("--socket").arg(folder.path().join("run/larder.sock"));
    founder.arg("--state").arg(folder.path().join("state"));
    let refused = founder.args(["--token-file", path]).output().expect("larder-node starts");
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains(&format!("chmod 0600 {path}")), "{}", said(&refused));

    let node = node(folder.path());
    let pause = ["ring", "pause", "--yes", "--token-file", path];
    let refused = larder(&node.address(), folder.path(), None, &pause);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains(&format!("chmod 0600 {path}")), "{}", said(&refused));
    allow(&token, 0o600);
    let other = larder(&node.address(), folder.path(), None, &pause);
    assert!(!said(&other).contains("chmod"), "{}", said(&other));
}

/// Returns the status line of the answer to a request of a browser on this host.
fn browse(node: &NodeProcess, request: &str) -> String {
    let address = node.address();
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).expect("it listens");
    let mut answer = String::new();
    stream
        .write_all(request.as_bytes())
        .and_then(|()| stream.read_to_string(&mut answer))
        .expect("the node answers");
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn web_pages_can_not_make_browsers_call_a_node() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = node(folder.path());
    let ask = |what: &str, headers: &str| {
        browse(&node, &format!("{what} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n"))
    };
    let call = "POST /larder.v1.Node/Describe";
    let form = "host: 127.0.0.1\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n";
    assert!(ask(call, form).contains("415"));
    let marked = "host: 127.0.0.1\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\n\
                  origin: http://evil.example\r\n";
    assert!(ask(call, marked).contains("403"));
    let renamed = "host: evil.example\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\n";
    assert!(ask(call, renamed).contains("403"));
    assert!(ask("GET /healthz", "host: localhost\r\n").contains("200"));
    assert!(ask("GET /metrics", "host: 127.0.0.1\r\n").contains("200"));
}
