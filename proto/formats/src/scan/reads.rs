//! The ranges of a file that a scan needs, joined into few reads.
//!
//! The scan pushes parts, each a range with a tag, in ascending order. [`Reads`] asks for ranges
//! that cover them and hands each part back in one piece. A read is longer than its parts if the
//! next parts are likely to follow: it starts with [`READ_BYTES_MIN`] and doubles while parts lie
//! near each other.
//!
//! Thread rule: a plain value. Non-goals: I/O, and limits on the size of a part.

use std::{collections::VecDeque, ops::Range};

use larder_base::limits;

/// Shortest read. Most headers and their first offsets fit.
const READ_BYTES_MIN: u64 = limits::HEADER_PROBE_BYTES;
/// Longest read, the same as a part of a fill.
const READ_BYTES_MAX: u64 = limits::FILL_PART_BYTES;
/// A gap up to this size is read and dropped. At 50 MB/s it costs 5 ms, less than the first byte
/// of a further request.
const GAP_BYTES_MAX: u64 = 256 << 10;

#[derive(Debug)]
pub(crate) struct Reads<T> {
    file_bytes: u64,
    parts: VecDeque<(Range<u64>, T)>,
    /// The bytes of the first part that are known.
    held: Vec<u8>,
    /// The range that the caller reads now, from the next byte on.
    read: Range<u64>,
    /// Bytes of the next read if its parts need less.
    ahead: u64,
}

impl<T> Reads<T> {
    pub(crate) fn new(file_bytes: u64) -> Self {
        Self {
            file_bytes,
            parts: VecDeque::new(),
            held: Vec::new(),
            read: 0..0,
            ahead: READ_BYTES_MIN,
        }
    }

    /// Appends a part, not empty and inside the file.
    pub(crate) fn push(&mut self, range: Range<u64>, tag: T) {
        debug_assert!(range.start < range.end && range.end <= self.file_bytes, "{range:?}");
        self.parts.push_back((range, tag));
    }

    /// Returns the rest of the range to read now.
    pub(crate) fn wants(&self) -> Option<Range<u64>> {
        (!self.read.is_empty()).then(|| self.read.clone())
    }

    /// Takes bytes of the range until a part is complete, and returns the part. `None` if all bytes
    /// are taken.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Option<(Range<u64>, T, Vec<u8>)> {
        let next = self.next_byte().filter(|next| self.read.contains(next));
        let Some((next, end)) = next.zip(self.parts.front().map(|(range, _)| range.end)) else {
            self.cut(bytes, u64::MAX);
            return None;
        };
        self.cut(bytes, next - self.read.start);
        let piece = self.cut(bytes, end - next);
        self.held.extend_from_slice(piece);
        let (range, tag) = self.parts.pop_front_if(|_| next + piece.len() as u64 == end)?;
        Some((range, tag, std::mem::take(&mut self.held)))
    }

    /// Returns the offset of the first byte that the first part misses.
    fn next_byte(&self) -> Option<u64> {
        self.parts.front().map(|(range, _)| range.start + self.held.len() as u64)
    }

    /// Cuts up to `count` bytes off the front and returns them.
    fn cut<'a>(&mut self, bytes: &mut &'a [u8], count: u64) -> &'a [u8] {
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len());
        let (front, rest) = bytes.split_at(count);
        self.read.start += count as u64;
        *bytes = rest;
        front
    }

    /// Chooses the next range if the last one is read.
    pub(crate) fn plan(&mut self) {
        let Some(begin) = self.next_byte().filter(|_| self.read.is_empty()) else { return };
        let is_near = begin >= self.read.end && begin - self.read.end <= GAP_BYTES_MAX;
        if !is_near {
            self.ahead = READ_BYTES_MIN;
        }
        let mut end = begin;
        for (range, _) in &self.parts {
            if range.start > end.saturating_add(GAP_BYTES_MAX) || end - begin > READ_BYTES_MAX {
                break;
            }
            end = end.max(range.end);
        }
        let bytes = (end - begin).max(self.ahead).min(READ_BYTES_MAX);
        self.read = begin..self.file_bytes.min(begin.saturating_add(bytes));
        self.ahead = (2 * self.ahead).min(READ_BYTES_MAX);
    }
}
