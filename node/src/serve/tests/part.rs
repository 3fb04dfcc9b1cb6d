//! Bytes of shards for other nodes.

use larder_wire::data::{Features, Part, ReadPart};
use larder_wire::limits;

use super::*;
use crate::fill::Priority;
use crate::testing::until;

/// Takes 16 bytes of the first shard; returns how long to rest after them.
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
fn a_node_wants_rests_once_somebody_reads_from_it_and_only_where_that_was_agreed_on() {
    let folder = Folder::new(64, 4096, 256 << 10, false);
    let node = TestNode::new(&folder, 64 << 20);
    node.shared.cache.find(&node.dataset, &[0], Priority::Prefetch);
    until("the shard is here", || node.shared.cache.resident(&node.dataset, 0).is_some());
    let mut taker = node.remote();
    assert_eq!(take(&node, &mut taker), 0, "nobody reads");
    node.remote().gather(&node.gather([3])).unwrap();
    assert!(take(&node, &mut taker) >= limits::YIELD_RESTS);
    let mut old = Client::new(TcpStream::connect(node.data).unwrap());
    let mut hello = Hello::new(node.servers.context.ticket, 0, "before there were rests");
    hello.features = Features::default();
    old.send(|out| hello.encode(1, out));
    assert_eq!(old.frame().unwrap().0.kind(), Kind::HelloOk);
    assert_eq!(take(&node, &mut old), 0);
}
