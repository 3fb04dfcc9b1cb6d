//! Fixed-width little-endian fields: decoded with bounds checks, encoded in bulk.

use super::{Kind, WireError};

/// Fields taken one by one from the front of a body. Allocates nothing. A body that ends too soon
/// is an error, and so are bytes left over at [`Fields::end`].
pub(super) struct Fields<'a> {
    kind: Kind,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(kind: Kind, body: &'a [u8]) -> Self {
        Self { kind, rest: body }
    }

    pub(super) fn malformed(&self, what: &'static str) -> WireError {
        WireError::Malformed { kind: self.kind, what }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let split = self.rest.split_at_checked(count);
        let (taken, rest) = split.ok_or_else(|| self.malformed("it ends too soon"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn zero_u8(&mut self) -> Result<(), WireError> {
        let [byte] = self.array()?;
        self.must_be_zero(byte == 0)
    }

    pub(super) fn zero_u16(&mut self) -> Result<(), WireError> {
        let value = self.u16()?;
        self.must_be_zero(value == 0)
    }

    pub(super) fn zero_u32(&mut self) -> Result<(), WireError> {
        let value = self.u32()?;
        self.must_be_zero(value == 0)
    }

    fn must_be_zero(&self, zero: bool) -> Result<(), WireError> {
        if zero { Ok(()) } else { Err(self.malformed("reserved bits are set")) }
    }

    /// Returns the rest as text. The caller's kind bounds its length.
    pub(super) fn text(&mut self) -> Result<String, WireError> {
        let text = str::from_utf8(self.rest).map_err(|_| self.malformed("text is not utf-8"))?;
        self.rest = &[];
        Ok(text.to_owned())
    }

    /// Returns the rest. The caller's kind bounds its length.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Checks that nothing is left.
    pub(super) fn end(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("bytes follow its end")) }
    }
}

/// Appends numbers, little-endian, as one block.
pub(super) fn put_u32s(out: &mut Vec<u8>, values: &[u32]) {
    let start = out.len();
    out.resize(start + 4 * values.len(), 0);
    for (bytes, value) in out[start..].chunks_exact_mut(4).zip(values) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// Replaces the contents of `into` by the numbers in `bytes`, which has a multiple of four bytes.
pub(super) fn take_u32s(bytes: &[u8], into: &mut Vec<u32>) {
    into.clear();
    into.extend(bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)));
}
