//! Memory that one thread uses for row after row.

use fast_image_resize::Resizer;

/// Bytes of a buffer that stay for the next row: a picture of 33 megapixels. A larger buffer is
/// freed after its row, so one giant picture does not hold memory for the rest of the epoch.
const KEPT_BYTES_MAX: usize = 128 << 20;

/// Buffers that `decode_into` grows and uses again. One for each thread.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The decoded picture, four bytes a pixel.
    pub(crate) pixels: Vec<u8>,
    /// The same picture, turned.
    pub(crate) turned: Vec<[u8; 4]>,
    /// Its crop in the size of the row, four bytes a pixel.
    pub(crate) resized: Vec<u8>,
    pub(crate) resizer: Resizer,
    /// One decoded frame of a FLAC file.
    pub(crate) block: Vec<i64>,
}

impl Scratch {
    /// Frees buffers that are larger than a usual row needs.
    pub(crate) fn trim(&mut self) {
        for buffer in [&mut self.pixels, &mut self.resized] {
            if buffer.capacity() > KEPT_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        if self.turned.capacity() * 4 > KEPT_BYTES_MAX {
            self.turned = Vec::new();
        }
        if self.resizer.size_of_internal_buffers() > KEPT_BYTES_MAX {
            self.resizer.reset_internal_buffers();
        }
    }
}

/// Returns the first `bytes` bytes of a buffer that grows if it must. They may hold anything.
pub(crate) fn grown(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < bytes {
        // A fresh allocation is zero already, and no old byte is copied.
        *buffer = vec![0; bytes];
    }
    &mut buffer[..bytes]
}
