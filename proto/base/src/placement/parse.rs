//! Parses a table that may be damaged or hostile. Every number is checked here, once, so that
//! lookups can rely on it. One pass; nothing is copied.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Exceptions,
    format::{self, HEADER_BYTES, MAGIC, TableHeader, VERSION},
};
use crate::limits;

/// Why bytes are not a table of exceptions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExceptionsError {
    /// Too few bytes, or another magic.
    #[error("this is not a table of exceptions")]
    NotATable,
    /// Written by a version that this program does not know.
    #[error("the table of exceptions has version {found}, this program reads version {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// The table was cut off or extended, or is too large.
    #[error(
        "the table of exceptions says it has {said} bytes and has {found}; the limit is {}",
        super::EXCEPTIONS_BYTES_MAX
    )]
    Length {
        /// Bytes in the header's own count.
        said: u64,
        /// Bytes of the table.
        found: u64,
    },
    /// The checksum does not match.
    #[error(
        "the checksum of the table of exceptions does not hold: it was damaged, fetch it again"
    )]
    Checksum,
    /// A number in it is impossible.
    #[error("the table of exceptions is malformed: {field} {index} {why}")]
    Malformed {
        /// The kind of entry.
        field: &'static str,
        /// The index of the entry.
        index: usize,
        /// The mistake.
        why: &'static str,
    },
}

type Result<T> = std::result::Result<T, ExceptionsError>;

fn check(holds: bool, field: &'static str, index: usize, why: &'static str) -> Result<()> {
    if holds { Ok(()) } else { Err(ExceptionsError::Malformed { field, index, why }) }
}

impl Exceptions {
    /// Parses a table in memory.
    ///
    /// # Errors
    /// If the bytes break any rule of the format that [`super::ExceptionsBuilder`] keeps.
    pub fn parse(bytes: Bytes) -> Result<Self> {
        Self::over(Arc::new(bytes))
    }

    /// Parses a table in place: in a mapped extent, for example.
    ///
    /// # Errors
    /// As [`Exceptions::parse`].
    pub fn over(bytes: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Result<Self> {
        let header = check_frame((*bytes).as_ref())?;
        let tables = header.tables().expect("checked with the frame");
        let table = Self { bytes, header, tables };
        table.check_places()?;
        table.check_owners()?;
        Ok(table)
    }

    /// Checks that the places ascend, and that each lies in its slot of the fan-out.
    fn check_places(&self) -> Result<()> {
        let (bytes, bits) = (self.as_bytes(), self.header.fan_bits);
        let mut end = 0;
        for slot in 0..1 << bits {
            let (from, to) = self.tables.bucket(bytes, slot);
            let follows = from == end && from <= to && to <= self.len();
            check(follows, "slot", slot, "does not begin where the last one ended")?;
            end = to;
            for index in from..to {
                let place = self.tables.place(bytes, index);
                check(format::bucket_of(place, bits) == slot, "place", index, "lies elsewhere")?;
                let ascends = index == 0 || self.tables.place(bytes, index - 1) < place;
                check(ascends, "place", index, "is not above the one before")?;
            }
        }
        check(end == self.len(), "slot", 1 << bits, "ends before the last place")
    }

    fn check_owners(&self) -> Result<()> {
        let (bytes, owner_count) = (self.as_bytes(), self.header.owner_count());
        for index in 0..self.len() {
            let owners = self.tables.owners(bytes, index, owner_count);
            let known = owners.iter().all(|&owner| owner < self.header.members);
            check(known, "place", index, "has an owner outside the ring")?;
            let distinct = (0..owner_count).all(|at| !owners[..at].contains(&owners[at]));
            check(distinct, "place", index, "has an owner twice")?;
        }
        Ok(())
    }
}

/// Checks the header, which must hold before any byte after it is looked at.
fn check_frame(bytes: &[u8]) -> Result<TableHeader> {
    let head = bytes.first_chunk::<HEADER_BYTES>().ok_or(ExceptionsError::NotATable)?;
    if head[..8] != MAGIC {
        return Err(ExceptionsError::NotATable);
    }
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if word(8) != VERSION {
        return Err(ExceptionsError::Version { found: word(8) });
    }
    let header = TableHeader::take(head);
    let found = bytes.len() as u64;
    if header.table_bytes != found || found > super::EXCEPTIONS_BYTES_MAX {
        return Err(ExceptionsError::Length { said: header.table_bytes, found });
    }
    if header.hash != format::hash(bytes) {
        return Err(ExceptionsError::Checksum);
    }
    let field = |holds, why| check(holds, "header", 0, why);
    field(word(12) as usize == HEADER_BYTES, "has another size")?;
    let members = 1..=limits::RING_MEMBERS_MAX;
    field(members.contains(&header.members.into()), "counts no or too many members")?;
    let replicas = 1..=limits::REPLICAS_MAX;
    field(replicas.contains(&header.replicas.into()), "counts no or too many replicas")?;
    let shards = limits::SHARDS_MAX;
    field(header.count <= shards, "counts more exceptions than a dataset has shards")?;
    field(header.fan_bits == format::fan_bits(header.count), "has another fan-out than its count")?;
    let end = header.tables().map(|tables| tables.end);
    field(end == Some(bytes.len()), "has tables that do not fill it")?;
    Ok(header)
}
