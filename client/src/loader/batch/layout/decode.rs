//! The rows of an encoded tensor, as a batch has them.

use larder_dataset::{Dtype, Tensor};
use larder_decode::{Audio, Channels, Color, Crop, DecodeError, Depth, Filter, Image, Start};
use serde::Deserialize;

use super::invalid;
use crate::Error;

/// What each row of an encoded tensor becomes: a row of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "DecodeText")]
pub enum Decode {
    /// A picture: numbers of one byte or two, of height, width and channels.
    Image(Image),
    /// A sound: 32-bit floats of channels and frames.
    Audio(Audio),
}

impl Decode {
    /// The type of a decoded element.
    pub(in crate::loader) fn dtype(&self) -> Dtype {
        match self {
            Self::Image(image) => match image.bits() {
                Depth::Eight => Dtype::U8,
                Depth::Sixteen => Dtype::U16,
            },
            Self::Audio(_) => Dtype::F32,
        }
    }

    /// The shape of a decoded row.
    pub(in crate::loader) fn shape(&self) -> Box<[u64]> {
        match self {
            Self::Image(image) => image.shape().map(|side| side as u64).into(),
            Self::Audio(audio) => audio.shape().map(|side| side as u64).into(),
        }
    }

    /// Checks that the rows of a tensor are encoded: bytes of any length.
    pub(super) fn check(&self, tensor: &Tensor) -> Result<(), Error> {
        if tensor.is_ragged() && tensor.dtype() == Dtype::U8 && tensor.shape().is_empty() {
            return Ok(());
        }
        let (name, dtype) = (tensor.name(), tensor.dtype().name());
        let shape = tensor.sample_shape();
        Err(invalid(format!("tensor '{name}' can't be decoded"))
            .because(format!("its rows are {dtype} {shape:?}, not encoded files of any length"))
            .hint("leave it out of decode"))
    }
}

impl From<Image> for Decode {
    fn from(image: Image) -> Self {
        Self::Image(image)
    }
}

impl From<Audio> for Decode {
    fn from(audio: Audio) -> Self {
        Self::Audio(audio)
    }
}

/// A decoding as JSON has it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum DecodeText {
    Image(ImageText),
    Audio(AudioText),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CropText {
    Center,
    Random,
    Stretch,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageText {
    height: u32,
    width: u32,
    crop: CropText,
    /// The numbers of the crop.
    bounds: [f64; 4],
    flip: bool,
    gray: bool,
    nearest: bool,
    sixteen: bool,
    orient: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AudioText {
    frames: u32,
    channels: Option<u16>,
    random: bool,
    sample_rate: Option<u32>,
}

impl TryFrom<DecodeText> for Decode {
    type Error = DecodeError;

    fn try_from(text: DecodeText) -> Result<Self, DecodeError> {
        match text {
            DecodeText::Image(text) => text.image().map(Self::Image),
            DecodeText::Audio(text) => text.audio().map(Self::Audio),
        }
    }
}

impl ImageText {
    fn image(&self) -> Result<Image, DecodeError> {
        let [first, second, third, fourth] = self.bounds;
        let crop = match self.crop {
            CropText::Center => Crop::Center { part: first },
            CropText::Random => Crop::Random { scale: (first, second), ratio: (third, fourth) },
            CropText::Stretch => Crop::Stretch,
        };
        let image = Image::new(self.height, self.width, crop)?
            .color(if self.gray { Color::Gray } else { Color::Rgb })
            .filter(if self.nearest { Filter::Nearest } else { Filter::Bilinear })
            .depth(if self.sixteen { Depth::Sixteen } else { Depth::Eight })
            .flip(self.flip);
        Ok(self.orient.map_or(image, |orient| image.orient(orient)))
    }
}

impl AudioText {
    fn audio(&self) -> Result<Audio, DecodeError> {
        let channels = self.channels.map_or(Channels::Mono, Channels::Exact);
        let start = if self.random { Start::Random } else { Start::Begin };
        let audio = Audio::new(self.frames, channels, start)?;
        Ok(self.sample_rate.map_or(audio, |hertz| audio.sample_rate(hertz)))
    }
}
