//! Opens the manifest of a petabyte: 10^10 samples in 2^20 shards of 1 GiB. Only the root is
//! written, since an open reads no leaf.
//!
//! The baseline reads the bytes of the root alone. Each open has a process of its own, so that its
//! private memory can be told.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_client::Dataset;
use larder_dataset::{
    ColumnSpec, Dtype, GroupSpec, Layout, Logical, ManifestBuilder, ObjectSpec, OriginUri,
    RowLocator, Rows, TensorSpec,
};

use crate::Error;
use crate::children::Node;
use crate::measure::{median, seconds};
use crate::report::Report;

const OBJECTS: u64 = 1 << 20;
/// Samples of an object, so that it is a shard of almost 1 GiB.
const ROWS: u64 = 9_540;
const ROW_BYTES: u64 = 112_512;

/// The first argument of a process that opens a dataset, with its address and that of a node.
pub(crate) const OPEN_ARGUMENT: &str = "open-dataset";

pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    let folder = tempfile::Builder::new().prefix("larder-bench-").tempdir_in("/dev/shm")?;
    let uri = format!("file://{}", folder.path().display());
    let root = write(folder.path(), &uri)?;
    let node = Node::start(&uri, &[])?;
    let (first, opened) = seconds(|| node.connect(&uri));
    drop(opened?);
    let (mut alone, mut read, mut mapped) = (Vec::new(), Vec::new(), Vec::new());
    let (mut read_mib, mut mapped_mib) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        let (took, bytes) = seconds(|| fs::read(&root));
        black_box(bytes?);
        alone.push(took);
        let (took, mib) = child(&uri, "")?;
        read.push(took);
        read_mib.push(mib);
        let (took, mib) = child(&uri, node.address())?;
        mapped.push(took);
        mapped_mib.push(mib);
    }
    let names = [
        "reading the root alone".to_owned(),
        format!("open from the origin, {:.0} MiB private", median(read_mib)),
        format!("open of a mapped root, {:.0} MiB private", median(mapped_mib)),
        "the node's first open".to_owned(),
    ];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let size = fs::metadata(&root)?.len() >> 20;
    let title = format!("open 1 PiB, {} samples, a root of {size} MiB", OBJECTS * ROWS);
    report.add_times(&title, &names, &[alone, read, mapped, vec![first]]);
    Ok(())
}

/// Opens the dataset in a new process. Returns the seconds and the private memory of that.
fn child(uri: &str, node: &str) -> Result<(f64, f64), Error> {
    let program = std::env::current_exe()?;
    let done = Command::new(program).args([OPEN_ARGUMENT, uri, node]).output()?;
    let said = String::from_utf8(done.stdout)?;
    let (took, mib) = said.trim().split_once(' ').ok_or("a dataset was not opened")?;
    Ok((took.parse()?, mib.parse()?))
}

/// The work of that process.
pub(crate) fn open(uri: &str, node: &str) -> Result<(), Error> {
    let before = private_mib()?;
    let node = Some(node).filter(|node| !node.is_empty());
    let (took, dataset) = seconds(|| Dataset::open(uri, node));
    let dataset = dataset?;
    assert_eq!(dataset.samples(), OBJECTS * ROWS);
    println!("{took} {}", private_mib()? - before);
    Ok(())
}

/// The private memory of this process.
fn private_mib() -> Result<f64, Error> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).ok_or("no RssAnon")?;
    Ok(kib.parse::<f64>()? / 1024.0)
}

/// Writes the root and its tag. Returns its path.
fn write(folder: &Path, uri: &str) -> Result<PathBuf, Error> {
    let tensor = TensorSpec {
        name: "x".to_owned(),
        dtype: Dtype::U8,
        logical: Logical::Number,
        shape: vec![ROW_BYTES],
        locator: RowLocator::Strided { row_bytes: ROW_BYTES, stride_bytes: ROW_BYTES },
        layout: Layout::Column,
    };
    let mut builder = ManifestBuilder::new(OriginUri::parse(uri)?, vec![tensor], 1 << 30);
    for number in 0..OBJECTS {
        let object = ObjectSpec {
            key: format!("part-{number:07}.npy"),
            etag: Some(format!("{number:032x}")),
            version: None,
            size_bytes: ROWS * ROW_BYTES + 128,
        };
        let rows = Rows::Strided { begin: 128, stride: ROW_BYTES };
        let columns = vec![ColumnSpec { object: 0, rows }];
        builder.push(GroupSpec { rows: ROWS, objects: vec![object], columns });
    }
    let manifest = builder.build()?.manifest;
    let home = folder.join(".larder");
    fs::create_dir_all(home.join("tags"))?;
    let snapshot = manifest.snapshot();
    let root = home.join(format!("{snapshot}.manifest"));
    fs::write(&root, manifest.as_bytes())?;
    fs::write(home.join("tags/latest"), format!(r#"{{"snapshot":"{snapshot}"}}"#))?;
    Ok(root)
}
