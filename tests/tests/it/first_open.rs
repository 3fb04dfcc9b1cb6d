//! The first open of a prefix and the first epoch: what the index reads, no fill reads again, as
//! far as memory is free.

use std::fs;
use std::path::{Path, PathBuf};

use larder_client::{Dataset, ErrorKind};
use larder_origin::{Options, S3Server};
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
