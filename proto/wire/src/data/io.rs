//! Frames from a blocking reader, or out of a buffer.
//!
//! No byte is read beyond the frame asked for, so payload can go straight to where it belongs.

use std::io::{ErrorKind, Read};

use larder_base::limits;

use super::{FRAME_HEADER_BYTES, FrameHeader, Hello, Kind, WireError};

/// Reads one header. Its lengths are within the limits of its kind.
///
/// # Errors
/// [`WireError::Closed`] at a clean end, [`WireError::Idle`] when the reader's timeout passed before
/// the first byte, [`WireError::Broken`] within a header, and those of [`FrameHeader::parse`].
pub fn read_header(reader: &mut impl Read) -> Result<FrameHeader, WireError> {
    let mut bytes = [0; FRAME_HEADER_BYTES];
    let got = first_bytes(reader, &mut bytes)?;
    reader.read_exact(&mut bytes[got..]).map_err(WireError::Broken)?;
    FrameHeader::parse(&bytes)
}

/// At least one byte, or why there is none.
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

/// Reads the body that belongs to `header` into `body`, whose old content goes and whose memory is
/// reused, and verifies the checksum over both.
///
/// # Errors
/// [`WireError::Broken`] when the reader fails or ends too soon, [`WireError::Checksum`].
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

// All that is read and held of a peer before it has said who it is.
const _: () = assert!(
    FRAME_HEADER_BYTES + Kind::Hello.body_bytes_max() as usize
        <= limits::PRE_AUTH_BYTES_MAX as usize
);

/// Reads the first frame of a connection; anything but HELLO is refused before its body is read.
/// The request number comes with it.
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
    /// The header, within limits and, with the body, of the right checksum.
    pub header: FrameHeader,
    /// The body.
    pub body: &'a [u8],
    /// What follows the body: payload, further frames or nothing.
    pub rest: &'a [u8],
}

/// Takes a frame from the front of `buffer`, for sockets that are not read through [`Read`] (those
/// that carry descriptors). `None`: not all of it is there yet.
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
