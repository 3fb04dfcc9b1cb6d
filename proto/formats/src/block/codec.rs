//! Compressions: bytes of a known size come out of stored bytes.
//!
//! Thread rule: a [`Decompressor`] belongs to one thread. Non-goals: sizes that are not known.

use std::{fmt, io::Read};

/// A compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    None,
    Snappy,
    Gzip,
    Zstd,
    /// Blocks of LZ4 without a frame.
    Lz4,
}

impl Codec {
    const ALL: [Self; 5] = [Self::None, Self::Snappy, Self::Gzip, Self::Zstd, Self::Lz4];

    /// Returns the number that stands for it in a manifest.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// Decompresses, and keeps its state from one call to the next.
#[derive(Default)]
pub(crate) struct Decompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

impl Decompressor {
    /// Fills `target` with the stored bytes, which must decompress to exactly its size.
    ///
    /// # Errors
    /// Why they do not, as a clause.
    pub(crate) fn fill(
        &mut self,
        codec: Codec,
        stored: &[u8],
        target: &mut [u8],
    ) -> Result<(), String> {
        let made = match codec {
            Codec::None => {
                let same = stored.len() == target.len();
                if same {
                    target.copy_from_slice(stored);
                }
                Ok(stored.len())
            }
            Codec::Snappy => {
                snap::raw::Decoder::new().decompress(stored, target).map_err(|why| why.to_string())
            }
            Codec::Gzip => {
                let mut stream = flate2::read::MultiGzDecoder::new(stored);
                let filled = stream.read_exact(target).map(|()| target.len());
                // A stream that goes on has another size.
                match filled.and_then(|bytes| Ok(bytes + stream.read(&mut [0])?)) {
                    Ok(bytes) => Ok(bytes),
                    Err(why) => Err(why.to_string()),
                }
            }
            Codec::Zstd => self.zstd(stored, target).map_err(|why| why.to_string()),
            Codec::Lz4 => {
                lz4_flex::block::decompress_into(stored, target).map_err(|why| why.to_string())
            }
        };
        match made {
            Ok(bytes) if bytes == target.len() => Ok(()),
            Ok(bytes) => {
                Err(format!("decompresses to {bytes} bytes where {} must be", target.len()))
            }
            Err(why) => Err(format!("does not decompress: {why}")),
        }
    }

    fn zstd(&mut self, stored: &[u8], target: &mut [u8]) -> std::io::Result<usize> {
        let state = match &mut self.zstd {
            Some(state) => state,
            none => none.insert(zstd::bulk::Decompressor::new()?),
        };
        state.decompress_to_buffer(stored, target)
    }
}
