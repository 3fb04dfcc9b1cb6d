//! The truth: the safetensors files that the S3 server serves, read directly. Nothing of Larder's
//! own idea of where a row lies is used: headers are read again, here.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, path::Path};

use larder_client::Batch;
use serde::Deserialize;

use crate::error::{Exit, Failure};

/// A header longer than this is none of the demo's.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// All files, in the order of their names.
pub(super) struct Source {
    files: Vec<SourceFile>,
    scratch: Vec<u8>,
}

struct SourceFile {
    file: File,
    first_sample: u64,
    rows: u64,
    /// Where each tensor begins, and the bytes of a row.
    tensors: BTreeMap<String, (u64, u64)>,
}

/// A tensor in the header of a safetensors file.
#[derive(Debug, Deserialize)]
struct Entry {
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl Source {
    pub(super) fn open(folder: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::file("read", folder, &error);
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "safetensors") {
                paths.push(path);
            }
        }
        paths.sort();
        let (mut files, mut first_sample) = (Vec::new(), 0);
        for path in paths {
            let file = SourceFile::open(&path, first_sample).map_err(failed)?;
            first_sample += file.rows;
            files.push(file);
        }
        Ok(Self { files, scratch: Vec::new() })
    }

    pub(super) fn samples(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// Compares every row of a batch with its file.
    pub(super) fn check(&mut self, batch: &Batch) -> Result<(), Failure> {
        for (row, &sample) in batch.samples().iter().enumerate() {
            for tensor in batch.tensors() {
                let there = self.row(sample, tensor.name());
                let there = there.map_err(|error| {
                    let what = format!("sample {sample} can't be read from its file");
                    Failure::new(Exit::Failed, what).why(error)
                })?;
                if tensor.row(row) != there {
                    let what = format!("sample {sample} came with other bytes than its file has");
                    return Err(Failure::new(Exit::Data, what)
                        .why(format!("tensor '{}' differs", tensor.name()))
                        .hint("this is a defect of Larder: please report it"));
                }
            }
        }
        Ok(())
    }

    fn row(&mut self, sample: u64, tensor: &str) -> io::Result<&[u8]> {
        let after = self.files.partition_point(|file| file.first_sample <= sample);
        let file = &self.files[after - 1];
        let (begin, row_bytes) = file.tensors.get(tensor).copied().unwrap_or_default();
        self.scratch.resize(usize::try_from(row_bytes).map_err(io::Error::other)?, 0);
        let row = sample - file.first_sample;
        file.file.read_exact_at(&mut self.scratch, begin + row * row_bytes)?;
        Ok(&self.scratch)
    }
}

impl SourceFile {
    fn open(path: &Path, first_sample: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0)?;
        let length = u64::from_le_bytes(length);
        if length > HEADER_BYTES_MAX {
            return Err(io::Error::other(format!("{} has no header", path.display())));
        }
        let mut header = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact_at(&mut header, 8)?;
        let entries: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&header)?;
        let (mut tensors, mut rows) = (BTreeMap::new(), 0);
        for (name, entry) in entries {
            if name == "__metadata__" {
                continue;
            }
            let Entry { shape, data_offsets: [begin, end] } = serde_json::from_value(entry)?;
            rows = shape.first().copied().unwrap_or(0);
            tensors.insert(name, (8 + length + begin, (end - begin) / rows.max(1)));
        }
        Ok(Self { file, first_sample, rows, tensors })
    }
}
