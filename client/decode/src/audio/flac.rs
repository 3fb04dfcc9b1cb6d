//! FLAC (RFC 9639), decoded from the first frame to the row's last one.
//!
//! [`frame`] decodes one frame and compares its checksums. The checksum of the whole sound is not
//! compared. A frame may have another bit depth than the stream: its samples are scaled by its own.
//! An ID3 tag before the stream is skipped.
//!
//! No other decoder fits: claxon hides the depth of a frame and lacks escaped residuals, and
//! flac-codec rejects frames of another depth.
//!
//! Thread rule: plain functions. Non-goals: seek tables, Ogg, and sample rates that change.

mod bits;
mod crc;
mod frame;

use super::{Audio, Cut, Start};
use crate::draw::Draw;
use crate::error::DecodeError;
use bits::Bits;
use frame::Frame;

/// The reason why bytes are no FLAC.
type Damage = &'static str;

/// What the header of a stream says.
struct StreamInfo {
    sample_rate: u32,
    channels: u32,
    depth: u32,
    /// Samples of each channel, if they are known.
    total: Option<u64>,
}

/// The bytes behind an ID3 tag, if there is one.
pub(super) fn behind_tag(encoded: &[u8]) -> &[u8] {
    let &[b'I', b'D', b'3', _, _, flags, ref rest @ ..] = encoded else { return encoded };
    // The length has seven bits a byte. A footer repeats the ten bytes of the header.
    let Some(length) = rest.first_chunk::<4>() else { return encoded };
    let length = length.iter().fold(0, |sum, &byte| sum << 7 | usize::from(byte & 0x7F));
    let footer = if flags & 0x10 == 0 { 0 } else { 10 };
    encoded.get(10 + length + footer..).unwrap_or_default()
}

pub(super) fn decode(
    audio: &Audio,
    encoded: &[u8],
    draw: Draw,
    out: &mut [f32],
    block: &mut Vec<i64>,
) -> Result<usize, DecodeError> {
    let damaged = |why: Damage| DecodeError::damaged("FLAC", &why);
    let (info, mut rest) = stream_info(encoded).map_err(damaged)?;
    audio.check(info.channels, info.sample_rate)?;
    let Cut { first, frames } = match (info.total, audio.start) {
        (Some(total), _) => audio.cut("FLAC", total, draw)?,
        (None, Start::Begin) => Cut { first: 0, frames: audio.frames as usize },
        (None, Start::Random) => {
            return Err(damaged("its length is unknown, which a random start needs"));
        }
    };
    // Samples of the sound before the block, and samples of the row that are written.
    let (mut before, mut written) = (0, 0);
    while written < frames && !rest.is_empty() {
        let frame = Frame::decode(rest, info.depth, block).map_err(damaged)?;
        if frame.channels != info.channels {
            return Err(damaged("its number of channels changes"));
        }
        // Exact, and its product with an integer is rounded once.
        let scale = 1.0 / (1_u64 << (frame.depth - 1)) as f32;
        let from = (first + written).saturating_sub(before);
        let count = frame.size.saturating_sub(from).min(frames - written);
        audio.write(out, written, count, info.channels as usize, |index, channel| {
            block[channel * frame.size + from + index] as f32 * scale
        });
        before += frame.size;
        written += count;
        rest = &rest[frame.bytes..];
    }
    if written < frames && info.total.is_some() {
        return Err(DecodeError::damaged("FLAC", &format!("it ends after {before} frames")));
    }
    audio.pad(out, written);
    Ok(written)
}

/// Reads the blocks before the first frame, and returns the bytes from that frame on (8).
fn stream_info(encoded: &[u8]) -> Result<(StreamInfo, &[u8]), Damage> {
    let mut rest = &encoded[4..];
    let mut info = None;
    loop {
        let (&[kind, a, b, c], body) = rest.split_first_chunk().ok_or("it is cut off")?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let (body, behind) = body.split_at_checked(length).ok_or("it is cut off")?;
        if info.is_none() {
            // The first block is the stream's description.
            info = Some(StreamInfo::read(body).filter(|_| kind & 0x7F == 0));
        }
        rest = behind;
        if kind & 0x80 != 0 {
            let info = info.flatten().ok_or("its description is missing")?;
            return Ok((info, rest));
        }
    }
}

impl StreamInfo {
    fn read(body: &[u8]) -> Option<Self> {
        let mut bits = Bits::new(body.get(10..34)?);
        let sample_rate = bits.small(20).ok()?;
        let channels = bits.small(3).ok()? + 1;
        let depth = bits.small(5).ok()? + 1;
        let total = bits.unsigned(36).ok().filter(|&total| total > 0);
        (depth >= 4).then_some(Self { sample_rate, channels, depth, total })
    }
}
