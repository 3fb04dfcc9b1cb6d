//! Which shards stay when another dataset needs room.

use larder_wire::data::{Attach, Release};

use super::TestNode;
use crate::cache::FoundShard;
use crate::cache::Priority;
use crate::testing::{CacheFixture, Folder, until};

/// Creates four shards of ten rows, and a node with room for two that evicts unused shards at once.
fn crowded() -> (Folder, TestNode) {
    let folder = Folder::new(40, 1000, 10_000, false);
    let room = 2 * CacheFixture::extent_bytes(&folder, 10);
    let node = TestNode::impatient(&folder, room);
    (folder, node)
}

/// Requests the third shard, as another job would.
fn has_room_for_another(node: &TestNode) -> bool {
    let found = node.shared.cache.find(&node.dataset, &[2], Priority::Demand).pop();
    !matches!(found, Some(FoundShard::NotKept))
}

fn resident(node: &TestNode) -> usize {
    // The manifest and its leaf are resident too.
    node.shared.cache.usage().resident.shards - 2
}

#[test]
fn shards_stay_while_a_local_client_without_leases_lives() {
    let (_folder, node) = crowded();
    let mut client = node.local();
    let snapshot = node.dataset.snapshot();
    for shard in 0..2 {
        drop(client.attach(Attach { snapshot, shard }));
        client.send(|out| Release { snapshot, shard }.encode(0, out));
    }
    until("the leases end", || node.shared.cache.holders().is_empty());
    assert!(!has_room_for_another(&node), "the client may come back for them");
    assert_eq!(resident(&node), 2);
    drop(client);
    until("room is made once it is gone", || has_room_for_another(&node));
}

#[test]
fn shards_stay_while_their_data_connection_is_open() {
    let (_folder, node) = crowded();
    let mut client = node.remote();
    client.gather(&node.gather([0, 10])).unwrap();
    until("the fills end", || resident(&node) == 2);
    assert!(!has_room_for_another(&node), "the client may come back for them");
    drop(client);
    until("room is made once it is gone", || has_room_for_another(&node));
}
