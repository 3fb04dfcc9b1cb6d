//! DATA: a run of rows of one tensor, with their lengths and checksums before their bytes.
//!
//! ```text
//! offset width
//!      0     2  tensor slot: index into the request's tensors
//!      2     2  flags: bit 0 RAGGED, bit 1 PIECE, the others 0
//!      4     4  first: index into the request's rows
//!      8     4  count of rows, 1..=65,536
//!     12     4  offset in its row of a PIECE; else reserved, 0
//!     16    4n  CRC32C of each row, or of the PIECE
//!  16+4n    4n  bytes of each row; only when RAGGED
//!             then the payload: the rows, back to back, in request order
//! ```
//!
//! Without RAGGED all rows of the run have the same length: payload bytes / count. A payload
//! exceeds [`limits::DATA_PAYLOAD_BYTES_MAX`] only if the run is a single row.
//!
//! A row that the node neither has nor has room for comes in pieces, from its first byte to its
//! last. The client must have [`Features::PIECES`](super::Features::PIECES). A PIECE is of one row
//! and not RAGGED; the manifest gives the row's length.

use larder_base::limits;

use super::{FrameHeader, Kind, WireError, codec, header};

const RAGGED: u16 = 1;
const PIECE: u16 = 2;

/// A run to send. The payload is not copied here: the caller sends it right after the frame.
#[derive(Debug, Clone, Copy)]
pub struct DataRun<'a> {
    /// Index into the request's tensors.
    pub tensor_slot: u16,
    /// Index of the first row of the run in the request's rows.
    pub first: u32,
    /// CRC32C of each row, as many as there are rows.
    pub crcs: &'a [u32],
    /// Bytes of each row, if rows differ in length. As many as `crcs`.
    pub lengths: Option<&'a [u32]>,
    /// Bytes of all rows together.
    pub payload_bytes: u64,
}

impl DataRun<'_> {
    /// Appends header and body; `payload_bytes` of payload must follow on the socket.
    ///
    /// # Panics
    /// If the run is empty or longer than [`limits::GATHER_ROWS_MAX`], or `lengths` has not one
    /// entry for each row.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let count = u32::try_from(self.crcs.len()).ok();
        let count = count.filter(|count| (1..=limits::GATHER_ROWS_MAX).contains(count));
        let count = count.expect("a run has rows, and not more than a gather");
        assert!(self.lengths.is_none_or(|lengths| lengths.len() == self.crcs.len()));
        let flags = if self.lengths.is_some() { RAGGED } else { 0 };
        header::frame(Kind::Data, request, self.payload_bytes, out, |body| {
            body.extend_from_slice(&self.tensor_slot.to_le_bytes());
            body.extend_from_slice(&flags.to_le_bytes());
            body.extend_from_slice(&self.first.to_le_bytes());
            body.extend_from_slice(&count.to_le_bytes());
            body.extend_from_slice(&[0; 4]);
            codec::put_u32s(body, self.crcs);
            codec::put_u32s(body, self.lengths.unwrap_or_default());
        });
    }
}

/// A piece of one row to send, like a [`DataRun`].
#[derive(Debug, Clone, Copy)]
pub struct DataPiece {
    /// Index into the request's tensors.
    pub tensor_slot: u16,
    /// Index of the row in the request's rows.
    pub row: u32,
    /// Offset of the piece in the row.
    pub offset: u32,
    /// CRC32C of the piece.
    pub crc: u32,
    /// Bytes of the piece.
    pub payload_bytes: u64,
}

impl DataPiece {
    /// Appends header and body; `payload_bytes` of payload must follow on the socket.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        header::frame(Kind::Data, request, self.payload_bytes, out, |body| {
            body.extend_from_slice(&self.tensor_slot.to_le_bytes());
            body.extend_from_slice(&PIECE.to_le_bytes());
            codec::put_u32s(body, &[self.row, 1, self.offset, self.crc]);
        });
    }
}

/// A received run, without its payload. Reused for many runs: its lists keep their memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Data {
    tensor_slot: u16,
    ragged: bool,
    piece: Option<u32>,
    first: u32,
    payload_bytes: u64,
    crcs: Vec<u32>,
    lengths: Vec<u32>,
}

impl Data {
    /// Decodes header and body into `self`. After an error the contents are useless. Allocates only
    /// if this run has more rows than any before.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the tables and the payload's length do not agree,
    /// [`WireError::TooLarge`] if the run exceeds a limit.
    pub fn decode_into(&mut self, header: &FrameHeader, body: &[u8]) -> Result<(), WireError> {
        let mut fields = codec::Fields::new(Kind::Data, body);
        if header.kind() != Kind::Data {
            return Err(WireError::Unexpected { found: header.kind(), expected: "DATA" });
        }
        self.tensor_slot = fields.u16()?;
        let flags = fields.u16()?;
        if !matches!(flags, 0 | RAGGED | PIECE) {
            return Err(fields.malformed("reserved bits are set"));
        }
        self.ragged = flags == RAGGED;
        self.first = fields.u32()?;
        let count = fields.u32()?;
        self.piece = match flags {
            PIECE => Some(fields.u32()?),
            _ => fields.zero_u32().map(|()| None)?,
        };
        if count == 0 || count > limits::GATHER_ROWS_MAX {
            return Err(fields.malformed("a run has 1 to 65,536 rows"));
        }
        let table_bytes = 4 * count as usize;
        let crcs = fields.bytes(table_bytes)?;
        let lengths = fields.bytes(if self.ragged { table_bytes } else { 0 })?;
        fields.end()?;
        codec::take_u32s(crcs, &mut self.crcs);
        codec::take_u32s(lengths, &mut self.lengths);
        self.payload_bytes = header.payload_bytes();
        self.agrees(count)
    }

    /// Checks that lengths, payload and limits agree.
    fn agrees(&self, count: u32) -> Result<(), WireError> {
        let malformed = |what| Err(WireError::Malformed { kind: Kind::Data, what });
        if self.first.checked_add(count).is_none_or(|end| end > limits::GATHER_ROWS_MAX) {
            return malformed("a run ends beyond any request's rows");
        }
        if self.piece.is_some() && (count > 1 || self.payload_bytes == 0) {
            return malformed("a piece has bytes, of one row");
        }
        let limit = u64::from(limits::DATA_PAYLOAD_BYTES_MAX);
        let in_short = if self.piece.is_some() { "a piece of a row" } else { "several rows" };
        if (count > 1 || self.piece.is_some()) && self.payload_bytes > limit {
            let (kind, value) = (Kind::Data, self.payload_bytes);
            return Err(WireError::TooLarge { kind, what: in_short, value, limit });
        }
        if self.ragged {
            let sum: u64 = self.lengths.iter().map(|&length| u64::from(length)).sum();
            return if sum == self.payload_bytes {
                Ok(())
            } else {
                malformed("row lengths do not add up to the payload")
            };
        }
        if self.payload_bytes.is_multiple_of(u64::from(count)) {
            return Ok(());
        }
        malformed("the payload is not a whole number of rows")
    }

    /// Returns the index into the request's tensors. The caller compares it with the request.
    pub fn tensor_slot(&self) -> u16 {
        self.tensor_slot
    }

    /// Returns the request's rows that this run covers. The caller compares them with the request.
    pub fn rows(&self) -> std::ops::Range<usize> {
        let first = self.first as usize;
        first..first + self.crcs.len()
    }

    /// Returns the CRC32C of each row.
    pub fn crcs(&self) -> &[u32] {
        &self.crcs
    }

    /// Returns the offset in its row, if this is a piece of a row.
    pub fn piece(&self) -> Option<u32> {
        self.piece
    }

    /// Returns whether rows have lengths of their own.
    pub fn is_ragged(&self) -> bool {
        self.ragged
    }

    /// Returns the bytes of the `index`-th row of the run.
    ///
    /// # Panics
    /// If the run has no such row.
    pub fn row_bytes(&self, index: usize) -> u64 {
        assert!(index < self.crcs.len(), "row {index} of a run of {}", self.crcs.len());
        match self.lengths.get(index) {
            Some(&length) => u64::from(length),
            None => self.payload_bytes / self.crcs.len() as u64,
        }
    }

    /// Returns the bytes of payload that follow: the sum of the rows.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }
}
