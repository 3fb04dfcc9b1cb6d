//! The demo's dataset: crops of two real photographs, written by Hugging Face's own `safetensors`
//! crate.
//!
//! A sample is an image, `u8` of shape 224 x 224 x 3 (150,528 bytes), and a label, `i64`. The label
//! is the sample's own number, so the labels of an epoch show whether each sample came exactly
//! once. [`sample`] is a pure function: a receiver can check a sample without a stored copy.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};
use serde::Serialize;

/// Height and width of an image in pixels.
pub const SIDE: usize = 224;
/// Bytes of a pixel: red, green, blue.
pub const CHANNELS: usize = 3;
/// Bytes of an image.
pub const IMAGE_BYTES: usize = SIDE * SIDE * CHANNELS;

/// The photographs as the Python safetensors package wrote them. `fixtures/README.md` has their
/// source and terms.
static PHOTOS: &[u8] = include_bytes!("../fixtures/photos.safetensors");

struct Photo {
    height: usize,
    width: usize,
    pixels: &'static [u8],
}

fn photos() -> &'static [Photo] {
    static PARSED: OnceLock<Vec<Photo>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let file = SafeTensors::deserialize(PHOTOS).expect("the fixture is a safetensors file");
        let photo = |name| {
            let tensor = file.tensor(name).expect("the fixture holds this photograph");
            let &[height, width, CHANNELS] = tensor.shape() else {
                panic!("the photograph {name} has the shape {:?}", tensor.shape())
            };
            Photo { height, width, pixels: tensor.data() }
        };
        vec![photo("astronaut"), photo("chelsea")]
    })
}

/// Returns the image (height, width, channel; row by row) and the label of sample `index`. Any
/// index is valid.
#[must_use]
pub fn sample(index: u64) -> (Vec<u8>, i64) {
    let mut image = Vec::with_capacity(IMAGE_BYTES);
    write_image(index, &mut image);
    (image, label(index))
}

fn label(index: u64) -> i64 {
    i64::try_from(index).expect("fewer samples than labels")
}

/// Appends the image of sample `index`: a crop of a photograph, perhaps mirrored, perhaps upside
/// down.
fn write_image(index: u64, image: &mut Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(index);
    let photo = &photos()[usize::from(index % 2 == 1)];
    let top = random.usize(..=photo.height - SIDE);
    let left = random.usize(..=photo.width - SIDE);
    let (mirrored, upside_down) = (random.bool(), random.bool());
    for line in 0..SIDE {
        let line = if upside_down { SIDE - 1 - line } else { line };
        let start = ((top + line) * photo.width + left) * CHANNELS;
        let pixels = &photo.pixels[start..start + SIDE * CHANNELS];
        if mirrored {
            image.extend(pixels.as_chunks::<CHANNELS>().0.iter().rev().flatten());
        } else {
            image.extend_from_slice(pixels);
        }
    }
}

/// The result of [`write()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Number of files, and so of objects.
    pub files: u64,
    /// Samples in all files.
    pub samples: u64,
    /// Bytes in all files.
    pub bytes: u64,
}

/// Writes samples `0..samples` into `directory` as `part-00000.safetensors` and so on. Each file
/// has `per_file` samples (the last may have fewer) with the tensors `image` and `label`. A rename
/// makes each file appear complete.
///
/// # Errors
/// When a file can't be written, or `per_file` is 0.
pub fn write(directory: &Path, samples: u64, per_file: u64) -> io::Result<Written> {
    if per_file == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a file needs at least one sample",
        ));
    }
    fs::create_dir_all(directory)?;
    let mut written = Written { files: 0, samples, bytes: 0 };
    let mut first = 0;
    while first < samples {
        let next = samples.min(first.saturating_add(per_file));
        let file = part(first, next)?;
        let name = format!("part-{:05}.safetensors", written.files);
        let unfinished = directory.join(format!(".{name}.unfinished"));
        fs::write(&unfinished, &file)?;
        fs::rename(&unfinished, directory.join(name))?;
        written.files += 1;
        written.bytes += u64::try_from(file.len()).expect("usize is at most 64 bits");
        first = next;
    }
    Ok(written)
}

/// Returns one file with samples `first..next`.
fn part(first: u64, next: u64) -> io::Result<Vec<u8>> {
    let count = usize::try_from(next - first).map_err(io::Error::other)?;
    let bytes = count.checked_mul(IMAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
    let mut images = Vec::with_capacity(bytes);
    let mut labels = Vec::with_capacity(count * 8);
    for index in first..next {
        write_image(index, &mut images);
        labels.extend_from_slice(&label(index).to_le_bytes());
    }
    let view = |dtype, shape, data| TensorView::new(dtype, shape, data).map_err(io::Error::other);
    let tensors = [
        ("image", view(Dtype::U8, vec![count, SIDE, SIDE, CHANNELS], &images)?),
        ("label", view(Dtype::I64, vec![count], &labels)?),
    ];
    serialize(tensors, None).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn samples_are_pure_distinct_and_of_the_stated_shape() {
        let images: HashSet<_> = (0..200).map(|index| sample(index).0).collect();
        assert_eq!(images.len(), 200);
        assert!(images.iter().all(|image| image.len() == IMAGE_BYTES));
        assert_eq!(sample(17), sample(17));
        assert_eq!(sample(17).1, 17);
    }

    #[test]
    fn files_hold_samples_in_order_and_the_last_the_remainder() {
        let directory = tempfile::tempdir().unwrap();
        let written = write(directory.path(), 10, 4).unwrap();
        assert_eq!((written.files, written.samples), (3, 10));
        let last = fs::read(directory.path().join("part-00002.safetensors")).unwrap();
        let last = SafeTensors::deserialize(&last).unwrap();
        assert_eq!(last.tensor("image").unwrap().shape(), [2, SIDE, SIDE, CHANNELS]);
        assert_eq!(last.tensor("image").unwrap().data()[IMAGE_BYTES..], sample(9).0);
        assert_eq!(last.tensor("label").unwrap().data()[8..], 9_i64.to_le_bytes());
    }

    #[test]
    fn a_file_of_no_samples_is_refused() {
        assert!(write(Path::new("/nowhere"), 10, 0).is_err());
    }
}
