//! Decodes one encoded picture or sound into memory of a fixed size that the caller gives.
//!
//! An [`Image`] or [`Audio`] says what a row becomes. `decode_into` finds the format by the first
//! bytes, decodes into a [`Scratch`], and writes the crop into the caller's slice. A [`Draw`] gives
//! the random numbers of one sample. The same inputs give the same bytes on every thread.
//!
//! ```
//! use larder_decode::{Crop, Draw, Image, Scratch};
//!
//! let train = Image::new(224, 224, Crop::RANDOM)?.flip(true);
//! let (mut row, mut scratch) = (vec![0; train.bytes()], Scratch::default());
//! let draw = Draw { seed: 42, source: 0, pass: 3, sample: 1_234_567 };
//! let error = train.decode_into(b"GIF89a", draw, &mut row, &mut scratch).unwrap_err();
//! assert!(error.to_string().starts_with("neither JPEG, PNG nor WebP"));
//! # Ok::<(), larder_decode::DecodeError>(())
//! ```
//!
//! Thread rule: all calls are synchronous, and nothing is shared. Each thread has its own
//! [`Scratch`]. Non-goals: input and output, threads, other formats, resampling of sound, and
//! augmentation beyond crop and flip.

mod audio;
mod draw;
mod error;
mod image;
mod scratch;

pub use audio::{Audio, Channels, FRAMES_MAX, Start};
pub use draw::Draw;
pub use error::DecodeError;
pub use image::{Color, Crop, Depth, Filter, Image, PIXELS_MAX};
pub use scratch::Scratch;
