//! Memory that strangers can make a node hold.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use larder_client::Dataset;
use larder_tests::node::binary;
use larder_tests::stranger::{Http2, flag, frame, head};
use larder_tests::{MemoryGroup, NodeOptions, NodeProcess, repeats, until};
use larder_wire::control::FetchManifestRequest;
use prost::Message;

const MIB: u64 = 1 << 20;
const HELD_BYTES_MAX: u64 = 24 * MIB;

/// A node with 64 MiB for shards, in a cgroup of 128 MiB where one can be made.
pub(super) struct Small {
    node: NodeProcess,
    group: Option<MemoryGroup>,
    before: u64,
}

impl Small {
    pub(super) fn start(folder: &Path) -> Self {
        let mut options = NodeOptions::new("a", &format!("file://{}", folder.display()));
        options.memory = "64MiB".to_owned();
        let node = NodeProcess::start(&options);
        let group = MemoryGroup::new(128 * MIB);
        if let Some(group) = &group {
            group.add(node.pid());
        }
        let before = node.heap_bytes();
        Self { node, group, before }
    }

    pub(super) fn listen(&self) -> String {
        self.node.address().trim_start_matches("http://").to_owned()
    }

    pub(super) fn check_held(&self) {
        let held = self.node.heap_bytes().saturating_sub(self.before);
        assert!(held <= HELD_BYTES_MAX, "strangers hold {} KiB", held >> 10);
    }

    /// Checks what the node holds, while it goes on serving.
    pub(super) fn check(&self) {
        for _ in 0..20 {
            self.check_held();
            thread::park_timeout(std::time::Duration::from_millis(50));
        }
        assert_eq!(self.node.describe().node_id, "a");
        let kills = self.group.as_ref().map_or(0, MemoryGroup::kills);
        assert_eq!(kills, 0, "killed for memory");
    }
}

pub(super) const CALL: &str = "/larder.v1.Node/Describe";

#[test]
fn unfinished_requests_hold_little() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let small = Small::start(folder.path());
    let piece = [0; 1 << 10];
    let flood = |_| {
        let mut http = Http2::connect(&small.listen()).ok()?;
        for stream in (1..128).step_by(2) {
            // The node may have closed it.
            let sent = http
                .begin(stream, CALL)
                .and_then(|()| http.send(frame::DATA, 0, stream, &piece))
                .and_then(|()| http.send(frame::DATA, 0, stream, &piece));
            if sent.is_err() {
                break;
            }
        }
        Some(http)
    };
    let held: Vec<_> = (0..400).filter_map(flood).collect();
    assert!(!held.is_empty());
    small.check();
}

#[test]
fn floods_of_frames_hold_little() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let small = Small::start(folder.path());
    let mut held = Vec::new();
    for _ in 0..40 {
        let Ok(mut settings) = Http2::connect(&small.listen()) else { continue };
        let _ = (0..20_000).try_for_each(|_| settings.send(frame::SETTINGS, 0, 0, &[]));
        let Ok(mut resets) = Http2::connect(&small.listen()) else { continue };
        let _ = (0..2_000).try_for_each(|index| {
            resets.begin(1 + 2 * index, CALL)?;
            resets.send(frame::RST_STREAM, 0, 1 + 2 * index, &[0, 0, 0, 8])
        });
        let Ok(mut heads) = Http2::connect(&small.listen()) else { continue };
        let head = head(CALL);
        let _ = heads.send(frame::HEADERS, flag::END_STREAM, 1, &head);
        // A name of 100 bytes without a value, again and again.
        let name = [&[0, 100][..], &[b'x'; 100], &[0]].concat().repeat(150);
        let _ = (0..200).try_for_each(|_| heads.send(frame::CONTINUATION, 0, 1, &name));
        held.extend([settings, resets, heads]);
    }
    assert!(!held.is_empty());
    small.check();
}

/// Writes a dataset of as many shards as rows. All bytes are zero.
fn write(folder: &Path, rows: usize) -> String {
    let shape = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({rows}, 4096), }}");
    let mut header = shape.into_bytes();
    header.resize((10 + header.len() + 1).next_multiple_of(64) - 11, b' ');
    header.push(b'\n');
    let length = u16::try_from(header.len()).expect("a short header").to_le_bytes();
    let mut file = std::fs::File::create(folder.join("row.npy")).expect("a file");
    let written = file.write_all(&[b"\x93NUMPY\x01\x00", &length[..], &header].concat());
    let length = 10 + header.len() + rows * 4096;
    written.and_then(|()| file.set_len(length as u64)).expect("space for a file");
    let uri = format!("file://{}", folder.display());
    let mut index = std::process::Command::new(binary("larder"));
    index.args(["dataset", "index", &uri, "--shard-bytes", "4096", "--quiet"]);
    assert!(index.status().expect("larder starts").success());
    uri
}

#[test]
fn unread_manifests_hold_little() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let uri = write(folder.path(), 20_000);
    let small = Small::start(folder.path());
    let dataset = Dataset::open(&uri, Some(&small.node.address())).expect("opens");
    let request = FetchManifestRequest {
        snapshot: dataset.snapshot().as_bytes().to_vec().into(),
        leaf: Some(0),
    };
    let request = request.encode_to_vec();
    let mut held = Vec::new();
    for _ in 0..62 {
        let Ok(mut http) = Http2::connect(&small.listen()) else { continue };
        let path = "/larder.v1.Node/FetchManifest";
        let _ = (0..16).try_for_each(|index| http.call(1 + 2 * index, path, &request));
        held.push(http);
    }
    small.check();
    // A friend gets all of it meanwhile.
    Dataset::open(&uri, Some(&small.node.address())).expect("opens").whole_manifest().expect("it");
}

#[test]
fn many_processes_open_a_large_dataset_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let uri = write(folder.path(), repeats(16_384, 153_600));
    let small = Small::start(folder.path());
    Dataset::open(&uri, Some(&small.node.address())).expect("opens");
    let begin = Barrier::new(65);
    thread::scope(|scope| {
        let open = || {
            begin.wait();
            let dataset = Dataset::open(&uri, Some(&small.node.address())).expect("opens");
            dataset.whole_manifest().expect("all of it").leaves.len()
        };
        let opening: Vec<_> = (0..64).map(|_| scope.spawn(open)).collect();
        begin.wait();
        until("all have opened it", || {
            small.check_held();
            opening.iter().all(thread::ScopedJoinHandle::is_finished)
        });
        assert!(opening.into_iter().all(|one| one.join().expect("no panic") > 0));
    });
    small.check();
}

/// 1,030 connections from another address: with half-sent requests, or idle after one.
fn hold(listen: &str, said: &[u8]) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream =
            larder_tests::stranger::connect(larder_tests::stranger::ADDRESS, listen).ok()?;
        stream.write_all(said).ok()?;
        Some(stream)
    };
    (0..1_030).filter_map(connect).collect()
}

#[test]
fn held_connections_do_not_silence_a_node() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let small = Small::start(folder.path());
    let half = format!(
        "POST {CALL} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/grpc\r\n\
         content-length: 100\r\n\r\nx"
    );
    let idle = "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    for said in [half.as_str(), idle] {
        let held = hold(&small.listen(), said.as_bytes());
        assert!(held.len() > 400, "{} connections", held.len());
        assert_eq!(small.node.metric("larder_gathers_total"), 0);
        let listed = larder_tests::tool::larder(
            &small.node.address(),
            folder.path(),
            None,
            &["node", "ls", "--quiet"],
        );
        assert!(listed.status.success(), "{}", larder_tests::tool::said(&listed));
        small.check();
        drop(held);
    }
}
