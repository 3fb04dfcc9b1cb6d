//! Bytes of shards for other nodes.

use std::collections::BTreeMap;

use larder_base::{SnapshotId, limits};
use larder_store::HolderId;
use larder_wire::data::{Features, Part, ReadPart};

use super::*;
use crate::cache::Leased;
use crate::cache::Priority;
use crate::testing::until;

/// Takes 16 bytes of the first shard. Returns the pause that the node asks for.
fn take(node: &TestNode, client: &mut Client<TcpStream>) -> u32 {
    let snapshot = node.dataset.snapshot();
    let wanted = ReadPart { snapshot, shard: 0, tensor: 0, offset: 0, bytes: 16 };
    client.send(|out| wanted.encode(7, out));
    let (header, body) = client.frame().unwrap();
    let part = Part::decode(&header, &body, wanted.bytes).unwrap();
    let mut payload = [0; 16];
    client.read_exact(&mut payload).unwrap();
    assert_eq!(crc32c(&payload), part.crc32c);
    part.rests
}

#[test]
fn node_asks_able_peers_for_pauses_while_clients_read() {
    let folder = Folder::new(64, 4096, 256 << 10, false);
    let node = TestNode::new(&folder, 64 << 20);
    node.shared.cache.find(&node.dataset, &[0], Priority::Prefetch);
    until("the shard is here", || node.shared.cache.resident(&node.dataset, 0).is_some());
    let mut taker = node.remote();
    assert_eq!(take(&node, &mut taker), 0, "nobody reads");
    node.remote().gather(&node.gather([3])).unwrap();
    assert!(take(&node, &mut taker) >= 9);
    let mut old = Client::new(TcpStream::connect(node.data).unwrap());
    let mut hello = Hello::new(node.servers.context.ticket, 0, "before there were rests");
    hello.features = Features::default();
    old.send(|out| hello.encode(1, out));
    assert_eq!(old.frame().unwrap().0.kind(), Kind::HelloOk);
    assert_eq!(take(&node, &mut old), 0);
}

#[test]
fn node_lists_its_shards_with_their_idle_times() {
    let folder = Folder::new(40, 1000, 10_000, false);
    let node = TestNode::new(&folder, 64 << 20);
    let (cache, snapshot) = (&node.shared.cache, node.dataset.snapshot());
    cache.find(&node.dataset, &[0, 2], Priority::Prefetch);
    let here = || [0, 2].iter().all(|shard| cache.resident(&node.dataset, *shard).is_some());
    until("the shards are here", here);
    let peers = Peers::new("n2", Arc::clone(&node.shared.placements));
    assert!(peers.named("n2").is_none() && peers.named("n3").is_none());
    let giver = peers.named("n1").expect("a member");
    let idle = || {
        let mut uses = BTreeMap::new();
        let strange = SnapshotId::from_bytes([9; 32]);
        let note = |of, shard, idle| assert!(of == snapshot && uses.insert(shard, idle).is_none());
        node.runtime.block_on(giver.list_last_uses([strange, snapshot], note)).unwrap();
        assert_eq!(uses.len(), 2);
        [0, 2].map(|shard| uses[&node.dataset.manifest().shard(shard).id])
    };
    std::thread::park_timeout(Duration::from_millis(20));
    take(&node, &mut node.remote());
    assert!(idle().iter().all(|idle| *idle >= Duration::from_millis(20)), "given is not read");
    assert!(matches!(cache.lease(&node.dataset, 2, HolderId(7)), Leased::Granted(_)));
    std::thread::park_timeout(Duration::from_millis(5));
    let [first, mapped] = idle();
    assert!(first > Duration::ZERO && mapped == Duration::ZERO, "{first:?}");
    let many = std::iter::repeat_n(snapshot, limits::LAST_USES_SNAPSHOTS_MAX + 1);
    let refused = node.runtime.block_on(giver.list_last_uses(many, |_, _, _| {})).unwrap_err();
    assert!(refused.to_string().contains("at most 1024"), "{refused}");
}
