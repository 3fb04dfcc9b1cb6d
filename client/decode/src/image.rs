//! Pictures: JPEG, PNG and WebP to rows of height x width x channels, one byte each.
//!
//! [`formats`] decodes the whole picture to four bytes a pixel. [`crop`] chooses a part of it. One
//! pass of `fast_image_resize` reads that part and writes it in the size of the row, without a copy
//! of the crop. The filter is bilinear and widens when it shrinks, which is torchvision's default
//! (`antialias=True`). The last step writes the row: it mirrors, drops the fourth byte, or makes
//! gray.
//!
//! Values are those of Pillow's `Image.open(..).convert("RGB")`: PNG and WebP exactly, JPEG within
//! 4 levels. Subsampled colours of a JPEG differ more in its last column and row. Alpha is dropped,
//! not blended. An EXIF orientation is ignored. Gray of 16 bits becomes its upper byte.
//!
//! Thread rule: a `Scratch` belongs to one thread. Non-goals: animation beyond the first frame,
//! colour profiles, and decoding of a JPEG at a reduced size.

mod crop;
mod formats;

use fast_image_resize as resize;
use resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use resize::pixels::U8x4;

use super::draw::Draw;
use super::error::DecodeError;
use super::scratch::{Scratch, grown};
pub use crop::Crop;
use crop::Part;
pub use formats::PIXELS_MAX;

/// Height and width of a row. The largest row of RGB has 805 MB, more than a batch should hold.
const SIDE_MAX: u32 = 1 << 14;

/// What a picture becomes: rows of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Image {
    height: u32,
    width: u32,
    crop: Crop,
    color: Color,
    flip: bool,
}

/// The channels of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Color {
    /// Red, green and blue.
    #[default]
    Rgb,
    /// One channel: ITU-R 601 luma, as Pillow's `convert("L")` computes it.
    Gray,
}

impl Image {
    /// Rows of RGB that no draw mirrors.
    ///
    /// # Errors
    /// [`DecodeError::Options`] if a side is 0 or above 16,384, and for impossible crops.
    pub fn new(height: u32, width: u32, crop: Crop) -> Result<Self, DecodeError> {
        let sides = 1..=SIDE_MAX;
        if !sides.contains(&height) || !sides.contains(&width) {
            let why = format!("a row of {height} x {width} pixels: each side is 1 to {SIDE_MAX}");
            return Err(DecodeError::Options(why));
        }
        crop.check()?;
        Ok(Self { height, width, crop, color: Color::Rgb, flip: false })
    }

    /// Sets the channels of a row.
    #[must_use]
    pub fn color(self, color: Color) -> Self {
        Self { color, ..self }
    }

    /// If true, half of the pictures are mirrored left to right. The draw chooses them.
    #[must_use]
    pub fn flip(self, flip: bool) -> Self {
        Self { flip, ..self }
    }

    /// Height, width and channels of a row.
    pub fn shape(&self) -> [usize; 3] {
        let channels = match self.color {
            Color::Rgb => 3,
            Color::Gray => 1,
        };
        [self.height as usize, self.width as usize, channels]
    }

    /// Bytes of a row: the product of its shape.
    pub fn bytes(&self) -> usize {
        self.shape().iter().product()
    }

    /// Decodes one picture into one row.
    ///
    /// # Errors
    /// [`DecodeError`] if `out` has another length than [`bytes`](Self::bytes), and for pictures
    /// that are damaged, cut off, too large or of another format. Then `out` may hold anything.
    pub fn decode_into(
        &self,
        encoded: &[u8],
        draw: Draw,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), DecodeError> {
        if out.len() != self.bytes() {
            return Err(DecodeError::Slice { found: out.len(), wanted: self.bytes() });
        }
        let result = formats::decode(encoded, &mut scratch.pixels).map(|size| {
            let mut numbers = draw.numbers();
            let mirrored = numbers.next() & 1 == 1 && self.flip;
            let part = self.crop.part(size, (self.width, self.height), &mut numbers);
            self.resize(size, part, scratch);
            self.write(&scratch.resized, mirrored, out);
        });
        scratch.trim();
        result
    }

    /// Writes a part of the decoded picture in the size of the row, four bytes a pixel.
    fn resize(&self, (width, height): (u32, u32), part: Part, scratch: &mut Scratch) {
        let picture = TypedImageRef::<U8x4>::from_buffer(width, height, &scratch.pixels)
            .expect("the picture fills the buffer");
        let Part { window, inner } = part;
        let [left, top, width, height] = window;
        let window = TypedCroppedImage::from_ref(&picture, left, top, width, height)
            .expect("the window lies in the picture");
        let bytes = self.height as usize * self.width as usize * 4;
        let resized = grown(&mut scratch.resized, bytes);
        let mut row = TypedImage::<U8x4>::from_buffer(self.width, self.height, resized)
            .expect("the row fills the buffer");
        let [left, top, width, height] = inner;
        let options = resize::ResizeOptions::new()
            .resize_alg(resize::ResizeAlg::Convolution(resize::FilterType::Bilinear))
            .use_alpha(false)
            .crop(left, top, width, height);
        scratch
            .resizer
            .resize_typed(&window, &mut row, &options)
            .expect("the inner part lies in the window");
    }

    fn write(&self, resized: &[u8], mirrored: bool, out: &mut [u8]) {
        let pixels = resized.as_chunks().0;
        let width = self.width as usize;
        match self.color {
            Color::Rgb => write(pixels, width, mirrored, out, |[r, g, b, _]| [r, g, b]),
            Color::Gray => write(pixels, width, mirrored, out, |rgb| [luma(rgb)]),
        }
    }
}

/// Writes rows of pixels, each as `N` bytes.
fn write<const N: usize>(
    pixels: &[[u8; 4]],
    width: usize,
    mirrored: bool,
    out: &mut [u8],
    convert: impl Fn([u8; 4]) -> [u8; N],
) {
    let rows = out.as_chunks_mut().0.chunks_exact_mut(width);
    for (to, from) in rows.zip(pixels.chunks_exact(width)) {
        let converted = from.iter().map(|&pixel| convert(pixel));
        if mirrored {
            to.iter_mut().rev().zip(converted).for_each(|(to, from)| *to = from);
        } else {
            to.iter_mut().zip(converted).for_each(|(to, from)| *to = from);
        }
    }
}

/// Pillow's `L24` (`libImaging/Convert.c`): ITU-R 601-2 luma in 16-bit fixed point.
#[expect(clippy::cast_possible_truncation, reason = "the weights sum to 65536")]
fn luma([r, g, b, _]: [u8; 4]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}
