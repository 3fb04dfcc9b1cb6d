//! Tables of a flatbuffer, read in place.
//!
//! A table is a place in the bytes. Its first four bytes lead to a vtable, a list with the offset
//! of each field. Fields have numbers, in the order of the format's schema files. Every access
//! compares its range with the bytes, so malformed bytes give a fault.
//!
//! Thread rule: plain values. Non-goals: alignment, which the readers of a byte slice do not need;
//! loops and shared tables, which callers bound by depth and count.

use crate::Fault;

/// Bytes of a vtable before its entries: its own length and that of the table.
const VTABLE_HEAD: usize = 4;

#[derive(Debug, Clone, Copy)]
pub(super) struct FlatTable<'a> {
    bytes: &'a [u8],
    at: usize,
    vtable: &'a [u8],
}

impl<'a> FlatTable<'a> {
    /// Returns the outermost table of a flatbuffer.
    pub(super) fn root(bytes: &'a [u8]) -> Result<Self, Fault> {
        Self::at(bytes, follow(bytes, 0)?)
    }

    fn at(bytes: &'a [u8], at: usize) -> Result<Self, Fault> {
        let back = i64::from(i32::from_le_bytes(chunk(bytes, at)?));
        let vtable = i64::try_from(at).ok().and_then(|at| at.checked_sub(back));
        let vtable = vtable.and_then(|vtable| usize::try_from(vtable).ok());
        let vtable = vtable.ok_or_else(|| malformed("a table has no vtable"))?;
        let length = usize::from(u16::from_le_bytes(chunk(bytes, vtable)?));
        Ok(Self { bytes, at, vtable: slice(bytes, vtable, length)? })
    }

    /// Returns the offset of a field. `None` if the table leaves it to its default.
    fn place(&self, field: usize) -> Option<usize> {
        let entry = self.vtable.get(VTABLE_HEAD + 2 * field..)?.first_chunk()?;
        let offset = usize::from(u16::from_le_bytes(*entry));
        (offset > 0).then(|| self.at + offset)
    }

    fn scalar<const N: usize>(&self, field: usize) -> Result<Option<[u8; N]>, Fault> {
        self.place(field).map(|at| chunk(self.bytes, at)).transpose()
    }

    pub(super) fn u8(&self, field: usize) -> Result<u8, Fault> {
        Ok(self.scalar(field)?.map_or(0, u8::from_le_bytes))
    }

    pub(super) fn i16(&self, field: usize, default: i16) -> Result<i16, Fault> {
        Ok(self.scalar(field)?.map_or(default, i16::from_le_bytes))
    }

    pub(super) fn i32(&self, field: usize, default: i32) -> Result<i32, Fault> {
        Ok(self.scalar(field)?.map_or(default, i32::from_le_bytes))
    }

    pub(super) fn i64(&self, field: usize) -> Result<i64, Fault> {
        Ok(self.scalar(field)?.map_or(0, i64::from_le_bytes))
    }

    pub(super) fn table(&self, field: usize) -> Result<Option<Self>, Fault> {
        let at = self.place(field).map(|at| follow(self.bytes, at)).transpose()?;
        at.map(|at| Self::at(self.bytes, at)).transpose()
    }

    /// Returns the bytes of a vector of elements of `width` bytes. An absent one is empty.
    pub(super) fn vector(&self, field: usize, width: usize) -> Result<&'a [u8], Fault> {
        Ok(self.vector_at(field, width)?.1)
    }

    fn vector_at(&self, field: usize, width: usize) -> Result<(usize, &'a [u8]), Fault> {
        let Some(at) = self.place(field) else { return Ok((0, &[])) };
        let at = follow(self.bytes, at)?;
        let count = u32::from_le_bytes(chunk(self.bytes, at)?) as usize;
        Ok((at + 4, slice(self.bytes, at + 4, count.saturating_mul(width))?))
    }

    /// Returns a string. An absent one is empty.
    pub(super) fn text(&self, field: usize) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.vector(field, 1)?).map_err(|_| malformed("a string is not UTF-8"))
    }

    /// Returns the tables of a vector. An absent one is empty.
    pub(super) fn tables(
        &self,
        field: usize,
    ) -> Result<impl ExactSizeIterator<Item = Result<Self, Fault>> + use<'a>, Fault> {
        let (begin, entries) = self.vector_at(field, 4)?;
        let bytes = self.bytes;
        let tables = (0..entries.len() / 4).map(move |index| begin + 4 * index);
        Ok(tables.map(move |at| Self::at(bytes, follow(bytes, at)?)))
    }
}

/// Returns the place that the relative offset at `at` leads to.
fn follow(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    let offset = u32::from_le_bytes(chunk(bytes, at)?) as usize;
    at.checked_add(offset).ok_or_else(outside)
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Fault> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(outside)
}

fn slice(bytes: &[u8], at: usize, length: usize) -> Result<&[u8], Fault> {
    bytes.get(at..).and_then(|rest| rest.get(..length)).ok_or_else(outside)
}

fn outside() -> Fault {
    malformed("an offset leads out of it")
}

fn malformed(why: &str) -> Fault {
    Fault::new("metadata", format!("is not a flatbuffer: {why}"))
}
