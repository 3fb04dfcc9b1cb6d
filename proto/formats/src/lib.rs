//! File formats: which samples a file holds, and where their bytes lie in it.
//!
//! A [`Scan`] reads the headers of one file for the index. It names a range of the file, takes its
//! bytes, and names the next. In the end it returns a [`Table`]: the columns of the file's samples
//! and the place of each row.
//!
//! Some rows do not lie in the file as a shard holds them. A [`Block`] makes them from its bytes.
//!
//! Invariant: a table is a pure function of the file's bytes. The scan compares every number from
//! the file with a limit before it takes memory.
//!
//! Thread rule: plain values, without locks. Non-goals: I/O and retries (see `larder-dataset`);
//! decoding of pictures and sound.

mod arrow;
mod block;
mod dtype;
mod fault;
pub mod jsonl;
mod make;
pub mod mds;
pub mod metadata;
mod parquet;
mod path;
mod scan;
mod table;
mod tar;

pub use arrow::ArrowScan;
pub use block::{Block, Put, Recipes, RowsWanted};
pub use dtype::{Dtype, Logical, TimeUnit};
pub use fault::{Fault, shown};
pub use make::{Stretch, Windows, WindowsBuilder};
pub use parquet::ParquetScan;
pub use scan::Scan;
pub use table::{Blocks, Column, Form, Forms, Inline, PlacedBlock, Rows, Spans, Table};
pub use tar::TarScan;
