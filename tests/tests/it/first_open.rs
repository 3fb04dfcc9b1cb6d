//! The first open of a prefix and the first epoch: no fill reads the bytes of the index again, as
//! far as memory is free. And the wait for the first batch on a slow line.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_client::sampler::Shuffle;
use larder_client::{Dataset, ErrorKind};
use larder_origin::{Options, S3Server};
use larder_tests::node::binary;
use larder_tests::{Cluster, PythonDataset};
use tempfile::TempDir;

const URI: &str = "s3://data/tars";

/// A bucket of tars with members of 30 to 300 KB, written by Python's `tarfile`: three shards.
struct Tars {
    python: PythonDataset,
    folder: PathBuf,
    server: S3Server,
    _dir: TempDir,
}

impl Tars {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
        let folder = server.create_bucket("data").expect("a bucket").join("tars");
        let python = PythonDataset::tars(&folder, 36, 24, 30_000, 300_000);
        Self { python, folder, server, _dir: dir }
    }

    fn cluster(&self, nodes: usize, memory: &str) -> Cluster {
        Cluster::start(nodes, "s3://data", |options| {
            options.env = self.server.env();
            options.memory = memory.to_owned();
        })
    }

    /// Reads an epoch, and compares each row with its writer's.
    fn read_epoch(&self, cluster: &Cluster) {
        let dataset = Dataset::open(URI, Some(&cluster.address())).expect("opens");
        assert_eq!(dataset.samples(), self.python.samples());
        let mut loader = dataset.loader().batch_size(32).seed(3).build().expect("a loader");
        let mut samples = 0;
        for batch in loader.epoch(0).expect("an epoch") {
            let batch = batch.expect("a batch");
            for (index, sample) in batch.samples().iter().enumerate() {
                let row = batch.tensor("bin").row(index);
                assert_eq!(crc32(row), self.python.row_crc32("bin", *sample), "sample {sample}");
                samples += 1;
            }
        }
        assert_eq!(samples, self.python.samples());
    }

    /// Makes the next open index the tars again.
    fn forget_index(&self) {
        fs::remove_dir_all(self.folder.join(".larder")).expect("the manifest lies beside the data");
        self.server.reset_counts();
    }

    /// Returns the bytes that the origin sent, in percent of the tars.
    fn percent_read(&self) -> u64 {
        self.server.counts().bytes_sent * 100 / bytes_in(&self.folder)
    }
}

fn bytes_in(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file"));
    let tars = files.filter(|file| file.path().extension().is_some_and(|kind| kind == "tar"));
    tars.map(|file| file.metadata().expect("a file").len()).sum()
}

fn crc32(bytes: &[u8]) -> u32 {
    use std::sync::LazyLock;
    static TABLE: LazyLock<[u32; 256]> = LazyLock::new(|| {
        std::array::from_fn(|byte| {
            let byte = u32::try_from(byte).expect("a byte");
            (0..8).fold(byte, |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
        })
    });
    let step = |crc: u32, byte: &u8| TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8);
    !bytes.iter().fold(!0, step)
}

/// In memory for the data beside what the index read; for the data and one shard; and for less.
#[test]
fn first_open_and_epoch_read_each_byte_once_if_memory_holds_it() {
    let tars = Tars::new();
    for (memory, most_percent) in [("512MiB", 103), ("224MiB", 103), ("96MiB", 203)] {
        let cluster = tars.cluster(1, memory);
        tars.read_epoch(&cluster);
        let percent = tars.percent_read();
        assert!(percent <= most_percent, "{percent} % of the data in {memory}");
        tars.forget_index();
    }
    let cluster = tars.cluster(2, "512MiB");
    tars.read_epoch(&cluster);
    let percent = tars.percent_read();
    assert!(percent <= 203, "{percent} % of the data in a cluster");
}

#[test]
fn file_that_changes_between_index_and_fill_is_noticed() {
    let tars = Tars::new();
    let cluster = tars.cluster(1, "96MiB");
    let dataset = Dataset::open(URI, Some(&cluster.address())).expect("opens");
    let last = tars.folder.join("00035.tar");
    let mut bytes = fs::read(&last).expect("a tar");
    bytes.reverse();
    fs::write(&last, bytes).expect("a tar of other bytes");
    let first = dataset.read(0, "bin").expect("the first tar is as it was");
    assert_eq!(crc32(&first), tars.python.row_crc32("bin", 0));
    let error = dataset.read(dataset.samples() - 1, "bin").expect_err("the last tar is another");
    assert_eq!(error.kind(), ErrorKind::DataChanged, "{error}");
}

/// Returns the object and the bytes of each `bin` member, in the order of samples.
fn bin_members(folder: &Path, files: u32) -> Vec<(String, Range<u64>)> {
    let mut members = Vec::new();
    for name in (0..files).map(|file| format!("{file:05}.tar")) {
        let (tar, mut at) = (fs::read(folder.join(&name)).expect("a tar"), 0);
        while tar[at] != 0 {
            let size = std::str::from_utf8(&tar[at + 124..at + 135]).expect("octal digits");
            let size = usize::from_str_radix(size, 8).expect("octal digits");
            let (path, begin) = (&tar[at..at + 100], at + 512);
            if path.windows(4).any(|word| word == b".bin") {
                let range = begin as u64..(begin + size) as u64;
                members.push((format!("data/tars/{name}"), range));
            }
            at = begin + size.next_multiple_of(512);
        }
    }
    members
}

#[test]
fn rows_of_the_first_batch_are_requested_before_others() {
    const FILES: u32 = 12;
    /// Rows of other batches and other shards may be on their way.
    const SPARE_BYTES: u64 = 8 << 20;

    let dir = tempfile::tempdir().expect("a folder");
    let fast = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
    let folder = fast.create_bucket("data").expect("a bucket").join("tars");
    let python = PythonDataset::tars(&folder, FILES, 24, 30_000, 300_000);
    let args = ["dataset", "index", URI, "--shard-bytes", "16777216"];
    let index = Command::new(binary("larder")).args(args).envs(fast.env()).output();
    assert!(index.expect("larder starts").status.success());

    let options = Options { rate: Some(1_500_000), ..Options::default() };
    let slow = S3Server::start(dir.path(), &options).expect("an S3 server");
    let cluster = Cluster::start(1, "s3://data", |options| options.env = slow.env());
    let dataset = Dataset::open(URI, Some(&cluster.address())).expect("opens");
    let loader = dataset
        .loader()
        .batch_size(32)
        .shuffle(Shuffle::Window { shards: 4.try_into().unwrap() })
        .seed(3);
    let mut epoch = loader.build().expect("a loader").epoch(0).expect("an epoch");
    let batch = epoch.next().expect("a batch").expect("a batch");
    for (index, &sample) in batch.samples().iter().enumerate() {
        assert_eq!(crc32(batch.tensor("bin").row(index)), python.row_crc32("bin", sample));
    }

    let members = bin_members(&folder, FILES);
    let rows = batch.samples().iter().map(|&sample| &members[usize::try_from(sample).unwrap()]);
    let mut missing: Vec<_> = rows.collect();
    let batch_bytes: u64 = missing.iter().map(|(_, range)| range.end - range.start).sum();
    let counts = slow.counts();
    let (mut before, mut reads) = (0, counts.reads.in_order().into_iter());
    while !missing.is_empty() {
        let (object, range) = reads.next().expect("all rows of the batch were requested");
        let holds = |row: &Range<u64>| range.start <= row.start && row.end <= range.end;
        missing.retain(|(tar, row)| object != tar || !holds(row));
        before += range.end - range.start;
    }
    let all = bytes_in(&folder);
    assert!(before < 2 * batch_bytes + SPARE_BYTES, "{before} of {all} for {batch_bytes} bytes");
    assert!(2 * batch_bytes + SPARE_BYTES < all / 2);
    assert_eq!(counts.reads.bytes_read_again(), 0);
}
