//! The main job, end to end: a dataset on S3, written by Python, comes out as warm, verified
//! batches.

use std::sync::Barrier;

use larder_client::Dataset;
use larder_origin::{Counts, Options, S3Server};
use larder_tests::{Cluster, PythonDataset, until, words};
use tempfile::TempDir;

/// An S3 server with a bucket `data` that `write` fills.
fn bucket(write: impl FnOnce(&std::path::Path)) -> (TempDir, S3Server) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
    write(&server.create_bucket("data").expect("a bucket"));
    (dir, server)
}

fn cluster_over(server: &S3Server, nodes: usize) -> Cluster {
    Cluster::start(nodes, "s3://data", |options| options.env = server.env())
}

/// CRC-32 as in zlib, bit by bit: an oracle that shares no code with the tested one.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// Returns the bytes of data files that were read more than once. (Each node reads the small
/// manifest for itself.)
fn samples_read_again(counts: &Counts) -> u64 {
    let objects = counts.reads.objects().map(|(object, _)| object);
    let data = objects.filter(|object| object.ends_with(".safetensors"));
    data.map(|object| counts.reads.again(object)).sum()
}

#[test]
fn each_epoch_is_complete_and_only_the_first_reads_s3() {
    let mut python = None;
    let (_dir, server) = bucket(|folder| {
        python = Some(PythonDataset::images(&folder.join("images"), 3, 40, &[32, 32, 3]));
    });
    let python = python.expect("written");
    let cluster = cluster_over(&server, 2);
    let dataset = Dataset::open("s3://data/images", Some(&cluster.address())).expect("opens");
    assert_eq!(dataset.samples(), python.samples());
    // Indexing read the beginning of each file.
    server.reset_counts();
    let mut loader = dataset.loader().batch_size(20).seed(7).build().expect("a loader");
    for epoch in 0..3 {
        let mut seen = vec![0; usize::try_from(python.samples()).expect("few")];
        for batch in loader.epoch(epoch).expect("an epoch") {
            let batch = batch.expect("a batch");
            for (index, sample) in batch.samples().iter().enumerate() {
                seen[usize::try_from(*sample).expect("few")] += 1;
                for tensor in ["image", "label"] {
                    let row = batch.tensor(tensor).row(index);
                    assert_eq!(
                        crc32(row),
                        python.row_crc32(tensor, *sample),
                        "{tensor} of sample {sample}"
                    );
                }
            }
        }
        assert!(seen.iter().all(|times| *times == 1), "epoch {epoch}: {seen:?}");
        assert_eq!(loader.digest(), loader.expected_digest());
        let counts = server.counts();
        assert_eq!(samples_read_again(&counts), 0, "a byte was read twice in epoch {epoch}");
        if epoch > 0 {
            assert_eq!(counts.requests, 0, "epoch {epoch} asked S3");
        }
        server.reset_counts();
    }
}

#[test]
fn concurrent_clients_of_a_cold_shard_cause_one_read() {
    for clients in [2, 64] {
        let (_dir, server) = bucket(|folder| words::write(&folder.join("words"), 1, 64, 4096));
        let cluster = cluster_over(&server, 1);
        let address = cluster.address();
        let datasets: Vec<Dataset> = (0..clients)
            .map(|_| Dataset::open("s3://data/words", Some(&address)).expect("opens"))
            .collect();
        server.reset_counts();
        let start = Barrier::new(clients);
        std::thread::scope(|scope| {
            for (index, dataset) in datasets.iter().enumerate() {
                let start = &start;
                scope.spawn(move || {
                    let sample = u64::try_from(index).expect("few") % 64;
                    start.wait();
                    let row = dataset.read(sample, words::TENSOR).expect("a row");
                    assert!(words::is_right(sample, &row));
                });
            }
        });
        // Readers get their rows before the shard is whole.
        until("the shard was filled from S3", || server.counts().bytes_sent >= 64 * 4096 * 4);
        let counts = server.counts();
        assert_eq!(samples_read_again(&counts), 0, "{clients} clients");
        assert_eq!(counts.reads.forgotten, 0);
    }
}

/// The client cannot reach S3 itself.
#[test]
fn rows_too_long_to_cache_are_read_through_the_node() {
    const ROW_BYTES: u64 = 40 << 20;
    let words = u32::try_from(ROW_BYTES / 4).expect("few");
    let (_dir, server) = bucket(|folder| words::write(&folder.join("words"), 1, 2, words));
    let cluster = Cluster::start(1, "s3://data", |options| {
        options.env = server.env();
        options.memory = "16MiB".to_owned();
    });
    let dataset = Dataset::open("s3://data/words", Some(&cluster.address())).expect("opens");
    server.reset_counts();
    for sample in [1, 0] {
        let row = dataset.read(sample, words::TENSOR).expect("a row");
        assert!(row.len() as u64 == ROW_BYTES && words::is_right(sample, &row), "{sample}");
    }
    assert_eq!(samples_read_again(&server.counts()), 0, "a byte was read twice");
}

#[test]
fn resident_shards_are_served_while_the_origin_is_stopped() {
    let (_dir, server) = bucket(|folder| words::write(&folder.join("words"), 4, 64, 1024));
    let cluster = cluster_over(&server, 2);
    let address = cluster.address();
    let dataset = Dataset::open("s3://data/words", Some(&address)).expect("opens");
    let mut loader = dataset.loader().batch_size(32).build().expect("a loader");
    let mut train = |epoch| {
        for batch in loader.epoch(epoch).expect("an epoch") {
            let batch = batch.expect("a batch");
            let rows = batch.tensor(words::TENSOR);
            assert!((0..batch.len()).all(|i| words::is_right(batch.samples()[i], rows.row(i))));
            assert!(epoch == 0 || batch.sources().rows_origin == 0);
        }
        assert_eq!(loader.digest(), loader.expected_digest());
    };
    train(0);
    server.stop();
    for epoch in 1..4 {
        train(epoch);
    }
    // A later process without a manifest is served as well.
    let late =
        Dataset::open("s3://data/words", Some(&address)).expect("opens from the nodes alone");
    assert!(words::is_right(200, &late.read(200, words::TENSOR).expect("a row")));
}
