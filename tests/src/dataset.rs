//! Datasets written by the Python safetensors and numpy packages, with the hash of every row.

pub mod words;

use std::path::Path;

use serde_json::Value;

/// A folder that Python filled, and the hashes it took of each row.
pub struct PythonDataset {
    facts: Value,
}

impl PythonDataset {
    /// `files` safetensors files of `rows` images (`shape` of u8) and labels each, in `folder`.
    #[must_use]
    pub fn images(folder: &Path, files: u32, rows: u32, shape: &[u32]) -> Self {
        let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
        Self::write(folder, &["images", &files.to_string(), &rows.to_string(), &shape.join(",")])
    }

    /// One flat file of `count` u16 tokens, in `folder`.
    #[must_use]
    pub fn tokens(folder: &Path, count: u32) -> Self {
        Self::write(folder, &["tokens", &count.to_string()])
    }

    /// `files` tars of `rows` samples each, in `folder`: members `.bin` of `least` to `most` bytes,
    /// and `.cls`.
    #[must_use]
    pub fn tars(folder: &Path, files: u32, rows: u32, least: u32, most: u32) -> Self {
        let numbers = [files, rows, least, most].map(|number| number.to_string());
        let [files, rows, least, most] = &numbers;
        Self::write(folder, &["tars", files, rows, least, most])
    }

    fn write(folder: &Path, args: &[&str]) -> Self {
        std::fs::create_dir_all(folder).expect("a folder for data");
        let folder = folder.to_str().expect("a UTF-8 path");
        let printed = crate::python::run("write_dataset.py", &[&[folder], args].concat());
        Self { facts: serde_json::from_str(&printed).expect("the script prints JSON") }
    }

    /// How many samples Python wrote.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.facts["samples"].as_u64().expect("a count")
    }

    /// CRC-32 (zlib's) of one row, as Python computed it from its own array.
    #[must_use]
    pub fn row_crc32(&self, tensor: &str, sample: u64) -> u32 {
        let rows = self.facts["rows"][tensor].as_array().expect("a tensor that Python wrote");
        let crc =
            rows[usize::try_from(sample).expect("a small dataset")].as_u64().expect("a number");
        u32::try_from(crc).expect("32 bits")
    }
}

/// Writes a one-dimensional `.npy` file of `samples` rows of one byte.
///
/// # Panics
/// When it can't.
pub fn write_npy(path: &Path, samples: u8) {
    let mut header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({samples},), }}");
    header.push_str(&" ".repeat(117 - header.len()));
    header.push('\n');
    let length = u16::try_from(header.len()).expect("short").to_le_bytes();
    let rows: Vec<u8> = (0..samples).collect();
    let file = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &rows].concat();
    std::fs::write(path, file).expect("a file");
}
