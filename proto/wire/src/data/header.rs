//! The frame header, and the frame around a body.

use super::{Kind, WireError, codec::Fields};

/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 32;

/// "LRD1" read as a little-endian number; the digit changes only with the header itself.
const MAGIC: u32 = u32::from_le_bytes(*b"LRD1");

/// The header before each body.
///
/// ```text
/// offset width
///      0     4  magic, "LRD1"
///      4     1  kind
///      5     1  flags, 0
///      6     2  reserved, 0
///      8     8  request: chosen by the client, repeated in each answer; 0 in RELEASE and RECALL
///     16     8  payload bytes that follow the body; 0 except in DATA and PART
///     24     4  body bytes that follow this header
///     28     4  CRC32C over bytes 0..28 and the body
///     32
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    kind: Kind,
    request: u64,
    payload_bytes: u64,
    body_bytes: u32,
    crc32c: u32,
}

const CRC_OFFSET: usize = 28;
const _: () = assert!(CRC_OFFSET + 4 == FRAME_HEADER_BYTES);
const _: () = assert!(4 + 1 + 1 + 2 + 8 + 8 + 4 == CRC_OFFSET);

impl FrameHeader {
    /// Decodes a header and checks its lengths against the limits of its kind. Its checksum can be
    /// checked only with the body: see [`FrameHeader::check`].
    ///
    /// # Errors
    /// [`WireError::NotAFrame`], [`WireError::UnknownKind`], [`WireError::TooLarge`], or
    /// [`WireError::Malformed`] if a reserved bit is set.
    pub fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<Self, WireError> {
        let magic = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if magic != MAGIC {
            return Err(WireError::NotAFrame { found: magic });
        }
        let kind = Kind::from_number(bytes[4]).ok_or(WireError::UnknownKind(bytes[4]))?;
        let mut fields = Fields::new(kind, &bytes[5..]);
        fields.zero_u8()?;
        fields.zero_u16()?;
        let header = Self {
            kind,
            request: fields.u64()?,
            payload_bytes: fields.u64()?,
            body_bytes: fields.u32()?,
            crc32c: fields.u32()?,
        };
        header.within_limits()?;
        Ok(header)
    }

    fn within_limits(&self) -> Result<(), WireError> {
        let checks = [
            ("a body", u64::from(self.body_bytes), u64::from(self.kind.body_bytes_max())),
            ("a payload", self.payload_bytes, self.kind.payload_bytes_max()),
        ];
        let exceeded = checks.into_iter().find(|(_, value, limit)| value > limit);
        exceeded.map_or(Ok(()), |(what, value, limit)| {
            Err(WireError::TooLarge { kind: self.kind, what, value, limit })
        })
    }

    /// Checks that header and body arrived as they were sent.
    ///
    /// # Errors
    /// [`WireError::Checksum`] if they did not, [`WireError::Malformed`] if `body` is not as long
    /// as announced.
    pub fn check(&self, body: &[u8]) -> Result<(), WireError> {
        if body.len() != self.body_len() {
            return Err(WireError::Malformed { kind: self.kind, what: "body of another length" });
        }
        let computed = checksum(&self.before_crc(), body);
        if computed == self.crc32c {
            return Ok(());
        }
        Err(WireError::Checksum { kind: self.kind, found: self.crc32c, computed })
    }

    /// Encodes the header up to its checksum: the fields hold all of it.
    fn before_crc(&self) -> [u8; CRC_OFFSET] {
        let mut bytes = [0; CRC_OFFSET];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = self.kind.number();
        bytes[8..16].copy_from_slice(&self.request.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes
    }

    /// Encodes the header for this body.
    pub(super) fn seal(
        kind: Kind,
        request: u64,
        payload_bytes: u64,
        body: &[u8],
    ) -> [u8; FRAME_HEADER_BYTES] {
        let body_bytes = u32::try_from(body.len()).expect("a body is bounded by its kind");
        debug_assert!(body_bytes <= kind.body_bytes_max());
        let header = Self { kind, request, payload_bytes, body_bytes, crc32c: 0 };
        let before_crc = header.before_crc();
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..CRC_OFFSET].copy_from_slice(&before_crc);
        bytes[CRC_OFFSET..].copy_from_slice(&checksum(&before_crc, body).to_le_bytes());
        bytes
    }

    /// Returns the kind of the frame.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the request it belongs to.
    pub fn request(&self) -> u64 {
        self.request
    }

    /// Returns the bytes of the body that follows: at most [`Kind::body_bytes_max`].
    pub fn body_len(&self) -> usize {
        self.body_bytes as usize
    }

    /// Returns the bytes of payload that follow the body: at most [`Kind::payload_bytes_max`].
    /// Allocate by it only after the body was checked and compared with the request.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }
}

/// Appends one frame, with a body appended by `fill`. The caller keeps the body within its kind's
/// limit.
pub(super) fn frame(
    kind: Kind,
    request: u64,
    payload_bytes: u64,
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.resize(start + FRAME_HEADER_BYTES, 0);
    fill(out);
    let (header, body) = out[start..].split_at_mut(FRAME_HEADER_BYTES);
    header.copy_from_slice(&FrameHeader::seal(kind, request, payload_bytes, body));
}

/// Returns the CRC32C of two pieces as if they were one.
fn checksum(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    digest.update(second);
    u32::try_from(digest.finalize()).expect("a 32-bit checksum has 32 bits")
}
