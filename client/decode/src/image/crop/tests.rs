use super::*;
use crate::Draw;

fn numbers(sample: u64) -> Numbers {
    Draw { seed: 11, source: 0, pass: 0, sample }.numbers()
}

fn default_random(size: (u32, u32), sample: u64) -> [u32; 4] {
    let part = Crop::RANDOM.part(size, (224, 224), &mut numbers(sample));
    assert_eq!(part.inner[..2], [0.0, 0.0]);
    part.window
}

#[test]
fn random_crops_lie_in_pictures_of_every_shape() {
    let sides = [1, 2, 3, 7, 33, 500, 16_384, 65_535];
    for (width, height) in sides.iter().flat_map(|&w| sides.map(|h| (w, h))) {
        for sample in 0..200 {
            let [left, top, w, h] = default_random((width, height), sample);
            assert!(w > 0 && h > 0, "{width} x {height}, sample {sample}");
            assert!(left + w <= width && top + h <= height, "{width} x {height}, sample {sample}");
        }
    }
}

#[test]
fn center_crops_lie_in_pictures_of_every_shape() {
    let sides = [1, 2, 3, 10, 33, 224, 225, 500, 16_384, 65_535];
    let rows = [(224, 224), (1, 1), (3, 1000), (16_384, 7)];
    for (width, height) in sides.iter().flat_map(|&w| sides.map(|h| (w, h))) {
        for (row, part) in rows.iter().flat_map(|&row| [1.0, 0.875, 0.3, 0.01].map(|p| (row, p))) {
            let crop = Crop::Center { part };
            let part = crop.part((width, height), row, &mut numbers(0));
            let [left, top, w, h] = part.inner;
            assert!(w > 0.0 && h > 0.0 && left >= 0.0 && top >= 0.0, "{part:?}");
            assert!(left + w <= f64::from(width) && top + h <= f64::from(height), "{part:?}");
        }
    }
}

/// Bounds that a caller may give, however odd, lead to a crop.
#[test]
fn random_crops_of_extreme_bounds_lie_in_the_picture() {
    let bounds = [1e-300_f64, 1e-3, 1.0, 1e3, 1e300];
    for (low, high) in bounds.iter().flat_map(|&low| bounds.map(|high| (low, high))) {
        let scale = (low.min(1.0), high.clamp(low.min(1.0), 1.0));
        let crop = Crop::Random { scale, ratio: (low.min(high), high) };
        assert_eq!(crop.check(), Ok(()));
        for sample in 0..50 {
            let [left, top, w, h] = crop.part((30, 20), (4, 4), &mut numbers(sample)).window;
            assert!(w > 0 && h > 0 && left + w <= 30 && top + h <= 20, "{crop:?}");
        }
    }
}

#[test]
fn center_of_224_equals_resize_256_and_center_crop() {
    // torchvision resizes 500 x 375 to 341 x 256, and cuts from (58, 16).
    let part = Crop::CENTER.part((500, 375), (224, 224), &mut numbers(0));
    let wanted = [58.0 * 500.0 / 341.0, 16.0 * 375.0 / 256.0, 224.0 * 500.0 / 341.0];
    for (found, wanted) in part.inner.into_iter().zip(wanted) {
        assert!((found - wanted).abs() < 1e-9, "{part:?}");
    }
    assert_eq!(part.window, [0, 0, 500, 375]);
}

/// torchvision 0.29 has the same means over 100,000 crops of 640 x 480, and this share of crops in
/// each eighth of the area. Large crops are rarer, as fewer ratios fit.
#[test]
fn random_crops_are_distributed_as_torchvisions() {
    let torchvision = [0.067, 0.182, 0.182, 0.183, 0.176, 0.120, 0.068, 0.022];
    let count = 20_000;
    let (mut ratio, mut squares, mut eighths) = (0.0, 0.0, [0.0; 8]);
    for sample in 0..count {
        let [.., w, h] = default_random((640, 480), sample).map(f64::from);
        let (part, log) = (w * h / (640.0 * 480.0), (w / h).ln());
        assert!((0.079..=1.0).contains(&part) && log.abs() < 0.3, "{w} x {h}");
        (ratio, squares) = (ratio + log, squares + log * log);
        let eighth = (1..8).filter(|&eighth| part >= f64::from(eighth) / 8.0).count();
        eighths[eighth] += 1.0;
    }
    let mean = ratio / count as f64;
    let deviation = (squares / count as f64 - mean * mean).sqrt();
    assert!(
        (mean - 0.0310).abs() < 0.004 && (deviation - 0.1639).abs() < 0.004,
        "{mean} {deviation}"
    );
    for (found, wanted) in eighths.iter().zip(torchvision) {
        assert!((found / count as f64 - wanted).abs() < 0.009, "{eighths:?}");
    }
}

#[test]
fn random_places_reach_every_edge() {
    let crops: Vec<[u32; 4]> = (0..2000).map(|sample| default_random((9, 9), sample)).collect();
    assert!(crops.iter().any(|&[left, ..]| left == 0));
    assert!(crops.iter().any(|&[_, top, ..]| top == 0));
    assert!(crops.iter().any(|&[left, _, w, _]| left > 0 && left + w == 9));
    assert!(crops.iter().any(|&[_, top, _, h]| top > 0 && top + h == 9));
}

#[test]
fn random_crop_of_a_long_picture_falls_back_to_middle() {
    // No crop of 1000 x 10 with more than 8 % of its area has a ratio up to 4/3.
    assert_eq!(default_random((1000, 10), 5), [493, 0, 13, 10]);
    assert_eq!(default_random((10, 1000), 5), [0, 493, 10, 13]);
    assert_eq!(default_random((1, 1), 5), [0, 0, 1, 1]);
}

#[test]
fn impossible_crops_are_rejected() {
    let wrong = [
        Crop::Center { part: 0.0 },
        Crop::Center { part: 0.0099 },
        Crop::Center { part: 1.1 },
        Crop::Center { part: f64::NAN },
        Crop::Random { scale: (0.0, 1.0), ratio: (1.0, 1.0) },
        Crop::Random { scale: (0.5, 0.4), ratio: (1.0, 1.0) },
        Crop::Random { scale: (0.5, 1.1), ratio: (1.0, 1.0) },
        Crop::Random { scale: (0.5, 1.0), ratio: (1.0, f64::INFINITY) },
        Crop::Random { scale: (0.5, 1.0), ratio: (f64::NAN, 1.0) },
    ];
    for crop in wrong {
        assert!(matches!(crop.check(), Err(DecodeError::Options(_))), "{crop:?}");
    }
    for crop in [Crop::Stretch, Crop::CENTER, Crop::RANDOM, Crop::Center { part: 1.0 }] {
        assert_eq!(crop.check(), Ok(()));
    }
}
