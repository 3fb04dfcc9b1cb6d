//! Compressions: bytes of a known size come out of stored bytes.
//!
//! Thread rule: a [`Decompressor`] belongs to one thread. Non-goals: sizes that are not known.

use std::{fmt, io::Read};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

/// A compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    None,
    Snappy,
    Gzip,
    Zstd,
    /// Blocks of LZ4 without a frame.
    Lz4,
    Brotli,
    /// Hadoop's blocks of LZ4: each follows its two sizes. Some writers call blocks without sizes
    /// so.
    Lz4Hadoop,
}

impl Codec {
    const ALL: [Self; 7] = [
        Self::None,
        Self::Snappy,
        Self::Gzip,
        Self::Zstd,
        Self::Lz4,
        Self::Brotli,
        Self::Lz4Hadoop,
    ];

    /// Returns the number that stands for it in a manifest.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// Returns the most bytes that so many stored bytes can stand for, if the format bounds them.
    pub(crate) fn bytes_max(self, stored: usize) -> usize {
        let ratio = match self {
            Self::None => 1,
            Self::Snappy => 22,
            Self::Lz4 | Self::Lz4Hadoop => 256,
            Self::Gzip => 1033,
            Self::Zstd | Self::Brotli => return usize::MAX,
        };
        stored.saturating_mul(ratio)
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
            Codec::Lz4 => lz4(stored, target),
            Codec::Brotli => brotli(stored, target),
            Codec::Lz4Hadoop => match hadoop_lz4(stored, target) {
                Some(bytes) => Ok(bytes),
                None => lz4(stored, target),
            },
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

fn lz4(stored: &[u8], target: &mut [u8]) -> Result<usize, String> {
    lz4_flex::block::decompress_into(stored, target).map_err(|why| why.to_string())
}

/// Decompresses blocks that each follow the big-endian sizes of their bytes after and before.
/// `None` if the stored bytes are not such blocks.
fn hadoop_lz4(mut stored: &[u8], target: &mut [u8]) -> Option<usize> {
    let size = |bytes: &[u8; 4]| usize::try_from(u32::from_be_bytes(*bytes)).ok();
    let mut made = 0usize;
    while let Some((after, rest)) = stored.split_first_chunk() {
        let (before, rest) = rest.split_first_chunk()?;
        let (block, rest) = rest.split_at_checked(size(before)?)?;
        let bytes = size(after)?;
        let filled = lz4(block, target.get_mut(made..made.checked_add(bytes)?)?);
        made += filled.ok().filter(|&filled| filled == bytes)?;
        stored = rest;
    }
    stored.is_empty().then_some(made)
}

/// Decompresses a stream of a window of at most 16 MiB.
fn brotli(stored: &[u8], target: &mut [u8]) -> Result<usize, String> {
    let alloc = StandardAlloc::default;
    let mut state = BrotliState::new_strict(alloc(), alloc(), alloc());
    let (mut left, mut read) = (stored.len(), 0);
    let (mut room, mut written, mut total) = (target.len(), 0, 0);
    let result = BrotliDecompressStream(
        &mut left,
        &mut read,
        stored,
        &mut room,
        &mut written,
        target,
        &mut total,
        &mut state,
    );
    match result {
        BrotliResult::ResultSuccess if left == 0 => Ok(written),
        BrotliResult::ResultSuccess => Err("the stream ends before its bytes".to_owned()),
        BrotliResult::NeedsMoreInput => Err("the stream is cut".to_owned()),
        BrotliResult::NeedsMoreOutput => Err("the stream is longer than its size".to_owned()),
        BrotliResult::ResultFailure => Err("the stream is malformed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(codec: Codec, stored: &[u8], bytes: usize) -> Result<Vec<u8>, String> {
        let mut target = vec![0; bytes];
        Decompressor::default().fill(codec, stored, &mut target).map(|()| target)
    }

    #[test]
    fn blocks_of_lz4_are_read_with_and_without_the_sizes_of_hadoop() {
        let text = b"eight of eight of eight of eight".as_slice();
        let framed = |part: &[u8]| {
            let block = lz4_flex::block::compress(part);
            let size = |bytes: usize| u32::try_from(bytes).expect("few").to_be_bytes();
            [&size(part.len()), &size(block.len()), &*block].concat()
        };
        let plain = lz4_flex::block::compress(text);
        let halves = [framed(&text[..16]), framed(&text[16..])].concat();
        for stored in [&*plain, &*framed(text), &*halves] {
            assert_eq!(filled(Codec::Lz4Hadoop, stored, text.len()).as_deref(), Ok(text));
            assert!(filled(Codec::Lz4Hadoop, &stored[..stored.len() - 1], text.len()).is_err());
        }
        assert!(filled(Codec::Lz4Hadoop, &halves, 16).is_err(), "longer than its size");
    }

    #[test]
    fn brotli_of_another_size_is_refused() {
        // A stream of one uncompressed block, by the format's specification.
        let stored = [0x0B, 0x02, 0x80, b'h', b'e', b'l', b'l', b'o', 0x03];
        assert_eq!(filled(Codec::Brotli, &stored, 5).as_deref(), Ok(b"hello".as_slice()));
        for bytes in [4, 6] {
            assert!(filled(Codec::Brotli, &stored, bytes).is_err(), "{bytes} bytes");
        }
        assert!(filled(Codec::Brotli, &stored[..6], 5).is_err(), "cut");
    }
}
