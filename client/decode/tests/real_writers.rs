//! Pictures written by Pillow and sounds written by soundfile, decoded beside those two.
//! `files/make_media.py` writes both the files and the values.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use larder_decode::{
    Audio, Channels, Color, Crop, DecodeError, Depth, Draw, Filter, Image, Scratch, Start,
};

const WIDTH: u32 = 37;
const HEIGHT: u32 = 25;
const FRAMES: u32 = 200;

fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files"));
    std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The pixels of a PPM or PGM file.
fn pixels(name: &str) -> Vec<u8> {
    let bytes = file(name);
    let begin = bytes.windows(5).position(|five| five == b"\n255\n").unwrap() + 5;
    bytes[begin..].to_vec()
}

fn draw(sample: u64) -> Draw {
    Draw { seed: 7, source: 1, pass: 2, sample }
}

fn decoded(image: Image, name: &str, sample: u64) -> Vec<u8> {
    let mut row = vec![7; image.bytes()];
    let result = image.decode_into(&file(name), draw(sample), &mut row, &mut Scratch::default());
    result.unwrap_or_else(|e| panic!("{name}: {e}"));
    row
}

fn whole() -> Image {
    Image::new(HEIGHT, WIDTH, Crop::Stretch).unwrap()
}

/// The largest and the mean difference.
fn difference(found: &[u8], wanted: &[u8]) -> (u8, f64) {
    assert_eq!(found.len(), wanted.len());
    let each = || found.iter().zip(wanted).map(|(a, b)| a.abs_diff(*b));
    (each().max().unwrap(), each().map(f64::from).sum::<f64>() / found.len() as f64)
}

#[test]
fn png_equals_pillow_exactly() {
    for (name, expected) in [
        ("rgb", "rgb"),
        ("png-rgba", "rgb"),
        ("png-color-key", "rgb"),
        ("png-interlaced", "rgb"),
        ("png-16", "png-16"),
        ("png-bits", "png-bits"),
        ("png-gray", "png-gray"),
        ("png-gray-16", "png-gray-16"),
        ("png-gray-alpha", "png-gray-alpha"),
        ("png-palette", "png-palette"),
        ("png-palette-alpha", "png-palette-alpha"),
    ] {
        let found = decoded(whole(), &format!("{name}.png"), 0);
        assert_eq!(found, pixels(&format!("{expected}.ppm")), "{name}");
    }
}

#[test]
fn webp_equals_pillow() {
    for name in ["webp-lossless", "webp-alpha", "webp-frames"] {
        assert_eq!(decoded(whole(), &format!("{name}.webp"), 0), pixels("rgb.ppm"), "{name}");
    }
    for name in ["webp-lossy", "webp-lossy-alpha"] {
        let found = decoded(whole(), &format!("{name}.webp"), 0);
        let (most, _) = difference(&found, &pixels(&format!("{name}.ppm")));
        assert_eq!(most, 0, "{name}");
    }
}

#[test]
fn jpeg_equals_pillow_exactly() {
    for kind in [
        "420",
        "422",
        "444",
        "arithmetic",
        "arithmetic-progressive",
        "cmyk",
        "gray",
        "progressive",
        "restart",
        "rgb",
        "turned",
        "ycck",
    ] {
        let found = decoded(whole(), &format!("jpeg-{kind}.jpg"), 0);
        assert_eq!(found, pixels(&format!("jpeg-{kind}.ppm")), "{kind}");
    }
    for sampling in ["420", "444"] {
        let scans = decoded(whole(), &format!("jpeg-scans-{sampling}.jpg"), 0);
        assert_eq!(scans, pixels(&format!("jpeg-{sampling}.ppm")), "{sampling}");
    }
}

/// libjpeg skips all of these bytes.
#[test]
fn jpegs_with_bytes_in_odd_places_equal_the_plain_ones() {
    let plain = file("jpeg-restart.jpg");
    let marker = |code| plain.windows(2).position(|two| two == [0xFF, code]).unwrap();
    let with = |at: usize, bytes: &[u8]| [&plain[..at], bytes, &plain[at..]].concat();
    let end = plain.len() - 2;
    let rows = [0xFF, 0xDC, 0, 4, 0, 25];
    for (name, odd) in [
        ("zeros before the quantization table", with(marker(0xDB), &[0; 3])),
        ("zeros before the frame", with(marker(0xC0), &[0; 2])),
        ("zeros before the scan", with(marker(0xDA), &[0; 2])),
        ("fill bytes before the frame", with(marker(0xC0), &[0xFF; 3])),
        ("the number of lines after the scan", with(end, &rows)),
        ("bytes before a restart marker", with(marker(0xD0), &[0x12, 0x34])),
        ("bytes before the end marker", with(end, &[0x12, 0x34, 0x56])),
        ("zeros before the end marker", with(end, &[0; 40])),
        ("no end marker", plain[..end].to_vec()),
        ("zeros for an end marker", [&plain[..end], &[0; 50]].concat()),
    ] {
        let mut row = vec![7; whole().bytes()];
        let result = whole().decode_into(&odd, draw(0), &mut row, &mut Scratch::default());
        assert_eq!(result, Ok(false), "{name}");
        assert_eq!(row, pixels("jpeg-restart.ppm"), "{name}");
    }
}

/// Frames of MJPEG leave the tables out that Annex K.3 of ITU-T T.81 prints.
#[test]
fn jpegs_without_huffman_tables_use_the_standard_ones() {
    let mut plain = file("jpeg-420.jpg");
    while let Some(at) = plain.windows(2).position(|two| two == [0xFF, 0xC4]) {
        let bytes = usize::from(u16::from_be_bytes([plain[at + 2], plain[at + 3]]));
        plain.drain(at..at + 2 + bytes);
    }
    let mut row = vec![7; whole().bytes()];
    whole().decode_into(&plain, draw(0), &mut row, &mut Scratch::default()).unwrap();
    assert_eq!(row, pixels("jpeg-420.ppm"));
}

#[test]
fn oriented_pictures_equal_pillows_exif_transpose() {
    for orientation in 1..=8 {
        let (height, width) = if orientation < 5 { (3, 5) } else { (5, 3) };
        let image = Image::new(height, width, Crop::Stretch).unwrap().orient(true);
        let found = decoded(image, &format!("turned-{orientation}.png"), 0);
        assert_eq!(found, pixels(&format!("turned-{orientation}.ppm")), "{orientation}");
    }
    let image = Image::new(5, 3, Crop::Stretch).unwrap().orient(true);
    assert_eq!(decoded(image, "turned-8.webp", 0), pixels("turned-8.ppm"));
    assert_eq!(decoded(image, "turned-8.jpg", 0), pixels("turned-8-jpg.ppm"));
    let stored = Image::new(3, 5, Crop::Stretch).unwrap();
    assert_eq!(decoded(stored, "turned-8.png", 0), pixels("turned-1.ppm"));
}

#[test]
fn orientations_that_no_option_mentions_are_told() {
    let stored = Image::new(3, 5, Crop::Stretch).unwrap();
    for (image, name, told) in [
        (stored, "turned-8.png", true),
        (stored, "turned-8.jpg", true),
        (stored, "turned-1.png", false),
        (stored.orient(false), "turned-8.png", false),
        (stored.orient(true), "turned-8.png", false),
    ] {
        let mut row = vec![0; image.bytes()];
        let result = image.decode_into(&file(name), draw(0), &mut row, &mut Scratch::default());
        assert_eq!(result, Ok(told), "{name}");
    }
}

#[test]
fn rows_of_16_bits_keep_those_of_the_png() {
    let gray = decoded(whole().depth(Depth::Sixteen).color(Color::Gray), "png-gray-16.png", 0);
    let wanted = pixels("png-gray-16.ppm").into_iter().step_by(3).flat_map(|byte| [byte; 2]);
    assert!(gray.into_iter().eq(wanted));
    let color = decoded(whole().depth(Depth::Sixteen), "png-16.png", 0);
    assert_eq!(color, file("png-16.u16"));
    for name in ["rgb.png", "jpeg-420.jpg", "webp-lossless.webp"] {
        let image = whole().depth(Depth::Sixteen);
        let mut row = vec![0; image.bytes()];
        let result = image.decode_into(&file(name), draw(0), &mut row, &mut Scratch::default());
        assert!(matches!(result, Err(DecodeError::Narrow { .. })), "{name}: {result:?}");
    }
}

#[test]
fn nearest_pixels_equal_pillows() {
    for (side, expected) in [(16, "nearest"), (50, "nearest-larger")] {
        let image = Image::new(side, side, Crop::Stretch).unwrap().filter(Filter::Nearest);
        assert_eq!(decoded(image, "rgb.png", 0), pixels(&format!("crop-{expected}.ppm")));
    }
}

#[test]
fn picture_and_mask_of_one_sample_get_the_same_crop() {
    let image = Image::new(16, 16, Crop::RANDOM).unwrap().flip(true).filter(Filter::Nearest);
    let mask = image.color(Color::Gray);
    for sample in 0..50 {
        let picture = decoded(image, "png-gray.png", sample);
        let labels = decoded(mask, "png-gray.png", sample);
        assert!(labels.iter().zip(picture.chunks(3)).all(|(label, rgb)| rgb == [*label; 3]));
    }
}

#[test]
fn crops_are_within_a_level_of_pillow() {
    let row = |crop| Image::new(16, 16, crop).unwrap();
    let center = Crop::Center { part: 0.8 };
    for (image, expected) in [
        (row(Crop::Stretch), "stretch"),
        (row(Crop::Stretch).color(Color::Gray), "stretch-gray"),
        (Image::new(50, 50, Crop::Stretch).unwrap(), "larger"),
        (row(Crop::Center { part: 1.0 }), "center"),
        (row(center), "center-part"),
    ] {
        let found = decoded(image, "rgb.png", 0);
        let (most, mean) = difference(&found, &pixels(&format!("crop-{expected}.ppm")));
        println!("{expected}: at most {most}, mean {mean:.3}");
        assert!(most <= 1, "{expected}: at most {most}");
    }
}

#[test]
fn random_crops_equal_those_of_torchvision_by_counter() {
    let image = Image::new(16, 16, Crop::RANDOM).unwrap().flip(true);
    for sample in 0..4 {
        let found = decoded(image, "rgb.png", sample);
        let (most, _) = difference(&found, &pixels(&format!("crop-random-{sample}.ppm")));
        assert!(most <= 1, "{sample}: at most {most}");
    }
}

#[test]
fn scratch_and_order_of_rows_do_not_matter() {
    let image = Image::new(16, 16, Crop::RANDOM).unwrap().flip(true);
    let mut scratch = Scratch::default();
    let mut row = vec![0; image.bytes()];
    for sample in (0..20).rev() {
        for name in ["rgb.png", "jpeg-420.jpg", "jpeg-cmyk.jpg", "webp-lossy.webp"] {
            image.decode_into(&file(name), draw(sample), &mut row, &mut scratch).unwrap();
            assert_eq!(row, decoded(image, name, sample), "{name}, sample {sample}");
        }
    }
}

#[test]
fn flip_mirrors_half_of_the_rows() {
    let plain = decoded(whole(), "rgb.png", 0);
    let mut mirrored = 0;
    for sample in 0..200 {
        let mut row = decoded(whole().flip(true), "rgb.png", sample);
        if row != plain {
            mirrored += 1;
            for line in row.chunks_exact_mut(3 * WIDTH as usize) {
                line.as_chunks_mut::<3>().0.reverse();
            }
            assert_eq!(row, plain);
        }
    }
    assert!((70..130).contains(&mirrored), "{mirrored} of 200");
}

#[test]
fn gray_rows_are_lumas_of_rgb_rows() {
    let gray = decoded(whole().color(Color::Gray), "png-gray.png", 0);
    let rgb = decoded(whole(), "png-gray.png", 0);
    assert!(gray.iter().zip(rgb.chunks(3)).all(|(gray, rgb)| rgb == [*gray; 3]));
}

fn sound(audio: Audio, name: &str, sample: u64) -> (usize, Vec<f32>) {
    let mut row = vec![f32::NAN; audio.values()];
    let result = audio.decode_into(&file(name), draw(sample), &mut row, &mut Scratch::default());
    (result.unwrap_or_else(|e| panic!("{name}: {e}")), row)
}

fn values(name: &str) -> Vec<f32> {
    let bytes = file(name);
    bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

fn audio(frames: u32, channels: Channels, start: Start) -> Audio {
    Audio::new(frames, channels, start).unwrap()
}

const SOUNDS: [&str; 14] = [
    "wav-pcm_u8.wav",
    "wav-pcm_16.wav",
    "wav-pcm_24.wav",
    "wav-pcm_32.wav",
    "wav-float.wav",
    "wav-double.wav",
    "wav-extensible.wav",
    "wav-alaw.wav",
    "wav-ulaw.wav",
    "wav-rf64.wav",
    "flac-pcm_16.flac",
    "flac-pcm_24.flac",
    "flac-pcm_32.flac",
    "flac-escaped.flac",
];

fn expected(name: &str) -> Vec<f32> {
    values(&format!("{}.f32", name.split('.').next().unwrap()))
}

#[test]
fn sounds_equal_soundfile_exactly() {
    let row = audio(FRAMES, Channels::Exact(2), Start::Begin).sample_rate(8000);
    for name in SOUNDS {
        assert_eq!(sound(row, name, 0), (FRAMES as usize, expected(name)), "{name}");
    }
    let row = audio(FRAMES, Channels::Exact(1), Start::Random);
    assert_eq!(sound(row, "flac-mono.flac", 0).1, expected("flac-mono.flac"));
}

/// The depth of the stream is that of no frame.
#[test]
fn flac_is_scaled_by_the_depth_of_each_frame() {
    for depth in [8, 24] {
        let row = audio(FRAMES, Channels::Exact(2), Start::Random);
        let (_, found) = sound(row, &format!("flac-depth-{depth}.flac"), 0);
        assert_eq!(found, expected("flac-pcm_16.flac"), "{depth}");
    }
}

#[test]
fn flac_behind_an_id3_tag_equals_the_plain_one() {
    let (_, found) = sound(audio(FRAMES, Channels::Exact(2), Start::Begin), "flac-id3.flac", 0);
    assert_eq!(found, expected("flac-pcm_16.flac"));
}

#[test]
fn wav_of_open_length_goes_to_the_end_of_the_row() {
    for writer in ["unknown", "zero", "sox"] {
        let (name, row) =
            (format!("wav-open-{writer}.wav"), audio(FRAMES, Channels::Exact(2), Start::Random));
        assert_eq!(sound(row, &name, 0), (FRAMES as usize, expected("wav-pcm_16.wav")));
        // An incomplete last frame is left out.
        let mut cut = file(&name);
        cut.pop();
        let (row, mut found) = (audio(210, Channels::Mono, Start::Begin), vec![0.0; 210]);
        let frames = row.decode_into(&cut, draw(0), &mut found, &mut Scratch::default());
        assert_eq!(frames, Ok(199));
    }
}

#[test]
fn short_sounds_end_in_zeros() {
    for (name, start) in
        SOUNDS.iter().flat_map(|name| [(name, Start::Begin), (name, Start::Random)])
    {
        let (frames, row) = sound(audio(210, Channels::Exact(2), start), name, 3);
        let all = expected(name);
        assert_eq!(frames, 200);
        for (row, all) in row.chunks(210).zip(all.chunks(200)) {
            assert_eq!((&row[..200], &row[200..]), (all, &[0.0; 10][..]), "{name}");
        }
    }
}

#[test]
fn random_starts_cut_the_sound_by_counter() {
    for name in SOUNDS {
        let all = expected(name);
        let mut firsts = [0; 200];
        for sample in 0..300 {
            let row = audio(150, Channels::Exact(2), Start::Random);
            let (_, row) = sound(row, name, sample);
            let first = all.windows(150).position(|part| part == &row[..150]).unwrap();
            assert_eq!(row[150..], all[200 + first..][..150], "{name}");
            firsts[first] += 1;
        }
        assert!(firsts[0] > 0 && firsts[50] > 0 && firsts[51..].iter().all(|&n| n == 0));
    }
}

#[test]
fn mono_is_the_mean_of_the_channels() {
    for name in SOUNDS {
        let (_, row) = sound(audio(FRAMES, Channels::Mono, Start::Begin), name, 0);
        let all = expected(name);
        let (left, right) = all.split_at(200);
        let means = left.iter().zip(right).map(|(left, right)| (left + right) / 2.0);
        assert!(row.iter().copied().eq(means), "{name}");
    }
}

#[test]
fn other_rates_and_channels_are_errors() {
    let rejected = |audio: Audio, name| {
        let mut row = vec![0.0; audio.values()];
        audio.decode_into(&file(name), draw(0), &mut row, &mut Scratch::default()).unwrap_err()
    };
    for name in ["wav-pcm_16.wav", "flac-pcm_16.flac"] {
        let row = audio(10, Channels::Exact(2), Start::Begin);
        assert_eq!(
            rejected(row.sample_rate(16_000), name).to_string(),
            "the sound has 8000 Hz where 16000 are asked for: resample when the dataset is \
             written, or ask for no rate"
        );
        let error = rejected(audio(10, Channels::Exact(1), Start::Begin), name);
        assert!(matches!(error, DecodeError::Sound { found: 2, wanted: 1, .. }), "{error}");
    }
}
