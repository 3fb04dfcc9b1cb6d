//! JPEG, by libjpeg-turbo-rs: the values are those of libjpeg-turbo (decision 0043).
//!
//! Like libjpeg, it skips bytes between segments and before markers, and needs no end marker behind
//! a complete scan. Unlike libjpeg, it rejects Huffman codes that end early or are impossible.
//!
//! The decoder is young. A panic in it is caught, and makes the file a damaged one. Sampling
//! factors that no writer uses are rejected, since version 0.9.0 panics at some.
//!
//! Thread rule: plain functions. Non-goals: decoding at a reduced size, 12 bits, lossless JPEG.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libjpeg_turbo_rs::{DecodeLimits, DecodeWarning, Decoder, FrameHeader, PixelFormat};

use super::{JPEG_PIXELS_PER_BYTE, PIXELS_MAX, PictureHead, SIDE_MAX, checked, spread};
use crate::error::DecodeError;
use crate::image::orientation::Orientation;
use crate::scratch::grown;

/// Scans of a JPEG. Encoders write about ten. Each may pass over all pixels for a few bytes.
const SCANS_MAX: usize = 500;

/// Bytes that the decoder may take by its own estimate: enough for the most pixels in 4 channels.
const MEMORY_MAX: u64 = 4 << 30;

pub(super) fn decode(encoded: &[u8], pixels: &mut Vec<u8>) -> Result<PictureHead, DecodeError> {
    catch_unwind(AssertUnwindSafe(|| decode_unguarded(encoded, pixels)))
        .unwrap_or_else(|_| Err(damaged(&"its decoder panics")))
}

fn damaged(why: &dyn Display) -> DecodeError {
    DecodeError::damaged("JPEG", why)
}

fn decode_unguarded(encoded: &[u8], pixels: &mut Vec<u8>) -> Result<PictureHead, DecodeError> {
    let side = usize::try_from(SIDE_MAX).expect("16 bits");
    let limits = DecodeLimits {
        max_width: side,
        max_height: side,
        max_pixels: PIXELS_MAX,
        max_scans: SCANS_MAX,
        max_memory: Some(MEMORY_MAX),
    };
    let mut decoder = Decoder::new_with_limits(encoded, limits).map_err(|e| damaged(&e))?;
    let frame = decoder.header();
    let size = (u32::from(frame.width), u32::from(frame.height));
    let count = checked("JPEG", size, encoded, JPEG_PIXELS_PER_BYTE)?;
    if frame.precision != 8 || frame.is_lossless {
        return Err(damaged(&"it is lossless or has more than 8 bits a sample"));
    }
    let last = |code| encoded.windows(2).rposition(|two| two == [0xFF, code]);
    if decoder.is_arithmetic() && last(0xD9) < last(0xDA) {
        // Zeros at the end of arithmetic codes are left out, so only the marker shows the end.
        return Err(damaged(&"it is cut off"));
    }
    if !frame.is_progressive && decoder.has_multiple_scans() && !is_scanned(encoded, frame) {
        return Err(damaged(&"a channel has no scan"));
    }
    let factors = || frame.components.iter().map(|c| (c.horizontal_sampling, c.vertical_sampling));
    let (first_h, first_v) = factors().next().ok_or_else(|| damaged(&"it has no channels"))?;
    let divides = |(h, v): (u8, u8)| h > 0 && v > 0 && first_h % h == 0 && first_v % v == 0;
    let is_last_whole =
        frame.components.len() < 4 || factors().next_back() == Some((first_h, first_v));
    if !factors().all(divides) || !is_last_whole {
        return Err(damaged(&"its channels have unusual sampling factors"));
    }
    let (format, channels) = match frame.components.len() {
        1 => (PixelFormat::Grayscale, 1),
        _ => (PixelFormat::Rgba, 4),
    };
    decoder.set_output_format(format);
    let pixels = grown(pixels, count * 4);
    let info =
        decoder.decode_image_into(&mut pixels[..count * channels]).map_err(|e| damaged(&e))?;
    let is_harmless = |warning: &&_| matches!(warning, DecodeWarning::ExtraneousData { .. });
    if let Some(warning) = info.warnings.iter().find(|warning| !is_harmless(warning)) {
        return Err(damaged(warning));
    }
    spread(pixels, channels);
    let orientation = info.exif_data.as_deref().and_then(Orientation::of_exif);
    Ok(PictureHead { size, orientation })
}

/// Whether each channel of a frame is in a scan behind the frame's header. The decoder makes up the
/// missing ones.
fn is_scanned(encoded: &[u8], frame: &FrameHeader) -> bool {
    let is_frame = |two: &[u8]| two[0] == 0xFF && matches!(two[1], 0xC0 | 0xC1 | 0xC9);
    let begin = encoded.windows(2).rposition(is_frame).unwrap_or(0);
    // A scan's header: marker, length (2), number of channels, and two bytes for each.
    let scans = encoded[begin..].windows(13).filter(|bytes| bytes.starts_with(&[0xFF, 0xDA]));
    let scanned = |id| {
        scans.clone().any(|scan| scan[5..].iter().step_by(2).take(scan[4].into()).any(|&i| i == id))
    };
    frame.components.iter().all(|channel| scanned(channel.id))
}
