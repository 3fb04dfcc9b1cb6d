//! Damaged and hostile files: each gives an error or a row, no panic, and no more memory than a
//! small file may take.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::System;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use cap::Cap;
use larder_decode::{Audio, Channels, Crop, DecodeError, Draw, Image, Scratch, Start};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Bytes that all tests of this file may hold at once, their own files included.
const MEMORY_MAX: usize = 64 << 20;

/// Rounds of random changes for each file.
fn rounds() -> u64 {
    if std::env::var_os("LARDER_TEST_FULL").is_some() { 30_000 } else { 300 }
}

fn media() -> Vec<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files"));
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let kinds = ["jpg", "png", "webp", "wav", "flac"];
    let is_media = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        kinds.iter().any(|kind| name.ends_with(kind))
    };
    let mut paths: Vec<PathBuf> = paths.filter(is_media).collect();
    paths.sort();
    assert!(paths.len() > 30);
    paths
}

fn picture(encoded: &[u8]) -> Result<(), DecodeError> {
    let image = Image::new(16, 16, Crop::RANDOM).unwrap().flip(true);
    let draw = Draw { seed: 0, source: 0, pass: 0, sample: encoded.len() as u64 };
    let mut row = vec![0; image.bytes()];
    image.decode_into(encoded, draw, &mut row, &mut Scratch::default()).map(|_| ())
}

fn sound(encoded: &[u8]) -> Result<(), DecodeError> {
    let audio = Audio::new(200, Channels::Mono, Start::Random).unwrap();
    let draw = Draw { seed: 0, source: 0, pass: 0, sample: encoded.len() as u64 };
    let mut scratch = Scratch::default();
    audio.decode_into(encoded, draw, &mut vec![0.0; audio.values()], &mut scratch).map(|_| ())
}

/// Decodes a file as what it begins like. Reports the file if the decoder panics.
fn decode(encoded: &[u8], name: &str) -> Result<(), DecodeError> {
    let is_sound = name.contains(".wav") || name.contains(".flac");
    let decode = || if is_sound { sound(encoded) } else { picture(encoded) };
    let result = catch_unwind(decode).unwrap_or_else(|_| panic!("{name}: {encoded:02x?}"));
    let most = ALLOCATOR.max_allocated();
    assert!(most < MEMORY_MAX, "{name}: {most} bytes: {encoded:02x?}");
    result
}

/// Bytes without which no row can be made. The end marker of a JPEG may be missing, except after
/// arithmetic codes. A WAV of open length may end after any frame.
fn least(name: &str, whole: &[u8]) -> usize {
    match name {
        _ if name.contains("wav-open") => 44,
        _ if name.ends_with("jpg") && !name.contains("arithmetic") => whole.len() - 2,
        _ => whole.len(),
    }
}

#[test]
fn scans_that_end_early_are_errors_even_before_an_end_marker() {
    for name in ["jpeg-420.jpg", "jpeg-restart.jpg", "jpeg-scans-420.jpg"] {
        let whole = changed(name, 0, &[]);
        let begin = whole.windows(2).position(|two| two == [0xFF, 0xDA]).unwrap() + 12;
        for bytes in begin..whole.len() - 3 {
            let cut = [&whole[..bytes], &[0xFF, 0xD9]].concat();
            let result = decode(&cut, name);
            assert!(result.is_err(), "{name} of {} bytes, cut at {bytes}", whole.len());
        }
    }
}

#[test]
fn jpeg_that_lost_a_restart_marker_is_an_error() {
    let mut file = changed("jpeg-restart.jpg", 0, &[]);
    let at = file.windows(2).position(|two| two == [0xFF, 0xD1]).unwrap();
    file.drain(at..at + 2);
    assert!(error(&file).starts_with("this JPEG can't be decoded"), "{}", error(&file));
}

/// Version 0.9.0 of the decoder panics at some of them.
#[test]
fn jpegs_of_unusual_sampling_factors_are_errors() {
    let at = changed("jpeg-ycck.jpg", 0, &[]).windows(2).position(|two| two == [0xFF, 0xC0]);
    for factors in [0x11, 0x22, 0x13, 0x41, 0x00, 0xFF] {
        for channel in 0..4 {
            let file = changed("jpeg-ycck.jpg", at.unwrap() + 11 + 3 * channel, &[factors]);
            let _ = decode(&file, "jpeg-ycck.jpg");
        }
    }
    let strange = changed("jpeg-420.jpg", at_frame("jpeg-420.jpg") + 14, &[0x33]);
    assert!(error(&strange).contains("unusual sampling factors"), "{}", error(&strange));
}

fn at_frame(name: &str) -> usize {
    changed(name, 0, &[]).windows(2).position(|two| two == [0xFF, 0xC0]).unwrap()
}

#[test]
fn files_cut_at_any_byte_are_errors() {
    for path in media() {
        let name = path.display().to_string();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(decode(&whole, &name), Ok(()), "{name}");
        for bytes in 0..least(&name, &whole) {
            let result = decode(&whole[..bytes], &name);
            assert!(result.is_err(), "{name} of {} bytes, cut at {bytes}", whole.len());
        }
    }
}

/// Changes a few bytes from `first` on, or cuts and joins.
fn change(bytes: &mut Vec<u8>, first: usize, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..4) {
        let at = random.usize(first..bytes.len());
        match random.u8(..8) {
            0 => bytes[at] = [0, 0xFF, 0x7F, 0x80][random.usize(..4)],
            1 => bytes[at] = random.u8(..),
            2 => drop(bytes.drain(at..(at + random.usize(1..9)).min(bytes.len() - 1).max(at))),
            3 => bytes.insert(at, random.u8(..)),
            _ => bytes[at] ^= 1 << random.u8(..8),
        }
    }
}

/// Width and height behind the start code of a lossy WebP's frame (RFC 6386, 9.1).
fn vp8_size(bytes: &[u8]) -> Option<&[u8]> {
    let frame = bytes.windows(7).find(|seven| seven.starts_with(&[0x9D, 0x01, 0x2A]))?;
    Some(&frame[3..])
}

/// Writes the checksums of a PNG's chunks, so that changes reach what they protect.
fn mend_png(bytes: &mut [u8]) {
    let mut at = 8;
    while let Some(&[a, b, c, d]) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let end = at.saturating_add(8 + u32::from_be_bytes([a, b, c, d]) as usize);
        if bytes.len() < end.saturating_add(4) {
            return;
        }
        let crc = crc32(&bytes[at + 4..end]);
        bytes[end..end + 4].copy_from_slice(&crc.to_be_bytes());
        at = end + 4;
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

#[test]
fn random_changes_neither_panic_nor_take_memory() {
    let mut random = fastrand::Rng::with_seed(5);
    let (mut rows, mut errors) = (0, 0);
    for path in media() {
        let name = path.display().to_string();
        let whole = std::fs::read(&path).unwrap();
        // A WebP of any length may honestly have 2^28 pixels, so its sizes stay.
        let first = if name.ends_with("webp") { 43 } else { 0 };
        for round in 0..rounds() {
            let mut changed = whole.clone();
            change(&mut changed, first, &mut random);
            if first > 0 && vp8_size(&changed) != vp8_size(&whole) {
                continue;
            }
            if round % 2 == 0 && name.ends_with("png") {
                mend_png(&mut changed);
            }
            match decode(&changed, &name) {
                Ok(()) => rows += 1,
                Err(_) => errors += 1,
            }
        }
    }
    println!("{rows} rows, {errors} errors");
    assert!(rows > 0 && errors > rows / 10);
}

#[test]
fn random_bytes_behind_a_magic_number_are_errors() {
    let mut random = fastrand::Rng::with_seed(6);
    for path in media() {
        let name = path.display().to_string();
        let whole = std::fs::read(&path).unwrap();
        for keep in [12, 16, 40, whole.len() / 2] {
            let mut changed = whole.clone();
            changed[keep..].fill_with(|| random.u8(..));
            let _ = decode(&changed, &name);
        }
    }
}

fn error(encoded: &[u8]) -> String {
    decode(encoded, "picture").unwrap_err().to_string()
}

fn changed(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files"));
    let mut file = std::fs::read(folder.join(name)).unwrap();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// A JPEG whose header has another height and width.
fn jpeg(height: u16, width: u16) -> Vec<u8> {
    let file = changed("jpeg-420.jpg", 0, &[]);
    let at = file.windows(2).position(|two| two == [0xFF, 0xC0]).unwrap() + 5;
    changed("jpeg-420.jpg", at, &[height.to_be_bytes(), width.to_be_bytes()].concat())
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut file = changed("rgb.png", 16, &[width.to_be_bytes(), height.to_be_bytes()].concat());
    mend_png(&mut file);
    file
}

#[test]
fn huge_headers_are_errors_before_memory_is_taken() {
    let too_large = "4294836225 pixels where at most 268435456 are decoded";
    assert!(error(&jpeg(65_535, 65_535)).contains(too_large));
    assert!(error(&png(65_535, 65_535)).contains(too_large));
    let too_wide = "2147483647 pixels on a side where at most 65535 are decoded";
    assert!(error(&png(i32::MAX as u32, 1)).contains(too_wide));
    assert!(error(&png(1, i32::MAX as u32)).contains(too_wide));
    assert!(error(&jpeg(16_384, 16_384)).contains("too few for 16384 x 16384 pixels"));
    assert!(error(&png(16_384, 16_384)).contains("too few for 16384 x 16384 pixels"));
    // The extended header of WebP has 24 bits a side, less one.
    let webp = changed("webp-frames.webp", 24, &[0xFF, 0x7F, 0, 0xFF, 0x7F, 0]);
    assert!(error(&webp).contains("1073741824 pixels where at most 268435456 are decoded"));
}

#[test]
fn empty_pictures_and_unknown_formats_are_errors() {
    for encoded in [&b""[..], b"\xFF\xD8", b"GIF89a", b"RIFF\0\0\0\0WAVE", b"II*\0", &[0; 5000]] {
        assert!(error(encoded).starts_with("neither JPEG, PNG nor WebP"), "{}", error(encoded));
    }
    assert_eq!(
        error(b"GIF89a"),
        "neither JPEG, PNG nor WebP: the row has 6 bytes and begins with \"GIF89a\"; choose the \
         column that holds encoded files, or convert them"
    );
    for encoded in [jpeg(0, 37), jpeg(25, 0), png(0, 25), png(37, 0)] {
        assert!(error(&encoded).contains("can't be decoded"), "{}", error(&encoded));
    }
    for encoded in [&b""[..], b"RIFF", b"RIFF\0\0\0\0WEBP", b"OggS\0\0\0\0\0\0\0\0"] {
        let error = sound(encoded).unwrap_err().to_string();
        assert!(error.starts_with("neither WAV nor FLAC"), "{error}");
    }
}

#[test]
fn bytes_behind_the_end_of_a_jpeg_are_ignored() {
    for path in media().iter().filter(|path| path.extension().unwrap() == "jpg") {
        let mut longer = std::fs::read(path).unwrap();
        longer.extend([0; 100]);
        assert_eq!(decode(&longer, "picture"), Ok(()), "{}", path.display());
        longer.extend(std::fs::read(path).unwrap());
        assert_eq!(decode(&longer, "picture"), Ok(()), "{}", path.display());
    }
}

#[test]
fn jpegs_of_strange_channels_are_errors() {
    let file = changed("jpeg-cmyk.jpg", 0, &[]);
    let at = file.windows(2).position(|two| two == [0xFF, 0xC0]).unwrap();
    let mut five = file.clone();
    (five[at + 3], five[at + 9]) = (8 + 3 * 5, 5);
    five.splice(at + 22..at + 22, [5, 0x11, 0]);
    assert!(error(&five).starts_with("this JPEG can't be decoded"), "{}", error(&five));
    let mut two = file;
    (two[at + 3], two[at + 9]) = (8 + 3 * 2, 2);
    two.drain(at + 16..at + 22);
    assert!(error(&two).starts_with("this JPEG can't be decoded"), "{}", error(&two));
}

#[test]
fn slices_of_another_size_are_errors() {
    let image = Image::new(2, 2, Crop::Stretch).unwrap();
    let draw = Draw { seed: 0, source: 0, pass: 0, sample: 0 };
    let short = image.decode_into(b"", draw, &mut [0; 11], &mut Scratch::default());
    assert_eq!(short, Err(DecodeError::Slice { found: 11, wanted: 12 }));
    let audio = Audio::new(5, Channels::Exact(2), Start::Begin).unwrap();
    let long = audio.decode_into(b"", draw, &mut [0.0; 11], &mut Scratch::default());
    assert_eq!(long, Err(DecodeError::Slice { found: 11, wanted: 10 }));
}

#[test]
fn rows_of_impossible_sizes_are_rejected() {
    for (height, width) in [(0, 1), (1, 0), (16_385, 1), (u32::MAX, u32::MAX)] {
        assert!(Image::new(height, width, Crop::Stretch).is_err());
    }
    for (frames, channels) in [(0, 1), (1, 0), (u32::MAX, u16::MAX), (1 << 28, 2)] {
        assert!(Audio::new(frames, Channels::Exact(channels), Start::Begin).is_err());
    }
}
