//! The demo's origin: a temporary folder of safetensors files.
//!
//! A sample is an image, `u8` of shape 224 x 224 x 3, and a label, `i64`. The label is the number
//! of the sample. The image is the piece of one random pattern that begins at that number, so a
//! row can be compared without a stored copy.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    ops::Range,
    path::Path,
};

use larder_client::{
    Batch, CancelToken,
    admin::{IndexOptions, index_prefix},
};
use serde_json::json;
use tempfile::TempDir;

use super::check_signals;
use crate::error::{Exit, Failure};

/// Height, width and channels of an image.
const SHAPE: [u64; 3] = [224, 224, 3];
const IMAGE_BYTES: usize = 224 * 224 * 3;
/// Samples in a file.
const FILE_SAMPLES: u64 = 512;
/// Small enough that both nodes own about equally many shards.
const SHARD_BYTES: u64 = 16 << 20;

/// The written and indexed images. The folder is removed on drop.
pub(super) struct Images {
    pattern: Vec<u8>,
    samples: u64,
    folder: TempDir,
}

impl Images {
    pub(super) fn write(samples: u64) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("larder-demo-").tempdir();
        let folder = folder.map_err(|error| {
            Failure::file("make a folder in", &std::env::temp_dir(), &error)
                .hint("set TMPDIR to a folder that can be written")
        })?;
        let images = Self { pattern: pattern(IMAGE_BYTES + index(samples)), samples, folder };
        for first in (0..samples).step_by(index(FILE_SAMPLES)) {
            check_signals()?;
            let path = images.folder.path().join(format!("part-{first:07}.safetensors"));
            let written = images.write_file(&path, first..samples.min(first + FILE_SAMPLES));
            written.map_err(|error| Failure::file("write", &path, &error))?;
        }
        let options = IndexOptions { shard_bytes: SHARD_BYTES, ..IndexOptions::default() };
        index_prefix(&[images.uri()], &options, &|_| {}, &CancelToken::never())?;
        Ok(images)
    }

    fn write_file(&self, path: &Path, samples: Range<u64>) -> io::Result<()> {
        let count = samples.end - samples.start;
        let labels = count * 8;
        let end = labels + count * IMAGE_BYTES as u64;
        let [height, width, channels] = SHAPE;
        let header = json!({
            "label": {"dtype": "I64", "shape": [count], "data_offsets": [0, labels]},
            "image": {
                "dtype": "U8",
                "shape": [count, height, width, channels],
                "data_offsets": [labels, end],
            },
        });
        let header = header.to_string();
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        samples.clone().try_for_each(|sample| file.write_all(&sample.to_le_bytes()))?;
        samples.clone().try_for_each(|sample| file.write_all(self.image(sample)))?;
        file.flush()
    }

    fn image(&self, sample: u64) -> &[u8] {
        &self.pattern[index(sample)..][..IMAGE_BYTES]
    }

    /// Compares every row of a batch with the written one.
    pub(super) fn check(&self, batch: &Batch) -> Result<(), Failure> {
        for (row, &sample) in batch.samples().iter().enumerate() {
            let right = batch.tensor("label").row(row) == sample.to_le_bytes()
                && batch.tensor("image").row(row) == self.image(sample);
            if !right {
                let what = format!("sample {sample} came with other bytes than were written");
                return Err(Failure::new(Exit::Data, what)
                    .hint("this is a defect of Larder: please report it"));
            }
        }
        Ok(())
    }

    pub(super) fn uri(&self) -> String {
        format!("file://{}", self.folder.path().display())
    }

    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// Bytes of all rows.
    pub(super) fn bytes(&self) -> u64 {
        self.samples * (IMAGE_BYTES as u64 + 8)
    }

    pub(super) fn remove(self) -> Result<(), Failure> {
        self.folder.close().map_err(|error| {
            Failure::new(Exit::Failed, "the demo's data could not be removed").why(error)
        })
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a demo has at most a million samples")
}

/// Random bytes, always the same: xorshift64.
fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut pattern = Vec::with_capacity(bytes + 8);
    while pattern.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        pattern.extend_from_slice(&state.to_le_bytes());
    }
    pattern
}
