//! Decodes a whole picture to four bytes a pixel: red, green, blue and one that has no meaning.
//!
//! JPEG is zune-jpeg's, PNG is png's, WebP is image-webp's. A file that was cut off is an error. So
//! is a wrong checksum of a PNG. A damaged scan of a JPEG has no checksum: it is an error only if
//! its codes are impossible.
//!
//! libjpeg-turbo would need C, cmake and nasm. It decodes 1.2 times as fast. A photograph of 12
//! megapixels for a row of 224 pixels takes it half the time, as it decodes at 1/8 of the size.
//!
//! Thread rule: plain functions. Non-goals: crops, and metadata.

use std::fmt::Display;
use std::io::Cursor;

use image_webp::WebPDecoder;
use png::{DecodeOptions, Transformations};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::{JpegDecoder, SampleRatios};

use crate::error::DecodeError;
use crate::scratch::grown;

/// Pixels of a picture that are decoded. They take 1 GiB, and with the decoder's own buffers up to
/// 3 GiB, on each thread. Pillow warns from a third of it on.
pub const PIXELS_MAX: u64 = 1 << 28;

/// Pixels of a side: as many as a JPEG can have. The resizer's weights take 16 bytes for each.
const SIDE_MAX: u64 = 65_535;

/// Pixels for which a byte of the file can be enough. A file with more of them lacks data, and is
/// rejected before memory is allocated.
///
/// JPEG has at least one bit for 64 pixels: the shortest code, in a progressive scan of the DC
/// coefficients. PNG has fixed bits for a pixel, and deflate shrinks them by at most 1032. WebP has
/// no such limit: a picture of one colour takes no bits for its pixels.
const JPEG_PIXELS_PER_BYTE: u64 = 8 * 64;
const PNG_BITS_PER_BYTE: u64 = 8 * 1032;

/// Decodes into the beginning of `pixels`, and returns width and height.
pub(super) fn decode(encoded: &[u8], pixels: &mut Vec<u8>) -> Result<(u32, u32), DecodeError> {
    match encoded {
        [0xFF, 0xD8, 0xFF, ..] => jpeg(encoded, pixels),
        [0x89, b'P', b'N', b'G', ..] => png(encoded, pixels),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => webp(encoded, pixels),
        _ => Err(DecodeError::format("JPEG, PNG nor WebP", encoded)),
    }
}

/// Checks a header, and returns the number of pixels.
fn checked(
    format: &'static str,
    (width, height): (u32, u32),
    encoded: &[u8],
    pixels_per_byte: u64,
) -> Result<usize, DecodeError> {
    let found = u64::from(width) * u64::from(height);
    if found == 0 {
        return Err(DecodeError::damaged(format, &"it has no pixels"));
    }
    let side = u64::from(width.max(height));
    let sizes = [(side, "pixels on a side", SIDE_MAX), (found, "pixels", PIXELS_MAX)];
    if let Some(&(found, unit, limit)) = sizes.iter().find(|(found, _, limit)| found > limit) {
        return Err(DecodeError::TooLarge { format, found, unit, limit });
    }
    if found > (encoded.len() as u64).saturating_mul(pixels_per_byte) {
        let why = format!("{} bytes are too few for {width} x {height} pixels", encoded.len());
        return Err(DecodeError::damaged(format, &why));
    }
    Ok(usize::try_from(found).expect("at most 2^28"))
}

fn jpeg(encoded: &[u8], pixels: &mut Vec<u8>) -> Result<(u32, u32), DecodeError> {
    let damaged = |why: &dyn Display| DecodeError::damaged("JPEG", why);
    let mut color = ColorSpace::RGBA;
    let mut decoder = jpeg_decoder(encoded, color)?;
    let info = decoder.info().expect("headers are decoded");
    let size = (u32::from(info.width), u32::from(info.height));
    let count = checked("JPEG", size, encoded, JPEG_PIXELS_PER_BYTE)?;
    let scanned = channels_of_scan(encoded).ok_or_else(|| damaged(&"it is cut off"))?;
    // The default of the unnamed type of `sof` is baseline.
    if info.sof == Default::default()
        && scanned < info.components
        && !matches!(info.sample_ratio, SampleRatios::None | SampleRatios::H)
    {
        // zune-jpeg 0.5.15 mixes up their rows.
        return Err(damaged(&"its subsampled channels have a scan each"));
    }
    if !matches!(decoder.input_colorspace(), Some(ColorSpace::Luma | ColorSpace::YCbCr)) {
        // zune-jpeg converts stored RGB, CMYK and YCCK to three bytes a pixel only.
        color = ColorSpace::RGB;
        decoder = jpeg_decoder(encoded, color)?;
    }
    let channels = color.num_components();
    let pixels = grown(pixels, count * 4);
    let decoded = &mut pixels[..count * channels];
    // The decoder writes 255 as the fourth byte of each pixel, so the last byte shows whether it
    // skipped pixels. Of three bytes none shows it, so at least no earlier picture is left.
    match color {
        ColorSpace::RGBA => decoded[count * channels - 1] = 0,
        _ => decoded.fill(0),
    }
    decoder.decode_into(decoded).map_err(|e| damaged(&e))?;
    if color == ColorSpace::RGBA && decoded.last() != Some(&255) {
        return Err(damaged(&"its scan ends early"));
    }
    spread(pixels, channels);
    Ok(size)
}

/// A decoder that has read the headers. It is strict, which makes errors of its warnings.
fn jpeg_decoder(
    encoded: &[u8],
    color: ColorSpace,
) -> Result<JpegDecoder<ZCursor<&[u8]>>, DecodeError> {
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(color);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(encoded), options);
    decoder.decode_headers().map_err(|e| DecodeError::damaged("JPEG", &e))?;
    Ok(decoder)
}

/// The channels in the first scan of a JPEG, if an end marker follows (ITU-T T.81, B.1). A file
/// that was cut off has none.
fn channels_of_scan(encoded: &[u8]) -> Option<u8> {
    // In scans, zeros and restart markers follow bytes of 255. Neither begins a segment.
    let begins_segment =
        |pair: &[u8]| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xD0..=0xD7 | 0xFF);
    let (mut at, mut channels) = (2, None);
    loop {
        at += encoded.get(at..)?.windows(2).position(begins_segment)?;
        match encoded[at + 1] {
            0xDA if channels.is_none() => {
                channels = Some(*encoded.get(at + 4)?);
                if encoded.ends_with(&[0xFF, 0xD9]) {
                    return channels;
                }
            }
            0xD9 => return channels,
            _ => {}
        }
        at += 2 + usize::from(u16::from_be_bytes(*encoded[at + 2..].first_chunk()?));
    }
}

fn png(encoded: &[u8], pixels: &mut Vec<u8>) -> Result<(u32, u32), DecodeError> {
    let damaged = |why: png::DecodingError| DecodeError::damaged("PNG", &why);
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(encoded), options);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let info = decoder.read_header_info().map_err(damaged)?;
    let (size, bits) = (info.size(), info.bits_per_pixel() as u64);
    let count = checked("PNG", size, encoded, PNG_BITS_PER_BYTE.div_ceil(bits))?;
    let mut reader = decoder.read_info().map_err(damaged)?;
    let channels = reader.output_color_type().0.samples();
    let pixels = grown(pixels, count * 4);
    reader.next_frame(&mut pixels[..count * channels]).map_err(damaged)?;
    reader.finish().map_err(damaged)?;
    spread(pixels, channels);
    Ok(size)
}

fn webp(encoded: &[u8], pixels: &mut Vec<u8>) -> Result<(u32, u32), DecodeError> {
    let damaged = |why: image_webp::DecodingError| DecodeError::damaged("WebP", &why);
    let riff = encoded[4..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if u64::from(riff) + 8 > encoded.len() as u64 {
        return Err(DecodeError::damaged("WebP", &"it is cut off"));
    }
    let mut decoder = WebPDecoder::new(Cursor::new(encoded)).map_err(damaged)?;
    let size = decoder.dimensions();
    let count = checked("WebP", size, encoded, u64::MAX)?;
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    let pixels = grown(pixels, count * 4);
    decoder.read_image(&mut pixels[..count * channels]).map_err(damaged)?;
    spread(pixels, channels);
    Ok(size)
}

/// Gives each pixel four bytes, where the buffer begins with pixels of fewer: gray, gray and alpha,
/// or RGB. The last pixel moves first, so none is overwritten before it has moved.
fn spread(pixels: &mut [u8], channels: usize) {
    if channels == 4 {
        return;
    }
    for index in (0..pixels.len() / 4).rev() {
        let from = index * channels;
        let rgb = match channels {
            3 => [pixels[from], pixels[from + 1], pixels[from + 2]],
            _ => [pixels[from]; 3],
        };
        pixels[index * 4..][..3].copy_from_slice(&rgb);
    }
}
