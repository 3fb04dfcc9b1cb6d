//! Pages: a header in Thrift, and a body that is compressed as a whole or but for its levels.
//!
//! Thread rule: plain values. Non-goals: the values (`values`).

use super::thrift::Reader;
use crate::Fault;

/// Largest page, before and after decompression.
pub(super) const PAGE_BYTES_MAX: u64 = 256 << 20;
/// Largest header of a page. Statistics make most of it.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// The kind of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Dictionary,
    Data,
    /// Version 2: the levels are not compressed.
    DataV2 {
        repetition_bytes: usize,
        definition_bytes: usize,
        is_compressed: bool,
    },
    /// One that readers of values pass over.
    Other,
}

/// The header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) kind: Kind,
    pub(super) values: u64,
    pub(super) encoding: i64,
    pub(super) stored_bytes: usize,
    pub(super) decoded_bytes: usize,
    /// The CRC-32 of the stored bytes, if the writer told it.
    crc: Option<u32>,
}

impl PageHeader {
    /// Reads the header at the beginning of these bytes. Returns it and its length. `None` if it
    /// goes on behind them.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Fault> {
        let view = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
        let mut reader = Reader::new(view);
        match Self::read(&mut reader) {
            Ok(header) => Ok(Some((header, reader.position()))),
            Err(_) if reader.is_at_end() && view.len() < HEADER_BYTES_MAX => Ok(None),
            Err(fault) => Err(fault.within("page header")),
        }
    }

    /// Compares the stored bytes with their checksum.
    pub(super) fn check(&self, stored: &[u8]) -> Result<(), Fault> {
        match self.crc {
            Some(crc) if crc != crc32fast::hash(stored) => {
                Err(Fault::new("page", "is damaged: it has another checksum than its header says"))
            }
            _ => Ok(()),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let (mut number, mut stored, mut decoded) = (-1, 0, 0);
        let (mut values, mut encoding, mut crc) = (0, 0, None);
        let (mut levels, mut is_compressed) = ((0, 0), true);
        reader.fields(|reader, field, kind| match field {
            1 => reader.integer(kind).map(|value| number = value),
            2 => reader.count(kind).map(|bytes| decoded = bytes),
            3 => reader.count(kind).map(|bytes| stored = bytes),
            // An i32 of the same bits.
            4 => reader.integer(kind).map(|bits| crc = Some((bits & 0xFFFF_FFFF) as u32)),
            5 | 7 => reader.fields(|reader, field, kind| match field {
                1 => reader.count(kind).map(|count| values = count),
                2 => reader.integer(kind).map(|value| encoding = value),
                _ => reader.skip(kind),
            }),
            8 => reader.fields(|reader, field, kind| match field {
                1 => reader.count(kind).map(|count| values = count),
                4 => reader.integer(kind).map(|value| encoding = value),
                5 => reader.count(kind).map(|bytes| levels.1 = bytes),
                6 => reader.count(kind).map(|bytes| levels.0 = bytes),
                7 => Reader::boolean(kind).map(|value| is_compressed = value),
                _ => reader.skip(kind),
            }),
            _ => reader.skip(kind),
        })?;
        for bytes in [stored, decoded, levels.0, levels.1] {
            if bytes > PAGE_BYTES_MAX {
                let why = format!("has {bytes} bytes where at most {PAGE_BYTES_MAX} are read");
                return Err(Fault::new("size", format!("{why}: write smaller pages")));
            }
        }
        let size = |bytes: u64| usize::try_from(bytes).expect("below the limit of a page");
        let kind = match number {
            0 => Kind::Data,
            2 => Kind::Dictionary,
            3 => {
                let (repetition_bytes, definition_bytes) = (size(levels.0), size(levels.1));
                Kind::DataV2 { repetition_bytes, definition_bytes, is_compressed }
            }
            _ => Kind::Other,
        };
        let (stored_bytes, decoded_bytes) = (size(stored), size(decoded));
        Ok(Self { kind, values, encoding, stored_bytes, decoded_bytes, crc })
    }
}
