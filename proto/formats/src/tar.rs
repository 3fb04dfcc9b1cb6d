//! The scan of a WebDataset tar.
//!
//! A tar is a sequence of members. Each has a header of 512 bytes and a body, padded to whole
//! blocks. The scan parses the headers (`header.rs`) and groups the members into samples
//! (`samples.rs`). It always knows the next bytes that it needs, and skips all before them. If they
//! are far beyond the bytes read, it hops: it reads there. Else it reads on.
//!
//! Thread rule: plain values. Non-goals: compressed tars, sparse members, and the content of
//! members other than integers.

mod header;
mod samples;
#[cfg(test)]
mod tests;

use std::{mem, ops::Range};

use larder_base::limits;

use crate::{Fault, Scan, Table};
use header::{BLOCK_BYTES, Extension, Header, Kind, PATH_BYTES_MAX, SPARSE, escaped, until_zero};
use samples::Samples;

/// Bytes of the first read: the whole file, or enough to see whether members are large.
const FIRST_READ_BYTES: u64 = 64 << 10;
/// Bytes of a read after a hop: a PAX header, its records, a header and some small members.
const HOP_READ_BYTES: u64 = 4 << 10;
/// Most bytes of a read. Reads without a hop between them grow to this, so that a long stream takes
/// few requests and a short one wastes little.
const READ_BYTES_MAX: u64 = 8 << 20;
/// The factor of that growth.
const READ_GROWTH: u64 = 16;
/// Least gap that the scan hops over. A request to a store takes as long as the transfer of some
/// 100 KiB to 1 MiB, and many scans share the link. An estimate, not measured.
const HOP_BYTES_MIN: u64 = 256 << 10;

/// Most members of a tar. They take 5 GB of headers, and 120 MB of memory for their places.
const MEMBERS_MAX: u64 = 10_000_000;
/// Most bytes of a member's PAX records, which are read as a whole. Usual ones have fewer than 200.
const RECORDS_BYTES_MAX: u64 = 1 << 20;
/// Writers fill a tar with zeros to a multiple of these bytes.
const RECORD_BYTES: u64 = 20 * BLOCK_BYTES;

/// Scans a WebDataset tar in the formats ustar, PAX and GNU.
pub struct TarScan {
    file_bytes: u64,
    /// The part of the current read that has not come yet.
    unread: Range<u64>,
    /// Bytes of the current read.
    read_bytes: u64,
    /// [`HOP_BYTES_MIN`], except in tests.
    hop_bytes_min: u64,
    /// The bytes for the next step.
    needed: Range<u64>,
    /// The part of `needed` that has come.
    carry: Vec<u8>,
    /// `None` after the end of the tar.
    step: Option<TarStep>,
    /// Fields for the next member, from headers before it.
    extension: Option<Extension>,
    members: u64,
    samples: Samples,
}

/// The meaning of the bytes that the scan needs next.
#[derive(Clone, Copy)]
enum TarStep {
    Header,
    /// The body of a GNU header: the next member's path.
    LongPath,
    /// The body of a PAX header.
    Records {
        /// Whether they are for all further members.
        global: bool,
    },
    /// The body of a member in a column of integers.
    Integer {
        column: usize,
    },
}

impl TarStep {
    /// Returns the most bytes that a step takes, and their name.
    fn most(&self) -> (u64, &'static str) {
        match self {
            Self::Header => (BLOCK_BYTES, "a header"),
            Self::LongPath => (PATH_BYTES_MAX, "a path"),
            Self::Records { .. } => (RECORDS_BYTES_MAX, "a list of PAX records"),
            Self::Integer { .. } => (BLOCK_BYTES, "an integer"),
        }
    }
}

impl Scan for TarScan {
    fn wants(&self) -> Option<Range<u64>> {
        (self.step.is_some() && !self.unread.is_empty()).then(|| self.unread.clone())
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() && self.step.is_some() {
            let begin = self.needed.start + self.carry.len() as u64;
            let (skipped, rest) = split(bytes, begin - self.unread.start);
            let (part, rest) = split(rest, self.needed.end - begin);
            self.carry.extend_from_slice(part);
            self.unread.start += (skipped.len() + part.len()) as u64;
            bytes = rest;
            self.perform_steps()?;
        }
        if self.unread.is_empty() {
            self.plan_read();
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Table, Fault> {
        let fault = |why: &str| Err(Fault::new("file", why));
        if self.file_bytes == 0 {
            return fault("is empty: a tar has at least one block");
        }
        if self.step.is_some() {
            return fault("was not read to its end");
        }
        if self.extension.is_some() {
            return fault("ends after the PAX header or long path of a member: it was cut off");
        }
        self.samples.finish().map_err(|why| Fault::new("file", why))
    }
}

impl TarScan {
    /// Begins the scan of a file of this size.
    pub fn new(file_bytes: u64) -> Self {
        Self {
            file_bytes,
            unread: 0..FIRST_READ_BYTES.min(file_bytes),
            read_bytes: FIRST_READ_BYTES,
            hop_bytes_min: HOP_BYTES_MIN,
            needed: 0..BLOCK_BYTES.min(file_bytes),
            carry: Vec::new(),
            step: Some(TarStep::Header),
            extension: None,
            members: 0,
            samples: Samples::default(),
        }
    }

    /// Plans the next read: a short one at the bytes needed, if they are far away. Else a longer
    /// one that goes on.
    fn plan_read(&mut self) {
        let mut begin = self.unread.end;
        if self.needed.start.saturating_sub(begin) > self.hop_bytes_min {
            begin = self.needed.start;
            self.read_bytes = HOP_READ_BYTES;
        } else {
            self.read_bytes = READ_BYTES_MAX.min(self.read_bytes * READ_GROWTH);
        }
        self.unread = begin..self.file_bytes.min(begin.saturating_add(self.read_bytes));
    }

    /// Performs the next step if all its bytes are there. It may be followed by steps that need no
    /// bytes.
    fn perform_steps(&mut self) -> Result<(), Fault> {
        while self.carry.len() as u64 == self.needed.end - self.needed.start
            && let Some(step) = self.step.take()
        {
            let mut carry = mem::take(&mut self.carry);
            self.perform(step, &carry)?;
            carry.clear();
            self.carry = carry;
        }
        Ok(())
    }

    fn perform(&mut self, step: TarStep, bytes: &[u8]) -> Result<(), Fault> {
        let Range { start, end } = self.needed;
        match step {
            TarStep::Header => return self.take_header(bytes),
            TarStep::LongPath => {
                self.extend(Extension { path: Some(until_zero(bytes).to_vec()), size: None });
            }
            TarStep::Records { global } => {
                let place = format!("PAX header at offset {}", start - BLOCK_BYTES);
                self.take_records(bytes, global).map_err(|why| Fault::new(place, why))?;
            }
            TarStep::Integer { column } => self.samples.push_integer(column, start, bytes),
        }
        self.await_header(end.next_multiple_of(BLOCK_BYTES));
        Ok(())
    }

    fn take_header(&mut self, block: &[u8]) -> Result<(), Fault> {
        let at = self.needed.start;
        let fault = |why| Fault::new(format!("header at offset {at}"), why);
        let parsed = Header::parse(block).map_err(|why| match compression(block) {
            Some(name) if at == 0 => {
                Fault::new("file", format!("is compressed with {name}: decompress it first"))
            }
            _ => fault(why),
        })?;
        let Some(Header { path, size, kind }) = parsed else {
            self.end(at);
            return Ok(());
        };
        match kind {
            Kind::LongPath => self.collect(TarStep::LongPath, size).map_err(fault),
            Kind::Records | Kind::GlobalRecords => {
                let step = TarStep::Records { global: kind == Kind::GlobalRecords };
                self.collect(step, size).map_err(fault)
            }
            Kind::LongLink => self.skip(size).map_err(fault),
            _ => {
                let extension = self.extension.take().unwrap_or_default();
                let path = extension.path.unwrap_or(path);
                let size = extension.size.unwrap_or(size);
                self.take_member(&path, size, kind).map_err(|why| member_fault(&path, at, why))
            }
        }
    }

    /// Ends the tar at a block of zeros, as Python's tarfile does. Tars that were joined end at the
    /// first one.
    fn end(&mut self, at: u64) {
        let behind = self.file_bytes - at;
        if behind > RECORD_BYTES + 2 * BLOCK_BYTES {
            let name = format!("the last {behind} bytes");
            self.samples.leave_out(name.as_bytes(), "lie behind the end of the tar");
        }
    }

    /// Takes the records of a PAX header. Returns a mistake as a clause.
    fn take_records(&mut self, records: &[u8], global: bool) -> Result<(), String> {
        let found = Extension::parse(records)?;
        if !global {
            self.extend(found);
        } else if found.path.is_some() || found.size.is_some() {
            return Err("gives all further members one path or size".into());
        } else {
            self.samples.leave_out(b"global PAX header", "is no member");
        }
        Ok(())
    }

    /// Takes the header of a member. Returns a mistake as a clause.
    fn take_member(&mut self, path: &[u8], size: u64, kind: Kind) -> Result<(), String> {
        self.members += 1;
        if self.members > MEMBERS_MAX {
            return Err(format!("is one too many: at most {MEMBERS_MAX}. Write several tars"));
        }
        match kind {
            Kind::File => {}
            Kind::Sparse => return Err(SPARSE.into()),
            Kind::Directory => return self.skip(0),
            _ => {
                self.samples.leave_out(path, "is not a regular file");
                return self.skip(if kind == Kind::Special { 0 } else { size });
            }
        }
        let Some(column) = self.samples.place(path)? else { return self.skip(size) };
        if self.samples.may_be_integer(column, size) {
            return self.collect(TarStep::Integer { column }, size);
        }
        let row_bytes = u32::try_from(size).map_err(|_| {
            format!("has {size} bytes: a row has at most {}", limits::ROW_BYTES_MAX)
        })?;
        self.samples.push_span(column, self.needed.end, row_bytes);
        self.skip(size)
    }

    /// Adds fields for the next member. Those of an earlier header count, as in Python's tarfile.
    fn extend(&mut self, later: Extension) {
        let earlier = self.extension.take().unwrap_or_default();
        self.extension = Some(Extension {
            path: earlier.path.or(later.path),
            size: earlier.size.or(later.size),
        });
    }

    /// Goes on with the body of the current header. Returns a mistake as a clause.
    fn collect(&mut self, step: TarStep, size: u64) -> Result<(), String> {
        let (size_max, what) = step.most();
        if size > size_max {
            return Err(format!("has a body of {size} bytes: {what} has at most {size_max}"));
        }
        self.body_end(size)?;
        self.needed = self.needed.end..self.needed.end + size;
        self.step = Some(step);
        Ok(())
    }

    /// Goes on after the body of the current header. Returns a mistake as a clause.
    fn skip(&mut self, size: u64) -> Result<(), String> {
        self.await_header(self.body_end(size)?);
        Ok(())
    }

    /// Returns the end of a body, with its padding, after the current header.
    fn body_end(&self, size: u64) -> Result<u64, String> {
        let begin = self.needed.end;
        let end = begin.checked_add(size.next_multiple_of(BLOCK_BYTES));
        end.filter(|end| *end <= self.file_bytes).ok_or_else(|| {
            format!(
                "has {size} bytes and padding from offset {begin}, but the file ends at {}: it \
                 was cut off, or the size is wrong",
                self.file_bytes
            )
        })
    }

    /// Goes on with the header at `at`. A tar may end there, without blocks of zeros.
    fn await_header(&mut self, at: u64) {
        self.needed = at..self.file_bytes.min(at.saturating_add(BLOCK_BYTES));
        self.step = (at < self.file_bytes).then_some(TarStep::Header);
    }
}

/// Splits at most this many bytes off.
fn split(bytes: &[u8], most: u64) -> (&[u8], &[u8]) {
    let middle = usize::try_from(most).map_or(bytes.len(), |most| most.min(bytes.len()));
    bytes.split_at(middle)
}

/// Returns the name of the compression of a file that begins with these bytes.
fn compression(begin: &[u8]) -> Option<&'static str> {
    let magics: [(&[u8], _); 4] = [
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
    ];
    magics.iter().find(|(magic, _)| begin.starts_with(magic)).map(|(_, name)| *name)
}

fn member_fault(path: &[u8], at: u64, why: String) -> Fault {
    Fault::new(format!("member '{}' at offset {at}", escaped(path)), why)
}
