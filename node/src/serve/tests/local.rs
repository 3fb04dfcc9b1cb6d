//! Clients on this host: attaching, releasing, recalls, and deaths.

use larder_base::{ErrorKind, Ring};
use larder_extent::{Attached as AttachedExtent, ExtentId};
use larder_wire::data::{
    Attach, AttachManifest, Attached, ErrorReply, FrameHeader, Kind, Recall, Release,
};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::client_process::ClientProcess;
use super::{Client, TestNode};
use crate::cache::Priority;
use crate::cluster::Placements;
use crate::testing::{Folder, member, until};

const ROOMY: u64 = 64 << 20;

impl Client<UnixStream> {
    /// Requests a shard until it is there, and maps it.
    pub(super) fn attach(&mut self, attach: Attach) -> AttachedExtent {
        loop {
            self.send(|out| attach.encode(7, out));
            let (header, body) = self.frame().unwrap();
            match header.kind() {
                Kind::Pending => std::thread::yield_now(),
                _ => return self.map(header, &body),
            }
        }
    }

    fn map(&mut self, header: FrameHeader, body: &[u8]) -> AttachedExtent {
        assert_eq!((header.kind(), header.request()), (Kind::Attached, 7));
        let id = ExtentId::from_bytes(Attached::decode(body).unwrap().extent);
        AttachedExtent::shared(self.fds.pop().unwrap(), id).unwrap()
    }
}

fn shard(node: &TestNode, shard: u32) -> Attach {
    Attach { snapshot: node.dataset.snapshot(), shard }
}

fn leases(node: &TestNode) -> (u64, usize) {
    (node.servers.context.clients.leases(), node.shared.cache.holders().len())
}

#[test]
fn a_shard_is_attached_read_and_released() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let mut client = node.local();
    let extent = client.attach(shard(&node, 1));
    let manifest = node.dataset.manifest();
    let first = usize::try_from(manifest.shard(1).first_sample).unwrap();
    assert_eq!(extent.row(0, 0), folder.row(first));
    extent.verify().unwrap();
    assert_eq!(leases(&node), (1, 1));
    let Attach { snapshot, shard } = shard(&node, 1);
    client.send(|out| Release { snapshot, shard }.encode(0, out));
    until("the lease ends", || leases(&node) == (0, 0));
    // The mapping is the client's own.
    assert_eq!(extent.row(0, 0), folder.row(first));
}

#[test]
fn the_manifest_is_attached_like_a_shard() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let mut client = node.local();
    let snapshot = node.dataset.snapshot();
    client.send(|out| AttachManifest { snapshot, leaf: None }.encode(7, out));
    let (header, body) = client.frame().unwrap();
    let extent = client.map(header, &body);
    assert_eq!(extent.region(0), node.dataset.manifest().as_bytes());
    assert_eq!(leases(&node), (0, 0));
}

#[test]
fn cold_rows_are_gathered_on_the_same_connection() {
    for row_bytes in [1000, 40_000] {
        let folder = Folder::new(40, row_bytes, 400_000, false);
        let node = TestNode::new(&folder, ROOMY);
        let mut client = node.local();
        for _ in 0..2 {
            let got = client.gather(&node.gather([39, 0, 17])).unwrap();
            assert!(got.rows == [folder.row(39), folder.row(0), folder.row(17)]);
            until("the fills end", || node.shared.cache.usage().filling.shards == 0);
        }
    }
}

#[test]
fn unkept_or_missing_shard_is_reported_as_such() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, 4096);
    let mut client = node.local();
    client.send(|out| shard(&node, 0).encode(7, out));
    assert_eq!(client.frame().unwrap().0.kind(), Kind::NotKept);
    client.send(|out| shard(&node, 1000).encode(7, out));
    let (header, body) = client.frame().unwrap();
    assert_eq!(header.kind(), Kind::Error);
    assert_eq!(ErrorReply::decode(&body).unwrap().error.kind(), ErrorKind::NotFound);
    assert_eq!(leases(&node), (0, 0));
}

#[test]
fn a_pending_shard_is_not_leased() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::unmanned(&folder, ROOMY);
    let mut client = node.local();
    client.send(|out| shard(&node, 0).encode(7, out));
    assert_eq!(client.frame().unwrap().0.kind(), Kind::Pending);
    assert_eq!(leases(&node), (0, 0));
}

#[test]
fn dropped_shard_is_recalled_from_its_client() {
    let folder = Folder::new(10, 1000, 1 << 20, false);
    let node = TestNode::new(&folder, ROOMY);
    let mut client = node.local();
    let extent = client.attach(shard(&node, 0));
    node.shared.cache.discard(node.dataset.manifest().shard(0).id);
    let (header, body) = client.frame().unwrap();
    assert_eq!(header.kind(), Kind::Recall);
    let Recall { snapshot, shard } = Recall::decode(&body).unwrap();
    assert_eq!((snapshot, shard), (node.dataset.snapshot(), 0));
    client.send(|out| Release { snapshot, shard }.encode(0, out));
    until("it is evicted", || node.shared.cache.usage().orphaned.shards == 1);
    drop(extent);
    // This process holds the node's own descriptor too, so the kernel frees the memory once that is
    // alone.
    until("its memory is free", || node.shared.cache.usage().orphaned.shards == 0);
}

#[test]
fn leases_end_with_their_connection() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let mut client = node.local();
    let _first = client.attach(shard(&node, 0));
    let _second = client.attach(shard(&node, 1));
    assert_eq!(leases(&node), (2, 1));
    drop(client);
    until("the leases end", || leases(&node) == (0, 0));
    until("the connection ends", || node.servers.context.local.count() == 0);
}

#[test]
fn a_killed_client_is_reaped() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let client = ClientProcess::start(&node, false);
    assert_eq!(leases(&node), (2, 1));
    client.kill();
    until("the leases end", || leases(&node) == (0, 0));
    until("the connection ends", || node.servers.context.local.count() == 0);
}

#[test]
fn killed_client_is_reaped_while_its_child_holds_the_socket() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let client = ClientProcess::start(&node, true);
    assert_eq!(leases(&node), (2, 1));
    let child = client.kill();
    until("the leases end", || leases(&node) == (0, 0));
    until("the connection ends", || node.servers.context.local.count() == 0);
    assert_eq!(node.servers.context.activity.reaped.get(), 1);
    assert!(child.is_alive(), "the child that held the socket is still there");
}

#[test]
fn killed_waiting_client_is_reaped_while_a_child_lives() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::unmanned(&folder, ROOMY);
    let client = ClientProcess::start_waiting(&node);
    until("it waits", || node.servers.context.activity.gathering.get() == 1);
    let _child = client.kill();
    until("the gather ends", || node.servers.context.activity.gathering.get() == 0);
    until("the connection ends", || node.servers.context.local.count() == 0);
}

#[test]
fn replica_is_leased_only_if_it_is_resident() {
    let folder = Folder::new(400, 1000, 10_000, false);
    let node = TestNode::new(&folder, ROOMY);
    let members = ["n1", "n2"].map(|id| member(id, &format!("{id}:1"))).to_vec();
    let ring = Ring::new(2, members).unwrap().with_replicas(2).unwrap();
    let placements = Placements::of_ring(Arc::new(ring));
    let manifest = node.dataset.manifest();
    let asked_first = |shard: &u32| {
        let owners = placements.of(node.dataset.snapshot()).owners(manifest.shard(*shard).id);
        placements.ring().members()[usize::from(owners[0])].id == "n1"
    };
    let (own, further): (Vec<u32>, Vec<u32>) = (0..manifest.shard_count()).partition(asked_first);
    assert!(!own.is_empty() && !further.is_empty());
    node.shared.placements.store(Arc::new(placements));
    let mut client = node.local();
    client.attach(shard(&node, own[0]));
    client.send(|out| shard(&node, further[0]).encode(7, out));
    assert_eq!(client.frame().unwrap().0.kind(), Kind::NotKept);
    assert_eq!(node.shared.cache.usage().filling.shards, 0);
    // A client that requests its rows here has found the primary owner away.
    node.shared.cache.find(&node.dataset, &further[..1], Priority::Demand);
    until("it is here", || node.shared.cache.resident(&node.dataset, further[0]).is_some());
    client.attach(shard(&node, further[0]));
}
