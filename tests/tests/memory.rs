//! A node in a memory cgroup that is only a little larger than its budget, under load: never killed
//! for memory.

use larder_origin::{Options, S3Server};
use larder_tests::{
    ClientOptions, MemoryGroup, NodeOptions, NodeProcess, TrainingProcess, repeats, words,
};

const MIB: u64 = 1 << 20;
const BUDGET_BYTES: u64 = 96 * MIB;
const ROOM_BYTES: u64 = 64 * MIB;

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
