//! READ_PART and PART: a node reads bytes of a shard's extent from another node that may have it.
//!
//! An extent's layout follows from the manifest alone, so both nodes have the same. A part that
//! would be read from the origin can therefore be read from a peer as one part. The parts of a
//! shard may come from both.

use larder_base::{SnapshotId, limits};

use super::{FrameHeader, Kind, WireError, codec, header};

/// READ_PART: requests bytes of one tensor of a resident shard. A node without the shard answers
/// NOT_FOUND and does not begin to fill it.
///
/// ```text
/// offset width
///      0    32  snapshot id
///     32     4  shard: its index in the manifest
///     36     4  tensor: its index in the manifest
///     40     8  offset in the tensor's region of the extent
///     48     4  bytes, 1..=8 MiB
///     52     4  reserved, 0
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPart {
    /// The snapshot that the indices refer to.
    pub snapshot: SnapshotId,
    /// Index of the shard in the manifest.
    pub shard: u32,
    /// Index of the tensor in the manifest.
    pub tensor: u32,
    /// Offset in the tensor's region of the first byte. The node checks it against the manifest.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u32,
}

impl ReadPart {
    /// Appends the frame.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        header::frame(Kind::ReadPart, request, 0, out, |body| {
            body.extend_from_slice(self.snapshot.as_bytes());
            codec::put_u32s(body, &[self.shard, self.tensor]);
            body.extend_from_slice(&self.offset.to_le_bytes());
            codec::put_u32s(body, &[self.bytes, 0]);
        });
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`WireError::Malformed`], [`WireError::TooLarge`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::ReadPart, body);
        let snapshot = SnapshotId::from_bytes(fields.array()?);
        let (shard, tensor, offset) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let bytes = fields.u32()?;
        fields.zero_u32()?;
        fields.end()?;
        if bytes == 0 {
            return Err(WireError::Malformed { kind: Kind::ReadPart, what: "it asks for nothing" });
        }
        let (value, limit) = (u64::from(bytes), limits::FILL_PART_BYTES);
        if value > limit {
            let kind = Kind::ReadPart;
            return Err(WireError::TooLarge { kind, what: "bytes of a part", value, limit });
        }
        Ok(Self { snapshot, shard, tensor, offset, bytes })
    }
}

/// PART: the requested bytes follow as payload.
///
/// ```text
/// offset width
///      0     8  digest of the checksums of all rows of the shard
///      8     4  CRC32C of the payload
///     12     4  rests: the pause factor; 0 unless HELLO has agreed on it
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Over the checksums of all rows, computed when the sender filled the shard. A complete copy
    /// with another digest has other bytes.
    pub digest: u64,
    /// The CRC32C of the payload.
    pub crc32c: u32,
    /// The receiver pauses this many times as long as the part took, unless a reader waits for the
    /// shard. This spares other readers of the sender. 0 if the sender has no readers.
    pub rests: u32,
}

impl Part {
    /// Appends header and body; `payload_bytes` of payload must follow on the socket.
    pub fn encode(&self, request: u64, payload_bytes: u64, out: &mut Vec<u8>) {
        header::frame(Kind::Part, request, payload_bytes, out, |body| {
            body.extend_from_slice(&self.digest.to_le_bytes());
            codec::put_u32s(body, &[self.crc32c, self.rests]);
        });
    }

    /// Decodes header and body; `asked` bytes of payload must follow.
    ///
    /// # Errors
    /// [`WireError::Malformed`], [`WireError::Unexpected`].
    pub fn decode(header: &FrameHeader, body: &[u8], asked: u32) -> Result<Self, WireError> {
        if header.kind() != Kind::Part {
            return Err(WireError::Unexpected { found: header.kind(), expected: "PART" });
        }
        let mut fields = codec::Fields::new(Kind::Part, body);
        let part = Self { digest: fields.u64()?, crc32c: fields.u32()?, rests: fields.u32()? };
        fields.end()?;
        if header.payload_bytes() != u64::from(asked) {
            let what = "it is not as long as what was asked for";
            return Err(WireError::Malformed { kind: Kind::Part, what });
        }
        Ok(part)
    }
}
