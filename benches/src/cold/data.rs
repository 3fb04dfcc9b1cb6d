//! Images and labels, written to the server as safetensors files and as `.npy` files.

use std::fmt;

use bytes::Bytes;
use object_store::{ObjectStoreExt, path::Path};
use safetensors::{Dtype, tensor::TensorView};

use super::plain::Store;
use crate::Error;
use crate::matrix::{Random, npy_header};

/// An image of 224 x 224 x 3.
pub(super) const IMAGE_BYTES: usize = 150_528;
/// Samples of the dataset: 1.15 GiB.
const SAMPLES: u64 = 8192;
/// Samples of a file, which then has 73.5 MiB.
const FILE_SAMPLES: u64 = 512;

/// The format of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Image and label in each file.
    Safetensors,
    /// Files of images beside files of labels.
    Npy,
}

impl Format {
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Npy => "npy",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Safetensors => f.write_str(".safetensors"),
            Self::Npy => f.write_str(".npy"),
        }
    }
}

/// The image of a sample: random bytes, with its number as the seed.
pub(super) fn image(sample: u64) -> impl Iterator<Item = [u8; 8]> {
    let mut random = Random::new(sample);
    std::iter::repeat_with(move || random.next().to_le_bytes()).take(IMAGE_BYTES / 8)
}

/// Writes all files of a format.
pub(super) fn upload(store: &Store, format: Format) -> Result<(), Error> {
    for file in 0..SAMPLES / FILE_SAMPLES {
        let samples = file * FILE_SAMPLES..(file + 1) * FILE_SAMPLES;
        let labels: Vec<u8> = samples.clone().flat_map(u64::to_le_bytes).collect();
        let images: Vec<u8> = samples.flat_map(image).flatten().collect();
        match format {
            Format::Safetensors => {
                put(
                    store,
                    format,
                    &format!("part-{file:05}.safetensors"),
                    together(&images, &labels)?,
                )?;
            }
            Format::Npy => {
                let header = npy_header("|u1", &format!("{FILE_SAMPLES}, 224, 224, 3"));
                put(store, format, &format!("image-{file}.npy"), [header, images].concat())?;
                let header = npy_header("<i8", &format!("{FILE_SAMPLES},"));
                put(store, format, &format!("label-{file}.npy"), [header, labels].concat())?;
            }
        }
    }
    Ok(())
}

fn together(images: &[u8], labels: &[u8]) -> Result<Vec<u8>, Error> {
    let samples = labels.len() / 8;
    let images = TensorView::new(Dtype::U8, vec![samples, 224, 224, 3], images)?;
    let labels = TensorView::new(Dtype::I64, vec![samples], labels)?;
    Ok(safetensors::serialize([("image", images), ("label", labels)], None)?)
}

fn put(store: &Store, format: Format, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
    let path = Path::from(format!("{}/{name}", format.prefix()));
    store.runtime.block_on(store.s3.put(&path, Bytes::from(bytes).into()))?;
    Ok(())
}
