//! The compact protocol of Thrift, in which Parquet keeps its metadata, read in place.
//!
//! A struct is a list of numbered fields. [`Reader::fields`] calls its caller with each. Nothing is
//! allocated by a number from the bytes, and nested values are skipped to a fixed depth.
//!
//! Thread rule: plain values over borrowed bytes. Non-goals: maps and doubles, which Parquet's
//! metadata hardly has. They are skipped.

use crate::Fault;

/// Most levels of nested values. Parquet has seven.
const DEPTH_MAX: u32 = 32;

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    True,
    False,
    I8,
    /// An integer of 16, 32 or 64 bits.
    Integer,
    Double,
    Binary,
    /// A list or a set.
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn of(number: u8) -> Result<Self, Fault> {
        Ok(match number {
            1 => Self::True,
            2 => Self::False,
            3 => Self::I8,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return Err(malformed(&format!("a value has the unknown type {number}"))),
        })
    }
}

/// Reads values one after the other.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Returns whether the last fault was that the bytes ended.
    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn cut(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        match self.bytes[self.at..].get(..count) {
            Some(cut) => {
                self.at += count;
                Ok(cut)
            }
            None => {
                self.at = self.bytes.len();
                Err(malformed("it ends in the middle of a value"))
            }
        }
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        self.cut(1).map(|cut| cut[0])
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("an integer has more than 64 bits"))
    }

    fn zigzag(&mut self) -> Result<i64, Fault> {
        self.varint().map(unzigzag)
    }

    /// Calls `take` with the number and the type of each field of a struct. `take` reads the value.
    pub(super) fn fields(
        &mut self,
        mut take: impl FnMut(&mut Self, i64, Kind) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut field = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            field = match head >> 4 {
                0 => self.zigzag()?,
                more => field.saturating_add(more.into()),
            };
            take(self, field, Kind::of(head & 0xF)?)?;
        }
    }

    /// Calls `take` for each element of a list. `take` reads the element.
    pub(super) fn list(
        &mut self,
        kind: Kind,
        mut take: impl FnMut(&mut Self, Kind) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        expect(kind, Kind::List)?;
        let (count, element) = self.list_head()?;
        (0..count).try_for_each(|_| take(self, element))
    }

    fn list_head(&mut self) -> Result<(u64, Kind), Fault> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => count.into(),
        };
        if count == 0 {
            // Without elements, some writers give their type the number 0.
            return Ok((0, Kind::Struct));
        }
        let kind = Kind::of(head & 0xF)?;
        // Each element has at least a byte, so a false count ends with the bytes.
        if count > (self.bytes.len() - self.at) as u64 {
            self.at = self.bytes.len();
            return Err(malformed("a list has more elements than bytes"));
        }
        Ok((count, kind))
    }

    pub(super) fn integer(&mut self, kind: Kind) -> Result<i64, Fault> {
        match kind {
            Kind::I8 => self.byte().map(|byte| i8::from_le_bytes([byte]).into()),
            Kind::Integer => self.zigzag(),
            _ => Err(malformed("a field is no integer")),
        }
    }

    /// Reads an integer that counts something.
    pub(super) fn count(&mut self, kind: Kind) -> Result<u64, Fault> {
        let value = self.integer(kind)?;
        u64::try_from(value).map_err(|_| malformed(&format!("a count is {value}")))
    }

    /// Returns a boolean. Its type is its value.
    pub(super) fn boolean(kind: Kind) -> Result<bool, Fault> {
        match kind {
            Kind::True => Ok(true),
            Kind::False => Ok(false),
            _ => Err(malformed("a field is no boolean")),
        }
    }

    pub(super) fn binary(&mut self, kind: Kind) -> Result<&'a [u8], Fault> {
        expect(kind, Kind::Binary)?;
        let bytes = self.varint()?;
        self.cut(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self, kind: Kind) -> Result<(), Fault> {
        self.skip_at(kind, 0)
    }

    fn skip_at(&mut self, kind: Kind, depth: u32) -> Result<(), Fault> {
        if depth == DEPTH_MAX {
            return Err(malformed(&format!("values lie more than {DEPTH_MAX} levels deep")));
        }
        match kind {
            Kind::True | Kind::False => Ok(()),
            Kind::I8 => self.byte().map(drop),
            Kind::Integer => self.varint().map(drop),
            Kind::Double => self.cut(8).map(drop),
            Kind::Uuid => self.cut(16).map(drop),
            Kind::Binary => self.binary(kind).map(drop),
            Kind::Struct => self.fields(|reader, _, kind| reader.skip_at(kind, depth + 1)),
            Kind::List => {
                let (count, element) = self.list_head()?;
                (0..count).try_for_each(|_| self.skip_element(element, depth + 1))
            }
            Kind::Map => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds & 0xF)?);
                (0..count).try_for_each(|_| {
                    self.skip_element(key, depth + 1)?;
                    self.skip_element(value, depth + 1)
                })
            }
        }
    }

    /// Passes over an element. Booleans take a byte there.
    fn skip_element(&mut self, kind: Kind, depth: u32) -> Result<(), Fault> {
        match kind {
            Kind::True | Kind::False => self.byte().map(drop),
            _ => self.skip_at(kind, depth),
        }
    }
}

/// Returns the integer that a zigzag code stands for.
pub(super) fn unzigzag(code: u64) -> i64 {
    (code >> 1).cast_signed() ^ -(code & 1).cast_signed()
}

fn expect(kind: Kind, wanted: Kind) -> Result<(), Fault> {
    match kind == wanted {
        true => Ok(()),
        false => Err(malformed(&format!("a field is {kind:?} where {wanted:?} must be"))),
    }
}

fn malformed(why: &str) -> Fault {
    Fault::new("metadata", format!("is damaged: {why}"))
}
