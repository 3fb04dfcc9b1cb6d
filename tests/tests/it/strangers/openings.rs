//! Datasets that a stranger opens at a node.

use larder_tests::node::binary;
use larder_tests::tool::said;
use larder_tests::{NodeOptions, NodeProcess, write_npy};
use larder_wire::control::OpenDatasetRequest;
use larder_wire::control::node_client::NodeClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::users::{self, Other};

pub(super) async fn connected(node: &NodeProcess) -> NodeClient<Channel> {
    let endpoint = Endpoint::new(node.address()).expect("an address");
    NodeClient::new(endpoint.connect().await.expect("the node listens"))
}

/// Opens a dataset. `manifest` may be empty.
pub(super) async fn open(
    mut node: NodeClient<Channel>,
    uri: String,
    manifest: &str,
) -> Result<(), Status> {
    let (manifest_uri, client_name) = (manifest.to_owned(), "stranger".to_owned());
    let request =
        OpenDatasetRequest { uri, manifest_uri, client_name, identity: 0, write_never: false };
    node.open_dataset(request).await.map(drop)
}

#[test]
fn one_user_leaves_places_of_open_datasets_to_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(other) = Other::new(folder.path()) else { return };
    // One user may have 256 of 1,024 places.
    let uris: Vec<_> = (0..257)
        .map(|number| {
            let set = folder.path().join(format!("set-{number}"));
            std::fs::create_dir(&set).expect("a folder");
            write_npy(&set.join("x.npy"), 16);
            format!("file://{}", set.display())
        })
        .collect();
    let node = users::node(folder.path(), &["--any-local-user"]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (last, first) = uris.split_last().expect("there are some");
    runtime.block_on(async {
        let client = connected(&node).await;
        for uri in first {
            open(client.clone(), uri.clone(), "").await.expect("there is a place");
        }
        let refused = open(client.clone(), last.clone(), "").await.expect_err("too many");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert!(refused.message().contains("256 datasets are open for user 0"), "{refused:?}");
        open(client, first[0].clone(), "").await.expect("it is open already");
    });
    let friend = other.asks(&node, &["dataset", "show", last]);
    assert!(friend.status.success(), "{}", said(&friend));
}

#[test]
fn manifest_of_a_stranger_shows_no_object() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [secret, uploads] = ["secret", "uploads"].map(|name| folder.path().join(name));
    std::fs::create_dir(&secret).expect("a folder");
    write_npy(&secret.join("x.npy"), 16);
    let [uri, manifest] = [&secret, &uploads].map(|path| format!("file://{}", path.display()));
    let mut index = std::process::Command::new(binary("larder"));
    index.args(["dataset", "index", &uri, "--manifest", &manifest, "--quiet"]);
    assert!(index.status().expect("larder starts").success());

    let asked = |origins: &[String]| {
        let mut options = NodeOptions::new("a", &format!("file://{}", folder.path().display()));
        options.origins.extend(origins.iter().cloned());
        let node = NodeProcess::start(&options);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let answer = async { open(connected(&node).await, uri.clone(), &manifest).await };
        runtime.block_on(answer)
    };
    let refused = asked(&[]).expect_err("the folder is none that the operator named");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(refused.message().contains("is not beside"), "{refused:?}");
    asked(std::slice::from_ref(&manifest)).expect("the operator named the folder");
}
