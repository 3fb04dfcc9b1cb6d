//! Parquet: files of row groups, in which each column is a chunk of pages.
//!
//! [`ParquetScan`] reads the footer for the index. It also decodes columns with rows of different
//! lengths, once, and keeps the lengths. A fill makes the rows of a chunk with [`make`].
//!
//! ```text
//! file:   "PAR1", row groups, footer, u32 length of the footer, "PAR1"
//! group:  one chunk for each column, with as many rows each
//! chunk:  a dictionary or none, then pages with levels and values
//! ```
//!
//! All sizes are compared with limits before memory is taken. The levels and places in a page are
//! compared as they are read, so damaged pages give a fault.
//!
//! Thread rule: plain values, without locks. Non-goals: page indexes, bloom filters, encryption,
//! maps, lists of anything but numbers.

mod chunk;
mod column;
mod decimals;
mod deltas;
mod fixed_lists;
mod footer;
mod levels;
mod nested;
mod page;
mod scan;
mod schema;
mod thrift;
mod values;

use self::{chunk::ChunkReader, page::PageHeader};
use crate::{
    Fault, RowsWanted,
    block::{ChunkBlock, Put},
    shown,
};

pub(crate) use chunk::scratch_bytes;
pub(crate) use nested::NESTED;
pub(crate) use nested::make as make_texts;
pub use scan::ParquetScan;

/// Begins and ends a file.
const MAGIC: &[u8] = b"PAR1";
/// The name of a column that says which rows of another have a value.
const VALID: &str = "valid";

/// Makes the rows of a chunk from its stored bytes.
pub(crate) fn make(
    block: &ChunkBlock,
    wanted: RowsWanted,
    mut stored: &[u8],
    put: &mut Put<'_>,
) -> Result<(), Fault> {
    let mut reader = ChunkReader::new(block, wanted, true)?;
    while !stored.is_empty() {
        match whole_page(stored)? {
            Some(Page { header, body, rest }) => {
                reader.take_page(&header, body, put)?;
                stored = rest;
            }
            None => return Err(Fault::new("page", "ends after its chunk")),
        }
    }
    reader.finish(put)
}

/// A page, and the bytes behind it.
struct Page<'a> {
    header: PageHeader,
    body: &'a [u8],
    rest: &'a [u8],
}

/// Returns the first page. `None` if it goes on behind these bytes.
fn whole_page(bytes: &[u8]) -> Result<Option<Page<'_>>, Fault> {
    let Some((header, begin)) = PageHeader::parse(bytes)? else { return Ok(None) };
    let page = bytes[begin..].split_at_checked(header.stored_bytes);
    Ok(page.map(|(body, rest)| Page { header, body, rest }))
}

/// Returns the place of a column for a fault.
fn column_named(name: &str) -> String {
    format!("column '{}'", shown(name))
}
