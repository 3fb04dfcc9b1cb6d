//! Reads frames from a blocking reader, or out of a buffer.
//!
//! It reads no byte beyond the requested frame, so that payload can go straight to its place.

use std::io::{ErrorKind, Read};

use larder_base::limits;

use super::{FRAME_HEADER_BYTES, FrameHeader, Hello, Kind, WireError};

/// Reads one header and checks its lengths against the limits of its kind.
///
/// # Errors
/// [`WireError::Closed`] at a clean end, [`WireError::Idle`] if the reader's timeout passed before
/// the first byte, [`WireError::Broken`] within a header, and those of [`FrameHeader::parse`].
pub fn read_header(reader: &mut impl Read) -> Result<FrameHeader, WireError> {
    let mut bytes = [0; FRAME_HEADER_BYTES];
    let got = first_bytes(reader, &mut bytes)?;
    reader.read_exact(&mut bytes[got..]).map_err(WireError::Broken)?;
    FrameHeader::parse(&bytes)
}

/// Reads at least one byte, or returns why there is none.
fn first_bytes(reader: &mut impl Read, bytes: &mut [u8]) -> Result<usize, WireError> {
    loop {
        match reader.read(bytes) {
            Ok(0) => return Err(WireError::Closed),
            Ok(got) => return Ok(got),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(WireError::Idle),
                _ => return Err(WireError::Broken(error)),
            },
        }
    }
}

/// Reads the body of `header` into `body` and verifies the checksum over both. Replaces the old
/// contents of `body` and reuses its memory.
///
/// # Errors
/// [`WireError::Broken`] if the reader fails or ends too soon, [`WireError::Checksum`].
pub fn read_body(
    reader: &mut impl Read,
    header: &FrameHeader,
    body: &mut Vec<u8>,
) -> Result<(), WireError> {
    body.clear();
    body.resize(header.body_len(), 0);
    reader.read_exact(body).map_err(WireError::Broken)?;
    header.check(body)
}

// The bytes read and held of a peer before HELLO identifies it.
const _: () = assert!(
    FRAME_HEADER_BYTES + Kind::Hello.body_bytes_max() as usize
        <= limits::PRE_AUTH_BYTES_MAX as usize
);

/// Reads the first frame of a connection and returns its request number and the HELLO. Refuses any
/// other kind before it reads the body.
///
/// # Errors
/// Those of [`read_header`], [`read_body`] and [`Hello::decode`], and [`WireError::Unexpected`].
pub fn read_hello(reader: &mut impl Read) -> Result<(u64, Hello), WireError> {
    let header = read_header(reader)?;
    if header.kind() != Kind::Hello {
        return Err(WireError::Unexpected { found: header.kind(), expected: "HELLO" });
    }
    let mut body = Vec::new();
    read_body(reader, &header, &mut body)?;
    Ok((header.request(), Hello::decode(&body)?))
}

/// A whole frame at the front of a buffer.
#[derive(Debug, Clone, Copy)]
pub struct Split<'a> {
    /// The header. Its lengths are within limits, and its checksum matches.
    pub header: FrameHeader,
    /// The body.
    pub body: &'a [u8],
    /// The bytes after the body: payload, further frames or nothing.
    pub rest: &'a [u8],
}

/// Takes a frame from the front of `buffer`, for sockets that are not read through [`Read`] (those
/// that carry descriptors). Returns `None` if the frame is incomplete.
///
/// # Errors
/// Those of [`FrameHeader::parse`] and [`FrameHeader::check`].
pub fn split_frame(buffer: &[u8]) -> Result<Option<Split<'_>>, WireError> {
    let Some((header, rest)) = buffer.split_first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let header = FrameHeader::parse(header)?;
    let Some((body, rest)) = rest.split_at_checked(header.body_len()) else {
        return Ok(None);
    };
    header.check(body)?;
    Ok(Some(Split { header, body, rest }))
}
