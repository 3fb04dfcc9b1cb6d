//! A matrix of equal rows of random bytes in `.npy` files, read by Larder and every baseline.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use larder_extent::testing::MappedFile;

/// Files of a matrix, and so shards of the dataset.
const FILES: u32 = 8;
/// The header of `.npy` version 1.0 with its padding.
const HEADER_BYTES: usize = 128;

/// Rows that a batch has, and their size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Rows of a batch.
    pub(crate) batch: usize,
    /// Bytes of a row.
    pub(crate) row_bytes: usize,
    /// Rows of each file.
    rows_per_file: u32,
}

/// 147 KiB is an image of 224 x 224 x 3; the matrices have 512 MiB and more, 16 times the largest
/// cache of a laptop.
pub(crate) const SHAPES: [Shape; 3] = [
    Shape { batch: 256, row_bytes: 150_528, rows_per_file: 512 },
    Shape { batch: 1024, row_bytes: 4096, rows_per_file: 1 << 14 },
    Shape { batch: 4096, row_bytes: 512, rows_per_file: 1 << 17 },
];

impl Shape {
    /// Rows of the matrix.
    pub(crate) fn rows(self) -> u32 {
        self.rows_per_file * FILES
    }

    /// Bytes of a batch.
    pub(crate) fn batch_bytes(self) -> usize {
        self.batch * self.row_bytes
    }

    /// The shape in words.
    pub(crate) fn label(self) -> String {
        format!("{} x {} B", self.batch, self.row_bytes)
    }

    /// Makes `folder` and writes the files into it.
    pub(crate) fn write(self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut random = Random::new(self.row_bytes as u64);
        for file in 0..FILES {
            let mut out = BufWriter::with_capacity(1 << 20, File::create(path_of(folder, file))?);
            let shape = format!("{}, {}", self.rows_per_file, self.row_bytes);
            out.write_all(&npy_header("|u1", &shape))?;
            for _ in 0..self.rows_per_file as usize * self.row_bytes / 8 {
                out.write_all(&random.next().to_le_bytes())?;
            }
            out.flush()?;
        }
        Ok(())
    }

    /// Maps the files in `folder`.
    pub(crate) fn map(self, folder: &Path) -> io::Result<Matrix> {
        let open = |file| MappedFile::open(&path_of(folder, file));
        let files = (0..FILES).map(open).collect::<io::Result<_>>()?;
        Ok(Matrix { files, shape: self })
    }

    /// Batches of random rows: the same for every contender.
    pub(crate) fn batches(self, count: usize) -> Vec<Vec<u32>> {
        let mut random = Random::new(1);
        let rows = u64::from(self.rows());
        let mut row = || u32::try_from(random.next() % rows).expect("below a u32");
        (0..count).map(|_| (0..self.batch).map(|_| row()).collect()).collect()
    }
}

/// The header of a `.npy` file in C order.
pub(crate) fn npy_header(descr: &str, shape: &str) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let padded = format!("{text:<width$}\n", width = HEADER_BYTES - 11);
    [b"\x93NUMPY\x01\x00\x76\x00".as_slice(), padded.as_bytes()].concat()
}

fn path_of(folder: &Path, file: u32) -> PathBuf {
    folder.join(format!("rows-{file}.npy"))
}

/// A mapped matrix.
pub(crate) struct Matrix {
    files: Vec<MappedFile>,
    shape: Shape,
}

impl Matrix {
    /// The shape of the matrix.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.shape.row_bytes
    }

    /// One row.
    pub(crate) fn row(&self, row: u32) -> &[u8] {
        let per_file = self.shape.rows_per_file;
        let (file, row) = ((row / per_file) as usize, (row % per_file) as usize);
        &self.files[file][HEADER_BYTES + row * self.shape.row_bytes..][..self.shape.row_bytes]
    }

    /// Copies rows one after the other, as numpy's `take` does.
    pub(crate) fn gather(&self, rows: &[u32], out: &mut [u8]) {
        for (&row, place) in rows.iter().zip(out.chunks_exact_mut(self.shape.row_bytes)) {
            place.copy_from_slice(self.row(row));
        }
    }
}

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
