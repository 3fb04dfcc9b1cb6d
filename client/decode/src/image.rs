//! Pictures: JPEG, PNG and WebP to rows of height x width x channels, of one byte or two each.
//!
//! [`formats`] decodes the whole picture to four numbers a pixel. [`orientation`] turns it, if that
//! is asked for. [`crop`] chooses a part of it. One pass of `fast_image_resize` reads that part and
//! writes it in the size of the row, without a copy of the crop. The default filter is bilinear and
//! widens when it shrinks, which is torchvision's default (`antialias=True`). The last step writes
//! the row: it mirrors, drops the fourth number, or makes gray.
//!
//! Values before the resize are those of Pillow's `Image.open(..).convert("RGB")`. Alpha is
//! dropped, not blended. In rows of one byte, 16 bits of a PNG become their upper byte.
//!
//! Thread rule: a `Scratch` belongs to one thread. Non-goals: animation beyond the first frame,
//! colour profiles, and decoding of a JPEG at a reduced size.

mod crop;
mod formats;
mod orientation;

use fast_image_resize as resize;
use resize::PixelTrait;
use resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use resize::pixels::{U8x4, U16x4};

use super::draw::Draw;
use super::error::DecodeError;
use super::scratch::{Scratch, grown};
pub use crop::Crop;
use crop::PictureWindow;
pub use formats::PIXELS_MAX;
use formats::PictureHead;

/// Height and width of a row. The largest row of RGB has 805 MB, more than a batch should hold.
const SIDE_MAX: u32 = 1 << 14;

/// What a picture becomes: rows of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Image {
    height: u32,
    width: u32,
    crop: Crop,
    color: Color,
    filter: Filter,
    depth: Depth,
    flip: bool,
    /// None if it was not chosen, which is to leave pictures as they are stored.
    orient: Option<bool>,
}

/// Bits of each number of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Depth {
    /// One byte.
    #[default]
    Eight,
    /// Two bytes, the lower one first: those of a PNG of 16 bits. Other pictures are errors.
    Sixteen,
}

/// How a row's pixels are made of the picture's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Filter {
    /// Weighted means, over all pixels that a smaller row covers.
    #[default]
    Bilinear,
    /// The nearest pixel. Labels stay labels.
    Nearest,
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
        let (color, filter, depth) = Default::default();
        Ok(Self { height, width, crop, color, filter, depth, flip: false, orient: None })
    }

    /// Sets how pixels of the row are made.
    #[must_use]
    pub fn filter(self, filter: Filter) -> Self {
        Self { filter, ..self }
    }

    /// Sets the bits of each number.
    #[must_use]
    pub fn depth(self, depth: Depth) -> Self {
        Self { depth, ..self }
    }

    /// If true, pictures are first turned as their EXIF orientation says.
    #[must_use]
    pub fn orient(self, orient: bool) -> Self {
        Self { orient: Some(orient), ..self }
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

    /// Bits of each number of a row.
    pub fn bits(&self) -> Depth {
        self.depth
    }

    /// Bytes of a row: those of its numbers, for each of its shape.
    pub fn bytes(&self) -> usize {
        let width = match self.depth {
            Depth::Eight => 1,
            Depth::Sixteen => 2,
        };
        width * self.shape().iter().product::<usize>()
    }

    /// Decodes one picture into one row. Returns whether it has an EXIF orientation of which the
    /// options do not say whether it counts.
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
    ) -> Result<bool, DecodeError> {
        if out.len() != self.bytes() {
            return Err(DecodeError::Slice { found: out.len(), wanted: self.bytes() });
        }
        let result = match self.depth {
            Depth::Eight => self.decode_8(encoded, draw, out, scratch),
            Depth::Sixteen => self.decode_16(encoded, draw, out, scratch),
        };
        scratch.trim();
        result
    }

    fn decode_8(
        &self,
        encoded: &[u8],
        draw: Draw,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<bool, DecodeError> {
        let PictureHead { mut size, orientation } = formats::decode(encoded, &mut scratch.pixels)?;
        let mut pixels = &scratch.pixels[..];
        if let Some(orientation) = orientation.filter(|_| self.orient == Some(true)) {
            size = orientation.turn(pixels.as_chunks().0, size, &mut scratch.turned);
            pixels = scratch.turned.as_flattened();
        }
        let (part, mirrored) = self.part(size, draw);
        let picture = TypedImageRef::<U8x4>::from_buffer(size.0, size.1, pixels)
            .expect("the picture fills the buffer");
        let row = grown(&mut scratch.resized, self.pixels() * 4);
        let mut resized = TypedImage::<U8x4>::from_buffer(self.width, self.height, row)
            .expect("the row fills the buffer");
        self.resize(&picture, part, &mut resized, &mut scratch.resizer);
        let row = resized.pixels().iter().map(|pixel| pixel.0);
        self.write(row, mirrored, out, luma_8, |number| [number]);
        Ok(orientation.is_some() && self.orient.is_none())
    }

    fn decode_16(
        &self,
        encoded: &[u8],
        draw: Draw,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<bool, DecodeError> {
        let (PictureHead { mut size, orientation }, mut pixels) = formats::decode_16(encoded)?;
        if let Some(orientation) = orientation.filter(|_| self.orient == Some(true)) {
            let mut turned = Vec::new();
            size = orientation.turn(&pixels, size, &mut turned);
            pixels = turned;
        }
        let (part, mirrored) = self.part(size, draw);
        let pixels: Vec<U16x4> = pixels.into_iter().map(U16x4::new).collect();
        let picture =
            TypedImageRef::new(size.0, size.1, &pixels).expect("the pixels are a picture");
        let mut resized = TypedImage::new(self.width, self.height);
        self.resize(&picture, part, &mut resized, &mut scratch.resizer);
        let row = resized.pixels().iter().map(|pixel| pixel.0);
        self.write(row, mirrored, out, luma_16, u16::to_le_bytes);
        Ok(orientation.is_some() && self.orient.is_none())
    }

    /// The part of a picture of this size that the row shows, and whether it is mirrored.
    fn part(&self, size: (u32, u32), draw: Draw) -> (PictureWindow, bool) {
        let mut numbers = draw.numbers();
        let mirrored = numbers.next() & 1 == 1 && self.flip;
        (self.crop.part(size, (self.width, self.height), &mut numbers), mirrored)
    }

    /// Pixels of a row.
    fn pixels(&self) -> usize {
        self.height as usize * self.width as usize
    }

    /// Writes a part of the decoded picture in the size of the row.
    fn resize<P: PixelTrait>(
        &self,
        picture: &TypedImageRef<'_, P>,
        part: PictureWindow,
        row: &mut TypedImage<'_, P>,
        resizer: &mut resize::Resizer,
    ) {
        let PictureWindow { window, inner } = part;
        let [left, top, width, height] = window;
        let window = TypedCroppedImage::from_ref(picture, left, top, width, height)
            .expect("the window lies in the picture");
        let filter = match self.filter {
            Filter::Bilinear => resize::ResizeAlg::Convolution(resize::FilterType::Bilinear),
            Filter::Nearest => resize::ResizeAlg::Nearest,
        };
        let [left, top, width, height] = inner;
        let options = resize::ResizeOptions::new()
            .resize_alg(filter)
            .use_alpha(false)
            .crop(left, top, width, height);
        resizer.resize_typed(&window, row, &options).expect("the inner part lies in the window");
    }

    /// Writes pixels of `N` bytes a number, with the channels of the row.
    fn write<T: Copy, const N: usize>(
        &self,
        pixels: impl Iterator<Item = [T; 4]>,
        mirrored: bool,
        out: &mut [u8],
        luma: impl Fn([T; 4]) -> T,
        bytes: impl Fn(T) -> [u8; N],
    ) {
        let width = self.width as usize;
        match self.color {
            Color::Rgb => write(pixels, width, mirrored, out, |[r, g, b, _]| [r, g, b].map(&bytes)),
            Color::Gray => write(pixels, width, mirrored, out, |rgb| [bytes(luma(rgb))]),
        }
    }
}
/// Writes rows of pixels, each as `C` numbers of `N` bytes.
fn write<T, const C: usize, const N: usize>(
    pixels: impl Iterator<Item = [T; 4]>,
    width: usize,
    mirrored: bool,
    out: &mut [u8],
    convert: impl Fn([T; 4]) -> [[u8; N]; C],
) {
    let mut converted = pixels.map(convert);
    for to in out.as_chunks_mut().0.as_chunks_mut().0.chunks_exact_mut(width) {
        let from = converted.by_ref().take(width);
        if mirrored {
            to.iter_mut().rev().zip(from).for_each(|(to, from)| *to = from);
        } else {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from);
        }
    }
}

/// Pillow's `L24` (`libImaging/Convert.c`): ITU-R 601-2 luma in 16-bit fixed point.
fn luma([r, g, b]: [u32; 3]) -> u32 {
    (r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16
}

#[expect(clippy::cast_possible_truncation, reason = "the weights sum to 65536")]
fn luma_8([r, g, b, _]: [u8; 4]) -> u8 {
    luma([r, g, b].map(u32::from)) as u8
}

#[expect(clippy::cast_possible_truncation, reason = "the weights sum to 65536")]
fn luma_16([r, g, b, _]: [u16; 4]) -> u16 {
    luma([r, g, b].map(u32::from)) as u16
}
