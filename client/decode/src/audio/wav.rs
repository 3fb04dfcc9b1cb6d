//! WAV and RF64: PCM of 8, 16, 24 and 32 bits, floats of 32 and 64 bits, A-law and u-law (ITU-T
//! G.711).
//!
//! A writer that can't seek leaves the length of the data open. The data then goes to the end of
//! the row.
//!
//! ```text
//!  0 "RIFF"   4 bytes that follow   8 "WAVE"   12 chunks: id, bytes, body, padding to even
//!
//!  "fmt ": 0 encoding (2)   2 channels (2)   4 sample rate (4)   8 bytes a second (4)
//!         12 bytes a frame (2)   14 bits (2)   24 encoding (2), if the first one is 0xFFFE
//! "ds64": 0 bytes of the file (8)   8 bytes of the data (8), if 32 bits do not hold them
//! ```

use super::{Audio, Cut};
use crate::draw::Draw;
use crate::error::DecodeError;

const PCM: u16 = 1;
const FLOAT: u16 = 3;
const A_LAW: u16 = 6;
const U_LAW: u16 = 7;
const EXTENSIBLE: u16 = 0xFFFE;

/// From this length on, data that ends earlier has an open length: sox writes 0x7FFFF000, others
/// 0x7FFFFFFF or 0xFFFFFFFF.
const OPEN_BYTES: usize = 0x7FFF_0000;

/// A WAV file taken apart.
struct Wav<'a> {
    encoding: u16,
    channels: usize,
    sample_rate: u32,
    /// Bytes of one value.
    width: usize,
    data: &'a [u8],
}

pub(super) fn decode(
    audio: &Audio,
    encoded: &[u8],
    draw: Draw,
    out: &mut [f32],
) -> Result<usize, DecodeError> {
    let wav = Wav::parse(encoded).map_err(|why| DecodeError::damaged("WAV", &why))?;
    audio.check(u32::try_from(wav.channels).expect("from a u16"), wav.sample_rate)?;
    let frame_bytes = wav.channels * wav.width;
    let Cut { first, frames } = audio.cut("WAV", (wav.data.len() / frame_bytes) as u64, draw)?;
    let data = &wav.data[first * frame_bytes..][..frames * frame_bytes];
    match (wav.encoding, wav.width) {
        (PCM, 1) => write(audio, out, &wav, data, |[a]| (f32::from(a) - 128.0) / 128.0),
        (PCM, 2) => write(audio, out, &wav, data, |b| f32::from(i16::from_le_bytes(b)) / 32768.0),
        (PCM, 3) => write(audio, out, &wav, data, |[a, b, c]| scaled([0, a, b, c])),
        (PCM, 4) => write(audio, out, &wav, data, scaled),
        (FLOAT, 4) => write(audio, out, &wav, data, f32::from_le_bytes),
        (FLOAT, 8) => write(audio, out, &wav, data, narrowed),
        (A_LAW, 1) => write(audio, out, &wav, data, |[a]| f32::from(a_law(a)) / 32768.0),
        (U_LAW, 1) => write(audio, out, &wav, data, |[a]| f32::from(u_law(a)) / 32768.0),
        (encoding, width) => {
            let why = format!(
                "encoding {encoding} of {width} bytes is neither PCM, floats, A-law nor u-law"
            );
            return Err(DecodeError::damaged("WAV", &why));
        }
    }
    audio.pad(out, frames);
    Ok(frames)
}

fn write<const N: usize>(
    audio: &Audio,
    out: &mut [f32],
    wav: &Wav<'_>,
    data: &[u8],
    convert: impl Fn([u8; N]) -> f32,
) {
    let (values, channels) = (data.as_chunks().0, wav.channels);
    let value = |frame, channel| convert(values[frame * channels + channel]);
    audio.write(out, 0, values.len() / channels, channels, value);
}

fn scaled(bytes: [u8; 4]) -> f32 {
    i32::from_le_bytes(bytes) as f32 / 2_147_483_648.0
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest float")]
fn narrowed(bytes: [u8; 8]) -> f32 {
    f64::from_le_bytes(bytes) as f32
}

/// The inverse of A-law: a sign, three bits of an exponent and four of a mantissa.
fn a_law(code: u8) -> i16 {
    let code = code ^ 0x55;
    let (exponent, mantissa) = (code >> 4 & 7, i16::from(code & 15) << 4 | 8);
    let value = match exponent {
        0 => mantissa,
        _ => (mantissa + 0x100) << (exponent - 1),
    };
    if code & 0x80 == 0 { -value } else { value }
}

/// The inverse of u-law. Its bits are those of A-law, inverted.
fn u_law(code: u8) -> i16 {
    let code = !code;
    let value = ((i16::from(code & 15) << 3 | 0x84) << (code >> 4 & 7)) - 0x84;
    if code & 0x80 == 0 { value } else { -value }
}

impl<'a> Wav<'a> {
    fn parse(encoded: &'a [u8]) -> Result<Self, String> {
        let is_open = matches!(encoded[4..8], [0, 0, 0, 0] | [0xFF, 0xFF, 0xFF, 0xFF]);
        let mut rest = &encoded[12..];
        let (mut format, mut long) = (None, None);
        loop {
            let Some((&[a, b, c, d, size @ ..], body)) = rest.split_first_chunk::<8>() else {
                return Err("it ends before its data".to_owned());
            };
            let bytes = u32::from_le_bytes(size) as usize;
            let bytes = match (&[a, b, c, d], long) {
                (b"data", Some(long)) if bytes == u32::MAX as usize => long,
                (b"data", None) if bytes == 0 && is_open => return Self::open(format, body),
                (b"data", None) if bytes >= OPEN_BYTES.max(body.len() + 1) => {
                    return Self::open(format, body);
                }
                _ => bytes,
            };
            let body = body.get(..bytes).ok_or_else(|| {
                let (chunk, there) = ([a, b, c, d], body.len());
                let chunk = chunk.escape_ascii();
                format!(
                    "it is cut off: {there} of the {bytes} bytes of chunk \"{chunk}\" are there"
                )
            })?;
            match &[a, b, c, d] {
                b"fmt " => format = Some(body),
                b"ds64" => {
                    let bytes = body.get(8..).and_then(|rest| rest.first_chunk());
                    let bytes = bytes.ok_or("its chunk \"ds64\" is too short")?;
                    long = Some(usize::try_from(u64::from_le_bytes(*bytes)).unwrap_or(usize::MAX));
                }
                b"data" => return Self::new(format.ok_or("its format is missing")?, body),
                _ => {}
            }
            rest = rest.get(8 + bytes + bytes % 2..).unwrap_or_default();
        }
    }

    /// A file whose data has an open length. An incomplete last frame is left out.
    fn open(format: Option<&[u8]>, body: &'a [u8]) -> Result<Self, String> {
        let format = format.ok_or("its format is missing")?;
        let frame = Self::new(format, &[])?;
        let spare = body.len() % (frame.channels * frame.width);
        Ok(Self { data: &body[..body.len() - spare], ..frame })
    }

    fn new(format: &[u8], data: &'a [u8]) -> Result<Self, String> {
        let short = |at: usize| {
            let bytes = format.get(at..).and_then(|rest| rest.first_chunk());
            bytes.map(|bytes| u16::from_le_bytes(*bytes)).ok_or("its format is too short")
        };
        let encoding = match short(0)? {
            EXTENSIBLE => short(24)?,
            encoding => encoding,
        };
        let sample_rate = u32::from(short(4)?) | u32::from(short(6)?) << 16;
        let (channels, frame) = (usize::from(short(2)?), usize::from(short(12)?));
        if channels == 0 || frame == 0 || !frame.is_multiple_of(channels) {
            return Err(format!("it has {channels} channels and {frame} bytes a frame"));
        }
        if !data.len().is_multiple_of(frame) {
            return Err(format!("its {} bytes end within a frame", data.len()));
        }
        Ok(Self { encoding, channels, sample_rate, width: frame / channels, data })
    }
}
