//! Read plans that no job follows, told to a real node.

use std::time::{Duration, Instant};

use larder_client::Dataset;
use larder_origin::{Options, S3Server};
use larder_tests::{Cluster, until, words};
use larder_wire::control::{NodeDescription, ReadPlan};

/// Shards of 256 KiB, read in windows of four.
const SHARDS: u32 = 64;
const WINDOWS: u32 = SHARDS / 4;

/// A plan that has gone on by a window each tenth of a second.
fn plan(snapshot: &[u8], begun: Instant) -> ReadPlan {
    let window = u32::try_from(begun.elapsed().as_millis() / 100).expect("a short test");
    let first_window = window % WINDOWS;
    ReadPlan {
        reader: vec![1; 16].into(),
        snapshot: snapshot.to_vec().into(),
        job: "liar".to_owned(),
        pass: u64::from(window / WINDOWS),
        shards: vec![0, SHARDS],
        window_shards: 4,
        keys: Vec::new().into(),
        first_window,
        last_window: first_window,
        rate: Some(10.0),
    }
}

#[expect(clippy::disallowed_methods, reason = "the test's own clock")]
fn now() -> Instant {
    Instant::now()
}

fn is_set_aside(said: &NodeDescription) -> bool {
    said.read_jobs.iter().any(|job| job.set_aside)
}

#[test]
fn plan_that_no_job_follows_is_set_aside() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
    words::write(&server.create_bucket("data").expect("a bucket").join("words"), SHARDS, 64, 1024);
    let index = std::process::Command::new(larder_tests::node::binary("larder"))
        .args(["dataset", "index", "s3://data/words", "--shard-bytes", "256KiB", "--quiet"])
        .envs(server.env())
        .status();
    assert!(index.expect("larder starts").success());
    let cluster = Cluster::start(1, "s3://data", |options| {
        options.env = server.env();
        options.memory = "8MiB".to_owned();
    });
    let dataset = Dataset::open("s3://data/words", Some(&cluster.address())).expect("opens");
    let node = &cluster.nodes[0];
    let snapshot = dataset.snapshot().as_bytes().to_vec();
    let (begun, mut told) = (now(), Duration::ZERO);
    let mut tell = || {
        if begun.elapsed() >= told {
            node.tell_plans(vec![plan(&snapshot, begun)]);
            told = begun.elapsed() + Duration::from_millis(100);
        }
    };
    until("the plan is set aside", || {
        tell();
        is_set_aside(&node.describe())
    });
    // Fetches under way may still end.
    let fetched = || node.describe().counters.expect("counters").prefetched_bytes;
    let before = fetched();
    let later = begun.elapsed() + Duration::from_secs(5);
    while begun.elapsed() < later {
        tell();
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert!(before > 0 && fetched() - before <= 8 * (256 << 10), "no more is fetched ahead");
    // Rows come as ever.
    let row = dataset.read(7, words::TENSOR).expect("a row");
    assert!(words::is_right(7, &row));
}
