//! A dataset in which every byte names its place, so that a wrong one shows at once: word `j` (u32)
//! of sample `i` is `i * 2654435761 + j * 40503`, modulo 2^32. Python writes it, Rust checks it.

use std::path::Path;

/// The tensor's name.
pub const TENSOR: &str = "words";

/// `files` safetensors files of `rows` samples of `words` u32 each, written by Python into
/// `folder`.
pub fn write(folder: &Path, files: u32, rows: u32, words: u32) {
    std::fs::create_dir_all(folder).expect("a folder for data");
    let folder = folder.to_str().expect("a UTF-8 path");
    let [files, rows, words] = [files, rows, words].map(|n| n.to_string());
    crate::python::run("write_dataset.py", &[folder, "words", &files, &rows, &words]);
}

/// Whether `row` has the words of `sample`.
#[must_use]
pub fn is_right(sample: u64, row: &[u8]) -> bool {
    let start = u32::try_from(sample).expect("a small dataset").wrapping_mul(2_654_435_761);
    let (words, rest) = row.as_chunks::<4>();
    let steps = (0..).map(|j: u32| start.wrapping_add(j.wrapping_mul(40_503)));
    rest.is_empty()
        && words.iter().zip(steps).all(|(word, expected)| u32::from_le_bytes(*word) == expected)
}
