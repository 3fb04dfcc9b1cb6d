//! The values of one leaf of a nested field, one after the other, with their levels.
//!
//! [`Pages::open`] decompresses all pages of a chunk. A [`Cursor`] then walks over them. Several
//! cursors walk side by side, so a page must stay in memory until its last value is read.
//!
//! Thread rule: belongs to one thread. Memory: the decompressed pages, and the dictionary.

use std::borrow::Cow;

use super::{
    super::{
        levels::{Runs, cut, malformed},
        page::{Kind, PageHeader},
        values::{Dictionary, Values},
        whole_page,
    },
    Leaf,
};
use crate::{
    Dtype, Fault,
    block::{Codec, Decompressor, Physical, json::Texts},
};

/// Levels that are decoded at once.
const BATCH: u64 = 1024;
/// A dictionary takes so many times its bytes: for a copy, and for the place of each text.
const DICTIONARY_TIMES: u64 = 4;

/// A leaf, and its highest levels.
#[derive(Debug, Clone, Copy)]
pub(in crate::parquet) struct Levels {
    pub(in crate::parquet) leaf: Leaf,
    pub(in crate::parquet) definition: u8,
    pub(in crate::parquet) repetition: u8,
}

/// The pages of a chunk.
#[derive(Debug)]
pub(in crate::parquet) struct Pages<'a> {
    levels: Levels,
    dictionary: Option<Dictionary>,
    pages: Vec<Page<'a>>,
}

#[derive(Debug)]
struct Page<'a> {
    values: u64,
    encoding: i64,
    /// Repetitions and definitions, if they lie before the values on their own.
    levels: Option<[&'a [u8]; 2]>,
    body: Cow<'a, [u8]>,
}

impl<'a> Pages<'a> {
    /// Opens a chunk of so many values. `left` bounds the memory.
    pub(in crate::parquet) fn open(
        levels: Levels,
        codec: Codec,
        values: u64,
        mut stored: &'a [u8],
        left: &mut u64,
    ) -> Result<Self, Fault> {
        let mut opened = Self { levels, dictionary: None, pages: Vec::new() };
        let (mut decompressor, mut found) = (Decompressor::default(), 0_u64);
        while !stored.is_empty() {
            let page = whole_page(stored)?;
            let page = page.ok_or_else(|| Fault::new("page", "ends after its chunk"))?;
            page.header.check(page.body)?;
            let mut open =
                |stored, decoded| decompressed(codec, &mut decompressor, stored, decoded, left);
            match page.header.kind {
                Kind::Other => {}
                Kind::Dictionary if opened.dictionary.is_some() => {
                    return Err(malformed("a second dictionary"));
                }
                Kind::Dictionary => {
                    let bytes = open(page.body, page.header.decoded_bytes)?;
                    pay(left, (bytes.len() as u64).saturating_mul(DICTIONARY_TIMES))?;
                    let kind = levels.leaf.values;
                    opened.dictionary = Some(Dictionary::parse(kind, &bytes, page.header.values)?);
                }
                Kind::Data | Kind::DataV2 { .. } => {
                    found = found.saturating_add(page.header.values);
                    opened.pages.push(Page::open(&page.header, page.body, open)?);
                }
            }
            stored = page.rest;
        }
        match found == values {
            true => Ok(opened),
            false => Err(malformed(&format!("{found} values where its chunk says {values}"))),
        }
    }

    /// Returns a cursor before the first value.
    pub(in crate::parquet) fn cursor(&self) -> Cursor<'_> {
        let Levels { leaf, definition, repetition } = self.levels;
        Cursor {
            leaf,
            definition_max: definition.into(),
            repetition_max: repetition.into(),
            dictionary: self.dictionary.as_ref(),
            pages: self.pages.iter(),
            values: None,
            definitions: None,
            repetitions: None,
            left: 0,
            batch: (Vec::new(), Vec::new()),
            at: 0,
            scratch: Vec::new(),
            number: Vec::new(),
        }
    }
}

impl<'a> Page<'a> {
    fn open(
        header: &PageHeader,
        mut stored: &'a [u8],
        mut open: impl FnMut(&'a [u8], usize) -> Result<Cow<'a, [u8]>, Fault>,
    ) -> Result<Self, Fault> {
        let (values, encoding) = (header.values, header.encoding);
        let Kind::DataV2 { repetition_bytes, definition_bytes, is_compressed } = header.kind else {
            let body = open(stored, header.decoded_bytes)?;
            return Ok(Self { values, encoding, levels: None, body });
        };
        let levels = [cut(&mut stored, repetition_bytes)?, cut(&mut stored, definition_bytes)?];
        let decoded = header.decoded_bytes.checked_sub(repetition_bytes + definition_bytes);
        let decoded = decoded.ok_or_else(|| malformed("levels longer than the page"))?;
        // Old writers call compressed values uncompressed. For nulls alone, some store nothing.
        let body = match stored.len() == decoded && (!is_compressed || decoded == 0) {
            true => Cow::Borrowed(stored),
            false => open(stored, decoded)?,
        };
        Ok(Self { values, encoding, levels: Some(levels), body })
    }
}

fn decompressed<'a>(
    codec: Codec,
    decompressor: &mut Decompressor,
    stored: &'a [u8],
    decoded: usize,
    left: &mut u64,
) -> Result<Cow<'a, [u8]>, Fault> {
    if codec == Codec::None {
        return match stored.len() == decoded {
            true => Ok(Cow::Borrowed(stored)),
            false => Err(malformed("another size than its header says")),
        };
    }
    pay(left, decoded as u64)?;
    let mut page = vec![0; decoded];
    let filled = decompressor.fill(codec, stored, &mut page);
    filled.map_err(|why| Fault::new("page", why))?;
    Ok(Cow::Owned(page))
}

fn pay(left: &mut u64, bytes: u64) -> Result<(), Fault> {
    let rest = left.checked_sub(bytes);
    *left = rest.ok_or_else(|| Fault::new("list", "has larger pages than a row group may have"))?;
    Ok(())
}

/// The values of a chunk that are to come.
#[derive(Debug)]
pub(in crate::parquet) struct Cursor<'p> {
    leaf: Leaf,
    definition_max: u32,
    repetition_max: u32,
    dictionary: Option<&'p Dictionary>,
    pages: std::slice::Iter<'p, Page<'p>>,
    values: Option<Values<'p>>,
    definitions: Option<Runs<'p>>,
    repetitions: Option<Runs<'p>>,
    /// Values of the page behind the batch.
    left: u64,
    /// Definitions and repetitions.
    batch: (Vec<u32>, Vec<u32>),
    at: usize,
    scratch: Vec<u32>,
    number: Vec<u8>,
}

impl Cursor<'_> {
    /// Returns definition and repetition of the next value. `None` behind the last.
    pub(in crate::parquet) fn peek(&mut self) -> Result<Option<(u32, u32)>, Fault> {
        if self.at == self.batch.0.len() && !self.fill()? {
            return Ok(None);
        }
        Ok(Some((self.batch.0[self.at], self.batch.1[self.at])))
    }

    /// Passes over the levels of a value.
    pub(in crate::parquet) fn pass(&mut self) {
        self.at += 1;
    }

    /// Passes over a value that is null.
    pub(in crate::parquet) fn skip(&mut self) -> Result<(), Fault> {
        match self.peek()? {
            Some((definition, _)) if definition < self.definition_max => {
                self.at += 1;
                Ok(())
            }
            _ => Err(malformed("leaves that disagree about a null")),
        }
    }

    /// Appends the next value, which is there.
    pub(in crate::parquet) fn write(&mut self, texts: &mut Texts<'_, '_>) -> Result<(), Fault> {
        self.at += 1;
        let Some(values) = &mut self.values else { return Err(malformed("no values")) };
        let Leaf { values: kind, dtype, logical } = self.leaf;
        if kind.physical == Physical::Bytes {
            return values.read_texts(1, &mut self.scratch, |text| texts.string(text));
        }
        self.number.clear();
        values.read_numbers(kind, 1, &mut self.scratch, &mut self.number)?;
        match (dtype, &self.number[..]) {
            (Dtype::Bool, [value]) => texts.boolean(*value != 0),
            (_, bytes) => texts.number(dtype, logical, bytes),
        }
    }

    /// Reads the levels of the next values. Returns whether there are some.
    fn fill(&mut self) -> Result<bool, Fault> {
        while self.left == 0 {
            let Some(page) = self.pages.next() else { return Ok(false) };
            self.begin(page)?;
        }
        let count = self.left.min(BATCH);
        self.left -= count;
        let count = usize::try_from(count).expect("a small batch");
        let (definitions, repetitions) = &mut self.batch;
        let read = |runs: &mut Option<Runs<'_>>, max: u32, missing: u32, out: &mut Vec<u32>| {
            out.clear();
            match runs {
                Some(runs) => runs.read(count, out)?,
                None => out.resize(count, missing),
            }
            match out.iter().all(|&level| level <= max) {
                true => Ok(()),
                false => Err(malformed("a level above the highest")),
            }
        };
        read(&mut self.definitions, self.definition_max, self.definition_max, definitions)?;
        read(&mut self.repetitions, self.repetition_max, 0, repetitions)?;
        self.at = 0;
        Ok(true)
    }
}

impl<'p> Cursor<'p> {
    fn begin(&mut self, page: &'p Page<'p>) -> Result<(), Fault> {
        let width = |max: u32| u32::BITS - max.leading_zeros();
        let mut body = &page.body[..];
        let mut runs = |index: usize, max: u32| {
            if max == 0 {
                return Ok(None);
            }
            let levels = match page.levels {
                Some(levels) => levels[index],
                None => {
                    let length = *cut(&mut body, 4)?.first_chunk().expect("four bytes");
                    cut(&mut body, u32::from_le_bytes(length) as usize)?
                }
            };
            Runs::new(levels, width(max)).map(Some)
        };
        self.repetitions = runs(0, self.repetition_max)?;
        self.definitions = runs(1, self.definition_max)?;
        let (kind, dictionary) = (self.leaf.values, self.dictionary);
        self.values = Some(Values::new(kind, page.encoding, body, dictionary)?);
        self.left = page.values;
        Ok(())
    }
}
