//! Decodes a whole picture to four bytes a pixel: red, green, blue and one that has no meaning. A
//! PNG of 16 bits can also keep them.
//!
//! JPEG is libjpeg-turbo-rs's, PNG is png's, WebP is image-webp's. A file that was cut off is an
//! error. So is a wrong checksum of a PNG. A damaged scan of a JPEG has no checksum: it is an error
//! only if its codes are impossible.
//!
//! Thread rule: plain functions. Non-goals: crops, colour profiles, and metadata beside the
//! orientation.

mod jpeg;

use std::io::Cursor;

use image_webp::WebPDecoder;
use png::{BitDepth, DecodeOptions, Transformations};

use super::orientation::Orientation;
use crate::error::DecodeError;
use crate::scratch::grown;

/// Pixels of a picture that are decoded. They take 1 GiB, and with the decoder's own buffers up to
/// 4 GiB, on each thread. Pillow warns from a third of it on.
pub const PIXELS_MAX: u64 = 1 << 28;

/// Pixels of a side: as many as a JPEG can have. The resizer's weights take 16 bytes for each.
const SIDE_MAX: u64 = 65_535;

/// Pixels for which a byte of the file can be enough. A file with more of them lacks data, and is
/// rejected before memory is allocated.
///
/// JPEG has at least one bit for 64 pixels: the shortest Huffman code, in a progressive scan of the
/// DC coefficients. A blank picture of arithmetic codes may have less, and is rejected. PNG has
/// fixed bits for a pixel, and deflate shrinks them by at most 1032. WebP has no such limit: a
/// picture of one colour takes no bits for its pixels.
const JPEG_PIXELS_PER_BYTE: u64 = 8 * 64;
const PNG_BITS_PER_BYTE: u64 = 8 * 1032;

/// What a decoded picture has beside its pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct PictureHead {
    /// Width and height.
    pub(super) size: (u32, u32),
    /// The orientation of its EXIF block, if it has one.
    pub(super) orientation: Option<Orientation>,
}

/// Decodes into the beginning of `pixels`.
pub(super) fn decode(encoded: &[u8], pixels: &mut Vec<u8>) -> Result<PictureHead, DecodeError> {
    match encoded {
        [0xFF, 0xD8, 0xFF, ..] => jpeg::decode(encoded, pixels),
        [0x89, b'P', b'N', b'G', ..] => png(encoded, pixels),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => webp(encoded, pixels),
        _ => Err(DecodeError::format("JPEG, PNG nor WebP", encoded)),
    }
}

/// Decodes a PNG of 16 bits a channel to four numbers a pixel.
pub(super) fn decode_16(encoded: &[u8]) -> Result<(PictureHead, Vec<[u16; 4]>), DecodeError> {
    if !encoded.starts_with(b"\x89PNG") {
        return Err(DecodeError::Narrow { format: "file" });
    }
    let mut bytes = Vec::new();
    let (decoded, channels, bits) = png_samples(encoded, Transformations::EXPAND, &mut bytes, 8)?;
    if bits != BitDepth::Sixteen {
        return Err(DecodeError::Narrow { format: "PNG" });
    }
    let samples: Vec<u16> =
        bytes.as_chunks().0.iter().map(|two| u16::from_be_bytes(*two)).collect();
    let count = decoded.size.0 as usize * decoded.size.1 as usize;
    let pixels = samples.chunks_exact(channels).take(count).map(|pixel| match *pixel {
        [r, g, b, ..] => [r, g, b, 0],
        _ => [pixel[0]; 4],
    });
    Ok((decoded, pixels.collect()))
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

fn png(encoded: &[u8], pixels: &mut Vec<u8>) -> Result<PictureHead, DecodeError> {
    let transformations = Transformations::EXPAND | Transformations::STRIP_16;
    let (decoded, channels, _) = png_samples(encoded, transformations, pixels, 4)?;
    let count = decoded.size.0 as usize * decoded.size.1 as usize;
    spread(&mut pixels[..count * 4], channels);
    Ok(decoded)
}

/// Decodes the samples of a PNG into a buffer of `width` bytes a pixel. Returns the number of its
/// channels and the bits of each.
fn png_samples(
    encoded: &[u8],
    transformations: Transformations,
    samples: &mut Vec<u8>,
    width: usize,
) -> Result<(PictureHead, usize, BitDepth), DecodeError> {
    let damaged = |why: png::DecodingError| DecodeError::damaged("PNG", &why);
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(encoded), options);
    decoder.set_transformations(transformations);
    let info = decoder.read_header_info().map_err(damaged)?;
    let (size, bits) = (info.size(), info.bits_per_pixel() as u64);
    let count = checked("PNG", size, encoded, PNG_BITS_PER_BYTE.div_ceil(bits))?;
    let mut reader = decoder.read_info().map_err(damaged)?;
    let (color, depth) = reader.output_color_type();
    let bytes = count * color.samples() * if depth == BitDepth::Sixteen { 2 } else { 1 };
    reader.next_frame(&mut grown(samples, count * width)[..bytes]).map_err(damaged)?;
    reader.finish().map_err(damaged)?;
    let exif = reader.info().exif_metadata.as_deref();
    let orientation = exif.and_then(Orientation::of_exif);
    Ok((PictureHead { size, orientation }, color.samples(), depth))
}

fn webp(encoded: &[u8], pixels: &mut Vec<u8>) -> Result<PictureHead, DecodeError> {
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
    let exif = decoder.exif_metadata().map_err(damaged)?;
    let orientation = exif.as_deref().and_then(Orientation::of_exif);
    Ok(PictureHead { size, orientation })
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
