//! Rows out of a batch in memory: numbers, texts and lists of numbers, with zeros for nulls.
//!
//! Values that lie side by side are handed over where they lie.
//!
//! Thread rule: plain functions. Memory: some kibibytes beside the batch.

use std::ops::Range;

use super::{
    super::{schema::Kind, tree::TypeNode},
    Array, fault,
};
use crate::{Fault, block::Put};

/// Rows that are handed over together.
const ROWS: usize = 8192;
/// Bytes that are collected before they are handed over.
const BYTES: usize = 64 << 10;

/// The rows of a column: those of a field, and of the structs around it.
pub(in crate::arrow) struct Rows<'a> {
    around: Vec<&'a Array<'a>>,
    pub(in crate::arrow) field: &'a Array<'a>,
}

impl<'a> Rows<'a> {
    pub(in crate::arrow) fn new(root: &'a Array<'a>, path: usize) -> Result<Self, Fault> {
        let (mut around, mut field) = (Vec::new(), root);
        for _ in 0..path {
            around.push(field);
            field = field.children.first().ok_or_else(|| fault("struct", "has no field"))?;
        }
        Ok(Self { around, field })
    }

    pub(in crate::arrow) fn is_valid(&self, row: usize) -> bool {
        self.field.is_valid(row) && self.around.iter().all(|array| array.is_valid(row))
    }

    fn has_nulls(&self) -> bool {
        self.field.has_nulls() || self.around.iter().any(|array| array.has_nulls())
    }

    pub(in crate::arrow) fn validity(&self, put: &mut Put<'_>) -> Result<(), Fault> {
        let mut rows = 0..self.field.length;
        while !rows.is_empty() {
            let some = rows.by_ref().take(BYTES);
            let bytes: Vec<u8> = some.map(|row| u8::from(self.is_valid(row))).collect();
            put(&bytes, &[])?;
        }
        Ok(())
    }

    /// Returns whether all elements of fixed lists are there, in rows that have a value.
    pub(in crate::arrow) fn elements_are_there(&self) -> bool {
        let (mut array, mut each) = (self.field, 1_usize);
        while let (Kind::FixedList(size), Some(child)) = (array.node.kind, array.children.first()) {
            each = each.saturating_mul(usize::try_from(size).unwrap_or(usize::MAX));
            let is_there = |row: usize| (each * row..each * (row + 1)).all(|at| child.is_valid(at));
            let all = || (0..self.field.length).all(|row| !self.is_valid(row) || is_there(row));
            if child.has_nulls() && !all() {
                return false;
            }
            array = child;
        }
        true
    }

    /// Hands over rows of one length.
    pub(in crate::arrow) fn fixed(&self, row_bytes: u64, put: &mut Put<'_>) -> Result<(), Fault> {
        let (elements, each) = Elements::of(self.field)?;
        if row_bytes == 0 || (each as u64).saturating_mul(elements.bytes() as u64) != row_bytes {
            return Err(fault("rows", "have another length"));
        }
        if !self.elements_are_there() {
            return Err(fault("list", "has a null among its elements"));
        }
        let (rows, has_nulls) = (self.field.length, self.has_nulls());
        let row_bytes = each * elements.bytes();
        let at_once = if has_nulls { (BYTES / row_bytes).max(1) } else { rows.max(1) };
        for begin in (0..rows).step_by(at_once) {
            let end = rows.min(begin + at_once);
            if !has_nulls {
                elements.put(each * begin..each * end, put)?;
                continue;
            }
            let mut out = Vec::with_capacity((end - begin) * row_bytes);
            for row in begin..end {
                match self.is_valid(row) {
                    true => elements.append(each * row..each * (row + 1), &mut out)?,
                    false => out.resize(out.len() + row_bytes, 0),
                }
            }
            put(&out, &[])?;
        }
        Ok(())
    }

    /// Returns the length that all lists in lists have. `None` if there are none.
    pub(in crate::arrow) fn inner_length(&self) -> Result<Option<u64>, Fault> {
        let (Kind::List { .. }, Some(inner)) = (self.field.node.kind, self.field.children.first())
        else {
            return Ok(None);
        };
        if !matches!(inner.node.kind, Kind::List { .. }) || inner.length == 0 {
            return Ok(None);
        }
        let first = inner.range(0)?.len();
        for index in 1..inner.length {
            if inner.range(index)?.len() != first {
                return Err(uneven());
            }
        }
        if first == 0 { Err(uneven()) } else { Ok(Some(first as u64)) }
    }

    /// Hands over rows of any length, or only their lengths.
    pub(in crate::arrow) fn ragged(
        &self,
        scalar_bytes: u64,
        with_bytes: bool,
        put: &mut Put<'_>,
    ) -> Result<(), Fault> {
        match self.field.node.kind {
            Kind::View(_) | Kind::Dictionary { .. } => return self.texts(with_bytes, put),
            Kind::Text { .. } | Kind::List { .. } => {}
            _ => return Err(fault("rows", "have one length")),
        }
        let row = self.element_bytes()?;
        let row = row.filter(|row| scalar_bytes > 0 && row.is_multiple_of(scalar_bytes));
        let row = row.and_then(|row| usize::try_from(row).ok());
        let row = row.ok_or_else(|| fault("rows", "have another type"))?;
        let child = self.field.children.first();
        let (elements, first, each) = match child {
            Some(child) if with_bytes && has_holes(child) => {
                return Err(fault("list", "has a null among its elements"));
            }
            Some(child) if with_bytes => Elements::of_lists(child)?,
            _ => (Elements::Texts(self.field), 0, 1),
        };
        let values = |run: &Range<usize>| {
            let at = |index: usize| each.checked_mul(index)?.checked_add(first);
            let found = at(run.start).zip(at(run.end)).map(|(start, end)| start..end);
            found.ok_or_else(|| fault("offsets", "lead past the values"))
        };
        let (mut lengths, mut run) = (Vec::with_capacity(ROWS.min(self.field.length)), 0..0);
        for index in 0..self.field.length {
            let range =
                if self.is_valid(index) { self.field.range(index)? } else { run.end..run.end };
            if child.is_some_and(|child| range.end > child.length) {
                return Err(fault("offsets", "lead past the values"));
            }
            let bytes = range.len().checked_mul(row);
            let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
            let bytes = bytes.ok_or_else(|| fault("rows", "have more than 4 GiB"))?;
            if range.start != run.end || lengths.len() == ROWS {
                if with_bytes {
                    elements.put(values(&run)?, put)?;
                }
                put(&[], &lengths)?;
                lengths.clear();
                run = range.start..range.start;
            }
            run.end = range.end;
            lengths.push(bytes);
        }
        if with_bytes {
            elements.put(values(&run)?, put)?;
        }
        put(&[], &lengths)
    }

    /// Returns the bytes of an element of a row. `None` if elements differ in length.
    fn element_bytes(&self) -> Result<Option<u64>, Fault> {
        let Some(element) = self.field.node.children.first() else { return Ok(Some(1)) };
        let Kind::List { .. } = element.kind else { return Ok(element.value_bytes()) };
        let length = self.inner_length()?.unwrap_or(1);
        let number = element.children.first().and_then(TypeNode::value_bytes);
        Ok(number.and_then(|bytes| bytes.checked_mul(length)))
    }

    /// Hands over texts that do not lie side by side.
    fn texts(&self, with_bytes: bool, put: &mut Put<'_>) -> Result<(), Fault> {
        let (mut out, mut lengths) = (Vec::new(), Vec::new());
        for row in 0..self.field.length {
            let is_valid = self.is_valid(row);
            let length = if is_valid { self.field.text_bytes(row)? } else { 0 };
            lengths.push(u32::try_from(length).map_err(|_| fault("rows", "have over 4 GiB"))?);
            if with_bytes && is_valid {
                out.extend_from_slice(self.field.text(row)?);
            }
            if out.len() >= BYTES || lengths.len() == ROWS {
                put(&out, &lengths)?;
                out.clear();
                lengths.clear();
            }
        }
        put(&out, &lengths)
    }
}

/// Values of one length, side by side.
enum Elements<'a> {
    /// Bytes, and those of each value.
    Bytes(&'a [u8], usize),
    Bits(&'a Array<'a>),
    Places(&'a Array<'a>, usize),
    /// Bytes of texts.
    Texts(&'a Array<'a>),
}

impl<'a> Elements<'a> {
    /// Returns the innermost values of fixed lists, and how many of them each value has.
    fn of(array: &'a Array<'a>) -> Result<(Self, usize), Fault> {
        let small = |size: u64| usize::try_from(size).map_err(|_| fault("size", "is too large"));
        Ok(match array.node.kind {
            Kind::Bool => (Self::Bits(array), 1),
            Kind::Number(dtype, _) => (Self::Bytes(array.values(), small(dtype.size_bytes())?), 1),
            Kind::FixedBytes(size) => (Self::Bytes(array.values(), small(size)?), 1),
            Kind::Dictionary { .. } => {
                let dictionary = array.node.dictionary.filter(|values| values.ends.is_none());
                let dictionary = dictionary.ok_or_else(|| fault("rows", "have no one length"))?;
                (Self::Places(array, small(dictionary.dtype.size_bytes())?), 1)
            }
            Kind::FixedList(size) => {
                let child = array.children.first().ok_or_else(|| fault("list", "has no values"))?;
                let (elements, each) = Self::of(child)?;
                let each = each.checked_mul(small(size)?);
                (elements, each.ok_or_else(|| fault("size", "is too large"))?)
            }
            _ => return Err(fault("rows", "have no one length")),
        })
    }

    /// Returns the values of these elements, which may be lists, the number of the first, and how
    /// many each element has.
    fn of_lists(array: &'a Array<'a>) -> Result<(Self, usize, usize), Fault> {
        let Kind::List { .. } = array.node.kind else {
            return Self::of(array).map(|(elements, each)| (elements, 0, each));
        };
        let child = array.children.first().ok_or_else(|| fault("list", "has no values"))?;
        let (elements, each) = Self::of(child)?;
        let lists = if array.length > 0 { array.range(0)? } else { 0..0 };
        let places = lists.start.checked_mul(each).zip(lists.len().checked_mul(each));
        let (first, each) = places.ok_or_else(|| fault("offsets", "lead past the values"))?;
        Ok((elements, first, each))
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Bytes(_, bytes) | Self::Places(_, bytes) => *bytes,
            Self::Bits(_) | Self::Texts(_) => 1,
        }
    }

    fn side_by_side(&self, range: Range<usize>) -> Option<Result<&'a [u8], Fault>> {
        match self {
            Self::Bytes(bytes, each) => {
                let range = range.start.checked_mul(*each).zip(range.end.checked_mul(*each));
                let found = range.and_then(|(start, end)| bytes.get(start..end));
                Some(found.ok_or_else(|| fault("offsets", "lead past the values")))
            }
            Self::Texts(array) => Some(array.bytes(range)),
            Self::Bits(_) | Self::Places(..) => None,
        }
    }

    fn append(&self, range: Range<usize>, out: &mut Vec<u8>) -> Result<(), Fault> {
        if let Some(bytes) = self.side_by_side(range.clone()) {
            out.extend_from_slice(bytes?);
            return Ok(());
        }
        match self {
            Self::Bits(array) | Self::Places(array, _) if range.end > array.length => {
                Err(fault("offsets", "lead past the values"))
            }
            Self::Bits(array) => {
                out.extend(range.map(|index| u8::from(array.boolean(index))));
                Ok(())
            }
            Self::Places(array, _) => range.into_iter().try_for_each(|index| {
                out.extend_from_slice(array.dictionary_value(index)?);
                Ok(())
            }),
            Self::Bytes(..) | Self::Texts(_) => Ok(()),
        }
    }

    /// Hands over these values.
    fn put(&self, range: Range<usize>, put: &mut Put<'_>) -> Result<(), Fault> {
        if range.is_empty() {
            return Ok(());
        }
        if let Some(bytes) = self.side_by_side(range.clone()) {
            return put(bytes?, &[]);
        }
        let mut out = Vec::new();
        for begin in range.clone().step_by(BYTES / self.bytes()) {
            out.clear();
            self.append(begin..range.end.min(begin + BYTES / self.bytes()), &mut out)?;
            put(&out, &[])?;
        }
        Ok(())
    }
}

/// Returns whether a value, or an element of it, may be null.
fn has_holes(array: &Array<'_>) -> bool {
    array.has_nulls() || array.children.iter().any(has_holes)
}

/// The fault of lists of lists that only JSON can hold.
pub(in crate::arrow) fn uneven() -> Fault {
    Fault::new("holes", "has lists of several lengths")
}
