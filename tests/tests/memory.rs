//! A node in a memory cgroup that is only a little larger than its budget, under load: never killed
//! for memory.

use std::fs;
use std::path::{Path, PathBuf};

use larder_origin::{Options, S3Server};
use larder_tests::{ClientOptions, NodeOptions, NodeProcess, TrainingProcess, repeats, words};

const MIB: u64 = 1 << 20;
const BUDGET_BYTES: u64 = 96 * MIB;
const ROOM_BYTES: u64 = 64 * MIB;

/// A memory cgroup of this test, version 1 or 2, removed on drop.
struct MemoryGroup {
    path: PathBuf,
    version: u8,
}

impl MemoryGroup {
    /// `None` where none can be made (not root, or no delegation).
    fn new(limit_bytes: u64) -> Option<Self> {
        let name = format!("larder-test-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (root, version, limit) = if v1.is_dir() {
            (v1, 1, "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup"), 2, "memory.max")
        };
        let path = root.join(name);
        fs::create_dir(&path).ok()?;
        let group = Self { path, version };
        fs::write(group.path.join(limit), limit_bytes.to_string()).ok()?;
        Some(group)
    }

    fn add(&self, pid: nix::unistd::Pid) {
        fs::write(self.path.join("cgroup.procs"), pid.to_string()).expect("a process can be moved");
    }

    fn kills(&self) -> u64 {
        let (file, key) = if self.version == 1 {
            ("memory.oom_control", "oom_kill ")
        } else {
            ("memory.events", "oom_kill ")
        };
        let text = fs::read_to_string(self.path.join(file)).expect("the group's events");
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("a count of kills");
        line.trim().parse().expect("a number")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn node_under_load_stays_within_its_budget_and_64_mib() {
    let Some(group) = MemoryGroup::new(BUDGET_BYTES + ROOM_BYTES) else {
        println!("no memory cgroup can be made here, so this was not tested");
        return;
    };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
    let bucket = server.create_bucket("data").expect("a bucket");
    // Twice the budget: some shards stay, and the node reads the rest by range for ever.
    words::write(&bucket.join("words"), 12, 1024, 4096);
    let mut options = NodeOptions::new("a", "s3://data");
    options.memory = format!("{}MiB", BUDGET_BYTES / MIB);
    options.env = server.env();
    let node = NodeProcess::start(&options);
    group.add(node.pid());
    for round in 0..repeats(1, 70) {
        let mut clients: Vec<TrainingProcess> = (0..4)
            .map(|client| {
                TrainingProcess::start(&ClientOptions {
                    program: env!("CARGO_BIN_EXE_larder-test-client"),
                    uri: "s3://data/words",
                    cluster: &node.address(),
                    epochs: 1,
                    seed: u64::try_from(round * 4 + client).expect("few"),
                    batch_size: 64,
                    env: server.env(),
                    args: if client % 2 == 0 { &[] } else { &["--remote-only"] },
                    wrapper: &[],
                })
            })
            .collect();
        for client in &mut clients {
            let (status, lines) = client.finish();
            assert!(status.success(), "{status}, {:?}", lines.last());
        }
        let memory = node.describe().memory.unwrap_or_default();
        let used = memory.resident_bytes + memory.filling_bytes + memory.orphaned_bytes;
        assert!(used <= BUDGET_BYTES, "{used} bytes of {BUDGET_BYTES}");
        assert_eq!(group.kills(), 0, "killed for memory in round {round}");
    }
    assert_eq!(node.stop(), Some(0), "and it drains like any other");
}
