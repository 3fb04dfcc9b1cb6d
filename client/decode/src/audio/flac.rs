//! FLAC, by claxon. Each frame's CRC is checked, the checksum of the whole sound is not.

use std::fmt::Display;

use claxon::{FlacReader, FlacReaderOptions};

use super::{Audio, Cut, Start};
use crate::draw::Draw;
use crate::error::DecodeError;

pub(super) fn decode(
    audio: &Audio,
    encoded: &[u8],
    draw: Draw,
    out: &mut [f32],
    block: &mut Vec<i32>,
) -> Result<usize, DecodeError> {
    let damaged = |why: &dyn Display| DecodeError::damaged("FLAC", why);
    let options = FlacReaderOptions { metadata_only: false, read_vorbis_comment: false };
    let mut reader = FlacReader::new_ext(encoded, options).map_err(|e| damaged(&e))?;
    let info = reader.streaminfo();
    audio.check(info.channels, info.sample_rate)?;
    let Cut { first, frames } = match (info.samples, audio.start) {
        (Some(total), _) => audio.cut("FLAC", total, draw)?,
        (None, Start::Begin) => Cut { first: 0, frames: audio.frames as usize },
        (None, Start::Random) => {
            return Err(damaged(&"its length is unknown, which a random start needs"));
        }
    };
    // Exact, and its product with an integer is rounded once.
    let scale = 2_f32.powi(1 - i32::try_from(info.bits_per_sample).unwrap_or(i32::MAX));
    let mut blocks = reader.blocks();
    // Frames of the sound before the block, and frames of the row that are written.
    let (mut before, mut written) = (0, 0);
    while written < frames {
        let next = blocks.read_next_or_eof(std::mem::take(block)).map_err(|e| damaged(&e))?;
        let Some(decoded) = next else { break };
        if decoded.channels() != info.channels {
            return Err(damaged(&"its number of channels changes"));
        }
        let from = (first + written).saturating_sub(before);
        let count = (decoded.duration() as usize).saturating_sub(from).min(frames - written);
        let channel = |index: usize| decoded.channel(u32::try_from(index).expect("below 8"));
        audio.write(out, written, count, info.channels as usize, |frame, index| {
            channel(index)[from + frame] as f32 * scale
        });
        before += decoded.duration() as usize;
        written += count;
        *block = decoded.into_buffer();
    }
    if written < frames && info.samples.is_some() {
        return Err(damaged(&format!("it ends after {before} frames")));
    }
    audio.pad(out, written);
    Ok(written)
}
