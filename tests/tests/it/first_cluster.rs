//! The first cluster of an operator: the tool and the nodes say what is wrong, and what helps.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use larder_origin::{Options, S3Server};
use larder_tests::living::{LivingCluster, TOKEN};
use larder_tests::node::binary;
use larder_tests::scripted::{Script, ScriptedNode};
use larder_tests::tool::{self, said, stdout};
use larder_tests::{Keeper, NodeOptions, NodeProcess, until};
use larder_wire::control::ClusterStatus;

/// A node that founds a cluster in a folder of `home`, and writes its log there.
fn founder(home: &Path, name: &str) -> NodeOptions {
    let mut options = NodeOptions::new(name, &format!("file://{}", home.display()));
    let state = home.join(name).display().to_string();
    options.args = vec!["--state".to_owned(), state, "--divide-timing".to_owned(), "5".to_owned()];
    options.env = vec![("LARDER_TOKEN".to_owned(), TOKEN.to_owned())];
    logging(options, home)
}

/// The same node, with its log in `home`.
fn logging(mut options: NodeOptions, home: &Path) -> NodeOptions {
    let script = format!("exec \"$@\" 2>>'{}'", log_of(home, &options.node_id).display());
    options.wrapper = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    options.env.push(("RUST_LOG".to_owned(), "info".to_owned()));
    options
}

fn log_of(home: &Path, name: &str) -> PathBuf {
    home.join(format!("{name}.log"))
}

fn log(home: &Path, name: &str) -> String {
    std::fs::read_to_string(log_of(home, name)).unwrap_or_default()
}

/// Runs a node that joins the node at `address` until it ends, which it must do by itself.
fn join(home: &Path, name: &str, token: &str, address: &str, divisor: &str) -> Output {
    let path = |end: &str| home.join(format!("{name}-joins.{end}")).display().to_string();
    let mut command = Command::new("timeout");
    command.arg("30").arg(binary("larder-node")).args(["--node-id", name, "--memory", "64MiB"]);
    command.args(["--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"]);
    command.args(["--origin", &format!("file://{}", home.display()), "--socket", &path("sock")]);
    command.args(["--state", &path("state"), "--join", address.trim_start_matches("http://")]);
    command.args(["--divide-timing", divisor]).env("LARDER_TOKEN", token);
    command.env("RUST_LOG", "info").output().expect("larder-node starts")
}

fn larder(cluster: &str, args: &[&str]) -> Output {
    tool::larder(cluster, &std::env::temp_dir(), Some(TOKEN), args)
}

fn until_it_has_a_ring(node: &NodeProcess) {
    until("the node has a ring", || larder(&node.address(), &["ring", "status"]).status.success());
}

/// The README prints `larder ring status` without an address.
#[test]
fn ring_status_finds_the_node_behind_the_default_socket() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let status = || {
        let mut command = Command::new(binary("larder"));
        command.args(["ring", "status"]).env("XDG_RUNTIME_DIR", home.path());
        command.env_remove("LARDER_CLUSTER").env_remove("LARDER_SOCKET");
        command.output().expect("larder starts")
    };
    let alone = status();
    assert_eq!(alone.status.code(), Some(2), "{}", said(&alone));
    let mut options = founder(home.path(), "a");
    options.socket = Some(home.path().join("larder/larder.sock"));
    let node = NodeProcess::start(&options);
    until("the node has a ring", || status().status.success());
    let found = stdout(&status());
    assert!(found.contains("ring      1 of cluster") && found.contains(&node.address()), "{found}");
}

#[test]
fn addresses_of_two_clusters_are_refused_with_both_names() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let nodes = ["a", "b"].map(|name| NodeProcess::start(&founder(home.path(), name)));
    nodes.iter().for_each(until_it_has_a_ring);
    let names = nodes.each_ref().map(|node| {
        let status = larder(&node.address(), &["ring", "status", "-o", "json"]);
        tool::json(&status)["cluster"].as_str().expect("a name")[..8].to_owned()
    });
    let both = nodes.each_ref().map(NodeProcess::address).join(",");
    for args in [&["ring", "status"][..], &["node", "ls"], &["node", "drain", "a", "--yes"]] {
        let refused = larder(&both, args);
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        assert!(said(&refused).contains("nodes of two clusters"), "{}", said(&refused));
        for (node, name) in nodes.iter().zip(&names) {
            let words = format!("{} is of cluster {name}", node.address());
            assert!(said(&refused).contains(&words), "{words:?} is not in {}", said(&refused));
        }
    }
}

#[test]
fn second_node_of_a_name_is_refused_while_the_first_answers() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let mut first = NodeProcess::start(&founder(home.path(), "a"));
    until_it_has_a_ring(&first);
    let second = join(home.path(), "a", TOKEN, &first.address(), "5");
    assert_eq!(second.status.code(), Some(1), "{}", said(&second));
    let words = format!("another node named 'a' answers at {}", first.address());
    assert!(said(&second).contains(&words), "{}", said(&second));
    assert!(said(&second).contains("--node-id"), "{}", said(&second));
    // Another port, so another address in the record.
    first.kill_now();
    let again = NodeProcess::start(&founder(home.path(), "a"));
    until("it has its name back", || {
        stdout(&larder(&again.address(), &["ring", "status"])).contains(&again.address())
    });
}

#[test]
fn founder_by_mistake_joins_once_told_to_forget_its_cluster() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let mut options = founder(home.path(), "b");
    // The folder that `join` uses.
    options.args[1] = home.path().join("b-joins.state").display().to_string();
    let name_of = |node: &NodeProcess| {
        let status = tool::json(&larder(&node.address(), &["ring", "status", "-o", "json"]));
        status["cluster"].as_str().expect("a name")[..8].to_owned()
    };
    let mut mistaken = NodeProcess::start(&options);
    until_it_has_a_ring(&mistaken);
    let own = name_of(&mistaken);
    mistaken.kill_now();
    let right = NodeProcess::start(&founder(home.path(), "a"));
    until_it_has_a_ring(&right);
    let theirs = name_of(&right);
    let refused = join(home.path(), "b", TOKEN, &right.address(), "5");
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    for words in [&own, &theirs, &right.address(), "--forget-cluster"] {
        assert!(said(&refused).contains(words), "{words:?} is not in {}", said(&refused));
    }
    let address = right.address().trim_start_matches("http://").to_owned();
    options.args.extend(["--join".to_owned(), address, "--forget-cluster".to_owned()]);
    // The second time there is nothing to forget.
    for _ in 0..2 {
        let mut joined = NodeProcess::start(&options);
        until("it is in the ring", || {
            let shown = larder(&right.address(), &["ring", "status", "-o", "json"]);
            let nodes = tool::json(&shown)["nodes"].clone();
            let nodes = nodes.as_array().expect("nodes");
            let active = nodes.iter().filter(|node| node["state"] == "active");
            active.filter(|node| node["why"].is_null()).count() == 2
        });
        assert_eq!(name_of(&joined), theirs);
        joined.kill_now();
    }
    let told = log(home.path(), "b");
    assert_eq!(told.matches("forgets cluster").count(), 1, "{told}");
}

#[test]
fn newcomer_ends_if_no_node_takes_it_in() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let first = NodeProcess::start(&founder(home.path(), "a"));
    until_it_has_a_ring(&first);
    let wrong = join(home.path(), "b", "a wrong secret of this test", &first.address(), "30");
    let silent = join(home.path(), "c", TOKEN, "127.0.0.1:1", "30");
    for (output, address, reason) in [
        (&wrong, first.address(), "that is not the token of this cluster"),
        (&silent, "http://127.0.0.1:1".to_owned(), "connection refused"),
    ] {
        let log = said(output);
        assert_eq!(output.status.code(), Some(1), "{log}");
        for words in ["has not reached its cluster yet", "took this node in", &address, reason] {
            assert!(log.to_lowercase().contains(words), "{words:?} is not in\n{log}");
        }
    }
    let told = log(home.path(), "a");
    assert!(told.contains("a node at 127.0.0.1:") && told.contains("was refused"), "{told}");
    assert_eq!(told.matches("was refused").count(), 1, "{told}");
}

#[test]
fn node_tells_of_an_origin_that_does_not_answer() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let server = S3Server::start(home.path(), &Options::default()).expect("an S3 server");
    let mut deaf = server.env();
    deaf.retain(|(name, _)| !name.starts_with("AWS_ENDPOINT_URL"));
    let mut mute = deaf.clone();
    deaf.push(("AWS_ENDPOINT_URL".to_owned(), "http://127.0.0.1:1".to_owned()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    mute.push(("AWS_ENDPOINT_URL".to_owned(), format!("http://{address}")));
    for (name, env, reason) in [
        ("unknown", server.env(), "was not found"),
        ("deaf", deaf, "failed"),
        ("mute", mute, "did not answer within 1.5s"),
    ] {
        let mut options = NodeOptions::new(name, "s3://nothing/data");
        options.env = env;
        let node = NodeProcess::start(&logging(options, home.path()));
        until("it has told", || log(home.path(), name).contains("WARN"));
        let told = log(home.path(), name);
        assert!(told.contains("--origin: ") && told.contains("s3://nothing/data"), "{told}");
        assert!(told.contains("larder doctor s3://nothing/data"), "{told}");
        assert!(told.contains(reason), "{reason:?} is not in\n{told}");
        let shown = larder(&node.address(), &["node", "show", name]);
        let page = stdout(&shown);
        let line = page.lines().find(|line| line.starts_with("unusable"));
        assert!(line.is_some_and(|line| line.contains("s3://nothing/data")), "{page}");
    }
}

#[test]
fn commands_on_unknown_nodes_exit_alike() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let node = NodeProcess::start(&founder(home.path(), "a"));
    until_it_has_a_ring(&node);
    for args in [
        &["node", "drain", "x", "--yes"][..],
        &["node", "undrain", "x", "--yes"],
        &["node", "show", "x"],
        &["ring", "remove", "x", "--yes"],
        &["ring", "plan", "--add", "x"],
        &["ring", "plan", "--drain", "x"],
        &["ring", "takeover", "--lost", "x", "--yes"],
    ] {
        let refused = larder(&node.address(), args);
        assert_eq!(refused.status.code(), Some(3), "{args:?}: {}", said(&refused));
        assert!(said(&refused).contains("'x'"), "{args:?}: {}", said(&refused));
    }
}

#[test]
fn status_of_a_node_without_a_record_fails() {
    let away = "http://127.0.0.1:1: connection refused".to_owned();
    let status = ClusterStatus { node_id: "a".to_owned(), away, ..ClusterStatus::default() };
    let node = ScriptedNode::start(Script { statuses: vec![status], ..Script::default() });
    let shown = larder(&node.address(), &["ring", "status"]);
    assert_eq!(shown.status.code(), Some(5), "{}", said(&shown));
    for words in ["has not seen the record", "connection refused", "hint: wait until it has joined"]
    {
        assert!(said(&shown).contains(words), "{words:?} is not in {}", said(&shown));
    }
}

/// The first node is given up for lost, with its coordinator, and comes back on its old folder.
#[test]
fn node_removed_after_a_takeover_joins_at_its_first_start() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let origin = format!("file://{}", home.path().display());
    let mut cluster = LivingCluster::start(Keeper::FirstNode, 2, &origin, &[]);
    cluster.options[0] = logging(cluster.options[0].clone(), home.path());
    let address = cluster.nodes[1].address();
    until("the other node takes over", || {
        cluster.nodes[0].kill_now();
        let taken = larder(&address, &["ring", "takeover", "--lost", "a", "--yes"]);
        // A kill between the news of a record and its copy leaves the record to the dead node.
        if said(&taken).contains("newer record") {
            cluster.restart(0);
            cluster.until_ring(&[0, 1]);
        }
        taken.status.success()
    });
    let removed = larder(&address, &["ring", "remove", "a", "--yes"]);
    assert!(removed.status.success(), "{}", said(&removed));
    cluster.until_ring_of(&[1], &["b"]);
    cluster.restart(0);
    cluster.until_ring(&[0, 1]);
    let told = log(home.path(), "a");
    assert!(told.contains("this node follows it from now on"), "{told}");
    assert!(told.contains("a wants to join"), "{told}");
}
