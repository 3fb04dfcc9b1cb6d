//! Cuts a dataset into shards: splits large groups and joins small neighbours.
//!
//! If all rows have one length, a group is cut into shards of equally many rows. If rows differ in
//! length, their bytes are summed up. A shard then has at most the target size, unless it is a
//! single row. The tables of a shard's rows must fit a leaf as well. Rows that are made in blocks
//! are cut between blocks only, so that no block is made twice.

use larder_base::limits;
use larder_formats::Blocks;

use super::{BuildError, ColumnSpec, GroupSpec, ManifestBuilder, RowLocator};

/// Bytes that the rows of one shard may take in its leaf, so that one shard fits every leaf. Four
/// million rows of one tensor take as much.
const SHARD_TABLES_BYTES_MAX: u64 = 32 << 20;

/// The cut of one shard, before its bytes are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) group: u32,
    pub(super) row_in_group: u64,
    pub(super) first_sample: u64,
    pub(super) rows: u32,
}

/// The measure of a shard's size.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// Rows, at most this many.
    Rows(u64),
    /// Bytes, at most this many.
    Bytes(u64),
}

impl ManifestBuilder {
    /// Cuts groups larger than a shard into shards of about one size and joins smaller neighbours.
    pub(super) fn cut_shards(&self) -> Result<Vec<Cut>, BuildError> {
        let (load, joinable) = (self.load(), self.rows_touch());
        let joined_max = (limits::SHARD_READS_MAX / self.tensors_read()).max(1);
        let mut cuts: Vec<Cut> = Vec::new();
        // Groups in the last shard, if it may be joined, its load, and the bytes of its tables.
        let (mut joined, mut full, mut tables) = (0, 0u64, 0u64);
        let mut first_sample = 0u64;
        for (index, group) in (0u32..).zip(&self.groups) {
            let (more, most) = self.load_of(group, load);
            let more_tables = self.tables_of(group);
            let rows = cuts.last().map_or(0, |cut| group.rows.saturating_add(cut.rows.into()));
            let fits = full.saturating_add(more) <= most
                && tables.saturating_add(more_tables) <= SHARD_TABLES_BYTES_MAX
                && rows <= u64::from(u32::MAX);
            if joinable && joined > 0 && joined < joined_max && fits {
                let last = cuts.last_mut().expect("a shard to join is there");
                last.rows = u32::try_from(rows).expect("compared");
                (joined, full, tables) = (joined + 1, full + more, tables + more_tables);
            } else {
                // Checked before they are listed: a small header can claim any number of rows.
                check_count(cuts.len() as u64 + least_shards(group, load))?;
                let rows = self.rows_of_shards(group, load);
                joined = u32::from(rows.len() == 1);
                (full, tables) = (more, more_tables);
                let mut row_in_group = 0;
                for rows in rows {
                    let first_sample = first_sample + row_in_group;
                    cuts.push(Cut { group: index, row_in_group, first_sample, rows });
                    row_in_group += u64::from(rows);
                }
            }
            first_sample = first_sample.checked_add(group.rows).ok_or(BuildError::TooMuch {
                what: "samples:",
                found: u64::MAX,
                limit: u64::MAX - 1,
            })?;
            check_count(cuts.len() as u64)?;
        }
        Ok(cuts)
    }

    fn load(&self) -> Load {
        if self.is_ragged() {
            return Load::Bytes(self.shard_bytes);
        }
        let (row, stride) = self.sums();
        let more = self.shard_bytes.saturating_sub(row) / stride.max(1);
        let tables = SHARD_TABLES_BYTES_MAX / self.table_bytes_a_row().max(1);
        Load::Rows((more + 1).min(tables).min(u64::from(u32::MAX)))
    }

    /// Returns whether rows lie back to back in every tensor, so that shards may join groups.
    fn rows_touch(&self) -> bool {
        self.tensors.iter().all(|tensor| match tensor.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => row_bytes == stride_bytes,
            RowLocator::Ragged => true,
        })
    }

    /// Returns the load of a group, and the most load of a shard.
    fn load_of(&self, group: &GroupSpec, load: Load) -> (u64, u64) {
        match load {
            Load::Rows(most) => (group.rows, most),
            Load::Bytes(most) => (self.bytes_of(group), most),
        }
    }

    /// Returns the number of rows of each of a group's shards.
    fn rows_of_shards(&self, group: &GroupSpec, load: Load) -> Vec<u32> {
        if let Some(blocks) = group.columns.iter().find_map(ColumnSpec::blocks) {
            return self.by_blocks(group, blocks, load);
        }
        match load {
            Load::Rows(most) => evenly(group.rows, most),
            Load::Bytes(most) => self.by_bytes(group, most),
        }
    }

    /// Returns the bytes of a group: all rows but the last are as long as their stride.
    fn bytes_of(&self, group: &GroupSpec) -> u64 {
        let (row, stride) = self.sums();
        let strided = (group.rows - 1).saturating_mul(stride).saturating_add(row);
        group
            .row_indices()
            .map(|row| self.ragged_bytes(group, row))
            .fold(strided, u64::saturating_add)
    }

    /// Returns the bytes of the tables of a group's rows in a leaf.
    fn tables_of(&self, group: &GroupSpec) -> u64 {
        let even = group.rows.saturating_mul(self.table_bytes_a_row());
        if !self.is_ragged() {
            return even;
        }
        group.row_indices().map(|row| self.inline_bytes(group, row)).fold(even, u64::saturating_add)
    }

    /// Cuts a group between blocks. A shard takes blocks until it is full, and at least one.
    fn by_blocks(&self, group: &GroupSpec, blocks: &Blocks, load: Load) -> Vec<u32> {
        let (_, stride) = self.sums();
        let (mut shards, mut begin) = (Vec::new(), 0);
        let (mut rows, mut full, mut tables) = (0u32, 0u64, 0u64);
        for block in &blocks.blocks {
            let (count, end) = (u64::from(block.rows), begin + block.rows as usize);
            let (more, most) = match load {
                Load::Rows(most) => (count, most),
                Load::Bytes(most) => {
                    let ragged = (begin..end).map(|row| self.ragged_bytes(group, row));
                    (ragged.fold(stride.saturating_mul(count), u64::saturating_add), most)
                }
            };
            let more_tables = self.table_bytes_a_row().saturating_mul(count);
            let fits = full.saturating_add(more) <= most
                && tables.saturating_add(more_tables) <= SHARD_TABLES_BYTES_MAX
                && rows.checked_add(block.rows).is_some();
            if rows > 0 && !fits {
                shards.push(rows);
                (rows, full, tables) = (0, 0, 0);
            }
            rows += block.rows;
            (full, tables) = (full.saturating_add(more), tables.saturating_add(more_tables));
            begin = end;
        }
        shards.push(rows);
        shards
    }

    /// Cuts a group into about equally large shards, none larger than `most` unless it is one row.
    fn by_bytes(&self, group: &GroupSpec, most: u64) -> Vec<u32> {
        let (row, stride) = self.sums();
        let beyond_stride = row.saturating_sub(stride);
        let total = self.bytes_of(group);
        let enough = total.div_ceil(total.div_ceil(most).max(1)).max(1);
        let mut shards = Vec::new();
        let (mut rows, mut bytes, mut tables) = (0u32, beyond_stride, 0u64);
        for row in group.row_indices() {
            let more = stride.saturating_add(self.ragged_bytes(group, row));
            let more_tables = self.table_bytes_a_row() + self.inline_bytes(group, row);
            let is_full = bytes >= enough || bytes.saturating_add(more) > most;
            let tables_full = tables + more_tables > SHARD_TABLES_BYTES_MAX;
            // Rows without bytes never begin a shard: it would hold nothing else.
            if rows > 0 && ((is_full && more > 0) || tables_full || rows == u32::MAX) {
                shards.push(rows);
                (rows, bytes, tables) = (0, beyond_stride, 0);
            }
            rows += 1;
            bytes = bytes.saturating_add(more);
            tables += more_tables;
        }
        shards.push(rows);
        shards
    }
}

/// Returns the least number of shards of a group. Ragged rows are listed already.
fn least_shards(group: &GroupSpec, load: Load) -> u64 {
    match load {
        Load::Rows(most) => group.rows.div_ceil(most),
        Load::Bytes(_) => 1,
    }
}

fn check_count(found: u64) -> Result<(), BuildError> {
    let limit = limits::SHARDS_MAX.into();
    if found > limit {
        return Err(BuildError::TooMuch { what: "shards:", found, limit });
    }
    Ok(())
}

/// Cuts rows into as few shards as possible, with equally many rows in all but the last.
fn evenly(rows: u64, most: u64) -> Vec<u32> {
    let each = rows.div_ceil(rows.div_ceil(most));
    let begins = (0..rows).step_by(usize::try_from(each).expect("counted in 32 bits"));
    let rows_from =
        |begin| u32::try_from(each.min(rows - begin)).expect("no more than a shard has");
    begins.map(rows_from).collect()
}
