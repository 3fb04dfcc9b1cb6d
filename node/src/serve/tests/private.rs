//! A private node: the requests of its user's processes, and its access rules.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use larder_base::{Error, ErrorKind};
use larder_wire::{
    control::{OpenDatasetRequest, TICKET_METADATA, node_client::NodeClient},
    data::{Admit, Admitted, ErrorReply, Kind},
    status::from_status,
};
use std::os::unix::net::UnixStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;

use super::{Client, PATIENCE, TestNode};
use crate::clock;
use crate::testing::Folder;

const ROOMY: u64 = 64 << 20;

impl Client<UnixStream> {
    fn admit(&mut self, prefix: &str) -> Result<Admitted, Error> {
        let wanted = Admit { prefix: prefix.to_owned(), variables: Vec::new() };
        self.send(|out| wanted.encode(3, out));
        let (header, body) = self.frame()?;
        match header.kind() {
            Kind::Admitted => Ok(Admitted::decode(&body)?),
            _ => Err(ErrorReply::decode(&body)?.error),
        }
    }
}

fn private(folder: &Folder) -> TestNode {
    TestNode::with_arguments(folder, ROOMY, &["--private"])
}

/// Opens a dataset as a control client that shows these bytes, if any.
fn open(node: &TestNode, folder: &Folder, shown: Option<[u8; 16]>) -> Result<(), Error> {
    let uri = folder.uri().to_string();
    let mut request = tonic::Request::new(OpenDatasetRequest { uri, ..Default::default() });
    if let Some(bytes) = shown {
        request.metadata_mut().insert_bin(TICKET_METADATA, MetadataValue::from_bytes(&bytes));
    }
    node.runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", node.listen)).unwrap();
        let mut client = NodeClient::new(endpoint.connect().await.unwrap());
        client.open_dataset(request).await.map(drop).map_err(from_status)
    })
}

#[test]
fn owner_can_add_prefixes_and_gets_the_control_address() {
    let (first, second) =
        (Folder::new(40, 1000, 10_000, false), Folder::new(40, 1000, 10_000, false));
    let node = private(&first);
    let mut owner = node.local();
    let admitted = owner.admit(&first.uri().to_string()).unwrap();
    assert_eq!(admitted.control, format!("http://{}", node.listen));
    assert_eq!(admitted.pid, std::process::id());
    assert_eq!(admitted.memory_bytes, node.shared.cache.usage().limit_bytes);
    let ticket = Some(*admitted.ticket.as_bytes());
    let refused = open(&node, &second, ticket).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    owner.admit(&second.uri().to_string()).unwrap();
    open(&node, &second, ticket).unwrap();
    let wrong = owner.admit("no address").unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn prefixes_without_an_open_dataset_make_room_for_others() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = private(&folder);
    let mut owner = node.local();
    let used = folder.uri().to_string();
    let ticket = Some(*owner.admit(&used).unwrap().ticket.as_bytes());
    open(&node, &folder, ticket).unwrap();
    // More than a node takes.
    for number in 0..1_100 {
        owner.admit(&format!("{used}-{number}")).unwrap();
    }
    let prefixes = node.shared.catalog.prefixes();
    let last: Vec<String> = prefixes.iter().rev().map(ToString::to_string).collect();
    assert_eq!(last[0], format!("{used}-1099"));
    assert!(prefixes.len() <= 1_024 && last.contains(&used), "that of an open dataset stays");
}

#[test]
fn control_calls_need_the_ticket_from_the_socket() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = private(&folder);
    for shown in [None, Some([0; 16])] {
        let refused = open(&node, &folder, shown).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
        assert!(refused.message().contains("one user"), "{refused}");
    }
    let admitted = node.local().admit(&folder.uri().to_string()).unwrap();
    open(&node, &folder, Some(*admitted.ticket.as_bytes())).unwrap();
}

#[test]
fn shared_node_tells_its_address_and_accepts_no_prefixes() {
    let (folder, other) =
        (Folder::new(40, 1000, 10_000, false), Folder::new(40, 1000, 10_000, false));
    let node = TestNode::unmanned(&folder, ROOMY);
    let refused = node.local().admit(&other.uri().to_string()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    assert_eq!(node.local().admit("").unwrap().control, format!("http://{}", node.listen));
    open(&node, &folder, None).unwrap();
    let outside = open(&node, &other, None).unwrap_err();
    assert_eq!(outside.kind(), ErrorKind::PermissionDenied, "{outside}");
}

#[test]
fn node_is_unused_only_after_the_whole_time_without_clients() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::unmanned(&folder, ROOMY);
    let (send, unused) = sync_channel(1);
    let user = node.local();
    let span = Duration::from_millis(200);
    node.servers.when_unused(span, move || send.try_send(()).unwrap()).unwrap();
    assert!(unused.recv_timeout(2 * span).is_err(), "there is a user");
    open(&node, &folder, None).unwrap();
    drop(user);
    // Clients that come and go start the time anew.
    let begun = clock::now();
    for _ in 0..4 {
        drop(node.local());
        let _ = unused.recv_timeout(span / 4);
    }
    unused.recv_timeout(PATIENCE).expect("nobody uses it any more");
    assert!(clock::now() - begun >= span + span / 4 * 3, "the last visit counts");
    // It is closing: a client that connects now is refused, and starts another node.
    let mut late = Client::new(UnixStream::connect(node.socket_path()).unwrap());
    let refused = late.hello(larder_base::Ticket::from_bytes([0; 16])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}

#[test]
fn unused_time_starts_only_after_an_open_that_succeeded() {
    let (folder, other) =
        (Folder::new(40, 1000, 10_000, false), Folder::new(40, 1000, 10_000, false));
    let begun = clock::now();
    for granted_first in [false, true] {
        let node = TestNode::unmanned(&folder, ROOMY);
        let (send, unused) = sync_channel(1);
        let user = node.local();
        let span = if granted_first { Duration::from_millis(300) } else { PATIENCE };
        node.servers.when_unused(span, move || send.try_send(()).unwrap()).unwrap();
        if granted_first {
            open(&node, &folder, None).unwrap();
            drop(user);
            let ended = clock::now();
            // Refused clients come and go until the node ends. They do not make it stay.
            while unused.recv_timeout(span / 10).is_err() {
                assert!(ended.elapsed() < PATIENCE, "refused clients keep the node");
                if let Ok(connection) = UnixStream::connect(node.socket_path()) {
                    let _ = open(&node, &other, None).unwrap_err();
                    drop(connection);
                }
            }
        } else {
            open(&node, &other, None).unwrap_err();
            drop(user);
            unused.recv_timeout(PATIENCE / 2).expect("it ends with its only user");
        }
    }
    assert!(begun.elapsed() < PATIENCE);
}
