//! Files of lines: JSON lines and plain text.
//!
//! [`LinesScan`] streams the file and notes where each line lies. A sample is a line without its
//! `\n` or `\r\n`, as a ragged row of the column `line`. The last line needs no end. Lines of ASCII
//! whitespace are no samples; the scan counts them. It skips a byte order mark of UTF-8.
//!
//! Thread rule: plain values, without locks. Non-goals: parsing. A line may hold invalid JSON,
//! invalid UTF-8 or a NUL byte.

use std::ops::Range;

use larder_base::limits;

use crate::{Column, Dtype, Fault, Logical, Rows, Scan, Spans, Table};

/// Most bytes of one range.
const READ_BYTES_MAX: u64 = 8 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The scan of one file of lines.
#[derive(Debug)]
pub struct LinesScan {
    file_bytes: u64,
    at: u64,
    range_end: u64,
    /// The rest of the byte order mark, while it may still come.
    mark: &'static [u8],
    line: Line,
    lines: Spans,
    blank_lines: u64,
}

/// The line that is being read.
#[derive(Debug)]
struct Line {
    begin: u64,
    is_blank: bool,
    /// Whether the last byte so far is `\r`.
    ends_in_return: bool,
}

impl Line {
    fn at(begin: u64) -> Self {
        Self { begin, is_blank: true, ends_in_return: false }
    }

    fn extend(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.is_blank = self.is_blank && bytes.iter().all(u8::is_ascii_whitespace);
            self.ends_in_return = *last == b'\r';
        }
    }
}

impl LinesScan {
    /// Begins the scan of a file of `file_bytes`.
    pub fn new(file_bytes: u64) -> Self {
        Self {
            file_bytes,
            at: 0,
            range_end: READ_BYTES_MAX.min(file_bytes),
            mark: BYTE_ORDER_MARK,
            line: Line::at(0),
            lines: Spans::default(),
            blank_lines: 0,
        }
    }

    /// Takes the byte order mark from the front, as far as it is there.
    fn take_mark(&mut self, bytes: &mut &[u8]) {
        while let ([first, rest @ ..], [expected, mark @ ..]) = (*bytes, self.mark) {
            if first != expected {
                self.mark = &[];
                return;
            }
            (*bytes, self.mark) = (rest, mark);
            self.at += 1;
            let is_whole = mark.is_empty();
            self.line = Line { is_blank: is_whole, ..Line::at(if is_whole { self.at } else { 0 }) };
        }
    }

    /// Ends the current line at `end`, without its `\r`.
    fn end_line(&mut self, end: u64) -> Result<(), Fault> {
        let line = std::mem::replace(&mut self.line, Line::at(self.at));
        if line.is_blank {
            self.blank_lines += 1;
            return Ok(());
        }
        let fault = |why: String| {
            let number = self.lines.len() as u64 + self.blank_lines + 1;
            Fault::new(format!("line {number}"), why)
        };
        let limit = limits::RAGGED_ROWS_MAX;
        if self.lines.len() as u64 == limit {
            return Err(fault(format!("comes after {limit} others, the most of a dataset")));
        }
        let bytes = end - line.begin;
        let length = u32::try_from(bytes)
            .map_err(|_| fault(format!("has {bytes} bytes, at most {} are allowed", u32::MAX)))?;
        self.lines.push(line.begin, length);
        Ok(())
    }
}

impl Scan for LinesScan {
    fn wants(&self) -> Option<Range<u64>> {
        (self.at < self.range_end).then_some(self.at..self.range_end)
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        self.take_mark(&mut bytes);
        while let Some(length) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend(&bytes[..length]);
            let end = self.at + length as u64 - u64::from(self.line.ends_in_return);
            self.at += length as u64 + 1;
            self.end_line(end)?;
            bytes = &bytes[length + 1..];
        }
        self.line.extend(bytes);
        self.at += bytes.len() as u64;
        if self.at >= self.range_end {
            self.range_end = self.file_bytes.min(self.at + READ_BYTES_MAX);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Table, Fault> {
        if self.at < self.file_bytes {
            return Err(Fault::new("file", "was not read to its end"));
        }
        if self.at > self.line.begin {
            self.end_line(self.at)?;
        }
        let left_out = match self.blank_lines {
            0 => Vec::new(),
            1 => vec![("1 blank line".into(), "holds no sample".into())],
            count => vec![(format!("{count} blank lines"), "hold no samples".into())],
        };
        let rows = self.lines.len() as u64;
        let line = Column {
            name: "line".into(),
            dtype: Dtype::U8,
            logical: Logical::Json,
            shape: Vec::new(),
            ragged: true,
            rows: Rows::Spans(self.lines),
            absent: Vec::new(),
        };
        Ok(Table { rows, columns: vec![line], left_out, ..Table::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_over_32_bits_is_refused() {
        let begins = |begin| LinesScan {
            at: 1 << 33,
            line: Line { is_blank: false, ..Line::at(begin) },
            mark: &[],
            ..LinesScan::new(1 << 34)
        };
        let longest = (1 << 33) - u64::from(u32::MAX);
        assert_eq!(begins(longest).take(b"\n"), Ok(()));
        let fault = begins(longest - 1).take(b"\n").unwrap_err();
        assert_eq!(fault.field, "line 1");
        assert_eq!(fault.why, "has 4294967296 bytes, at most 4294967295 are allowed");
    }
}
