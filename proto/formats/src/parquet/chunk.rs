//! The rows of one column in one row group, page after page.
//!
//! A [`ChunkReader`] takes whole pages in their order. It undoes their compression and encoding,
//! puts zeros for nulls, and hands over the rows. With lists, a row may go on in the next page.
//!
//! ```text
//! definition level:  how much of a value is there; below the highest, it is null
//! repetition level:  0 begins a row; above, the value is a further element of its list
//! ```
//!
//! Thread rule: belongs to one thread. Memory: one page, the dictionary, and [`BATCH`] rows.

use super::{
    levels::{Runs, cut, malformed},
    page::{Kind, PAGE_BYTES_MAX, PageHeader},
    values::{Collected, Dictionary, Type, Values},
};
use crate::{
    Fault, RowsWanted,
    block::{Aspect, ChunkBlock, Codec, Decimal, Decompressor, Physical, Put},
};

/// Values that are decoded at once.
const BATCH: usize = 8192;
/// Bytes of values that are decoded at once, if each is large.
const BATCH_BYTES: usize = 1 << 20;

/// Makes the rows of one column of a row group.
#[derive(Debug)]
pub(super) struct ChunkReader {
    block: ChunkBlock,
    wanted: RowsWanted,
    kind: Type,
    /// Whether the rows' bytes are wanted, or only their lengths.
    with_bytes: bool,
    dictionary: Option<Dictionary>,
    values_left: u64,
    decoded_left: u64,
    rows_left: u64,
    nulls: u64,
    /// Elements of the row that may go on. `None` before the first row.
    open: Option<Open>,
    inner: Inner,
    buffers: Buffers,
}

/// A row of a list that may go on.
#[derive(Debug, Clone, Copy)]
struct Open {
    bytes: usize,
    is_null: bool,
}

/// Lists in lists, which must all have one length.
#[derive(Debug, Default, Clone, Copy)]
struct Inner {
    /// Elements of the list that may go on.
    now: u64,
    /// Elements of each list before. `None` before the first.
    each: Option<u64>,
}

/// Memory that is used again for each page.
#[derive(Debug, Default)]
struct Buffers {
    decompressor: Decompressor,
    page: Vec<u8>,
    definitions: Vec<u32>,
    repetitions: Vec<u32>,
    scratch: Vec<u32>,
    out: Vec<u8>,
    expanded: Vec<u8>,
    lengths: Vec<u32>,
}

/// The levels of a page and the bytes of its values.
struct Body<'a> {
    repetitions: Option<Runs<'a>>,
    definitions: Option<Runs<'a>>,
    values: &'a [u8],
}

impl ChunkReader {
    pub(super) fn new(
        block: &ChunkBlock,
        wanted: RowsWanted,
        with_bytes: bool,
    ) -> Result<Self, Fault> {
        let element = value_bytes(block, wanted);
        let element = element.ok_or_else(|| malformed("values of another type than its column"))?;
        let bytes = usize::try_from(element).expect("a value is in memory");
        Ok(Self {
            block: *block,
            wanted,
            kind: Type { physical: block.physical, bytes },
            with_bytes,
            dictionary: None,
            values_left: block.values.into(),
            decoded_left: block.decoded_bytes.into(),
            rows_left: wanted.rows,
            nulls: 0,
            open: None,
            inner: Inner::default(),
            buffers: Buffers::default(),
        })
    }

    /// Returns the number of rows that are null so far.
    pub(super) fn nulls(&self) -> u64 {
        self.nulls
    }

    /// Returns the length of the lists in lists. `None` if there are none.
    pub(super) fn inner_length(&self) -> Option<u64> {
        self.inner.each
    }

    /// Returns the bytes of the pages so far, after decompression.
    pub(super) fn decoded_bytes(&self) -> u32 {
        let bytes = u64::from(self.block.decoded_bytes) - self.decoded_left;
        u32::try_from(bytes).expect("at most those of the block")
    }

    /// Takes the next page.
    pub(super) fn take_page(
        &mut self,
        header: &PageHeader,
        stored: &[u8],
        put: &mut Put<'_>,
    ) -> Result<(), Fault> {
        header.check(stored)?;
        let left = self.decoded_left.checked_sub(header.decoded_bytes as u64);
        self.decoded_left = left.ok_or_else(|| malformed("more bytes than its chunk says"))?;
        let mut page = std::mem::take(&mut self.buffers.page);
        let taken = match header.kind {
            Kind::Other => Ok(()),
            Kind::Dictionary => self.take_dictionary(header, stored, &mut page),
            Kind::Data | Kind::DataV2 { .. } => self.take_data(header, stored, &mut page, put),
        };
        self.buffers.page = page;
        taken
    }

    /// Ends the last row, and compares the number of rows with those that are wanted.
    pub(super) fn finish(&mut self, put: &mut Put<'_>) -> Result<(), Fault> {
        self.inner.end()?;
        if let Some(open) = self.open.take() {
            let mut lengths = Vec::new();
            if self.close(open, &mut lengths)? {
                self.put_null(put)?;
            }
            self.hand_over(&[], &lengths, put)?;
        }
        match (self.values_left, self.rows_left) {
            (0, 0) => Ok(()),
            (0, rows) => Err(malformed(&format!("{rows} rows too few"))),
            (values, _) => Err(malformed(&format!("{values} values too few"))),
        }
    }

    fn take_dictionary(
        &mut self,
        header: &PageHeader,
        stored: &[u8],
        page: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        if self.dictionary.is_some() {
            return Err(malformed("a second dictionary"));
        }
        if self.block.aspect == Aspect::Validity {
            return Ok(());
        }
        let bytes = self.decompressed(stored, header.decoded_bytes, page)?;
        self.dictionary = Some(Dictionary::parse(self.kind, bytes, header.values)?);
        Ok(())
    }

    fn decompressed<'a>(
        &mut self,
        stored: &'a [u8],
        decoded: usize,
        page: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Fault> {
        if self.block.codec == Codec::None {
            return match stored.len() == decoded {
                true => Ok(stored),
                false => Err(malformed("another size than its header says")),
            };
        }
        if decoded > self.block.codec.bytes_max(stored.len()) {
            return Err(malformed("a size that its stored bytes can't have"));
        }
        page.resize(decoded, 0);
        let filled = self.buffers.decompressor.fill(self.block.codec, stored, page);
        filled.map_err(|why| Fault::new("page", why))?;
        Ok(page)
    }

    fn take_data(
        &mut self,
        header: &PageHeader,
        stored: &[u8],
        page: &mut Vec<u8>,
        put: &mut Put<'_>,
    ) -> Result<(), Fault> {
        let left = self.values_left.checked_sub(header.values);
        self.values_left = left.ok_or_else(|| malformed("more values than its chunk says"))?;
        let body = self.body(header, stored, page)?;
        // Values without levels have no use for the bytes of a page.
        let dictionary = self.dictionary.take();
        let mut values = match self.block.aspect {
            Aspect::Validity => None,
            Aspect::Values => {
                Some(Values::new(self.kind, header.encoding, body.values, dictionary.as_ref())?)
            }
        };
        let (mut definitions, mut repetitions) = (body.definitions, body.repetitions);
        let mut left = header.values;
        while left > 0 {
            let most = (BATCH_BYTES / self.kind.bytes).clamp(1, BATCH);
            let count = usize::try_from(left).unwrap_or(most).min(most);
            let present = self.read_levels(count, &mut definitions, &mut repetitions)?;
            self.take_batch(count, present, values.as_mut(), put)?;
            left -= count as u64;
        }
        drop(values);
        self.dictionary = dictionary;
        Ok(())
    }

    /// Takes the body of a page apart.
    fn body<'a>(
        &mut self,
        header: &PageHeader,
        mut stored: &'a [u8],
        page: &'a mut Vec<u8>,
    ) -> Result<Body<'a>, Fault> {
        let (is_list, nullable) = (self.block.list_definition > 0, self.block.definition_max > 0);
        let width = u32::BITS - u32::from(self.block.definition_max).leading_zeros();
        // One level of lists needs one bit, and two need two.
        let lists = if self.block.outer_definition > 0 { 2 } else { 1 };
        if let Kind::DataV2 { repetition_bytes, definition_bytes, is_compressed } = header.kind {
            let repetitions = cut(&mut stored, repetition_bytes)?;
            let definitions = cut(&mut stored, definition_bytes)?;
            let levels = repetition_bytes + definition_bytes;
            let decoded = header.decoded_bytes.checked_sub(levels);
            let decoded = decoded.ok_or_else(|| malformed("levels longer than the page"))?;
            // Old writers call compressed values uncompressed. For nulls alone, some store nothing
            // rather than an empty stream.
            let values = match stored.len() == decoded && (!is_compressed || decoded == 0) {
                true => stored,
                false => self.decompressed(stored, decoded, page)?,
            };
            return Ok(Body {
                repetitions: is_list.then(|| Runs::new(repetitions, lists)).transpose()?,
                definitions: nullable.then(|| Runs::new(definitions, width)).transpose()?,
                values,
            });
        }
        let mut bytes = self.decompressed(stored, header.decoded_bytes, page)?;
        let mut levels = |width| {
            let length = cut(&mut bytes, 4)?;
            let length = u32::from_le_bytes(*length.first_chunk().expect("four bytes"));
            Runs::new(cut(&mut bytes, length as usize)?, width)
        };
        let repetitions = is_list.then(|| levels(lists)).transpose()?;
        let definitions = nullable.then(|| levels(width)).transpose()?;
        Ok(Body { repetitions, definitions, values: bytes })
    }

    /// Reads the levels of the next values. Returns how many are there. The lists of levels stay
    /// empty where all levels are the highest, or no lists are read.
    fn read_levels(
        &mut self,
        count: usize,
        definitions: &mut Option<Runs<'_>>,
        repetitions: &mut Option<Runs<'_>>,
    ) -> Result<usize, Fault> {
        let buffers = &mut self.buffers;
        buffers.definitions.clear();
        buffers.repetitions.clear();
        if let Some(runs) = repetitions {
            runs.read(count, &mut buffers.repetitions)?;
        }
        let Some(runs) = definitions else { return Ok(count) };
        let max = u32::from(self.block.definition_max);
        if repetitions.is_none() {
            match runs.skip_same(count)? {
                Some(level) if level == max => return Ok(count),
                Some(level) => buffers.definitions.resize(count, level),
                None => runs.read(count, &mut buffers.definitions)?,
            }
        } else {
            runs.read(count, &mut buffers.definitions)?;
        }
        if buffers.definitions.iter().any(|&level| level > max) {
            return Err(malformed("a level above the highest"));
        }
        Ok(buffers.definitions.iter().filter(|&&level| level == max).count())
    }

    /// Hands over the rows of some values, whose levels are in the buffers.
    fn take_batch(
        &mut self,
        count: usize,
        present: usize,
        values: Option<&mut Values<'_>>,
        put: &mut Put<'_>,
    ) -> Result<(), Fault> {
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.out.clear();
        buffers.expanded.clear();
        buffers.lengths.clear();
        let taken = match (values, self.block.list_definition > 0, self.block.decimal) {
            (None, ..) => self.validity(count, &mut buffers, put),
            (Some(values), true, _) => self.lists(present, values, &mut buffers, put),
            (Some(values), false, Some(decimal)) => {
                self.decimals(count, present, decimal, values, &mut buffers, put)
            }
            (Some(values), false, None) if self.kind.physical == Physical::Bytes => {
                self.texts(count, present, values, &mut buffers, put)
            }
            (Some(values), false, None) => self.numbers(count, present, values, &mut buffers, put),
        };
        self.buffers = buffers;
        taken
    }

    fn validity(
        &mut self,
        count: usize,
        buffers: &mut Buffers,
        put: &mut Put<'_>,
    ) -> Result<(), Fault> {
        let least = match self.block.row_definition() {
            0 => self.block.definition_max,
            list => list - 1,
        };
        let level = |index: usize| buffers.definitions.get(index).copied();
        let begins =
            |index: &usize| buffers.repetitions.get(*index).is_none_or(|&level| level == 0);
        let is_valid =
            |index: usize| u8::from(level(index).is_none_or(|level| level >= u32::from(least)));
        buffers.out.extend((0..count).filter(begins).map(is_valid));
        self.rows_done(buffers.out.len())?;
        self.hand_over(&buffers.out, &[], put)
    }

    fn numbers(
        &mut self,
        count: usize,
        present: usize,
        values: &mut Values<'_>,
        buffers: &mut Buffers,
        put: &mut Put<'_>,
    ) -> Result<(), Fault> {
        self.rows_done(count)?;
        let Buffers { definitions, scratch, out, expanded, .. } = buffers;
        values.read_numbers(self.kind, present, scratch, out)?;
        if present == count {
            return self.hand_over(out, &[], put);
        }
        self.nulls += (count - present) as u64;
        let (bytes, max) = (self.kind.bytes, u32::from(self.block.definition_max));
        let mut numbers = out.chunks_exact(bytes);
        for &level in definitions.iter() {
            match numbers.next_if(level == max) {
                Some(number) => expanded.extend_from_slice(number),
                None => expanded.resize(expanded.len() + bytes, 0),
            }
        }
        self.hand_over(expanded, &[], put)
    }

    fn texts(
        &mut self,
        count: usize,
        present: usize,
        values: &mut Values<'_>,
        buffers: &mut Buffers,
        put: &mut Put<'_>,
    ) -> Result<(), Fault> {
        self.rows_done(count)?;
        self.nulls += (count - present) as u64;
        let Buffers { definitions, scratch, out, lengths, .. } = buffers;
        let (with_bytes, max) = (self.with_bytes, u32::from(self.block.definition_max));
        let mut collected = Collected { out, lengths, put: with_bytes.then_some(&mut *put) };
        values.read_texts(present, scratch, |text| collected.push(text))?;
        put_texts(out, lengths, present, definitions, max, scratch, put)
    }

    /// Hands over the texts of decimals.
    fn decimals(
        &mut self,
        count: usize,
        present: usize,
        decimal: Decimal,
        values: &mut Values<'_>,
        buffers: &mut Buffers,
        put: &mut Put<'_>,
    ) -> Result<(), Fault> {
        self.rows_done(count)?;
        self.nulls += (count - present) as u64;
        let Buffers { definitions, scratch, out, expanded, lengths, .. } = buffers;
        let physical = self.kind.physical;
        let mut push = |value: &[u8]| {
            let begin = expanded.len();
            let long = || malformed("a decimal of more than 16 bytes");
            decimal.put(physical, value, expanded).ok_or_else(long)?;
            lengths.push(u32::try_from(expanded.len() - begin).expect("few digits"));
            Ok(())
        };
        if physical == Physical::Bytes {
            values.read_texts(present, scratch, &mut push)?;
        } else {
            values.read_numbers(self.kind, present, scratch, out)?;
            out.chunks_exact(self.kind.bytes).try_for_each(push)?;
        }
        let text = if self.with_bytes { &expanded[..] } else { &[] };
        let max = u32::from(self.block.definition_max);
        put_texts(text, lengths, present, definitions, max, scratch, put)
    }

    fn lists(
        &mut self,
        present: usize,
        values: &mut Values<'_>,
        buffers: &mut Buffers,
        put: &mut Put<'_>,
    ) -> Result<(), Fault> {
        let Buffers { definitions, repetitions, scratch, out, lengths, .. } = buffers;
        values.read_numbers(self.kind, present, scratch, out)?;
        let (bytes, list) = (self.kind.bytes, u32::from(self.block.list_definition));
        let max = u32::from(self.block.definition_max);
        let row = u32::from(self.block.row_definition());
        let is_nested = self.block.outer_definition > 0;
        // Bytes of `out` that belong to rows, and those that were handed over.
        let (mut taken, mut moved) = (0, 0);
        for (index, &repetition) in repetitions.iter().enumerate() {
            let level = definitions.get(index).copied().unwrap_or(max);
            if is_nested && repetition < 2 {
                self.inner.end()?;
            }
            if repetition == 0 {
                if let Some(open) = self.open.take()
                    && self.close(open, lengths)?
                {
                    self.hand_over(&out[moved..taken], &[], put)?;
                    self.put_null(put)?;
                    moved = taken;
                }
                self.rows_done(1)?;
                let is_null = level + 1 < row;
                self.nulls += u64::from(is_null);
                self.open = Some(Open { bytes: 0, is_null });
            }
            let Some(open) = &mut self.open else {
                return Err(malformed("a list that goes on before it begins"));
            };
            if level == max {
                taken += bytes;
                open.bytes += bytes;
                self.inner.now += u64::from(is_nested);
            } else if level >= list {
                return Err(Fault::new("list", "has a null among its elements"));
            } else if level >= row {
                return Err(uneven());
            } else if repetition > 0 {
                return Err(malformed("a list that goes on and is empty"));
            }
        }
        self.hand_over(&out[moved..], lengths, put)
    }

    /// Ends a row of a list. Returns whether zeros must stand for it.
    fn close(&self, open: Open, lengths: &mut Vec<u32>) -> Result<bool, Fault> {
        let Some(row_bytes) = self.wanted.row_bytes else {
            let length = u32::try_from(open.bytes).map_err(|_| malformed("a row over 4 GiB"))?;
            lengths.push(length);
            return Ok(false);
        };
        if !open.is_null && open.bytes as u64 != row_bytes {
            let why = format!("has {} bytes where all lists have {row_bytes}", open.bytes);
            return Err(Fault::new("list", why));
        }
        Ok(open.is_null)
    }

    /// Hands over the zeros of a null list that has a fixed length.
    fn put_null(&self, put: &mut Put<'_>) -> Result<(), Fault> {
        if !self.with_bytes {
            return Ok(());
        }
        let zeros = [0; 4096];
        let mut left = self.wanted.row_bytes.unwrap_or(0);
        while left > 0 {
            let now = usize::try_from(left).unwrap_or(zeros.len()).min(zeros.len());
            put(&zeros[..now], &[])?;
            left -= now as u64;
        }
        Ok(())
    }

    fn hand_over(&self, bytes: &[u8], lengths: &[u32], put: &mut Put<'_>) -> Result<(), Fault> {
        put(if self.with_bytes { bytes } else { &[] }, lengths)
    }

    fn rows_done(&mut self, rows: usize) -> Result<(), Fault> {
        let left = self.rows_left.checked_sub(rows as u64);
        self.rows_left = left.ok_or_else(|| malformed("more rows than its row group"))?;
        Ok(())
    }
}

/// Hands over texts. Nulls are empty: their lengths go between those of the texts.
fn put_texts(
    text: &[u8],
    lengths: &[u32],
    present: usize,
    definitions: &[u32],
    max: u32,
    scratch: &mut Vec<u32>,
    put: &mut Put<'_>,
) -> Result<(), Fault> {
    if definitions.is_empty() || present == definitions.len() {
        return put(text, lengths);
    }
    let mut known = lengths.iter();
    scratch.clear();
    let length = |&level: &u32| known.next_if(level == max).copied().unwrap_or(0);
    scratch.extend(definitions.iter().map(length));
    put(text, scratch)
}

impl Inner {
    /// Ends the list that may go on.
    fn end(&mut self) -> Result<(), Fault> {
        match std::mem::take(&mut self.now) {
            0 => Ok(()),
            now if *self.each.get_or_insert(now) == now => Ok(()),
            _ => Err(uneven()),
        }
    }
}

/// The fault of lists of lists that only JSON can hold.
pub(super) fn uneven() -> Fault {
    Fault::new("list", "has lists of several lengths")
}

/// Returns the bytes of a value in a row; of a decimal, those in the file. `None` if the column
/// does not have such values.
fn value_bytes(block: &ChunkBlock, wanted: RowsWanted) -> Option<u64> {
    let (is_list, is_value) = (block.list_definition > 0, block.aspect == Aspect::Values);
    if let Some(decimal) = block.decimal.filter(|_| is_value) {
        let is_text = wanted.row_bytes.is_none() && !is_list;
        return decimal.stored_bytes(block.physical).filter(|_| is_text);
    }
    let element = match wanted.row_bytes {
        Some(row_bytes) if is_value && !is_list => row_bytes,
        _ => wanted.scalar_bytes,
    };
    let fits = match block.physical {
        Physical::Bytes => true,
        Physical::I96 if is_value => element == 8,
        physical => (1..=physical.bytes(element).unwrap_or(1)).contains(&element),
    };
    fits.then_some(element)
}

/// Advances only where a condition holds.
trait NextIf: Iterator {
    fn next_if(&mut self, holds: bool) -> Option<Self::Item> {
        if holds { self.next() } else { None }
    }
}

impl<I: Iterator> NextIf for I {}

/// Returns a bound of the memory for a chunk whose pages decode to this many bytes.
pub(crate) fn scratch_bytes(decoded: u64) -> u64 {
    // The page before and after its compression, and the dictionary twice while it is parsed.
    decoded.min(PAGE_BYTES_MAX).saturating_mul(3)
}
