//! The values of a page, in each of the encodings of the format.
//!
//! Numbers come out as bytes of the column's type, side by side. Texts come out as bytes and
//! lengths.
//!
//! Thread rule: a plain value over borrowed bytes. Non-goals: nulls and lists (`chunk`).

use super::{
    deltas::Deltas,
    levels::{Runs, cut, malformed},
};
use crate::{Fault, block::Physical};

/// Most texts in a page whose lengths are kept.
const TEXTS_MAX: u64 = 1 << 24;
/// A text of this size is handed over where it lies.
const LARGE_TEXT_BYTES: usize = 4096;

/// The type of a column's values: in the file, and as rows hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) physical: Physical,
    /// Bytes of a value in a row. Without a meaning for texts.
    pub(super) bytes: usize,
}

impl Type {
    /// Returns the bytes of a plain value in the file.
    fn stored_bytes(self) -> Result<usize, Fault> {
        let bytes = self.physical.bytes(self.bytes as u64);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        bytes.ok_or_else(|| malformed("an encoding that its type does not have"))
    }

    /// Appends a value of the file as rows hold it: without the upper bytes of a narrow integer.
    fn put(self, value: &[u8], out: &mut Vec<u8>) {
        match (self.physical, value.split_first_chunk()) {
            (Physical::I96, Some((nanoseconds, day))) => {
                let day = day.first_chunk().map_or(0, |day| u32::from_le_bytes(*day));
                out.extend_from_slice(&since_1970(i64::from_le_bytes(*nanoseconds), day));
            }
            _ => out.extend_from_slice(&value[..self.bytes]),
        }
    }

    /// Appends plain values.
    fn put_all(self, values: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let stored = self.stored_bytes()?;
        if stored == self.bytes {
            out.extend_from_slice(values);
        } else {
            values.chunks_exact(stored).for_each(|value| self.put(value, out));
        }
        Ok(())
    }
}

/// Returns the nanoseconds from 1970 to a time of a Julian day. Like other readers', they wrap
/// beyond the years 1677 to 2262.
fn since_1970(nanoseconds: i64, julian_day: u32) -> [u8; 8] {
    const JULIAN_DAY_1970: i64 = 2_440_588;
    const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
    let days = i64::from(julian_day) - JULIAN_DAY_1970;
    days.wrapping_mul(DAY_NANOSECONDS).wrapping_add(nanoseconds).to_le_bytes()
}

/// The values of a dictionary.
#[derive(Debug)]
pub(super) enum Dictionary {
    Numbers(Vec<u8>),
    Texts { bytes: Vec<u8>, places: Vec<(u32, u32)> },
}

impl Dictionary {
    /// Reads the body of a dictionary's page, which is plain.
    pub(super) fn parse(kind: Type, bytes: &[u8], count: u64) -> Result<Self, Fault> {
        let few = |least: u64| match count.saturating_mul(least) <= bytes.len() as u64 {
            true => Ok(()),
            false => Err(malformed(&format!("a dictionary of {count} values in fewer bytes"))),
        };
        if kind.physical != Physical::Bytes {
            let stored = kind.stored_bytes()?;
            few(stored as u64)?;
            let mut numbers = Vec::new();
            let count = usize::try_from(count).expect("compared");
            kind.put_all(&bytes[..count * stored], &mut numbers)?;
            return Ok(Self::Numbers(numbers));
        }
        few(4)?;
        let (mut rest, mut places) = (bytes, Vec::new());
        for _ in 0..count {
            let text = next_text(&mut rest)?;
            let begin = bytes.len() - rest.len() - text.len();
            let small = |size| u32::try_from(size).expect("a page is small");
            places.push((small(begin), small(text.len())));
        }
        Ok(Self::Texts { bytes: bytes.to_vec(), places })
    }
}

/// The values of a page that are to come.
#[derive(Debug)]
pub(super) enum Values<'a> {
    Plain(&'a [u8]),
    /// Booleans, and the number of the next.
    Bits(&'a [u8], usize),
    Runs(Runs<'a>),
    Places(Runs<'a>, &'a Dictionary),
    Deltas(Deltas<'a>),
    /// Texts side by side, and the lengths of those to come, the last first.
    Lengths(&'a [u8], Vec<u32>),
    /// Texts that begin like the one before.
    Prefixes(Box<Prefixes<'a>>),
    /// The first bytes of all values, then the second bytes, and so on. And the next value.
    Split(&'a [u8], usize),
}

#[derive(Debug)]
pub(super) struct Prefixes<'a> {
    prefixes: Deltas<'a>,
    /// The last first.
    suffixes: Vec<u32>,
    bytes: &'a [u8],
    last: Vec<u8>,
}

impl<'a> Values<'a> {
    /// Begins at the values of a page.
    pub(super) fn new(
        kind: Type,
        encoding: i64,
        mut bytes: &'a [u8],
        dictionary: Option<&'a Dictionary>,
    ) -> Result<Self, Fault> {
        Ok(match (encoding, kind.physical) {
            (0, Physical::Bool) => Self::Bits(bytes, 0),
            (0, _) => Self::Plain(bytes),
            (2 | 8, _) => {
                let dictionary = dictionary.ok_or_else(|| malformed("no dictionary"))?;
                // A page of nulls has no bytes.
                let width = cut(&mut bytes, 1).map_or(0, |width| width[0]);
                Self::Places(Runs::new(bytes, width.into())?, dictionary)
            }
            (3, Physical::Bool) => {
                cut(&mut bytes, 4)?;
                Self::Runs(Runs::new(bytes, 1)?)
            }
            (5, Physical::I32 | Physical::I64) => Self::Deltas(Deltas::new(bytes)?),
            (6, Physical::Bytes) => {
                let (lengths, bytes) = lengths(Deltas::new(bytes)?)?;
                Self::Lengths(bytes, lengths)
            }
            (7, Physical::Bytes | Physical::Fixed) => {
                // The prefixes end where the suffixes begin, which only a pass over them tells.
                let mut passed = Deltas::new(bytes)?;
                check_count(passed.left())?;
                while passed.left() > 0 {
                    passed.next()?;
                }
                let (suffixes, rest) = lengths(Deltas::new(passed.behind())?)?;
                let (prefixes, last) = (Deltas::new(bytes)?, Vec::new());
                Self::Prefixes(Box::new(Prefixes { prefixes, suffixes, bytes: rest, last }))
            }
            (9, Physical::Bool | Physical::Bytes | Physical::I96) | (3..=7, _) => {
                return Err(malformed("an encoding that its type does not have"));
            }
            (9, _) => Self::Split(bytes, 0),
            _ => return Err(malformed(&format!("values in the unknown encoding {encoding}"))),
        })
    }

    /// Appends `count` numbers.
    pub(super) fn read_numbers(
        &mut self,
        kind: Type,
        count: usize,
        scratch: &mut Vec<u32>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        match self {
            Self::Plain(bytes) => {
                let bytes = cut(bytes, count.saturating_mul(kind.stored_bytes()?))?;
                kind.put_all(bytes, out)
            }
            Self::Bits(bits, next) => {
                let end = *next + count;
                if end > bits.len().saturating_mul(8) {
                    return Err(malformed("too few booleans"));
                }
                out.extend((*next..end).map(|bit| (bits[bit / 8] >> (bit % 8)) & 1));
                *next = end;
                Ok(())
            }
            Self::Runs(runs) => {
                scratch.clear();
                runs.read(count, scratch)?;
                out.extend(scratch.iter().map(|&value| u8::from(value != 0)));
                Ok(())
            }
            Self::Places(runs, Dictionary::Numbers(numbers)) => {
                scratch.clear();
                runs.read(count, scratch)?;
                gather(numbers, kind.bytes, scratch, out)
            }
            Self::Deltas(deltas) => {
                for _ in 0..count {
                    kind.put(&deltas.next()?.to_le_bytes(), out);
                }
                Ok(())
            }
            Self::Split(bytes, next) => {
                let stored = kind.stored_bytes()?;
                let each = bytes.len() / stored;
                let end = *next + count;
                if end > each {
                    return Err(malformed("too few values"));
                }
                for value in *next..end {
                    out.extend((0..kind.bytes).map(|byte| bytes[byte * each + value]));
                }
                *next = end;
                Ok(())
            }
            Self::Prefixes(texts) => {
                for _ in 0..count {
                    let text = texts.next()?;
                    if text.len() != kind.bytes {
                        return Err(malformed("a value of another length than its type"));
                    }
                    out.extend_from_slice(text);
                }
                Ok(())
            }
            Self::Places(_, Dictionary::Texts { .. }) | Self::Lengths(..) => {
                Err(malformed("texts where numbers must be"))
            }
        }
    }

    /// Calls `take` with each of the next `count` texts. It may get only their lengths if it wants
    /// no bytes.
    pub(super) fn read_texts(
        &mut self,
        count: usize,
        scratch: &mut Vec<u32>,
        mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match self {
            Self::Plain(bytes) => (0..count).try_for_each(|_| take(next_text(bytes)?)),
            Self::Places(runs, Dictionary::Texts { bytes, places }) => {
                scratch.clear();
                runs.read(count, scratch)?;
                scratch.iter().try_for_each(|&place| {
                    let Some(&(begin, length)) = places.get(place as usize) else {
                        return Err(no_place(place, places.len()));
                    };
                    take(&bytes[begin as usize..][..length as usize])
                })
            }
            Self::Lengths(bytes, lengths) => (0..count).try_for_each(|_| {
                let length = lengths.pop().ok_or_else(|| malformed("too few texts"))?;
                take(cut(bytes, length as usize)?)
            }),
            Self::Prefixes(texts) => (0..count).try_for_each(|_| take(texts.next()?)),
            _ => Err(malformed("numbers where texts must be")),
        }
    }
}

impl Prefixes<'_> {
    fn next(&mut self) -> Result<&[u8], Fault> {
        let prefix = usize::try_from(self.prefixes.next()?).ok();
        let prefix = prefix.filter(|&prefix| prefix <= self.last.len());
        let prefix = prefix.ok_or_else(|| malformed("a text that repeats more than there is"))?;
        let suffix = self.suffixes.pop().ok_or_else(|| malformed("too few texts"))?;
        self.last.truncate(prefix);
        self.last.extend_from_slice(cut(&mut self.bytes, suffix as usize)?);
        Ok(&self.last)
    }
}

/// Collects texts into bytes and lengths. Hands large texts over where they lie.
pub(super) struct Collected<'a, 'p> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) lengths: &'a mut Vec<u32>,
    /// `None` if only lengths are wanted.
    pub(super) put: Option<&'a mut crate::block::Put<'p>>,
}

impl Collected<'_, '_> {
    pub(super) fn push(&mut self, text: &[u8]) -> Result<(), Fault> {
        self.lengths.push(u32::try_from(text.len()).expect("a page is small"));
        match &mut self.put {
            Some(put) if text.len() >= LARGE_TEXT_BYTES => {
                put(self.out, &[])?;
                self.out.clear();
                put(text, &[])
            }
            Some(_) => {
                self.out.extend_from_slice(text);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Appends the numbers at these places of a dictionary.
fn gather(numbers: &[u8], bytes: usize, places: &[u32], out: &mut Vec<u8>) -> Result<(), Fault> {
    fn each<const N: usize>(
        numbers: &[u8],
        places: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let (numbers, _) = numbers.as_chunks::<N>();
        out.reserve(places.len() * N);
        for &place in places {
            let Some(number) = numbers.get(place as usize) else {
                return Err(no_place(place, numbers.len()));
            };
            out.extend_from_slice(number);
        }
        Ok(())
    }
    match bytes {
        1 => each::<1>(numbers, places, out),
        2 => each::<2>(numbers, places, out),
        4 => each::<4>(numbers, places, out),
        8 => each::<8>(numbers, places, out),
        _ => places.iter().try_for_each(|&place| {
            let number = numbers.chunks_exact(bytes).nth(place as usize);
            let number = number.ok_or_else(|| no_place(place, numbers.len() / bytes))?;
            out.extend_from_slice(number);
            Ok(())
        }),
    }
}

fn no_place(place: u32, count: usize) -> Fault {
    malformed(&format!("the place {place} in a dictionary of {count} values"))
}

/// Cuts a plain text off the front: its length and its bytes.
fn next_text<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Fault> {
    let length = cut(bytes, 4)?;
    let length = u32::from_le_bytes(*length.first_chunk().expect("four bytes"));
    cut(bytes, length as usize)
}

/// Reads the lengths of texts, the last first. Also returns the bytes behind them.
fn lengths(mut deltas: Deltas<'_>) -> Result<(Vec<u32>, &[u8]), Fault> {
    check_count(deltas.left())?;
    let mut lengths = Vec::new();
    while deltas.left() > 0 {
        let length = u32::try_from(deltas.next()?);
        lengths.push(length.map_err(|_| malformed("a text of a length below zero"))?);
    }
    lengths.reverse();
    Ok((lengths, deltas.behind()))
}

fn check_count(texts: u64) -> Result<(), Fault> {
    if texts > TEXTS_MAX {
        let why = format!("{texts} texts where at most {TEXTS_MAX} are read: write smaller pages");
        return Err(malformed(&why));
    }
    Ok(())
}
