//! The headers of a tar: blocks that begin a member, and the PAX records that extend one.
//!
//! A header block, by offset and width. All other fields are ignored:
//!
//! ```text
//!   0 100  path, up to the first zero byte
//! 124  12  size of the body
//! 148   8  checksum: the sum of the block's bytes, with this field as spaces
//! 156   1  kind
//! 257   6  magic: "ustar" and a zero byte where the prefix counts
//! 345 155  prefix: the folders of a path of more than 100 bytes
//! ```
//!
//! Thread rule: pure functions. Non-goals: where a header lies, and limits on its numbers.

use crate::shown;

/// Bytes of a header. Bodies are padded to a multiple.
pub(super) const BLOCK_BYTES: u64 = 512;
/// The mistake of a sparse member.
pub(super) const SPARSE: &str = "is sparse: its bytes are not one range of the file. Write the \
     tar without sparse members";
/// Longest path, in bytes: the limit of Linux.
pub(super) const PATH_BYTES_MAX: u64 = 4096;

/// One header block.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) path: Vec<u8>,
    pub(super) size: u64,
    pub(super) kind: Kind,
}

/// The kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// Links, devices and pipes. They have no body, whatever the size says.
    Special,
    Sparse,
    /// The body is the path of the next member (GNU).
    LongPath,
    /// The body is the link target of the next member (GNU).
    LongLink,
    /// The body holds PAX records for the next member.
    Records,
    /// The body holds PAX records for all further members.
    GlobalRecords,
    /// A kind of one program's own. It has a body.
    Other,
}

impl Header {
    /// Parses a block, which is short at the end of the file. Returns `None` for a block of zeros,
    /// which ends the tar.
    ///
    /// # Errors
    /// The mistake as a clause.
    pub(super) fn parse(block: &[u8]) -> Result<Option<Self>, String> {
        if (block.len() as u64) < BLOCK_BYTES {
            return Err(format!(
                "the file ends after {} of its {BLOCK_BYTES} bytes: it was cut off",
                block.len()
            ));
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let stated = number(&block[148..156]).map_err(|why| format!("the checksum {why}"))?;
        if !checksums(block).contains(&stated.cast_signed()) {
            return Err("the checksum is wrong: this is no tar, or it is damaged".into());
        }
        let size = number(&block[124..136]).map_err(|why| format!("the size {why}"))?;
        let mut path = until_zero(&block[..100]).to_vec();
        let kind = kind(block[156], &path);
        let prefix = until_zero(&block[345..500]);
        if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
            path = [prefix, b"/", &path].concat();
        }
        Ok(Some(Self { path, size, kind }))
    }
}

fn kind(code: u8, path: &[u8]) -> Kind {
    match code {
        // Writers before POSIX mark a directory by its slash.
        0 if path.ends_with(b"/") => Kind::Directory,
        0 | b'0' | b'7' => Kind::File,
        b'5' => Kind::Directory,
        b'1'..=b'4' | b'6' => Kind::Special,
        b'S' => Kind::Sparse,
        b'L' => Kind::LongPath,
        b'K' => Kind::LongLink,
        b'x' | b'X' => Kind::Records,
        b'g' => Kind::GlobalRecords,
        _ => Kind::Other,
    }
}

/// Returns the sum of a block's bytes, as unsigned and as signed numbers. Some old writers took the
/// latter.
fn checksums(block: &[u8]) -> [i64; 2] {
    let counted = |index: usize| if (148..156).contains(&index) { b' ' } else { block[index] };
    let bytes = (0..block.len()).map(counted);
    [bytes.clone().map(i64::from).sum(), bytes.map(|byte| i64::from(byte.cast_signed())).sum()]
}

/// Parses a field: octal digits, or big-endian after a byte `0x80`. Returns the mistake as a
/// clause.
fn number(field: &[u8]) -> Result<u64, String> {
    match field {
        [0x80, digits @ ..] => digits
            .iter()
            .try_fold(0_u64, |sum, digit| sum.checked_mul(256)?.checked_add((*digit).into()))
            .filter(|value| *value <= i64::MAX.unsigned_abs())
            .ok_or_else(|| "is more than 2^63 - 1".into()),
        [0xff, ..] => Err("is negative".into()),
        _ => {
            let digits = until_zero(field).trim_ascii();
            let add = |sum, digit: &u8| {
                matches!(digit, b'0'..=b'7').then(|| sum * 8 + u64::from(digit - b'0'))
            };
            let value = digits.iter().try_fold(0, add);
            value.ok_or_else(|| format!("'{}' is not an octal number", escaped(digits)))
        }
    }
}

/// Returns the bytes before the first zero byte.
pub(super) fn until_zero(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Shortens and escapes bytes from a file for a message.
pub(super) fn escaped(bytes: &[u8]) -> String {
    shown(&String::from_utf8_lossy(bytes))
}

/// The fields of a header that earlier headers replace.
#[derive(Debug, Default)]
pub(super) struct Extension {
    pub(super) path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
}

impl Extension {
    /// Parses PAX records: `LENGTH KEYWORD=VALUE\n`, with the length of the whole record.
    ///
    /// # Errors
    /// The mistake as a clause.
    pub(super) fn parse(mut records: &[u8]) -> Result<Self, String> {
        let mut found = Self::default();
        while !records.is_empty() {
            let (record, rest) = split_record(records)?;
            let equals = record.iter().position(|byte| *byte == b'=');
            let equals =
                equals.ok_or_else(|| format!("the record '{}' has no '='", escaped(record)))?;
            match (&record[..equals], &record[equals + 1..]) {
                (b"path", path) => found.path = Some(checked_path(path)?),
                (b"size", size) => found.size = Some(checked_size(size)?),
                (keyword, _) if keyword.starts_with(b"GNU.sparse.") => return Err(SPARSE.into()),
                _ => {}
            }
            records = rest;
        }
        Ok(found)
    }
}

/// Splits the first record off, and returns it without its length and newline.
fn split_record(records: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let lies = |what: &str| format!("a record {what}: '{}'", escaped(records));
    let space = records.iter().position(|byte| *byte == b' ');
    let digits = &records[..space.unwrap_or(records.len())];
    let length = decimal(digits).and_then(|length| usize::try_from(length).ok());
    let length = length.ok_or_else(|| lies("does not begin with a decimal length and a space"))?;
    let record = records.get(digits.len() + 1..length);
    let record = record.ok_or_else(|| lies("has a wrong length"))?;
    let record = record.strip_suffix(b"\n").ok_or_else(|| lies("does not end with a newline"))?;
    Ok((record, &records[length..]))
}

/// Checks the path of a PAX record.
fn checked_path(path: &[u8]) -> Result<Vec<u8>, String> {
    if path.is_empty() || path.contains(&0) || path.len() as u64 > PATH_BYTES_MAX {
        return Err(format!(
            "the path '{}' is empty, holds a zero byte, or has more than {PATH_BYTES_MAX} bytes",
            escaped(path)
        ));
    }
    Ok(path.to_vec())
}

/// Checks the size of a PAX record.
fn checked_size(size: &[u8]) -> Result<u64, String> {
    let value = decimal(size).filter(|value| *value <= i64::MAX.unsigned_abs());
    value.ok_or_else(|| format!("the size '{}' is not a number below 2^63", escaped(size)))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
