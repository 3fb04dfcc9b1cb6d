//! The exceptions to a ring, fetched over the control plane.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::{
    Error, ErrorKind, Member, Ring, SnapshotId,
    placement::{Exceptions, ExceptionsBuilder},
};
use larder_wire::{control::GetExceptionsRequest, status::from_status};

use super::TestNode;
use super::control::call;
use crate::cluster::Placements;
use crate::serve::control::EXCEPTIONS_CHUNK_BYTES;
use crate::testing::Folder;

fn ring(version: u64) -> Arc<Ring> {
    let member = |id: &str, port: u16| Member {
        id: id.to_owned(),
        weight: 1,
        control: format!("http://127.0.0.1:{port}"),
        host: "here".to_owned(),
        zone: String::new(),
    };
    Arc::new(Ring::new(version, vec![member("n1", 1), member("n2", 2)]).unwrap())
}

/// Creates a table of so many exceptions to a ring.
fn table(ring: &Ring, snapshot: SnapshotId, count: u64) -> Exceptions {
    let mut table = ExceptionsBuilder::new(ring, snapshot, 1);
    (0..count).for_each(|at| table.except(at << 40, [1].into_iter().collect()));
    table.build()
}

/// Returns the lengths announced in the pieces, and all their bytes.
fn ask(node: &TestNode, snapshot: SnapshotId, version: u64) -> Result<(Vec<u64>, Vec<u8>), Error> {
    let snapshot = Bytes::copy_from_slice(snapshot.as_bytes());
    call(node, async |mut client| {
        let request = GetExceptionsRequest { snapshot, ring_version: version };
        let mut pieces = client.get_exceptions(request).await.map_err(from_status)?.into_inner();
        let (mut announced, mut bytes) = (Vec::new(), Vec::new());
        while let Some(piece) = pieces.message().await.unwrap() {
            assert!(piece.chunk.len() <= EXCEPTIONS_CHUNK_BYTES);
            announced.push(piece.table_bytes);
            bytes.extend(piece.chunk);
        }
        Ok((announced, bytes))
    })
}

#[test]
fn exceptions_to_the_current_and_previous_ring_are_sent() {
    let folder = Folder::new(10, 1000, 10_000, false);
    let node = TestNode::unmanned(&folder, 1 << 20);
    let [one, other, planned_later] = [1, 2, 3].map(|byte| SnapshotId::from_bytes([byte; 32]));
    let (before, now) = (ring(6), ring(7));
    let (old, large) = (table(&before, one, 5), table(&now, one, 50_000));
    let small = table(&now, other, 0);
    let previous = Placements::new(before, vec![old.clone()], None).unwrap();
    let tables = vec![large.clone(), small.clone()];
    let placements = Placements::new(now, tables, Some(Arc::new(previous))).unwrap();
    node.shared.placements.store(Arc::new(placements));

    let (announced, bytes) = ask(&node, one, 7).unwrap();
    assert!(bytes == large.as_bytes());
    assert_eq!(announced.len(), bytes.len().div_ceil(EXCEPTIONS_CHUNK_BYTES));
    assert_eq!((announced[0], announced.iter().sum()), (bytes.len() as u64, bytes.len() as u64));
    assert_eq!(ask(&node, other, 7).unwrap().1, small.as_bytes());
    assert_eq!(ask(&node, one, 6).unwrap().1, old.as_bytes());
    assert_eq!(ask(&node, planned_later, 7).unwrap(), (vec![], vec![]));
    assert_eq!(ask(&node, other, 6).unwrap(), (vec![], vec![]));
}

#[test]
fn exceptions_to_another_ring_are_refused_with_both_versions() {
    let folder = Folder::new(10, 1000, 10_000, false);
    let node = TestNode::unmanned(&folder, 1 << 20);
    node.shared.placements.store(Arc::new(Placements::of_ring(ring(9))));
    for version in [0, 8, 10] {
        let refused = ask(&node, SnapshotId::from_bytes([1; 32]), version).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        let said = refused.to_string();
        assert!(said.contains(&format!("version {version} ")), "{said}");
        assert!(said.contains("version 9;"), "{said}");
    }
}
