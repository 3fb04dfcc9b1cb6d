//! Which part of a picture a row shows.

use crate::draw::Numbers;
use crate::error::DecodeError;

/// Tries before a random crop falls back to the middle, as in torchvision.
const TRIES: usize = 10;

/// Which part of a picture a row shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Crop {
    /// The whole picture, stretched: torchvision's `Resize((height, width))`.
    Stretch,
    /// The middle. The picture is resized until it just covers `height / part` x `width / part`
    /// pixels, rounded down, and the row is cut from its middle.
    ///
    /// For rows of 224 x 224 and `part` 0.875 these are torchvision's `Resize(256)` and
    /// `CenterCrop(224)`. `part` is the `crop_pct` of timm.
    Center {
        /// The part of the shorter side that the row shows, from 0.01 to 1.
        part: f64,
    },
    /// A random part: torchvision's `RandomResizedCrop`, after C. Szegedy et al., *Going Deeper
    /// with Convolutions*, CVPR 2015. The distribution is torchvision's, the numbers are not.
    Random {
        /// Bounds of the crop's area, as parts of the picture's, above 0 and at most 1.
        scale: (f64, f64),
        /// Bounds of its width divided by its height.
        ratio: (f64, f64),
    },
}

/// A part of a picture. Numbers are left, top, width and height.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PictureWindow {
    /// The pixels that the filter may read.
    pub(super) window: [u32; 4],
    /// The part of the window that the row shows.
    pub(super) inner: [f64; 4],
}

impl Crop {
    /// A random crop by torchvision's defaults: area 8 to 100 %, ratio 3/4 to 4/3.
    pub const RANDOM: Self = Self::Random { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) };
    /// The middle as ImageNet models are usually tested: 7/8 of the shorter side.
    pub const CENTER: Self = Self::Center { part: 0.875 };

    pub(super) fn check(&self) -> Result<(), DecodeError> {
        let ordered = |(low, high): (f64, f64)| 0.0 < low && low <= high && high.is_finite();
        let wrong = match *self {
            Self::Stretch => return Ok(()),
            Self::Center { part } if (0.01..=1.0).contains(&part) => return Ok(()),
            Self::Center { part } => format!("a center crop of {part}: its part is 0.01 to 1"),
            Self::Random { scale, .. } if !ordered(scale) || scale.1 > 1.0 => {
                format!("a random crop with scale {scale:?}: bounds ascend above 0 and to 1")
            }
            Self::Random { ratio, .. } if !ordered(ratio) => {
                format!("a random crop with ratio {ratio:?}: bounds ascend above 0")
            }
            Self::Random { .. } => return Ok(()),
        };
        Err(DecodeError::Options(wrong))
    }

    /// The part of a picture of size `from` that a row of size `to` shows. Sizes are width and
    /// height.
    pub(super) fn part(
        &self,
        from: (u32, u32),
        to: (u32, u32),
        numbers: &mut Numbers,
    ) -> PictureWindow {
        match *self {
            Self::Stretch => whole([0, 0, from.0, from.1]),
            Self::Center { part } => center(from, to, part),
            Self::Random { scale, ratio } => whole(random(from, scale, ratio, numbers)),
        }
    }
}

/// A window that is shown whole.
fn whole(window: [u32; 4]) -> PictureWindow {
    PictureWindow { window, inner: [0.0, 0.0, f64::from(window[2]), f64::from(window[3])] }
}

/// The source pixels of `CenterCrop` after `Resize` (torchvision `transforms/functional.py`).
///
/// The filter reads beyond the part, as it does if the whole picture is resized before the cut.
fn center(from: (u32, u32), to: (u32, u32), part: f64) -> PictureWindow {
    // The picture's size after `Resize`. One side just covers, the other one is rounded down.
    let cover = [to.0, to.1].map(|side| (f64::from(side) / part).floor());
    let [width, height] = [f64::from(from.0), f64::from(from.1)];
    let resized = if cover[1] * width >= cover[0] * height {
        [(cover[1] * width / height).floor(), cover[1]]
    } else {
        [cover[0], (cover[0] * height / width).floor()]
    };
    let along = |from: f64, to: u32, resized: f64| {
        let start = ((resized - f64::from(to)) / 2.0).round_ties_even() * from / resized;
        (start, (f64::from(to) * from / resized).min(from - start))
    };
    let (left, inner_width) = along(width, to.0, resized[0]);
    let (top, inner_height) = along(height, to.1, resized[1]);
    PictureWindow { window: [0, 0, from.0, from.1], inner: [left, top, inner_width, inner_height] }
}

/// `RandomResizedCrop.get_params` (torchvision `transforms/transforms.py`).
fn random(
    (width, height): (u32, u32),
    scale: (f64, f64),
    ratio: (f64, f64),
    numbers: &mut Numbers,
) -> [u32; 4] {
    let area = f64::from(width) * f64::from(height);
    for _ in 0..TRIES {
        let target = area * numbers.uniform(scale);
        let aspect = numbers.uniform((ratio.0.ln(), ratio.1.ln())).exp();
        let w = rounded((target * aspect).sqrt());
        let h = rounded((target / aspect).sqrt());
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let top = numbers.at_most(height - h);
            return [numbers.at_most(width - w), top, w, h];
        }
    }
    // The largest middle part with an allowed ratio.
    let aspect = f64::from(width) / f64::from(height);
    let (w, h) = if aspect < ratio.0 {
        (width, rounded(f64::from(width) / ratio.0).clamp(1, height))
    } else if aspect > ratio.1 {
        (rounded(f64::from(height) * ratio.1).clamp(1, width), height)
    } else {
        (width, height)
    };
    [(width - w) / 2, (height - h) / 2, w, h]
}

/// Python's `round`, which takes a half to the even side.
#[expect(clippy::cast_possible_truncation, reason = "an out-of-range side saturates")]
fn rounded(side: f64) -> u32 {
    side.round_ties_even() as u32
}

#[cfg(test)]
mod tests;
