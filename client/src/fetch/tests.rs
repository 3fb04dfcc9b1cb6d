//! The fetcher against scripted nodes over real sockets.

mod cancel;
mod exceptions;
mod fake;
mod fixture;
mod late;
mod opening;
mod pieces;
mod proximity;
mod ragged;
mod ring;
mod waits;

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use larder_base::{ErrorKind, RowRef, limits};
use larder_dataset::{DatasetRef, WritePolicy};
use larder_wire::data::{DataRun, FRAME_HEADER_BYTES};

use super::{FetchOptions, Fetcher, Placed, RowSource, Sources};
use crate::{Cluster, DatasetName, Error, deadline::CancelToken, process};
use fake::{Act, FRAME_ROWS, FakeNode, chunks, cluster};
use fixture::{Fixture, IMAGE_BYTES, LABEL_BYTES, SAMPLES};

fn name(fixture: &Fixture) -> DatasetName {
    let reference = DatasetRef::latest(fixture.manifest.uri().clone());
    DatasetName { reference, manifest: None, write: WritePolicy::Auto }
}

fn fetcher(fixture: &Fixture, address: &str, local: bool) -> Arc<Fetcher> {
    let options =
        FetchOptions { local, patience: Duration::from_secs(20), ..FetchOptions::default() };
    let cluster = Cluster::connect(address).unwrap();
    Fetcher::new(fixture.manifest.clone(), &name(fixture), Some(cluster), options)
}

/// All samples in an order that mixes the shards.
fn shuffled(fixture: &Fixture) -> Vec<RowRef> {
    fixture.refs((0..SAMPLES).map(|sample| sample * 37 % SAMPLES))
}

fn gather(fixture: &Fixture, fetcher: &Fetcher, rows: &[RowRef]) -> Result<Sources, Error> {
    let mut labels = vec![0xee; rows.len() * LABEL_BYTES];
    let mut images = vec![0xee; rows.len() * IMAGE_BYTES];
    let sources = fetcher.gather(rows, &[1, 0], &mut [&mut labels, &mut images])?;
    for (index, &row) in rows.iter().enumerate() {
        assert_eq!(&labels[index * LABEL_BYTES..][..LABEL_BYTES], fixture.row(row, 1));
        assert!(&images[index * IMAGE_BYTES..][..IMAGE_BYTES] == fixture.row(row, 0), "{row:?}");
    }
    let rows = rows.len() as u64;
    assert_eq!(sources.rows_local + sources.rows_remote + sources.rows_origin, rows);
    assert_eq!(sources.bytes, rows * (IMAGE_BYTES + LABEL_BYTES) as u64);
    Ok(sources)
}

/// The cells (rows times tensors) that a node was asked for.
fn cells(node: &FakeNode) -> usize {
    node.asked().iter().map(|asked| asked.rows.len() * asked.tensors.len()).sum()
}

/// The node that owns the most shards, so that its script takes effect.
fn busiest(fixture: &Fixture, nodes: &[FakeNode], fetcher: &Fetcher) -> usize {
    gather(fixture, fetcher, &shuffled(fixture)).unwrap();
    let busiest = (0..nodes.len()).max_by_key(|&index| cells(&nodes[index])).unwrap();
    nodes.iter().for_each(|node| node.state.asked.lock().unwrap().clear());
    busiest
}

/// Places in larger buffers, with rows from nodes, then mapped, then from the origin.
#[test]
fn writes_rows_at_their_indices_and_no_other_bytes() {
    let fixture = Fixture::new();
    let (_remote, far) = cluster(&fixture, 2, false);
    let (_local, near) = cluster(&fixture, 1, true);
    let alone = FetchOptions::default();
    let alone = Fetcher::new(fixture.manifest.clone(), &name(&fixture), None, alone);
    let rows = shuffled(&fixture);
    let places: Vec<u32> = (0..).step_by(3).skip(1).take(rows.len()).collect();
    let room = 3 * rows.len() + 5;
    for fetcher in [fetcher(&fixture, &far, false), fetcher(&fixture, &near, true), alone] {
        for _again in 0..2 {
            let (mut labels, mut images) =
                (vec![0xee; room * LABEL_BYTES], vec![0xee; room * IMAGE_BYTES]);
            let out = &mut [&mut labels[..], &mut images[..]];
            let placed = Placed::at(&rows, &places);
            RowSource::gather(&*fetcher, placed, &[1, 0], out, &CancelToken::never()).unwrap();
            for place in 0..room {
                let index = places.iter().position(|&other| other as usize == place);
                let label = &labels[place * LABEL_BYTES..][..LABEL_BYTES];
                let image = &images[place * IMAGE_BYTES..][..IMAGE_BYTES];
                match index {
                    Some(index) => {
                        assert!(label == fixture.row(rows[index], 1), "{place}");
                        assert!(image == fixture.row(rows[index], 0), "{place}");
                    }
                    None => assert!(label.iter().chain(image).all(|&byte| byte == 0xee), "{place}"),
                }
            }
        }
        let out = &mut [&mut [0; LABEL_BYTES * 4][..]];
        let placed = Placed::at(&rows[..2], &[1, 4]);
        let error =
            RowSource::gather(&*fetcher, placed, &[1], out, &CancelToken::never()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

/// A node may own none of the twelve shards. The owner of a shard depends on its name, and so on
/// the name of the temporary folder.
#[test]
fn gather_sends_one_request_to_each_owner() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    let fetcher = fetcher(&fixture, &address, true);
    let rows = shuffled(&fixture);
    let sources = gather(&fixture, &fetcher, &rows).unwrap();
    assert_eq!(sources.rows_remote, SAMPLES);
    assert_eq!(nodes.iter().map(cells).sum::<usize>(), 2 * rows.len());
    gather(&fixture, &fetcher, &rows).unwrap();
    for owner in nodes.iter().filter(|node| !node.asked().is_empty()) {
        assert_eq!(owner.asked().len(), 2, "once in each gather");
        assert_eq!(owner.state.connections.load(SeqCst), 1);
        assert_eq!(owner.state.opened.load(SeqCst), 1);
    }
}

#[test]
fn rows_received_before_a_node_died_are_not_requested_again() {
    for frames in [0, 1, 3, 6, 7] {
        let fixture = Fixture::new();
        let (mut nodes, address) = cluster(&fixture, 3, false);
        let fetcher = fetcher(&fixture, &address, true);
        let dying = busiest(&fixture, &nodes, &fetcher);
        nodes[dying].plan([Act::Die { frames }, Act::Die { frames: 0 }, Act::Die { frames: 0 }]);
        let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
        assert_eq!(sources.rows_origin, 0);
        let asked = nodes[dying].asked();
        let wanted = asked[0].rows.len();
        let in_frames = [0, 0].into_iter().flat_map(|_| chunks(wanted, FRAME_ROWS));
        let arrived: usize = in_frames.take(frames).map(|rows| rows.len()).sum();
        let others: usize =
            (0..3).filter(|&index| index != dying).map(|index| cells(&nodes[index])).sum();
        assert_eq!(others, 2 * shuffled(&fixture).len() - arrived, "{frames} frames came");
        nodes[dying].kill();
        gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    }
}

#[test]
fn killed_node_is_bypassed_and_used_again_after_restart() {
    let fixture = Fixture::new();
    let (mut nodes, address) = cluster(&fixture, 2, false);
    let fetcher = fetcher(&fixture, &address, true);
    let killed = busiest(&fixture, &nodes, &fetcher);
    nodes[killed].kill();
    let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!(sources.rows_remote, SAMPLES);
    nodes[killed].restart();
    nodes[killed].state.asked.lock().unwrap().clear();
    let deadline = process::now() + Duration::from_secs(20);
    while nodes[killed].asked().is_empty() {
        assert!(process::now() < deadline, "the node was never asked again");
        gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    }
}

#[test]
fn damaged_row_is_retried_with_verification_on_new_connection() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, false);
    let fetcher = fetcher(&fixture, &address, true);
    let flipping = busiest(&fixture, &nodes, &fetcher);
    nodes[flipping].plan([Act::Flip { frame: 2 }]);
    gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    let asked = nodes[flipping].asked();
    assert!(!asked[0].verify);
    assert!(asked[1..].iter().all(|asked| asked.verify));
    assert!(asked.len() >= 2);
    assert!(cells(&nodes[flipping]) < 4 * asked[0].rows.len(), "rows that were sound came twice");
    assert_eq!(nodes[flipping].state.connections.load(SeqCst), 2);
}

#[test]
fn rows_come_from_origin_when_every_node_sends_damage() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, false);
    let fetcher = fetcher(&fixture, &address, true);
    for node in &nodes {
        node.plan((0..20).map(|_| Act::Flip { frame: 0 }));
    }
    let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert!(sources.rows_origin > 0);
}

#[test]
fn silent_node_is_skipped_and_not_asked_in_the_next_gather() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    let fetcher = fetcher(&fixture, &address, true);
    let silent = busiest(&fixture, &nodes, &fetcher);
    nodes[silent].plan((0..10).map(|_| Act::Silence));
    let before = process::now();
    let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!(sources.rows_remote, SAMPLES);
    assert!(process::now() - before >= Duration::from_secs(2));
    assert_eq!(nodes[silent].asked().len(), 1);
    gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!(nodes[silent].asked().len(), 1);
}

#[test]
fn only_a_few_of_many_threads_ask_a_silent_node() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    let fetcher = fetcher(&fixture, &address, true);
    let silent = busiest(&fixture, &nodes, &fetcher);
    nodes[silent].plan((0..20).map(|_| Act::Silence));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap());
        }
    });
    assert!(nodes[silent].asked().len() <= 2, "as many connections as a client has to one node");
}

#[test]
fn waits_for_a_node_that_sends_keepalives() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, false);
    let fetcher = fetcher(&fixture, &address, true);
    for node in &nodes {
        node.plan([Act::Slow { pongs: 3 }]);
    }
    assert_eq!(gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap().rows_remote, SAMPLES);
}

#[test]
fn reaction_follows_error_kind() {
    let fixture = Fixture::new();
    let rows = shuffled(&fixture);
    for (kind, again) in [
        (ErrorKind::ResourceExhausted, true),
        (ErrorKind::OriginUnavailable, true),
        (ErrorKind::DataLoss, true),
        (ErrorKind::Unavailable, true),
        (ErrorKind::Unauthenticated, true),
        (ErrorKind::NotFound, true),
        (ErrorKind::InvalidArgument, false),
        (ErrorKind::PermissionDenied, false),
        (ErrorKind::DataChanged, false),
        (ErrorKind::Internal, false),
    ] {
        let (nodes, address) = cluster(&fixture, 2, false);
        let fetcher = fetcher(&fixture, &address, true);
        let failing = busiest(&fixture, &nodes, &fetcher);
        nodes[failing].plan([Act::Fail(kind)]);
        match gather(&fixture, &fetcher, &rows) {
            Ok(sources) => {
                assert!(again, "{kind:?}");
                assert_eq!(sources.rows_remote, SAMPLES, "{kind:?}");
            }
            Err(error) => {
                assert!(!again, "{kind:?}");
                assert_eq!(error.kind(), kind);
            }
        }
        let reopened = matches!(kind, ErrorKind::Unauthenticated | ErrorKind::NotFound);
        let opened = nodes[failing].state.opened.load(SeqCst);
        assert_eq!(opened, if reopened { 2 } else { 1 }, "{kind:?}");
    }
}

#[test]
fn node_that_stays_unauthenticated_is_an_error() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, false);
    let fetcher = fetcher(&fixture, &address, true);
    nodes[0].plan((0..3).map(|_| Act::Fail(ErrorKind::Unauthenticated)));
    let error = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
}

#[test]
fn damage_reported_by_a_node_causes_no_read_of_the_origin() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, false);
    let fetcher = fetcher(&fixture, &address, true);
    nodes[0].plan([Act::Fail(ErrorKind::DataLoss)]);
    let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!((sources.rows_remote, sources.rows_origin), (SAMPLES, 0));
}

#[test]
fn reported_damage_blocks_origin_reads_after_node_goes_down() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, false);
    let options = FetchOptions { patience: Duration::from_secs(2), ..FetchOptions::default() };
    let cluster = Cluster::connect(&address).unwrap();
    let fetcher = Fetcher::new(fixture.manifest.clone(), &name(&fixture), Some(cluster), options);
    // From then on it hangs up each time, and so counts as down.
    let breaks_off = (0..1000).map(|_| Act::Die { frames: 0 });
    nodes[0].plan([Act::Fail(ErrorKind::DataLoss)].into_iter().chain(breaks_off));
    let error = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DataLoss, "{error}");
}

#[test]
fn node_without_the_dataset_is_skipped() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, false);
    let fetcher = fetcher(&fixture, &address, true);
    *nodes[0].state.unknown.lock().unwrap() = Some("");
    assert_eq!(gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap().rows_remote, SAMPLES);
    assert!(nodes[0].asked().is_empty());
}

#[test]
fn opens_by_tag_when_node_does_not_find_the_snapshot() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, false);
    let fetcher = fetcher(&fixture, &address, true);
    let snapshot = fixture.manifest.snapshot().to_string();
    *nodes[0].state.unknown.lock().unwrap() = Some(snapshot.leak());
    assert_eq!(gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap().rows_remote, SAMPLES);
}

/// A header of a hostile peer. The client rejects it before it compares the checksum.
fn header(request: u64, kind: u8, body: u32, payload: u64) -> Vec<u8> {
    let mut bytes = vec![0; FRAME_HEADER_BYTES];
    bytes[..4].copy_from_slice(b"LRD1");
    bytes[4] = kind;
    bytes[8..16].copy_from_slice(&request.to_le_bytes());
    bytes[16..24].copy_from_slice(&payload.to_le_bytes());
    bytes[24..28].copy_from_slice(&body.to_le_bytes());
    bytes
}

fn run(request: u64, tensor_slot: u16, first: u32, rows: usize, payload_bytes: u64) -> Vec<u8> {
    let (crcs, mut out) = (vec![0; rows], Vec::new());
    let run = DataRun { tensor_slot, first, crcs: &crcs, lengths: None, payload_bytes };
    run.encode(request, &mut out);
    out
}

#[test]
fn node_that_breaks_the_protocol_is_skipped() {
    let hostile: [fn(u64) -> Vec<u8>; 10] = [
        |_| b"HTTP/1.1 400 Bad Request\r\n\r\nand much more text".to_vec(),
        |request| header(request, 17, u32::MAX, 8),
        |request| header(request, 17, 20, u64::MAX),
        |request| header(request, 18, 16, 1),
        |request| run(request + 1, 0, 0, 1, 8),
        |request| run(request, 1, 0, 1, 6000),
        |request| run(request, 0, 1, 1, 8),
        |request| run(request, 0, 0, 60_000, 60_000 * 8),
        |request| run(request, 0, 0, 1, 4_000_000_000),
        |request| {
            let mut out = Vec::new();
            larder_wire::data::GatherEnd::default().encode(request, &mut out);
            out
        },
    ];
    let fixture = Fixture::new();
    for bytes in hostile {
        let (nodes, address) = cluster(&fixture, 2, false);
        let fetcher = fetcher(&fixture, &address, true);
        let bad = busiest(&fixture, &nodes, &fetcher);
        nodes[bad].plan([Act::Raw(bytes)]);
        let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
        assert_eq!(sources.rows_remote, SAMPLES);
        assert_eq!(nodes[bad].asked().len(), 1);
    }
}

#[test]
fn reads_origin_while_all_nodes_are_down_and_nodes_afterwards() {
    let fixture = Fixture::new();
    let (mut nodes, address) = cluster(&fixture, 2, false);
    let fetcher = fetcher(&fixture, &address, true);
    gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    nodes.iter_mut().for_each(FakeNode::kill);
    let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!(sources.rows_origin, SAMPLES);
    nodes[1].restart();
    let deadline = process::now() + Duration::from_secs(20);
    while gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap().rows_remote < SAMPLES {
        assert!(process::now() < deadline, "the nodes were never asked again");
    }
}

#[test]
fn rows_come_from_the_origin_without_a_cluster() {
    let fixture = Fixture::new();
    let fetcher =
        Fetcher::new(fixture.manifest.clone(), &name(&fixture), None, FetchOptions::default());
    assert_eq!(gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap().rows_origin, SAMPLES);
    std::fs::remove_file(fixture.folder.path().join("data.bin")).unwrap();
    let error = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DataChanged, "an object that the snapshot names is gone");
}

#[test]
fn error_after_deadline_names_failed_nodes_and_origin() {
    let fixture = Fixture::new();
    let (mut nodes, address) = cluster(&fixture, 1, false);
    let options = FetchOptions { patience: Duration::from_millis(600), ..FetchOptions::default() };
    let cluster = Cluster::connect(&address).unwrap();
    let fetcher = Fetcher::new(fixture.manifest.clone(), &name(&fixture), Some(cluster), options);
    nodes[0].kill();
    // A read that fails now, but may succeed later.
    let object = fixture.folder.path().join("data.bin");
    std::fs::remove_file(&object).unwrap();
    std::os::unix::fs::symlink(&object, &object).unwrap();
    let error = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap_err().to_string();
    assert!(
        error.contains("node-0") && error.contains("data.bin") && error.contains("600ms"),
        "{error}"
    );
}

#[test]
fn several_threads_read_while_nodes_misbehave() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    let fetcher = fetcher(&fixture, &address, true);
    for (index, node) in nodes.iter().enumerate() {
        node.plan((0..60).map(|turn| match (turn + index) % 7 {
            0 => Act::Die { frames: turn % 9 },
            1 => Act::Flip { frame: turn % 5 },
            2 => Act::Slow { pongs: 2 },
            3 => Act::Fail(ErrorKind::ResourceExhausted),
            _ => Act::Serve,
        }));
    }
    thread::scope(|scope| {
        for thread in 0..4 {
            let (fixture, fetcher) = (&fixture, &fetcher);
            scope.spawn(move || {
                for batch in 0..25 {
                    let first = thread * 17 + batch * 5;
                    let samples = (0..40).map(|sample| (first + sample * 13) % SAMPLES);
                    gather(fixture, fetcher, &fixture.refs(samples)).unwrap();
                }
            });
        }
    });
}

#[test]
fn mapped_shards_of_a_node_on_this_host_outlive_it() {
    let fixture = Fixture::new();
    let (mut nodes, address) = cluster(&fixture, 2, true);
    let fetcher = fetcher(&fixture, &address, true);
    let rows = shuffled(&fixture);
    let deadline = process::now() + Duration::from_secs(20);
    while gather(&fixture, &fetcher, &rows).unwrap().rows_local < SAMPLES {
        assert!(process::now() < deadline, "not all shards were mapped");
    }
    let attaches: usize = nodes.iter().map(|node| node.state.attaches.load(SeqCst)).sum();
    assert_eq!(attaches, 12, "each shard is asked for once");
    nodes.iter_mut().for_each(FakeNode::kill);
    assert_eq!(gather(&fixture, &fetcher, &rows).unwrap().rows_local, SAMPLES);
}

#[test]
fn view_maps_a_row_and_a_recall_releases_unused_mappings() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, true);
    let fetcher = fetcher(&fixture, &address, true);
    let row = RowRef { shard: 3, row: 5 };
    let view = fetcher.view(row, 0).unwrap();
    assert_eq!(&*view, fixture.row(row, 0));
    assert!(fetcher.view(RowRef { shard: 3, row: 8 }, 0).is_none());
    assert!(fetcher.view(row, 2).is_none());
    let idle = fetcher.view(RowRef { shard: 4, row: 0 }, 1).map(drop);
    assert!(idle.is_some());
    nodes[0].recall(3);
    nodes[0].recall(4);
    let released = |shard| nodes[0].state.releases.lock().unwrap().contains(&shard);
    let wait_for = |shard| {
        let deadline = process::now() + Duration::from_secs(20);
        while !released(shard) {
            assert!(process::now() < deadline, "shard {shard} was not given back");
            thread::yield_now();
        }
    };
    wait_for(4);
    assert!(!released(3));
    assert_eq!(&*view, fixture.row(row, 0));
    drop(view);
    wait_for(3);
}

#[test]
fn client_with_mapping_disabled_never_attaches() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, true);
    let fetcher = fetcher(&fixture, &address, false);
    assert!(fetcher.view(RowRef { shard: 0, row: 0 }, 0).is_none());
    gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!(gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap().rows_remote, SAMPLES);
    assert_eq!(nodes[0].state.attaches.load(SeqCst), 0);
}

#[test]
fn unknown_rows_and_tensors_are_refused_without_a_request() {
    let fixture = Fixture::new();
    let fetcher =
        Fetcher::new(fixture.manifest.clone(), &name(&fixture), None, FetchOptions::default());
    let mut label = [0; LABEL_BYTES];
    for (row, tensor, short) in [
        (RowRef { shard: 12, row: 0 }, 1, 0),
        (RowRef { shard: u32::MAX, row: 0 }, 1, 0),
        (RowRef { shard: 0, row: 8 }, 1, 0),
        (RowRef { shard: 0, row: 0 }, 2, 0),
        (RowRef { shard: 0, row: 0 }, 1, 1),
    ] {
        let out = &mut label[short..];
        let error = fetcher.gather(&[row], &[tensor], &mut [out]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{row:?} {tensor}");
    }
    assert_eq!(fetcher.gather(&[], &[1], &mut [&mut []]).unwrap(), Sources::default());
}

#[test]
fn manifest_read_over_control_plane_is_the_announced_one() {
    let fixture = Fixture::new();
    let (_nodes, address) = cluster(&fixture, 2, false);
    let cluster = Cluster::connect(&address).unwrap();
    let open = cluster.open_dataset(&name(&fixture)).unwrap();
    let manifest = cluster.manifest(&name(&fixture), &open, true).unwrap();
    assert_eq!(manifest.snapshot(), fixture.manifest.snapshot());
    assert_eq!(cluster.memory().budget_bytes, 2 << 30);
    assert_eq!(cluster.members().len(), 2);
}
