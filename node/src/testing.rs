//! Shared helpers for the tests of this crate: a dataset in a folder, and a cache over it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use larder_base::{Error, Member, Ring, RowRef};
use larder_dataset::{
    DatasetRef, IndexOptions, Leaf, Origin, OriginUri, RowOrigin, RowPlaces, index,
};
use larder_extent::Sealed;
use larder_store::Budget;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::cache::{Awaited, Cache, Counters, FoundShard, Priority, Waited};
use crate::catalog::leaves::Leaves;
use crate::catalog::{Catalog, WantedDataset};
use crate::clock;
use crate::cluster::Placements;
use crate::dataset::Dataset;
use crate::fill::{Filler, Maker, Peers, ReadThrough, Reader};

/// Longer than any wait of a passing test, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with one tensor of bytes in a `.npy` file, indexed.
pub(crate) struct Folder {
    dir: TempDir,
    /// Bytes of each row.
    lengths: Vec<usize>,
}

impl Folder {
    /// Creates `rows` rows of `row_bytes` bytes.
    pub(crate) fn new(rows: usize, row_bytes: usize, shard_bytes: u64, checksum: bool) -> Self {
        let folder = Self { dir: tempfile::tempdir().unwrap(), lengths: vec![row_bytes; rows] };
        let data = (0..rows).flat_map(|row| folder.row(row)).collect();
        folder.write("rows.npy", "|u1", &format!("{rows}, {row_bytes}"), data);
        folder.index(shard_bytes, checksum);
        folder
    }

    /// Creates rows of these lengths.
    pub(crate) fn ragged(lengths: Vec<usize>, shard_bytes: u64, checksum: bool) -> Self {
        let folder = Self { dir: tempfile::tempdir().unwrap(), lengths };
        let rows = folder.lengths.len();
        let data: Vec<u8> = (0..rows).flat_map(|row| folder.row(row)).collect();
        let mut end = 0u64;
        let ends = folder.lengths.iter().map(|&length| {
            end += length as u64;
            end
        });
        let offsets = [0].into_iter().chain(ends).flat_map(u64::to_le_bytes).collect();
        folder.write("rows.npy", "|u1", &format!("{},", data.len()), data);
        folder.write("rows.offsets.npy", "<u8", &format!("{},", rows + 1), offsets);
        folder.index(shard_bytes, checksum);
        folder
    }

    fn write(&self, name: &str, dtype: &str, shape: &str, data: Vec<u8>) {
        let header =
            format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape}), }}");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
        bytes.extend(u16::try_from(padded).unwrap().to_le_bytes());
        bytes.extend(format!("{header:<width$}\n", width = padded - 1).bytes());
        bytes.extend(data);
        fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    pub(crate) fn index(&self, shard_bytes: u64, checksum: bool) {
        let options = IndexOptions { shard_bytes, checksum, ..IndexOptions::default() };
        let indexed = async {
            let origin = Origin::connect(&self.uri()).await.unwrap();
            index(&origin, &self.uri(), &options, &|_| {}).await.unwrap();
        };
        runtime().block_on(indexed);
    }

    /// Returns the memory that the manifest takes.
    fn manifest_bytes(&self) -> u64 {
        self.extents("", "manifest")
    }

    /// Returns the memory that the leaves of all manifests take.
    pub(crate) fn leaf_bytes(&self) -> u64 {
        self.extents("leaves", "")
    }

    /// Returns the memory of the files with this extension in a folder beside the data.
    fn extents(&self, folder: &str, extension: &str) -> u64 {
        let Ok(files) = fs::read_dir(self.dir.path().join(".larder").join(folder)) else {
            return 0;
        };
        let files = files.map(|file| file.unwrap());
        let files = files.filter(|f| f.path().extension().is_none_or(|known| known == extension));
        let files = files.filter(|file| file.path().is_file());
        let extent = |bytes: u64| 4096 + bytes.next_multiple_of(4096);
        files.map(|file| extent(file.metadata().unwrap().len())).sum()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("rows.npy")
    }

    /// Changes the last byte. Size and time stay, so only a checksum can tell.
    pub(crate) fn damage(&self) {
        let before = fs::metadata(self.file()).unwrap().modified().unwrap();
        let mut file = File::options().read(true).write(true).open(self.file()).unwrap();
        let mut last = [0];
        file.seek(SeekFrom::End(-1)).unwrap();
        file.read_exact(&mut last).unwrap();
        file.seek(SeekFrom::End(-1)).unwrap();
        file.write_all(&[!last[0]]).unwrap();
        file.set_modified(before).unwrap();
    }

    pub(crate) fn uri(&self) -> OriginUri {
        OriginUri::parse(&format!("file://{}", self.dir.path().display())).unwrap()
    }

    /// Returns the bytes of a row; all rows differ.
    pub(crate) fn row(&self, row: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(row as u64);
        let mut bytes = vec![0; self.lengths[row]];
        random.fill(&mut bytes);
        bytes
    }

    /// Reads the leaf of a shard.
    pub(crate) fn leaf(&self, dataset: &Dataset, shard: u32) -> Leaf {
        let manifest = dataset.manifest();
        let reading = dataset.leaf_files().load(manifest, manifest.leaf_of(shard));
        runtime().block_on(reading).unwrap()
    }

    /// Returns the offset in the file of the first row of a shard.
    pub(crate) fn offset(&self, dataset: &Dataset, shard: u32) -> u64 {
        let leaf = self.leaf(dataset, shard);
        match dataset.manifest().row_source(&leaf, RowRef { shard, row: 0 }, 0) {
            RowOrigin::Object(read) => read.offset,
            RowOrigin::Value(_) | RowOrigin::Block(..) => panic!("the rows lie in a file"),
        }
    }

    /// Checks every row of a shard against the file.
    pub(crate) fn check(&self, dataset: &Dataset, shard: u32, sealed: &Sealed) {
        let (facts, leaf) = (dataset.manifest().shard(shard), self.leaf(dataset, shard));
        sealed.verify().unwrap();
        for row in 0..facts.rows {
            let sample = usize::try_from(facts.first_sample + u64::from(row)).unwrap();
            let (at, bytes) = dataset.manifest().row_in_region(&leaf, RowRef { shard, row }, 0);
            let [at, bytes] = [at, bytes].map(|number| usize::try_from(number).unwrap());
            assert_eq!(sealed.region(0)[at..at + bytes], self.row(sample), "sample {sample}");
        }
    }
}

/// A cache with its fills, over one dataset. Fields are dropped in order: the runtime last.
pub(crate) struct CacheFixture {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) catalog: Catalog,
    pub(crate) read_through: ReadThrough,
    pub(crate) leaves: Arc<Leaves>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) counters: Arc<Counters>,
    reader: Arc<Reader>,
    stopping: CancellationToken,
    pub(crate) runtime: Runtime,
}

impl CacheFixture {
    /// Creates a cache of `budget_bytes` beside the manifest, without workers.
    pub(crate) fn unmanned(folder: &Folder, budget_bytes: u64) -> Self {
        let (runtime, counters) = (runtime(), Arc::new(Counters::default()));
        let manifest_bytes = folder.manifest_bytes();
        let budget = Budget::new(budget_bytes + manifest_bytes + folder.leaf_bytes());
        let cache = Cache::start(budget, Arc::clone(&counters)).unwrap();
        let catalog = Catalog::new(vec![folder.uri()], Arc::clone(&cache));
        let wanted = DatasetRef::parse(&folder.uri().to_string()).unwrap();
        let wanted = WantedDataset::by_node(wanted, None);
        let dataset = runtime.block_on(catalog.open(&wanted)).unwrap().dataset;
        assert_eq!(dataset.manifest_extent().total_bytes(), manifest_bytes);
        let reader = Arc::new(Reader::new(Arc::clone(&counters), cache.retained()));
        let handle = runtime.handle().clone();
        let maker = Maker::new(&cache, &reader);
        let (through, counted) = (Arc::clone(&reader), Arc::clone(&counters));
        let read_through = ReadThrough::new(handle, through, maker, counted);
        let stopping = CancellationToken::new();
        let leaves = Leaves::new(&cache, runtime.handle().clone());
        let shards: Vec<u32> = (0..dataset.manifest().shard_count()).collect();
        leaves.wait(leaves.ready(&dataset, &shards)).unwrap();
        Self { dataset, catalog, read_through, leaves, cache, counters, reader, stopping, runtime }
    }

    /// Creates a cache of `budget_bytes` beside the manifest, with workers.
    pub(crate) fn new(folder: &Folder, budget_bytes: u64) -> Self {
        let fixture = Self::unmanned(folder, budget_bytes);
        fixture.start_workers();
        fixture
    }

    pub(crate) fn start_workers(&self) {
        self.start_workers_among(&[]);
    }

    /// Starts workers on a ring with other members, given by name and data address.
    pub(crate) fn start_workers_among(&self, others: &[(&str, String)]) {
        let beside = others.iter().map(|(id, address)| member(id, address));
        let members = [member("n1", "127.0.0.1:1")].into_iter().chain(beside).collect();
        let peers = Arc::new(Peers::new("n1", placed(1, members)));
        peers.meet(others);
        let maker = Maker::new(&self.cache, &self.reader);
        let (reader, leaves, counters) = (&self.reader, &self.leaves, &self.counters);
        let filler = Filler::new(reader, &maker, leaves, peers, counters, &Arc::default());
        filler.start_workers(&self.cache, self.runtime.handle(), &self.stopping);
    }

    /// Opens the dataset as last indexed.
    pub(crate) fn open(&self, folder: &Folder) -> Arc<Dataset> {
        let wanted = DatasetRef::parse(&folder.uri().to_string()).unwrap();
        let wanted = WantedDataset::by_node(wanted, None);
        let dataset = self.runtime.block_on(self.catalog.open(&wanted)).unwrap().dataset;
        let shards: Vec<u32> = (0..dataset.manifest().shard_count()).collect();
        self.leaves.wait(self.leaves.ready(&dataset, &shards)).unwrap();
        dataset
    }

    /// Returns the places of all rows.
    pub(crate) fn places(&self) -> RowPlaces {
        let shards: Vec<u32> = (0..self.dataset.manifest().shard_count()).collect();
        self.leaves.wait(self.leaves.places(&self.dataset, &shards, true)).unwrap()
    }

    pub(crate) fn find(&self, shard: u32) -> FoundShard {
        self.cache.find(&self.dataset, &[shard], Priority::Demand).pop().unwrap()
    }

    /// Returns the shard, filled if needed.
    pub(crate) fn get(&self, shard: u32) -> Result<Arc<Sealed>, Arc<Error>> {
        match self.find(shard) {
            FoundShard::Resident(sealed) => Ok(sealed),
            FoundShard::InFlight(flight) => landed(&flight),
            FoundShard::NotKept => panic!("shard {shard} is not kept"),
        }
    }

    /// Returns the bytes of the budget that a shard with rows of one length takes.
    pub(crate) fn extent_bytes(folder: &Folder, rows: usize) -> u64 {
        let rows_bytes = (rows * folder.lengths[0]) as u64;
        let tables = 128 + rows as u64 * 4;
        tables.next_multiple_of(4096) + rows_bytes.next_multiple_of(4096)
    }
}

/// Creates a member of a ring from the address of its control plane.
pub(crate) fn member(id: &str, address: &str) -> Member {
    let [id, host, zone] = [id, "here", ""].map(str::to_owned);
    Member { id, weight: 1, control: format!("http://{address}"), host, zone }
}

/// Creates the placements of a node in a ring with these members.
pub(crate) fn placed(version: u64, members: Vec<Member>) -> Arc<ArcSwap<Placements>> {
    let ring = Arc::new(Ring::new(version, members).unwrap());
    Arc::new(ArcSwap::from_pointee(Placements::of_ring(ring)))
}

/// Creates a cache without fills.
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

/// Waits for a state that another thread brings about.
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
