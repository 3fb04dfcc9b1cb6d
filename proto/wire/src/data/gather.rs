//! GATHER, one request for many rows, and its end.

use larder_base::{RowRef, SnapshotId, limits};

use super::{Kind, WireError, codec, header};

/// GATHER: requests rows of some tensors of one snapshot, answered in the order given here.
///
/// ```text
/// offset width
///      0    32  snapshot id
///     32     4  rows, 1..=65,536
///     36     2  tensors, 1..=4,096
///     38     2  flags: bit 0 VERIFY, the others 0
///     40     8  version of the ring that the client used to choose this node
///     48    2t  tensors: their indices in the manifest
///  48+2t    8n  rows: shard u32, row u32
/// ```
///
/// A row or tensor may be named more than once. The node checks them against the manifest. VERIFY
/// asks again for rows that arrived with a wrong checksum: the node then compares its own bytes
/// with their checksums before it sends them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gather {
    /// The snapshot that the indices refer to.
    pub snapshot: SnapshotId,
    /// The version of the ring that the client used to choose this node. A node serves any request;
    /// the side with the older ring learns that there is a newer one.
    pub ring_version: u64,
    /// The wanted tensors, by index in the manifest. An index into *this* list is a tensor slot.
    pub tensors: Vec<u16>,
    /// The wanted rows, in the order of the answer.
    pub rows: Vec<RowRef>,
    /// Whether the node must check its bytes before it sends them.
    pub verify: bool,
}

const VERIFY: u16 = 1;

impl Gather {
    /// Appends the frame, of at most [`limits::GATHER_ROWS_MAX`] rows and
    /// [`limits::GATHER_TENSORS_MAX`] tensors.
    ///
    /// # Panics
    /// If a limit is exceeded or nothing is requested: the caller splits its batches.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let Self { snapshot, ring_version, ref tensors, ref rows, verify } = *self;
        GatherParts { snapshot, ring_version, tensors, rows, verify }.encode(request, out);
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] or [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::Gather, body);
        let snapshot = SnapshotId::from_bytes(fields.array()?);
        let rows = fields.u32()?;
        let tensors = u32::from(fields.u16()?);
        let verify = match fields.u16()? {
            0 => false,
            VERIFY => true,
            _ => return Err(fields.malformed("reserved bits are set")),
        };
        let ring_version = fields.u64()?;
        let row_count = announced("rows", rows, limits::GATHER_ROWS_MAX)?;
        let tensor_count = announced("tensors", tensors, limits::GATHER_TENSORS_MAX)?;
        let tensors = fields.bytes(2 * tensor_count)?.as_chunks::<2>().0;
        let rows = fields.bytes(8 * row_count)?.as_chunks::<8>().0;
        fields.end()?;
        Ok(Self {
            snapshot,
            ring_version,
            tensors: tensors.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect(),
            rows: rows.iter().map(row_from).collect(),
            verify,
        })
    }
}

/// A [`Gather`] with borrowed lists.
#[derive(Debug, Clone, Copy)]
pub struct GatherParts<'a> {
    /// As [`Gather::snapshot`].
    pub snapshot: SnapshotId,
    /// As [`Gather::ring_version`].
    pub ring_version: u64,
    /// As [`Gather::tensors`].
    pub tensors: &'a [u16],
    /// As [`Gather::rows`].
    pub rows: &'a [RowRef],
    /// As [`Gather::verify`].
    pub verify: bool,
}

impl GatherParts<'_> {
    /// Appends the frame, as [`Gather::encode`].
    ///
    /// # Panics
    /// As [`Gather::encode`].
    pub fn encode(self, request: u64, out: &mut Vec<u8>) {
        let Self { snapshot, ring_version, tensors, rows, verify } = self;
        let row_count = counted(rows.len(), limits::GATHER_ROWS_MAX);
        let tensor_count = counted(tensors.len(), limits::GATHER_TENSORS_MAX);
        let tensor_count = u16::try_from(tensor_count).expect("the limit on tensors has 16 bits");
        header::frame(Kind::Gather, request, 0, out, |body| {
            body.reserve(48 + 2 * tensors.len() + 8 * rows.len());
            body.extend_from_slice(snapshot.as_bytes());
            body.extend_from_slice(&row_count.to_le_bytes());
            body.extend_from_slice(&tensor_count.to_le_bytes());
            body.extend_from_slice(&(if verify { VERIFY } else { 0 }).to_le_bytes());
            body.extend_from_slice(&ring_version.to_le_bytes());
            for tensor in tensors {
                body.extend_from_slice(&tensor.to_le_bytes());
            }
            put_rows(body, rows);
        });
    }
}

/// Converts a count that the caller promised to keep within its limit.
fn counted(count: usize, max: u32) -> u32 {
    let count = u32::try_from(count).ok().filter(|count| (1..=max).contains(count));
    count.expect("a gather asks for something, within its limits")
}

/// Checks a count that a peer announced.
fn announced(what: &'static str, count: u32, max: u32) -> Result<usize, WireError> {
    if count == 0 {
        return Err(WireError::Malformed { kind: Kind::Gather, what: "it asks for nothing" });
    }
    if count > max {
        let (value, limit) = (u64::from(count), u64::from(max));
        return Err(WireError::TooLarge { kind: Kind::Gather, what, value, limit });
    }
    Ok(count as usize)
}

fn put_rows(out: &mut Vec<u8>, rows: &[RowRef]) {
    let start = out.len();
    out.resize(start + 8 * rows.len(), 0);
    for (bytes, row) in out[start..].as_chunks_mut::<8>().0.iter_mut().zip(rows) {
        *bytes = (u64::from(row.row) << 32 | u64::from(row.shard)).to_le_bytes();
    }
}

fn row_from(bytes: &[u8; 8]) -> RowRef {
    let [a, b, c, d, e, f, g, h] = *bytes;
    RowRef { shard: u32::from_le_bytes([a, b, c, d]), row: u32::from_le_bytes([e, f, g, h]) }
}

/// GATHER_END: all rows were sent.
///
/// ```text
/// offset width
///      0     8  rows that came from memory
///      8     8  rows that came from the origin, by range or by waiting for a fill
///     16     8  version of the ring that the node has
///     24     8  bytes that the node read from the origin for this request
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GatherEnd {
    /// Rows that were resident when the request came.
    pub rows_memory: u64,
    /// Rows that had to be read from the origin first.
    pub rows_origin: u64,
    /// The version of the node's ring: a greater version than the client's is newer.
    pub ring_version: u64,
    /// Bytes that the node read from the origin: rows by range, and whole shards that no earlier
    /// request has reported.
    pub origin_bytes: u64,
}

impl GatherEnd {
    /// Appends the frame.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        header::frame(Kind::GatherEnd, request, 0, out, |body| {
            body.extend_from_slice(&self.rows_memory.to_le_bytes());
            body.extend_from_slice(&self.rows_origin.to_le_bytes());
            body.extend_from_slice(&self.ring_version.to_le_bytes());
            body.extend_from_slice(&self.origin_bytes.to_le_bytes());
        });
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::GatherEnd, body);
        let end = Self {
            rows_memory: fields.u64()?,
            rows_origin: fields.u64()?,
            ring_version: fields.u64()?,
            origin_bytes: fields.u64()?,
        };
        fields.end()?;
        Ok(end)
    }
}
