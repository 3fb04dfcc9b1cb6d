//! Compressed shards: the compression covers the whole file, so a shard is one block.
//!
//! The scan reads the file, decompresses it, and runs [`MdsScan`] over the result. Rows are made by
//! this recipe, which all shards of a dataset share:
//!
//! ```text
//! shared recipe: kind, compression, number of the column, size of each column or 0 for variable
//! own recipe:    empty
//! ```
//!
//! Thread rule: plain values. Memory: the shard, stored and decompressed.

use std::ops::Range;

use super::{MdsScan, READ_BYTES_MAX, ShardInfo, column::ColumnInfo};
use crate::{
    Block, Blocks, Fault, PlacedBlock, Recipes, Rows, RowsWanted, Scan, Table,
    block::{Aspect, Codec, Decompressor, Fields, Put, RecipeBlock, malformed, put_integer},
};

/// The kind of recipe that these are.
pub(crate) const MDS: u64 = 3;

/// Most bytes of a shard, before and after decompression. Eight files are scanned at a time.
const BYTES_MAX: u64 = 512 << 20;
/// Bytes of rows that are handed over at once.
const PIECE_BYTES: usize = 64 << 10;

/// The scan of one shard file with rows to be made. The file may also lie uncompressed, beside
/// others that do not.
#[derive(Debug)]
pub struct CompressedScan {
    shard: ShardInfo,
    codec: Codec,
    file_bytes: u64,
    stored: Vec<u8>,
}

impl CompressedScan {
    /// Begins the scan of a file of `file_bytes` that the index describes as `shard`.
    ///
    /// # Errors
    /// If the file has another size than in the index, or a compression that is not read.
    pub fn new(shard: &ShardInfo, is_compressed: bool, file_bytes: u64) -> Result<Self, Fault> {
        let fault = |why: String| Err(Fault::new("file", why));
        let (indexed, codec) = match (shard.zip(), shard.compression()) {
            (Some(zip), Some(name)) if is_compressed => (zip.bytes, codec(name)?),
            _ => (shard.raw().bytes, Codec::None),
        };
        if file_bytes != indexed {
            return fault(format!("has {file_bytes} bytes, in the index it has {indexed}"));
        }
        let bytes = shard.raw().bytes.max(file_bytes);
        if bytes > BYTES_MAX {
            return fault(format!(
                "has {bytes} bytes, a compressed shard may have {BYTES_MAX}: write smaller shards"
            ));
        }
        Ok(Self { shard: shard.clone(), codec, file_bytes, stored: Vec::new() })
    }
}

impl Scan for CompressedScan {
    fn wants(&self) -> Option<Range<u64>> {
        let at = self.stored.len() as u64;
        let range = at..self.file_bytes.min((at / READ_BYTES_MAX + 1) * READ_BYTES_MAX);
        (!range.is_empty()).then_some(range)
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.stored.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Table, Fault> {
        let raw = decompress(self.codec, &self.stored, self.shard.raw().bytes)?;
        let mut scan = Box::new(MdsScan::new(&self.shard, raw.len() as u64)?);
        while let Some(range) = scan.wants() {
            scan.take(&raw[index(range.start)..index(range.end)])?;
        }
        let mut table = scan.finish()?;
        for column in &mut table.columns {
            let lengths = match &column.rows {
                Rows::Spans(spans) if column.ragged => Some(spans.lengths().to_vec()),
                _ => None,
            };
            column.rows = Rows::Blocks(self.blocks(&column.name, lengths)?);
        }
        Ok(table)
    }
}

impl CompressedScan {
    /// Returns the block of a column.
    fn blocks(&self, name: &str, lengths: Option<Vec<u32>>) -> Result<Blocks, Fault> {
        let mut recipes = Recipes::default();
        let decoded_bytes = u32::try_from(self.shard.raw().bytes).expect("below the limit");
        let block = Block::Recipe(RecipeBlock {
            aspect: Aspect::Values,
            shared: recipes.put(&recipe(self.codec, &self.shard.columns, name))?,
            own: recipes.put(&[])?,
            decoded_bytes,
        });
        let placed = PlacedBlock { range: 0..self.file_bytes, rows: self.shard.samples, block };
        let blocks = if placed.rows == 0 { Vec::new() } else { vec![placed] };
        Ok(Blocks { blocks, lengths, is_redundant: false, recipes })
    }
}

fn codec(name: &str) -> Result<Codec, Fault> {
    Ok(match name.split(':').next().unwrap_or(name) {
        "zstd" => Codec::Zstd,
        "gz" => Codec::Gzip,
        "br" => Codec::Brotli,
        "snappy" => Codec::Snappy,
        _ => {
            let why = "has a compression that is not read: write it with zstd, gz, br or snappy";
            return Err(Fault::new(format!("compression '{}'", crate::shown(name)), why));
        }
    })
}

fn decompress(codec: Codec, stored: &[u8], bytes: u64) -> Result<Vec<u8>, Fault> {
    if bytes > codec.bytes_max(stored.len()) as u64 {
        let why = format!("can't decompress to {bytes} bytes from {}", stored.len());
        return Err(Fault::new("file", why));
    }
    let mut raw = vec![0; index(bytes)];
    let filled = Decompressor::default().fill(codec, stored, &mut raw);
    filled.map_err(|why| Fault::new("file", why))?;
    Ok(raw)
}

fn recipe(codec: Codec, columns: &[ColumnInfo], name: &str) -> Vec<u8> {
    let number = columns.iter().position(|column| column.name == name).expect("it is a column");
    let sizes = columns.iter().map(|column| u64::from(column.size.unwrap_or(0)));
    let mut recipe = Vec::new();
    for field in [MDS, codec.code().into(), number as u64].into_iter().chain(sizes) {
        put_integer(field, &mut recipe);
    }
    recipe
}

/// One column of a shard.
struct Cut {
    codec: Codec,
    /// The column.
    number: usize,
    /// The size of each column. 0 if its values differ in length.
    sizes: Vec<u32>,
}

impl Cut {
    /// Reads a recipe behind its first number.
    fn parse(mut fields: Fields<'_>) -> Result<Self, Fault> {
        let unknown = || malformed("has an unknown compression");
        let codec = Codec::from_code(fields.small()?).ok_or_else(unknown)?;
        let (number, mut sizes) = (fields.small()?, Vec::new());
        while !fields.is_finished() {
            sizes.push(fields.small()?);
        }
        match sizes.get(number) {
            Some(_) => Ok(Self { codec, number, sizes }),
            None => Err(malformed("has no such column")),
        }
    }

    /// Returns the value of a sample.
    fn value<'a>(&self, raw: &'a [u8], sample: usize) -> Option<&'a [u8]> {
        let word = |at: usize| Some(u32::from_le_bytes(*raw.get(at..)?.first_chunk()?) as usize);
        let mut next_size = word(4 + 4 * sample)?;
        let sample = raw.get(..word(8 + 4 * sample)?)?;
        let variable = self.sizes.iter().filter(|&&size| size == 0).count();
        let mut at = next_size + 4 * variable;
        for (number, &fixed) in self.sizes.iter().enumerate() {
            let mut size = fixed as usize;
            if fixed == 0 {
                size = word(next_size)?;
                next_size += 4;
            }
            if number == self.number {
                return sample.get(at..at + size);
            }
            at += size;
        }
        None
    }
}

/// Makes the rows of a block.
pub(crate) fn make(
    block: &RecipeBlock,
    shared: Fields<'_>,
    own: &[u8],
    wanted: RowsWanted,
    stored: &[u8],
    put: &mut Put<'_>,
) -> Result<(), Fault> {
    let cut = Cut::parse(shared)?;
    if !own.is_empty() || block.aspect != Aspect::Values {
        return Err(malformed("has a part that no shard has"));
    }
    let raw = decompress(cut.codec, stored, block.decoded_bytes.into())?;
    let (mut out, mut lengths) = (Vec::new(), Vec::new());
    for sample in 0..index(wanted.rows) {
        let value = cut.value(&raw, sample);
        let value = value.ok_or_else(|| {
            Fault::new(format!("sample {sample}"), "lies beyond the bytes of its shard")
        })?;
        if wanted.row_bytes.is_some_and(|bytes| bytes != value.len() as u64) {
            return Err(Fault::new(format!("sample {sample}"), "has another size than its column"));
        }
        out.extend_from_slice(value);
        lengths.push(u32::try_from(value.len()).expect("below the limit"));
        if out.len() + 4 * lengths.len() >= PIECE_BYTES {
            hand_over(wanted, &mut out, &mut lengths, put)?;
        }
    }
    hand_over(wanted, &mut out, &mut lengths, put)
}

fn hand_over(
    wanted: RowsWanted,
    out: &mut Vec<u8>,
    lengths: &mut Vec<u32>,
    put: &mut Put<'_>,
) -> Result<(), Fault> {
    put(out, if wanted.row_bytes.is_none() { lengths } else { &[] })?;
    out.clear();
    lengths.clear();
    Ok(())
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a shard is in memory")
}
