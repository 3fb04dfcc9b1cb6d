//! The orientation that a camera writes into the EXIF block of a picture (CIPA DC-008, 4.6.5).
//!
//! Thread rule: plain functions. Non-goals: other tags, and orientations in XMP.

/// How the stored rows lie: 2 to 8. Upright rows have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Orientation(u8);

impl Orientation {
    /// Reads the tag from an EXIF block, with or without its marker.
    pub(super) fn of_exif(exif: &[u8]) -> Option<Self> {
        let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
        libjpeg_turbo_rs::common::exif::parse_orientation(tiff).filter(|&it| it != 1).map(Self)
    }

    /// Writes a picture upright into `turned`, and returns its width and height.
    pub(super) fn turn<T: Copy>(
        self,
        pixels: &[T],
        (width, height): (u32, u32),
        turned: &mut Vec<T>,
    ) -> (u32, u32) {
        let (w, h) = (width as usize, height as usize);
        let is_transposed = self.0 >= 5;
        let (columns, rows) = if is_transposed { (h, w) } else { (w, h) };
        turned.clear();
        turned.reserve_exact(w * h);
        for row in 0..rows {
            turned.extend((0..columns).map(|column| {
                let (x, y) = match self.0 {
                    2 => (w - 1 - column, row),
                    3 => (w - 1 - column, h - 1 - row),
                    4 => (column, h - 1 - row),
                    5 => (row, column),
                    6 => (row, h - 1 - column),
                    7 => (w - 1 - row, h - 1 - column),
                    _ => (w - 1 - row, column),
                };
                pixels[y * w + x]
            }));
        }
        if is_transposed { (height, width) } else { (width, height) }
    }
}
