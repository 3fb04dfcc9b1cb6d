//! What the rows of an encoded tensor become in a batch.

use larder_dataset::{Dtype, Tensor};
use larder_decode::{Audio, Depth, Image};

use super::invalid;
use crate::Error;

/// What each row of an encoded tensor becomes: a row of one shape.
#[derive(Debug, Clone, Copy, PartialEq)]
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
