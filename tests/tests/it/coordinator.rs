//! The coordinator of real nodes: started by flags, served on the control port, ended by a signal.

use larder_tests::{NodeOptions, NodeProcess, tool, until};
use larder_wire::control::{
    ClusterView, JOIN_TOKEN_METADATA, LocateRequest, LocateResponse, ReadClusterRequest,
    coordinator_client::CoordinatorClient,
};
use tonic::metadata::BinaryMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

const TOKEN: &str = "a secret of this test";

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A node over a folder of its own, in a cluster or to found one.
fn node(home: &std::path::Path, name: &str, port: u16, join: Option<&NodeProcess>) -> NodeProcess {
    let mut options = NodeOptions::new(name, &format!("file://{}", home.display()));
    options.memory = "16MiB".to_owned();
    options.port = port;
    let state = home.join(name).display().to_string();
    options.args = vec!["--state".to_owned(), state];
    options.env = vec![("LARDER_TOKEN".to_owned(), TOKEN.to_owned())];
    if let Some(first) = join {
        let address = first.address().trim_start_matches("http://").to_owned();
        options.args.extend(["--join".to_owned(), address]);
    }
    NodeProcess::start(&options)
}

async fn client(node: &NodeProcess) -> CoordinatorClient<Channel> {
    let endpoint = Endpoint::new(node.address()).expect("an address");
    CoordinatorClient::new(endpoint.connect().await.expect("the node listens"))
}

/// Adds the token to a message.
fn shown<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let token = BinaryMetadataValue::from_bytes(TOKEN.as_bytes());
    request.metadata_mut().insert_bin(JOIN_TOKEN_METADATA, token);
    request
}

fn locate(node: &NodeProcess) -> LocateResponse {
    runtime().block_on(async {
        let answer = client(node).await.locate(shown(LocateRequest {})).await;
        answer.expect("it answers").into_inner()
    })
}

/// Returns record and announcements from the coordinating node.
fn read(node: &NodeProcess) -> ClusterView {
    runtime().block_on(async {
        let answer = client(node).await.read_cluster(shown(ReadClusterRequest {})).await;
        answer.expect("it coordinates").into_inner()
    })
}

fn announced(node: &NodeProcess) -> Vec<String> {
    let nodes = read(node).announcements.expect("a view").nodes;
    nodes.into_iter().map(|node| node.node_id).collect()
}

#[test]
fn first_node_leads_second_follows_and_restart_resumes() {
    let home = tempfile::tempdir().expect("a folder");
    let mut first = node(home.path(), "a", 0, None);
    let second = node(home.path(), "b", 0, Some(&first));
    runtime().block_on(async {
        let unshown = client(&first).await.read_cluster(ReadClusterRequest {}).await;
        assert_eq!(unshown.expect_err("no token").code(), Code::Unauthenticated);
    });
    until("both say that they live", || announced(&first) == ["a", "b"]);
    let revision = read(&first).record.expect("the first founded a cluster").revision;
    assert!(locate(&first).coordinates);
    until("the second has a copy", || locate(&second).revision >= revision);
    let followed = locate(&second);
    assert_eq!((followed.coordinates, followed.coordinator), (false, first.address()));

    let port = first.address().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    first.kill_now();
    until("the second notices", || !locate(&second).reaches);
    let again = node(home.path(), "a", port.expect("a port"), None);
    assert!(read(&again).record.expect("the record was kept").revision >= revision);
    until("the second is back", || locate(&second).reaches && announced(&again) == ["a", "b"]);
    // The second node stops although it watches the first, and withdraws its announcement.
    assert_eq!(second.stop(), Some(0));
    assert_eq!(announced(&again), ["a"]);
    assert_eq!(again.stop(), Some(0));
}

#[test]
fn coordinators_full_disk_is_in_status_and_metric() {
    let home = tempfile::tempdir().expect("a folder");
    let first = node(home.path(), "a", 0, None);
    let second = node(home.path(), "b", 0, Some(&first));
    until("both say that they live", || announced(&first) == ["a", "b"]);
    let larder = |args: &[&str]| tool::larder(&second.address(), home.path(), Some(TOKEN), args);
    until("both are in the ring", || {
        let status = larder(&["ring", "status", "-o", "json"]);
        status.status.success() && tool::json(&status)["nodes"][1]["state"] == "active"
    });
    let away = || first.metric("larder_cluster_coordinator_away");
    assert_eq!(away(), 0);
    // A folder in the place of the next file refuses each write.
    let in_the_way = home.path().join("a/state.tmp");
    std::fs::create_dir(&in_the_way).expect("a folder");
    assert!(!larder(&["node", "drain", "b", "--yes"]).status.success());
    until("the metric says it", || away() == 1);
    let told = tool::said(&larder(&["ring", "status"]));
    assert!(told.contains("its disk takes nothing"), "{told}");
    std::fs::remove_dir(&in_the_way).expect("it is empty");
    until("the disk is tried again", || away() == 0);
    assert_eq!(tool::said(&larder(&["ring", "status"])), "");
}

#[test]
fn coordinator_that_founded_anew_is_shown_as_elsewhere() {
    let home = tempfile::tempdir().expect("a folder");
    let mut first = node(home.path(), "a", 0, None);
    let second = node(home.path(), "b", 0, Some(&first));
    let status = || tool::larder(&second.address(), home.path(), Some(TOKEN), &["ring", "status"]);
    until("both are in the ring", || tool::stdout(&status()).contains("UA  b"));
    let port = first.address().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    first.kill_now();
    std::fs::remove_dir_all(home.path().join("a")).expect("its folder is lost");
    let _again = node(home.path(), "a", port.expect("a port"), None);
    until("the row and the warning say it", || {
        let shown = status();
        tool::stdout(&shown).contains("DE  a     elsewhere")
            && tool::said(&shown).contains("it keeps the record of another cluster")
    });
}
