//! Messages of a stream and the footer of a file: the outer tables of the metadata.
//!
//! Each constant is the number of a field in the format's `Message.fbs` or `File.fbs`.
//!
//! Thread rule: plain values over borrowed bytes. Non-goals: fields of a schema (`schema`), nodes
//! and buffers of a batch (`batch`).

use super::flat::FlatTable;
use crate::Fault;

mod in_message {
    pub(super) const VERSION: usize = 0;
    pub(super) const HEADER_TYPE: usize = 1;
    pub(super) const HEADER: usize = 2;
    pub(super) const BODY_LENGTH: usize = 3;
}

mod in_footer {
    pub(super) const SCHEMA: usize = 1;
    pub(super) const DICTIONARIES: usize = 2;
    pub(super) const BATCHES: usize = 3;
}

/// Bytes of a `Block`: an offset of 8, a length of 4, padding of 4, a length of 8.
const BLOCK_BYTES: usize = 24;

/// The versions of metadata that are read. They differ in the buffers of unions. pyarrow writes
/// schemas in V5 before batches in V4, so the version is that of each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V5,
}

impl Version {
    fn of(number: i16) -> Result<Self, Fault> {
        match number {
            3 => Ok(Self::V4),
            4 => Ok(Self::V5),
            _ => {
                let why = format!("is V{}: only V4 and V5 are read", i32::from(number) + 1);
                Err(Fault::new("metadata version", why))
            }
        }
    }
}

pub(super) struct Message<'a> {
    pub(super) version: Version,
    pub(super) header: MessageHeader<'a>,
    pub(super) body_bytes: u64,
}

pub(super) enum MessageHeader<'a> {
    Schema(FlatTable<'a>),
    Dictionary(FlatTable<'a>),
    Batch(FlatTable<'a>),
}

impl<'a> Message<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Fault> {
        let table = FlatTable::root(bytes)?;
        let version = Version::of(table.i16(in_message::VERSION, 0)?)?;
        let inner = table.table(in_message::HEADER)?;
        let header = match (table.u8(in_message::HEADER_TYPE)?, inner) {
            (1, Some(inner)) => MessageHeader::Schema(inner),
            (2, Some(inner)) => MessageHeader::Dictionary(inner),
            (3, Some(inner)) => MessageHeader::Batch(inner),
            (other, _) => {
                let why = format!("has type {other}: neither schema, dictionary nor batch");
                return Err(Fault::new("header", why));
            }
        };
        let body_bytes = unsigned(table.i64(in_message::BODY_LENGTH)?, "body length")?;
        Ok(Self { version, header, body_bytes })
    }
}

pub(super) struct Footer<'a> {
    pub(super) schema: FlatTable<'a>,
    pub(super) dictionaries: Vec<MessagePlace>,
    pub(super) batches: Vec<MessagePlace>,
}

/// The place of a batch of rows or of a dictionary in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessagePlace {
    pub(super) begin: u64,
    pub(super) body_begin: u64,
    pub(super) end: u64,
}

impl<'a> Footer<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Fault> {
        let table = FlatTable::root(bytes)?;
        let schema = table.table(in_footer::SCHEMA)?;
        let blocks = |field, noun: &str| {
            let found = table.vector(field, BLOCK_BYTES)?.chunks_exact(BLOCK_BYTES);
            let found = found.enumerate().map(|(index, bytes)| {
                let why = "has a negative or too large number";
                block(bytes).ok_or_else(|| Fault::new(format!("{noun} {index}"), why))
            });
            found.collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            schema: schema.ok_or_else(|| Fault::new("schema", "is missing"))?,
            dictionaries: blocks(in_footer::DICTIONARIES, "dictionary")?,
            batches: blocks(in_footer::BATCHES, "batch")?,
        })
    }
}

/// Reads a block. `None` if one of its numbers is negative or the sum overflows.
fn block(bytes: &[u8]) -> Option<MessagePlace> {
    let (begin, rest) = bytes.split_first_chunk()?;
    let (metadata, rest) = rest.split_first_chunk()?;
    let body = rest[4..].first_chunk()?;
    let begin = u64::try_from(i64::from_le_bytes(*begin)).ok()?;
    let body_begin = begin.checked_add(u64::try_from(i32::from_le_bytes(*metadata)).ok()?)?;
    let end = body_begin.checked_add(u64::try_from(i64::from_le_bytes(*body)).ok()?)?;
    Some(MessagePlace { begin, body_begin, end })
}

/// Returns a length or offset of the metadata. The format has them signed.
pub(super) fn unsigned(number: i64, field: &str) -> Result<u64, Fault> {
    u64::try_from(number).map_err(|_| Fault::new(field, format!("is negative: {number}")))
}
