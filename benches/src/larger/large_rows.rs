//! Samples of 50 MB, 32 in a batch: warm, beside a copy of the same bytes; then with memory for
//! half of them, beside the time that the origin's bandwidth allows.
//!
//! All bytes are zero: the file of the data has holes only.

use std::path::Path;

use larder_client::{Dataset, Loader};
use larder_origin::{Options, S3Server};

use super::{float, window};
use crate::Error;
use crate::children::Ring;
use crate::matrix::npy_header;
use crate::measure::{alternate, begin, seconds};
use crate::report::{Larger, Report};

const ROW_BYTES: usize = 50_000_000;
const SAMPLES: usize = 160;
const BATCH: u32 = 32;
const URI: &str = "s3://data/volumes";
/// Memory for all shards.
const MEMORY: u64 = (ROW_BYTES * SAMPLES) as u64 + (256 << 20);
/// Bytes a second of the narrow origin.
const RATE: u64 = 400_000_000;
const EPOCHS: u32 = 4;

pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    let folder = tempfile::Builder::new().prefix("larder-bench-").tempdir_in("/dev/shm")?;
    let folder = folder.path();
    // One server for all: it hashes the file at its first answer, which takes long.
    let server = S3Server::start(folder, &Options { rate: Some(RATE), ..Options::default() })?;
    write(&server.create_bucket("data")?)?;
    super::index(&server, URI, ROW_BYTES as u64)?;
    warm(report, &server)?;
    match count(&server) {
        Ok(figure) => report.add_larger(figure),
        Err(why) => report.not_measured("memory for half of them", &why.to_string()),
    }
    Ok(())
}

fn write(bucket: &Path) -> Result<(), Error> {
    let folder = bucket.join("volumes");
    std::fs::create_dir_all(&folder)?;
    let header = npy_header("|u1", &format!("{SAMPLES}, {ROW_BYTES}"));
    let path = folder.join("volume.npy");
    std::fs::write(&path, &header)?;
    let file = std::fs::OpenOptions::new().write(true).open(&path)?;
    file.set_len((header.len() + SAMPLES * ROW_BYTES) as u64)?;
    Ok(())
}

fn warm(report: &mut Report, server: &S3Server) -> Result<(), Error> {
    let ring = Ring::start("s3://data", &server.env(), 1, MEMORY)?;
    let mut loader = loader(&ring)?;
    for epoch in 0..3 {
        read(&mut loader, epoch)?;
    }
    let source = vec![1_u8; ROW_BYTES * BATCH as usize];
    let mut target = vec![0_u8; source.len()];
    let mut copy = || {
        let begun = begin(None);
        for _ in 0..SAMPLES / BATCH as usize {
            target.copy_from_slice(std::hint::black_box(&source));
        }
        Ok::<_, Error>(begun.end(ROW_BYTES * SAMPLES))
    };
    let mut epochs = || {
        let begun = begin(Some(ring.pid()));
        let bytes = read(&mut loader, 0)?;
        Ok(begun.end(bytes))
    };
    let results = alternate(report.rounds(), &mut [&mut copy, &mut epochs])?;
    let title = format!("{SAMPLES} samples of 50 MB, {BATCH} a batch, warm");
    report.add(&title, "GiB/s", &["memcpy", "loader"], &results);
    Ok(())
}

/// Epochs 2 and later, with memory for half of the data.
fn count(server: &S3Server) -> Result<Larger, Error> {
    let ring = Ring::start("s3://data", &server.env(), 1, MEMORY / 2)?;
    let mut loader = loader(&ring)?;
    let (mut gets, mut fetched, mut took) = (0, 0, 0.0);
    for epoch in 0..EPOCHS {
        server.reset_counts();
        let (time, done) = seconds(|| read(&mut loader, epoch.into()));
        done?;
        let counts = server.counts();
        if epoch > 0 {
            gets += counts.object_reads;
            fetched += counts.bytes_sent;
            took += time;
        }
    }
    let epochs = f64::from(EPOCHS - 1);
    let data = float((SAMPLES * ROW_BYTES) as u64);
    let parts = float((SAMPLES * ROW_BYTES.div_ceil(8 << 20)) as u64);
    let bound = data / 2.0 / float(RATE);
    Ok(Larger {
        case: format!("{SAMPLES} samples of 50 MB, c 0.5, narrow: bound {bound:.1} s"),
        fetched: float(fetched) / data / epochs,
        gets: float(gets) / epochs,
        gets_of_bound: float(gets) / epochs / (parts / 2.0),
        epoch_seconds: took / epochs,
    })
}

fn loader(ring: &Ring) -> Result<Loader, Error> {
    let dataset = Dataset::open(URI, Some(ring.address()))?;
    Ok(dataset.loader().batch_size(BATCH).shuffle(window(10)).quiet().build()?)
}

/// Reads an epoch. Returns its bytes.
fn read(loader: &mut Loader, epoch: u64) -> Result<usize, Error> {
    let mut bytes = 0;
    for batch in loader.epoch(epoch)? {
        let batch = batch?;
        let tensors = batch.tensors().map(|tensor| std::hint::black_box(tensor.bytes()));
        bytes += tensors.map(<[u8]>::len).sum::<usize>();
    }
    Ok(bytes)
}
