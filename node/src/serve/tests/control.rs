//! The control plane through its own client, and the HTTP pages.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use larder_base::{ErrorKind, limits};
use larder_wire::{
    control::{
        DescribeRequest, ExplainRequest, FetchManifestRequest, GetFillProgressRequest,
        GetOpenProgressRequest, GetRingRequest, ListDatasetsRequest, ListFailuresRequest,
        ListShardsRequest, OpenDatasetRequest, ShardState, admin_client::AdminClient,
        node_client::NodeClient, ticket,
    },
    status::from_status,
};
use tonic::transport::server::TcpConnectInfo;
use tonic::transport::{Channel, Endpoint};

use super::{Client, TestNode};
use crate::cache::Priority;
use crate::serve::control::admin::{self, Admin};
use crate::serve::http;
use crate::testing::{Folder, until};

const ROOMY: u64 = 64 << 20;

/// Calls a node.
pub(super) fn call<T>(node: &TestNode, calls: impl AsyncFnOnce(NodeClient<Channel>) -> T) -> T {
    node.runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", node.listen)).unwrap();
        calls(NodeClient::new(endpoint.connect().await.unwrap())).await
    })
}

fn get(node: &TestNode, path: &str) -> String {
    let mut socket = TcpStream::connect(node.listen).unwrap();
    socket.set_read_timeout(Some(super::PATIENCE)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn open_request(folder: &Folder) -> OpenDatasetRequest {
    OpenDatasetRequest { uri: folder.uri().to_string(), ..OpenDatasetRequest::default() }
}

#[test]
fn a_dataset_is_opened_and_its_ticket_opens_the_data_plane() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let opened = call(&node, async |mut client| {
        client.open_dataset(open_request(&folder)).await.unwrap().into_inner()
    });
    assert_eq!(opened.snapshot, node.dataset.snapshot().as_bytes()[..]);
    assert_eq!((opened.samples, opened.shards, opened.indexed_now), (40, 4, false));
    assert_eq!(opened.bytes, 40_000);
    let manifest = opened.manifest_uri.strip_prefix("file://").unwrap();
    assert_eq!(std::fs::read(manifest).unwrap(), node.dataset.manifest().as_bytes());
    let mut client = Client::new(TcpStream::connect(node.data).unwrap());
    client.hello(ticket(&opened.ticket).unwrap()).unwrap();
    assert_eq!(client.gather(&node.gather([33])).unwrap().rows, [folder.row(33)]);
}

#[test]
fn progress_of_fills_counts_what_is_here_and_what_is_missing() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let ask = |shards: Vec<u32>| {
        let snapshot = Bytes::copy_from_slice(node.dataset.snapshot().as_bytes());
        let request = GetFillProgressRequest { snapshot, shards };
        call(&node, async |mut client| client.get_fill_progress(request).await)
    };
    let before = ask(vec![0, 3]).unwrap().into_inner();
    assert_eq!((before.here_bytes, before.missing_bytes), (0, vec![10_000, 10_000]));
    assert!(before.budget_bytes >= ROOMY);
    let mut client = node.remote();
    client.gather(&node.gather([33])).unwrap();
    until("the shard is sealed", || ask(vec![3]).unwrap().into_inner().missing_bytes == [0]);
    let after = ask(vec![0, 3]).unwrap().into_inner();
    assert_eq!(after.missing_bytes, [10_000, 0]);
    assert!((10_000..=ROOMY).contains(&after.here_bytes), "{after:?}");
    assert_eq!(from_status(ask(vec![4]).unwrap_err()).kind(), ErrorKind::NotFound);
    let many = vec![0; limits::PAGE_ENTRIES_MAX as usize + 1];
    assert_eq!(from_status(ask(many).unwrap_err()).kind(), ErrorKind::InvalidArgument);
}

#[test]
fn progress_of_an_opening_that_nobody_waits_for_is_not_found() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let request = GetOpenProgressRequest { uri: folder.uri().to_string(), ..Default::default() };
    let answer = call(&node, async |mut client| client.get_open_progress(request).await);
    assert_eq!(from_status(answer.unwrap_err()).kind(), ErrorKind::NotFound);
}

#[test]
fn read_only_callers_do_not_block_plans_of_operators() {
    let folder = Folder::new(10, 100, 10_000, false);
    let node = TestNode::unmanned(&folder, ROOMY);
    let admin = Admin::new(&node.servers.context);
    let from = |address: &str| {
        let mut request = tonic::Request::new(());
        let remote_addr = Some(address.parse().unwrap());
        request.extensions_mut().insert(TcpConnectInfo { local_addr: None, remote_addr });
        request
    };
    // Without a token only the own host is entitled.
    let (operator, anybody) = (from("127.0.0.1:1"), from("10.0.0.1:1"));
    let taken: Vec<_> = (0..admin::PLANS_OF_ANYBODY_MAX)
        .map(|_| admin.turn_to_plan(&anybody).expect("there is room for one"))
        .collect();
    let refused = admin.turn_to_plan(&anybody).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
    assert!(refused.message().contains("--token-file"), "{refused}");
    let held: Vec<_> = (0..admin::PLANS_AT_ONCE_MAX)
        .map(|_| admin.turn_to_plan(&operator).expect("operators have their own"))
        .collect();
    assert!(admin.turn_to_plan(&operator).is_err());
    drop((taken, held));
    drop(admin.turn_to_plan(&anybody).unwrap());
    drop(admin.turn_to_plan(&operator).unwrap());
}

#[test]
fn oversized_request_of_an_operator_is_refused() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let explain = |bytes: usize| {
        node.runtime.block_on(async {
            let endpoint = Endpoint::from_shared(format!("http://{}", node.listen)).unwrap();
            let mut client = AdminClient::new(endpoint.connect().await.unwrap());
            let snapshot = vec![7; bytes].into();
            let request = ExplainRequest { snapshot, ..ExplainRequest::default() };
            client.explain(request).await.unwrap_err()
        })
    };
    let most = http::ADMIN_REQUEST_BYTES_MAX;
    assert!(!explain(most / 2).message().contains("length limit"));
    let refused = explain(most);
    assert!(refused.message().contains("length limit"), "{refused}");
}

#[test]
fn manifest_is_streamed_completely() {
    let folder = Folder::new(5_000, 4096, 4096, false);
    let node = TestNode::new(&folder, ROOMY);
    let manifest = node.dataset.manifest().as_bytes();
    assert!(manifest.len() > limits::MANIFEST_CHUNK_BYTES);
    let fetched = call(&node, async |mut client| {
        let snapshot = Bytes::copy_from_slice(node.dataset.snapshot().as_bytes());
        let mut files = Vec::new();
        for leaf in [None, Some(0)] {
            let request = FetchManifestRequest { snapshot: snapshot.clone(), leaf };
            let mut chunks = client.fetch_manifest(request).await.unwrap().into_inner();
            let mut fetched = Vec::new();
            while let Some(piece) = chunks.message().await.unwrap() {
                fetched.extend(piece.chunk);
            }
            files.push(fetched);
        }
        files
    });
    assert!(fetched[0] == manifest);
    let leaf = folder.leaf(&node.dataset, 0);
    assert!(fetched[1] == leaf.as_bytes());
}

#[test]
fn forbidden_or_missing_dataset_is_refused_by_kind() {
    let folder = Folder::new(10, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let long = format!("file:///{}", "a".repeat(5000));
    let cases = [
        ("file:///etc", ErrorKind::PermissionDenied),
        ("no uri at all", ErrorKind::InvalidArgument),
        (long.as_str(), ErrorKind::InvalidArgument),
    ];
    for (uri, kind) in cases {
        let refused = call(&node, async |mut client| {
            let request = OpenDatasetRequest { uri: uri.to_owned(), ..Default::default() };
            from_status(client.open_dataset(request).await.unwrap_err())
        });
        assert_eq!(refused.kind(), kind, "{uri}: {refused}");
        let hints = refused.hint().is_some_and(|hint| hint.contains("--origin"));
        assert_eq!(hints, kind == ErrorKind::PermissionDenied, "{uri}: {refused:?}");
    }
    let refused = call(&node, async |mut client| {
        let snapshot = Bytes::from_static(&[1; 32]);
        let request = FetchManifestRequest { snapshot, leaf: None };
        from_status(client.fetch_manifest(request).await.unwrap_err())
    });
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let refused = call(&node, async |mut client| {
        let snapshot = Bytes::copy_from_slice(node.dataset.snapshot().as_bytes());
        let request = FetchManifestRequest { snapshot, leaf: Some(1) };
        from_status(client.fetch_manifest(request).await.unwrap_err())
    });
    assert_eq!(refused.message(), "leaf 1 of a manifest of 1 leaves");
}

#[test]
fn a_node_describes_itself_and_its_ring() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    node.remote().gather(&node.gather(0..40)).unwrap();
    until("the fills end", || node.shared.cache.usage().filling.shards == 0);
    let (described, ring) = call(&node, async |mut client| {
        let described = client.describe(DescribeRequest {}).await.unwrap().into_inner();
        (described, client.get_ring(GetRingRequest {}).await.unwrap().into_inner())
    });
    assert_eq!(described.node_id, "n1");
    assert_eq!(described.data_address, node.data.to_string());
    assert_eq!(described.socket_path, node.socket_path().display().to_string());
    let (memory, counters) = (described.memory.unwrap(), described.counters.unwrap());
    assert_eq!(memory.budget_bytes, node.shared.cache.usage().limit_bytes);
    assert!(memory.resident_bytes > 40_000);
    assert_eq!((counters.gathers, counters.rows_origin, counters.fills_completed), (1, 40, 4));
    assert_eq!(counters.fills_started, 4);
    assert_eq!(counters.sent_bytes, 40_000);
    assert_eq!(ring.members.len(), 1);
    assert_eq!(ring.version, described.ring_version);
}

#[test]
fn listings_are_paged_without_gaps() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    node.remote().gather(&node.gather(0..40)).unwrap();
    until("the fills end", || node.shared.cache.usage().filling.shards == 0);
    let (datasets, shards) = call(&node, async |mut client| {
        let datasets = client.list_datasets(ListDatasetsRequest::default()).await.unwrap();
        let (mut token, mut shards) = (String::new(), Vec::new());
        loop {
            let request =
                ListShardsRequest { page_size: 3, page_token: token, ..Default::default() };
            let page = client.list_shards(request).await.unwrap().into_inner();
            assert!(page.shards.len() <= 3);
            shards.extend(page.shards);
            token = page.next_page_token;
            if token.is_empty() {
                return (datasets.into_inner().datasets, shards);
            }
        }
    });
    assert_eq!(datasets.len(), 1);
    assert_eq!((datasets[0].shards, datasets[0].resident_shards), (4, 4));
    let listed: Vec<_> = shards.iter().map(|one| (one.shard, one.state())).collect();
    assert_eq!(listed, [0, 1, 2, 3].map(|shard| (shard, ShardState::Resident)));
}

#[test]
fn listings_show_the_state_of_shards_and_users_of_datasets() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::unmanned(&folder, ROOMY);
    let mut client = node.local();
    let found = node.shared.cache.find(&node.dataset, &[0, 1], Priority::Demand);
    let list = || {
        call(&node, async |mut client| {
            let shards = client.list_shards(ListShardsRequest::default()).await.unwrap();
            let datasets = client.list_datasets(ListDatasetsRequest::default()).await.unwrap();
            (shards.into_inner().shards, datasets.into_inner().datasets)
        })
    };
    let (shards, datasets) = list();
    let states: Vec<_> = shards.iter().map(|one| (one.state(), one.waiters)).collect();
    assert_eq!(states, [(ShardState::Queued, 1), (ShardState::Queued, 1)]);
    assert_eq!(datasets[0].sessions, 0);
    drop(found);
    node.start_workers();
    client.gather(&node.gather([0])).unwrap();
    until("the fills end", || node.shared.cache.usage().filling.shards == 0);
    std::thread::park_timeout(std::time::Duration::from_millis(5));
    let (shards, datasets) = list();
    assert!(shards.iter().all(|one| one.state() == ShardState::Resident));
    assert!(shards[0].age_ms >= 5 && shards[0].age_ms >= shards[0].idle_ms, "{shards:?}");
    assert_eq!(datasets[0].sessions, 1);
}

#[test]
fn abandoned_fill_is_listed_with_its_reason() {
    let folder = Folder::new(10, 1000, 1 << 20, false);
    let node = TestNode::new(&folder, ROOMY);
    std::fs::write(folder.file(), "something else").unwrap();
    node.remote().gather(&node.gather([0])).unwrap_err();
    let listed = call(&node, async |mut client| {
        client.list_failures(ListFailuresRequest::default()).await.unwrap().into_inner()
    });
    assert_eq!((listed.failures.len(), listed.total), (1, 1));
    assert_eq!(listed.failures[0].kind, u32::from(ErrorKind::DataChanged.number()));
    let [failure] = &listed.failures[..] else { panic!("{listed:?}") };
    assert_eq!(failure.object, folder.uri().join("rows.npy").unwrap().to_string());
    let offset = folder.offset(&node.dataset, 0);
    assert_eq!((failure.offset, failure.bytes), (offset, 10_000));
    assert_eq!(failure.tries, 2, "what would end the shard is asked for once more");
}

#[test]
fn metrics_and_health_are_pages_on_the_same_port() {
    let folder = Folder::new(10, 1000, 1 << 20, false);
    let node = TestNode::new(&folder, ROOMY);
    node.remote().gather(&node.gather([0, 1])).unwrap();
    assert!(get(&node, "/healthz").starts_with("HTTP/1.1 200"));
    let metrics = get(&node, "/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    for name in ["larder_rows_total", "larder_memory_bytes", "larder_origin_requests_total"] {
        assert!(metrics.contains(name), "{name} is missing in {metrics}");
    }
    assert!(get(&node, "/nothing").starts_with("HTTP/1.1 404"));
    node.shared.stopping.cancel();
    assert!(get(&node, "/healthz").starts_with("HTTP/1.1 503"));
}
