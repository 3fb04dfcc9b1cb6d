//! What this crate's tests share: a dataset in a folder, and a cache over it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use larder_dataset::{DatasetRef, IndexOptions, Origin, OriginUri, index};
use larder_extent::Sealed;
use larder_store::Budget;
use larder_wire::Error;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::cache::{Awaited, Cache, Found};
use crate::catalog::{Catalog, Dataset};
use crate::clock;
use crate::counters::Counters;
use crate::fill::{Priority, ReadThrough, Reader, start_workers};
use crate::flight::Waited;

/// Longer than anything here takes, so that a test that fails ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with one `.npy` file of `rows` rows of `row_bytes` bytes, indexed.
pub(crate) struct Folder {
    dir: TempDir,
    row_bytes: usize,
}

impl Folder {
    pub(crate) fn new(rows: usize, row_bytes: usize, shard_bytes: u64, checksum: bool) -> Self {
        let folder = Self { dir: tempfile::tempdir().unwrap(), row_bytes };
        let header =
            format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({rows}, {row_bytes}), }}");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
        bytes.extend(u16::try_from(padded).unwrap().to_le_bytes());
        bytes.extend(format!("{header:<width$}\n", width = padded - 1).bytes());
        (0..rows).for_each(|row| bytes.extend(folder.row(row)));
        fs::write(folder.file(), bytes).unwrap();
        let options = IndexOptions { shard_bytes, checksum, ..IndexOptions::default() };
        let indexed = async {
            let origin = Origin::connect(&folder.uri()).await.unwrap();
            index(&origin, &folder.uri(), &options, &|_| {}).await.unwrap();
        };
        runtime().block_on(indexed);
        folder
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("rows.npy")
    }

    pub(crate) fn uri(&self) -> OriginUri {
        OriginUri::parse(&format!("file://{}", self.dir.path().display())).unwrap()
    }

    /// The bytes of a row: all rows differ.
    pub(crate) fn row(&self, row: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(row as u64);
        let mut bytes = vec![0; self.row_bytes];
        random.fill(&mut bytes);
        bytes
    }

    /// Checks every row of a shard against the file.
    pub(crate) fn check(&self, dataset: &Dataset, shard: u32, sealed: &Sealed) {
        let shard = dataset.manifest().shard(shard);
        for row in 0..u64::from(shard.rows) {
            let sample = usize::try_from(shard.first_sample + row).unwrap();
            assert_eq!(sealed.row(0, row), self.row(sample), "sample {sample}");
        }
    }
}

/// A cache with its fills, over one dataset. Fields are dropped in order: the runtime last.
pub(crate) struct Kitchen {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) catalog: Catalog,
    pub(crate) read_through: ReadThrough,
    pub(crate) cache: Arc<Cache>,
    pub(crate) counters: Arc<Counters>,
    reader: Arc<Reader>,
    stopping: CancellationToken,
    pub(crate) runtime: Runtime,
}

impl Kitchen {
    /// A cache of `budget_bytes` beside the manifest, without workers.
    pub(crate) fn unmanned(folder: &Folder, budget_bytes: u64) -> Self {
        let (runtime, counters) = (runtime(), Arc::new(Counters::default()));
        // A manifest of a few shards takes two pages.
        let budget = Budget::new(budget_bytes + 8192);
        let cache = Cache::start(budget, Arc::clone(&counters)).unwrap();
        let catalog = Catalog::new(vec![folder.uri()], Arc::clone(&cache));
        let wanted = DatasetRef::parse(&folder.uri().to_string()).unwrap();
        let dataset = runtime.block_on(catalog.open(&wanted, None)).unwrap().dataset;
        assert_eq!(dataset.manifest_extent().total_bytes(), 8192);
        let reader = Arc::new(Reader::new(Arc::clone(&counters)));
        let handle = runtime.handle().clone();
        let read_through = ReadThrough::new(handle, Arc::clone(&reader), Arc::clone(&counters));
        let stopping = CancellationToken::new();
        Self { dataset, catalog, read_through, cache, counters, reader, stopping, runtime }
    }

    /// A cache of `budget_bytes` beside the manifest.
    pub(crate) fn new(folder: &Folder, budget_bytes: u64) -> Self {
        let kitchen = Self::unmanned(folder, budget_bytes);
        kitchen.start_workers();
        kitchen
    }

    pub(crate) fn start_workers(&self) {
        start_workers(&self.cache, &self.reader, self.runtime.handle(), &self.stopping);
    }

    pub(crate) fn find(&self, shard: u32) -> Found {
        self.cache.find(&self.dataset, &[shard], Priority::Demand).pop().unwrap()
    }

    /// The shard, filled if need be.
    pub(crate) fn get(&self, shard: u32) -> Result<Arc<Sealed>, Arc<Error>> {
        match self.find(shard) {
            Found::Resident(sealed) => Ok(sealed),
            Found::InFlight(flight) => landed(&flight),
            Found::NotKept => panic!("shard {shard} is not kept"),
        }
    }

    /// What a shard takes of the budget.
    pub(crate) fn extent_bytes(folder: &Folder, rows: usize) -> u64 {
        let rows_bytes = (rows * folder.row_bytes) as u64;
        let tables = 128 + rows as u64 * 4;
        tables.next_multiple_of(4096) + rows_bytes.next_multiple_of(4096)
    }
}

/// A cache without fills.
pub(crate) fn cache(budget_bytes: u64) -> Arc<Cache> {
    Cache::start(Budget::new(budget_bytes), Arc::default()).unwrap()
}

/// Waits for the end of a flight.
pub(crate) fn landed(flight: &Awaited) -> Result<Arc<Sealed>, Arc<Error>> {
    match flight.wait_for_all(PATIENCE) {
        Waited::Sealed(sealed) => Ok(sealed),
        Waited::Failed(why) => Err(why),
        other => panic!("the fill did not end: {other:?}"),
    }
}

/// Waits for a state that some thread will bring about.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = clock::now();
    while !holds() {
        assert!(clock::now() - start < PATIENCE, "waited in vain until {what}");
        thread::park_timeout(Duration::from_millis(1));
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
