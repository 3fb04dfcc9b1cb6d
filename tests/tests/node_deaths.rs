//! Nodes are killed under a verified load: no sample is lost, no byte is wrong, nobody waits for long.

use larder_origin::{Options, S3Server};
use larder_tests::{ClientOptions, Cluster, TrainingProcess, repeats, words};

#[test]
fn a_node_killed_in_mid_epoch_costs_neither_samples_nor_bytes() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
    words::write(&server.create_bucket("data").expect("a bucket").join("words"), 8, 256, 1024);
    let mut cluster = Cluster::start(3, "s3://data", |options| options.env = server.env());
    let address = cluster.address();
    let deaths = repeats(6, 200);
    let mut died = 0;
    while died < deaths {
        let mut client = TrainingProcess::start(&ClientOptions {
            program: env!("CARGO_BIN_EXE_larder-test-client"),
            uri: "s3://data/words",
            cluster: &address,
            epochs: 4,
            seed: u64::try_from(died).expect("few"),
            batch_size: 32,
            env: server.env(),
            args: if died.is_multiple_of(2) { &[] } else { &["--remote-only"] },
            wrapper: &[],
        });
        client.wait_for("batch");
        let victim = died % cluster.nodes.len();
        cluster.nodes[victim].kill_now();
        died += 1;
        client.wait_for("epoch 0 complete");
        cluster.restart(victim);
        let (status, lines) = client.finish();
        assert!(status.success(), "after death {died}: {status}, {:?}", lines.last());
        assert_eq!(lines.last().map(String::as_str), Some("epoch 3 complete"));
    }
}

#[test]
fn with_every_node_dead_training_goes_on_from_the_origin() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
    words::write(&server.create_bucket("data").expect("a bucket").join("words"), 4, 128, 1024);
    let mut cluster = Cluster::start(2, "s3://data", |options| options.env = server.env());
    let address = cluster.address();
    let mut client = TrainingProcess::start(&ClientOptions {
        program: env!("CARGO_BIN_EXE_larder-test-client"),
        uri: "s3://data/words",
        cluster: &address,
        epochs: 2,
        seed: 1,
        batch_size: 16,
        env: server.env(),
        args: &["--remote-only"],
        wrapper: &[],
    });
    client.wait_for("batch");
    for node in &mut cluster.nodes {
        node.kill_now();
    }
    let (status, lines) = client.finish();
    assert!(status.success(), "{status}, {:?}", lines.last());
    let last_batch = lines.iter().rev().find(|line| line.starts_with("batch")).expect("batches");
    assert_eq!(last_batch, "batch 0 0 16", "rows come from the origin now");
}
