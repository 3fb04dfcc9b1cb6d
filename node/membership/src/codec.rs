//! Flat little-endian fields, with lengths before text and lists, and a checksum at the end. A
//! reader allocates no more than the input's length allows.

use larder_base::{Member, Scheme};
use xxhash_rust::xxh3::xxh3_64;

use crate::{BlobId, Malformed};

const CHECKSUM_BYTES: usize = 8;

/// Fields in the order in which they are put.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// Begins with eight bytes that name the kind and the layout.
    pub(crate) fn new(magic: &[u8; 8]) -> Self {
        Self(magic.to_vec())
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn array(&mut self, bytes: &[u8; 16]) {
        self.0.extend_from_slice(bytes);
    }

    /// Writes text of at most 65,535 bytes. Longer text is cut at a character boundary.
    pub(crate) fn text(&mut self, text: &str) {
        let cut = text.floor_char_boundary(usize::from(u16::MAX));
        self.u16(u16::try_from(cut).expect("cut to fit"));
        self.0.extend_from_slice(&text.as_bytes()[..cut]);
    }

    /// Writes self-describing bytes, led by their length.
    pub(crate) fn block(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("blobs are bounded far below"));
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }

    /// As [`Reader::trailing`].
    pub(crate) fn trailing<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        if let Some(value) = value {
            put(self, value);
        }
    }

    pub(crate) fn list<T>(&mut self, values: &[T], mut put: impl FnMut(&mut Self, &T)) {
        self.u32(u32::try_from(values.len()).expect("lists are bounded far below"));
        for value in values {
            put(self, value);
        }
    }

    pub(crate) fn scheme(&mut self, scheme: Scheme) {
        self.u32(scheme.to_number());
    }

    pub(crate) fn blob_id(&mut self, id: BlobId) {
        self.array(id.as_bytes());
    }

    pub(crate) fn member(&mut self, member: &Member) {
        let Member { id, weight, control, host, zone } = member;
        self.text(id);
        self.u32(*weight);
        self.text(control);
        self.text(host);
        self.text(zone);
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        let checksum = xxh3_64(&self.0);
        self.u64(checksum);
        self.0
    }
}

/// The same fields, taken from the front.
pub(crate) struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Checks length, checksum and magic.
    pub(crate) fn new(
        what: &'static str,
        magic: &[u8; 8],
        bytes: &'a [u8],
        bytes_max: usize,
    ) -> Result<Self, Malformed> {
        let malformed = |why| Malformed { what, why };
        if bytes.len() > bytes_max {
            return Err(malformed("it is longer than allowed"));
        }
        let (body, checksum) = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or_else(|| malformed("it ends too soon"))?;
        if xxh3_64(body).to_le_bytes() != *checksum {
            return Err(malformed("its checksum does not match"));
        }
        let rest = body.strip_prefix(magic).ok_or_else(|| malformed("it is of another kind"))?;
        Ok(Self { what, rest })
    }

    pub(crate) fn malformed(&self, why: &'static str) -> Malformed {
        Malformed { what: self.what, why }
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let split = self.rest.split_at_checked(count);
        let (taken, rest) = split.ok_or_else(|| self.malformed("it ends too soon"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.fixed::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.fixed().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.fixed().map(u64::from_le_bytes)
    }

    pub(crate) fn array(&mut self) -> Result<[u8; 16], Malformed> {
        self.fixed()
    }

    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let count = usize::from(self.u16()?);
        let text = str::from_utf8(self.bytes(count)?);
        text.map(str::to_owned).map_err(|_| self.malformed("text is not utf-8"))
    }

    /// Reads self-describing bytes, without a copy.
    pub(crate) fn block(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u32()? as usize;
        self.bytes(count)
    }

    pub(crate) fn option<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.flag()? { take(self).map(Some) } else { Ok(None) }
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed("a flag is neither 0 nor 1")),
        }
    }

    /// Reads a field that later versions of the format append, if there is one.
    pub(crate) fn trailing<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.rest.is_empty() { Ok(None) } else { take(self).map(Some) }
    }

    /// Reads a list of at most `max` items, each of at least `bytes_min` bytes.
    pub(crate) fn list<T>(
        &mut self,
        max: usize,
        bytes_min: usize,
        mut take: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32()? as usize;
        if count > max || count.saturating_mul(bytes_min) > self.rest.len() {
            return Err(self.malformed("a list is longer than allowed"));
        }
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(take(self)?);
        }
        Ok(values)
    }

    pub(crate) fn scheme(&mut self) -> Result<Scheme, Malformed> {
        self.u32().map(Scheme::from_number)
    }

    pub(crate) fn blob_id(&mut self) -> Result<BlobId, Malformed> {
        self.array().map(BlobId::from_bytes)
    }

    pub(crate) fn member(&mut self) -> Result<Member, Malformed> {
        Ok(Member {
            id: self.text()?,
            weight: self.u32()?,
            control: self.text()?,
            host: self.text()?,
            zone: self.text()?,
        })
    }

    /// Fails if bytes are left.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("bytes follow its end")) }
    }
}
