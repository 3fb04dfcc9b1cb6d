//! Shards of MosaicML Streaming (MDS), and the `index.json` that lists them.
//!
//! [`Index`] parses the list. [`MdsScan`] reads one uncompressed shard file, and [`CompressedScan`]
//! one with rows to be made:
//!
//! ```text
//! count: u32 | offsets: (count + 1) x u32 | config: JSON | samples
//! sample: the sizes of its variable columns, u32 each | the values of all columns
//! ```
//!
//! Offsets count from the beginning of the file. Sizes and values come in the order of the columns.
//! With at most one variable column the offsets place every value. The scan then ends with the
//! config and compares no sizes. Else it reads the sizes of each sample and skips the values.
//!
//! A column of one size is an array of its type and shape. The values of any other column are rows
//! of `u8`, as stored. An array without a fixed shape keeps the small head that the writer put
//! before its elements. A pickle is never unpickled. A column of an unknown encoding is left out.
//!
//! Thread rule: plain values, without locks. Non-goals: hashes, decoding of values, and the
//! formats json and csv.

mod column;
mod compressed;
mod index;

use std::{ops::Range, sync::Arc};

use larder_base::limits;
use serde::Deserialize;

use crate::{Column, Dtype, Fault, Logical, Rows, Scan, Spans, Table, shown};
use column::{ColumnInfo, List, Value};
pub use compressed::CompressedScan;
pub(crate) use compressed::{MDS, make};
pub use index::{FileInfo, INDEX_BYTES_MAX, Index, ShardInfo};

/// Most bytes of one range.
const READ_BYTES_MAX: u64 = 8 << 20;

/// Most bytes that the scan reads only to skip them. A store that answers after 4 ms sends as many
/// in that time at 64 MB/s, so a longer gap is cheaper to hop over with another read.
const SKIP_BYTES_MAX: u64 = 256 << 10;

/// Bytes of the config that the scan expects. It reads them with the offsets, so that most files
/// take one read less.
const CONFIG_BYTES_USUAL: u64 = 4 << 10;

/// Most bytes of the config: 4,096 names of 1,024 bytes, and as much for their encodings.
const CONFIG_BYTES_MAX: u64 = 8 << 20;

/// The scan of one uncompressed shard file.
#[derive(Debug)]
pub struct MdsScan {
    columns: Arc<[ColumnInfo]>,
    samples: usize,
    file_bytes: u64,
    /// Number of columns with values of any length. Each has a size at the beginning of a sample.
    variable_columns: usize,
    /// Bytes of a sample with empty values in its variable columns.
    sample_bytes_min: u64,

    step: ShardPart,
    /// The rest of the range that is being read. Empty after the last.
    range: Range<u64>,
    word: Word,
    offsets: Vec<u32>,
    config: Vec<u8>,
    /// The sizes of the current sample, as far as they were read.
    sizes: Vec<u32>,
    /// The current sample.
    sample: usize,
    /// The places of each column's values. Empty if all samples have one size.
    spans: Vec<Spans>,
}

/// The part of the file that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShardPart {
    Count,
    Offsets,
    Config,
    Sizes,
    End,
}

impl MdsScan {
    /// Begins the scan of a file of `file_bytes` that the index describes as `shard`.
    ///
    /// # Errors
    /// If the file has another size than in the index, or more values than a dataset may have.
    pub fn new(shard: &ShardInfo, file_bytes: u64) -> Result<Self, Fault> {
        let indexed = shard.raw().bytes;
        if file_bytes != indexed {
            let why = format!("has {file_bytes} bytes, in the index it has {indexed}");
            return Err(Fault::new("file", why));
        }
        let columns = Arc::clone(&shard.columns);
        let variable_columns = columns.iter().filter(|column| column.size.is_none()).count();
        let fixed_bytes: u64 = columns.iter().filter_map(|column| column.size).map(u64::from).sum();
        let places = if variable_columns == 0 { 1 } else { columns.len() as u64 };
        let limit = limits::RAGGED_ROWS_MAX;
        if shard.samples() * places > limit {
            let why = format!("has {} samples of {places} values, over {limit}", shard.samples());
            return Err(Fault::new("file", why));
        }
        let mut scan = Self {
            samples: shard.samples as usize,
            file_bytes,
            variable_columns,
            sample_bytes_min: 4 * variable_columns as u64 + fixed_bytes,
            step: ShardPart::Count,
            range: 0..0,
            word: Word::default(),
            offsets: Vec::new(),
            config: Vec::new(),
            sizes: Vec::new(),
            sample: 0,
            spans: vec![Spans::default(); columns.len()],
            columns,
        };
        scan.range = scan.next_range();
        Ok(scan)
    }

    fn table_end(&self) -> u64 {
        4 * (self.samples as u64 + 2)
    }

    fn sizes_bytes(&self) -> u64 {
        4 * self.variable_columns as u64
    }

    fn next_range(&self) -> Range<u64> {
        let at = self.range.start;
        let end = match self.step {
            ShardPart::Count | ShardPart::Offsets => self.table_end() + CONFIG_BYTES_USUAL,
            ShardPart::Config => self.offsets[0].into(),
            ShardPart::Sizes => return self.next_sizes(),
            ShardPart::End => at,
        };
        at..end.min(at + READ_BYTES_MAX).min(self.file_bytes)
    }

    /// Returns the range of the current sample's sizes and of those that follow at short distances.
    fn next_sizes(&self) -> Range<u64> {
        let begin_of = |sample: usize| u64::from(self.offsets[sample]);
        let begin = begin_of(self.sample).max(self.range.start);
        let mut end = begin_of(self.sample) + self.sizes_bytes();
        for next in (self.sample + 1..self.samples).map(begin_of) {
            let next_end = next + self.sizes_bytes();
            if next - end > SKIP_BYTES_MAX || next_end - begin > READ_BYTES_MAX {
                break;
            }
            end = next_end;
        }
        begin..end
    }

    fn take_count(&mut self, bytes: &mut &[u8]) -> Result<(), Fault> {
        let Some(count) = self.word.take(bytes) else { return Ok(()) };
        if count as usize != self.samples {
            let why = format!("has {count} samples, in the index it has {}", self.samples);
            return Err(Fault::new("file", why));
        }
        self.step = ShardPart::Offsets;
        Ok(())
    }

    fn take_offsets(&mut self, bytes: &mut &[u8]) -> Result<(), Fault> {
        while let Some(offset) = self.word.take(bytes) {
            self.check_offset(offset)?;
            self.offsets.push(offset);
            if self.offsets.len() > self.samples {
                if u64::from(offset) != self.file_bytes {
                    let why = format!("end at byte {offset}, the file at {}", self.file_bytes);
                    return Err(Fault::new("samples", why));
                }
                self.step = ShardPart::Config;
                break;
            }
        }
        Ok(())
    }

    fn check_offset(&self, offset: u32) -> Result<(), Fault> {
        let offset = u64::from(offset);
        let Some(before) = self.offsets.last().copied().map(u64::from) else {
            let first = self.table_end() + 1;
            let last = self.file_bytes.min(self.table_end() + CONFIG_BYTES_MAX);
            if offset < first || offset > last {
                let why = format!("ends at byte {offset}, not at {first} to {last}");
                return Err(Fault::new("config", why));
            }
            return Ok(());
        };
        let min = self.sample_bytes_min;
        let why = if offset < before {
            format!("ends at byte {offset}, before it begins at {before}")
        } else if offset > self.file_bytes {
            format!("ends at byte {offset}, past the end of a file of {}", self.file_bytes)
        } else if offset - before < min {
            format!(
                "has {} bytes, fewer than the {min} of its sizes and fixed columns",
                offset - before
            )
        } else if offset - before > min && self.variable_columns == 0 {
            format!("has {} bytes, more than the {min} of its columns", offset - before)
        } else {
            return Ok(());
        };
        Err(Fault::new(format!("sample {}", self.offsets.len() - 1), why))
    }

    fn take_config(&mut self, bytes: &mut &[u8]) -> Result<(), Fault> {
        let config_end = u64::from(self.offsets[0]);
        self.config.extend_from_slice(split(bytes, config_end - self.config_at()));
        if self.config_at() < config_end {
            return Ok(());
        }
        check_config(&self.config, &self.columns).map_err(|why| Fault::new("config", why))?;
        self.config = Vec::new();
        if self.variable_columns == 1 {
            self.place_by_offsets()?;
        }
        let reads_sizes = self.variable_columns > 1 && self.samples > 0;
        self.step = if reads_sizes { ShardPart::Sizes } else { ShardPart::End };
        Ok(())
    }

    fn config_at(&self) -> u64 {
        self.table_end() + self.config.len() as u64
    }

    /// Places all values of a shard with one variable column. It has the rest of each sample.
    fn place_by_offsets(&mut self) -> Result<(), Fault> {
        for sample in 0..self.samples {
            let bytes = u64::from(self.offsets[sample + 1] - self.offsets[sample]);
            let size = u32::try_from(bytes - self.sample_bytes_min).expect("less than 32 bits");
            self.place(sample, &[size])?;
        }
        Ok(())
    }

    fn take_sizes(&mut self, bytes: &mut &[u8]) -> Result<(), Fault> {
        if let Some(size) = self.word.take(bytes) {
            self.sizes.push(size);
        }
        if self.sizes.len() == self.variable_columns {
            let mut sizes = std::mem::take(&mut self.sizes);
            self.place(self.sample, &sizes)?;
            sizes.clear();
            self.sizes = sizes;
            self.sample += 1;
            if self.sample == self.samples {
                self.step = ShardPart::End;
            }
        }
        Ok(())
    }

    /// Places the values of a sample, given the sizes of its variable columns.
    fn place(&mut self, sample: usize, sizes: &[u32]) -> Result<(), Fault> {
        let end = u64::from(self.offsets[sample + 1]);
        let mut at = u64::from(self.offsets[sample]) + self.sizes_bytes();
        let mut sizes = sizes.iter().copied();
        for (column, spans) in self.columns.iter().zip(&mut self.spans) {
            let bytes = column.size.or_else(|| sizes.next()).expect("one for each such column");
            if u64::from(bytes) > end - at {
                let place = format!("sample {sample} column '{}'", shown(&column.name));
                let why = format!("has {bytes} bytes, {} are left of the sample", end - at);
                return Err(Fault::new(place, why));
            }
            if column.value != Value::Unknown {
                spans.push(at, bytes);
            }
            at += u64::from(bytes);
        }
        if at != end {
            let why = format!("has {} bytes after its last column", end - at);
            return Err(Fault::new(format!("sample {sample}"), why));
        }
        Ok(())
    }
}

impl Scan for MdsScan {
    fn wants(&self) -> Option<Range<u64>> {
        (!self.range.is_empty()).then(|| self.range.clone())
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let before = bytes.len();
            match self.step {
                ShardPart::Count => self.take_count(&mut bytes)?,
                ShardPart::Offsets => self.take_offsets(&mut bytes)?,
                ShardPart::Config => self.take_config(&mut bytes)?,
                ShardPart::Sizes if self.range.start < self.offsets[self.sample].into() => {
                    split(&mut bytes, u64::from(self.offsets[self.sample]) - self.range.start);
                }
                ShardPart::Sizes => self.take_sizes(&mut bytes)?,
                ShardPart::End => bytes = &[],
            }
            self.range.start += (before - bytes.len()) as u64;
        }
        if self.range.is_empty() {
            self.range = self.next_range();
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Table, Fault> {
        if self.step != ShardPart::End {
            return Err(Fault::new("file", "was not read to its end"));
        }
        let mut table = Table { rows: self.samples as u64, ..Table::default() };
        let mut begin = u64::from(self.offsets[0]);
        for (column, spans) in self.columns.iter().zip(self.spans) {
            let rows = if self.variable_columns == 0 {
                Rows::Strided { begin, stride: self.sample_bytes_min }
            } else {
                Rows::Spans(spans)
            };
            begin += u64::from(column.size.unwrap_or(0));
            let name = column.name.clone();
            let (dtype, logical, shape) = match &column.value {
                Value::Array(dtype, shape) => (*dtype, Logical::of(*dtype), shape.clone()),
                Value::Bytes(logical) => (Dtype::U8, *logical, Vec::new()),
                Value::Unknown => {
                    let why = format!("has the unknown encoding '{}'", shown(&column.encoding));
                    table.left_out.push((name, why));
                    continue;
                }
            };
            let ragged = column.size.is_none();
            let absent = Vec::new();
            table.columns.push(Column { name, dtype, logical, shape, ragged, rows, absent });
        }
        Ok(table)
    }
}

/// The description of the columns in a shard file.
#[derive(Deserialize)]
struct Config {
    column_names: List<String>,
    column_encodings: List<String>,
    column_sizes: List<Option<u64>>,
}

fn check_config(json: &[u8], indexed: &[ColumnInfo]) -> Result<(), String> {
    let config: Config = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let own = column::columns(config.column_names, config.column_encodings, config.column_sizes)?;
    column::compare(&own, indexed, "the index")
}

/// Takes at most `count` bytes from the front.
fn split<'a>(bytes: &mut &'a [u8], count: u64) -> &'a [u8] {
    let count = usize::try_from(count).map_or(bytes.len(), |count| count.min(bytes.len()));
    let (front, rest) = bytes.split_at(count);
    *bytes = rest;
    front
}

/// A little-endian word that pieces may cut.
#[derive(Debug, Default)]
struct Word {
    bytes: [u8; 4],
    len: usize,
}

impl Word {
    /// Takes bytes from the front. Returns the word when it is complete.
    fn take(&mut self, bytes: &mut &[u8]) -> Option<u32> {
        let front = split(bytes, 4 - self.len as u64);
        self.bytes[self.len..][..front.len()].copy_from_slice(front);
        self.len += front.len();
        if self.len < 4 {
            return None;
        }
        self.len = 0;
        Some(u32::from_le_bytes(self.bytes))
    }
}
