//! Arrow IPC files and streams, such as the caches of Hugging Face `datasets`.
//!
//! A stream is a row of messages: a schema, then batches. Each message has metadata and a body with
//! the buffers of its columns. A file is a stream between two marks, with a footer that lists the
//! batches. [`ArrowScan`] uses the metadata, and the offsets of rows that differ in length. It hops
//! over values, except where a longer read costs less than a further one. It decodes what becomes
//! JSON, once, to know the lengths of the texts.
//!
//! Rows lie in the file as they are, or [`make`] makes them from the buffers of a batch.
//!
//! ```text
//! stream:  message, message, ..., end marker or the end of the file
//! message: 0xFFFFFFFF, u32 length of the metadata, metadata, body
//!          u32 length of the metadata, metadata, body             (written before version 0.15)
//! end:     a message with metadata of length 0
//! file:    "ARROW1" 0 0, stream, footer, u32 length of the footer, "ARROW1"
//! ```
//!
//! Thread rule: plain values, without locks. Non-goals: decimals, unions, intervals, run-end
//! encoded values and list views. Columns of these are left out.

mod array;
mod batch;
mod column;
mod dictionary;
mod flat;
mod layout;
mod made;
mod message;
mod pending;
mod places;
mod schema;
mod state;
mod table;
mod tree;

use std::{collections::HashMap, ops::Range, vec};

use larder_base::limits;

use self::{
    message::{Footer, Message, MessageHeader, MessagePlace},
    table::{Part as BodyPart, TableBuilder, Target, WantedColumns},
};
use crate::{
    Fault, Forms, Scan, Table,
    scan::{Reads, tail},
    shown,
};

pub(crate) use made::make;
pub(crate) use tree::ARROW;

/// Begins and ends a file.
const MAGIC: &[u8] = b"ARROW1";
/// Bytes of a continuation, and of a length.
const WORD_BYTES: u64 = 4;
/// Stands before the length of a message.
const CONTINUATION: &[u8] = &[0xFF; 4];
/// Largest metadata of a message, and largest footer. A footer of this size lists 2.7 million
/// batches.
const METADATA_BYTES_MAX: u64 = 64 << 20;
/// Most batches. Each takes 16 bytes a column until the scan ends.
const BATCHES_MAX: u64 = 10_000_000;
/// Bytes of offsets that are collected before they become rows.
const OFFSETS_PIECE_BYTES: u64 = 1 << 20;

/// Returns the lengths of the lists of numbers that all have one length, by dotted name. `message`
/// is a schema that stands alone.
pub(crate) fn fixed_lists(message: &[u8]) -> Result<HashMap<String, u64>, Fault> {
    let metadata = message.strip_prefix(CONTINUATION).unwrap_or(message);
    match Message::parse(metadata.get(4..).unwrap_or(&[]))?.header {
        MessageHeader::Schema(schema) => Ok(schema::fixed_lists(&schema::fields(schema)?)),
        _ => Err(Fault::new("schema", "is missing")),
    }
}

/// The scan of an Arrow IPC file or stream.
#[derive(Debug)]
pub struct ArrowScan {
    file_bytes: u64,
    reads: Reads<ReadPart>,
    message: Frame,
    /// The batches to come, if this is a file.
    blocks: Option<vec::IntoIter<MessagePlace>>,
    wanted: WantedColumns,
    /// `None` before the schema.
    table: Option<TableBuilder>,
    /// What each part of a body is read for, by the place of its begin.
    targets: HashMap<u64, Vec<Target>>,
}

/// A range that the scan asks for.
#[derive(Debug, Clone, Copy)]
enum ReadPart {
    /// The first word of a message.
    Mark,
    /// The word behind a continuation.
    Length,
    Metadata,
    /// The end of a file.
    End,
    Footer,
    /// A piece of the offsets of the column with this index.
    Offsets(usize),
    /// A whole part of a body.
    Body,
}

/// The place of a message.
#[derive(Debug)]
struct Frame {
    begin: u64,
    /// The beginning of the body, if a footer gives it.
    body_begin: Option<u64>,
    /// The message must end here or before.
    limit: u64,
}

impl ArrowScan {
    /// Begins the scan of a file of this size.
    pub fn new(file_bytes: u64) -> Self {
        let mut reads = Reads::new(file_bytes);
        if file_bytes >= WORD_BYTES {
            reads.push(0..WORD_BYTES, ReadPart::Mark);
            reads.plan();
        }
        let message = Frame { begin: 0, body_begin: None, limit: file_bytes };
        let (wanted, targets) = (WantedColumns::default(), HashMap::new());
        Self { file_bytes, reads, message, blocks: None, wanted, table: None, targets }
    }

    /// Keeps these columns, or all, and gives them in these forms at least.
    #[must_use]
    pub fn with(mut self, columns: Option<&[String]>, forms: &Forms) -> Self {
        let columns = columns.map(<[String]>::to_vec);
        self.wanted = WantedColumns { columns, forms: forms.clone() };
        self
    }

    fn take_part(&mut self, part: ReadPart, range: Range<u64>, bytes: &[u8]) -> Result<(), Fault> {
        match part {
            ReadPart::Mark if range.start == 0 && MAGIC.starts_with(bytes) => {
                let begin = self.file_bytes.saturating_sub(limits::HEADER_PROBE_BYTES);
                self.reads.push(begin..self.file_bytes, ReadPart::End);
                Ok(())
            }
            ReadPart::Mark if bytes == CONTINUATION => self.ask_word(range.end, ReadPart::Length),
            ReadPart::Mark | ReadPart::Length => self.take_length(range.end, bytes),
            ReadPart::Metadata => self.take_message(range.end, bytes),
            ReadPart::End => self.take_end(range.start, bytes),
            ReadPart::Footer => self.take_footer(range.start, bytes),
            ReadPart::Offsets(index) => self.take_body(Target::Offsets(index), bytes),
            ReadPart::Body => {
                let targets = self.targets.remove(&range.start).unwrap_or_default();
                targets.into_iter().try_for_each(|target| self.take_body(target, bytes))
            }
        }
    }

    fn take_body(&mut self, target: Target, bytes: &[u8]) -> Result<(), Fault> {
        match &mut self.table {
            Some(table) => table.take(target, bytes),
            None => Ok(()),
        }
    }

    /// Takes the last bytes of a file. The footer is often among them.
    fn take_end(&mut self, begin: u64, bytes: &[u8]) -> Result<(), Fault> {
        let last = bytes.strip_suffix(MAGIC).ok_or_else(|| {
            Fault::new("footer", "is missing: the file does not end with ARROW1, so it was cut off")
        })?;
        let tail::FooterPlace { range, bytes } =
            tail::find_footer(begin, last, METADATA_BYTES_MAX)?;
        if let Some(bytes) = bytes {
            return self.take_footer(range.start, bytes);
        }
        self.reads.push(range, ReadPart::Footer);
        Ok(())
    }

    fn take_footer(&mut self, begin: u64, bytes: &[u8]) -> Result<(), Fault> {
        let footer = Footer::parse(bytes).map_err(|fault| fault.within("footer"))?;
        check_blocks("batch", &footer.batches, begin)?;
        check_blocks("dictionary", &footer.dictionaries, begin)?;
        self.table = Some(TableBuilder::new(footer.schema, &self.wanted, self.file_bytes)?);
        // Some writers put dictionaries behind the batches that need them.
        self.blocks = Some([footer.dictionaries, footer.batches].concat().into_iter());
        self.ask_message(begin)
    }

    /// Asks for the next message. In a stream it begins at `begin`.
    fn ask_message(&mut self, begin: u64) -> Result<(), Fault> {
        self.message = match &mut self.blocks {
            None if begin == self.file_bytes => return Ok(()),
            None => Frame { begin, body_begin: None, limit: self.file_bytes },
            Some(blocks) => {
                let Some(MessagePlace { begin, body_begin, end }) = blocks.next() else {
                    return Ok(());
                };
                Frame { begin, body_begin: Some(body_begin), limit: end }
            }
        };
        self.ask_word(self.message.begin, ReadPart::Mark)
    }

    fn ask_word(&mut self, begin: u64, part: ReadPart) -> Result<(), Fault> {
        let end = begin.saturating_add(WORD_BYTES);
        if end > self.message.limit {
            return Err(self.fault("is cut off"));
        }
        self.reads.push(begin..end, part);
        Ok(())
    }

    /// Takes the length of the metadata that begins at `begin`.
    fn take_length(&mut self, begin: u64, word: &[u8]) -> Result<(), Fault> {
        let word = word.try_into().expect("a part of one word");
        let length = u64::from(u32::from_le_bytes(word));
        if length == 0 && self.blocks.is_none() {
            self.end_stream(begin);
            return Ok(());
        }
        if length > METADATA_BYTES_MAX {
            let why =
                format!("has {length} bytes of metadata, at most {METADATA_BYTES_MAX} are read");
            return Err(self.fault(format!("{why}: is this an Arrow file?")));
        }
        if length == 0 {
            return Err(self.fault("has no metadata"));
        }
        let (end, limit) = (begin.saturating_add(length), self.message.limit);
        if end > limit {
            let why =
                format!("has {length} bytes of metadata from byte {begin}, past byte {limit}");
            return Err(self.fault(why));
        }
        self.reads.push(begin..end, ReadPart::Metadata);
        Ok(())
    }

    /// Leaves out the bytes behind the end marker.
    fn end_stream(&mut self, end: u64) {
        if let Some(table) = self.table.as_mut().filter(|_| end < self.file_bytes) {
            let name = format!("the last {} bytes", self.file_bytes - end);
            table.leave_out(name, "lie behind the end marker of the stream");
        }
    }

    /// Takes the metadata of a message, whose body begins at `begin`.
    fn take_message(&mut self, begin: u64, metadata: &[u8]) -> Result<(), Fault> {
        let message = Message::parse(metadata).map_err(|fault| fault.within(self.place()))?;
        let (end, limit) = (begin.checked_add(message.body_bytes), self.message.limit);
        let Some(end) = end.filter(|end| *end <= limit) else {
            let bytes = message.body_bytes;
            let why = format!("has a body of {bytes} bytes from byte {begin}, past byte {limit}");
            return Err(self.fault(why));
        };
        if self.message.body_begin.is_some_and(|listed| listed != begin) {
            return Err(self.fault("has a body at another place than in the footer"));
        }
        match (message.header, &mut self.table) {
            (MessageHeader::Schema(schema), None) => {
                self.table = Some(TableBuilder::new(schema, &self.wanted, self.file_bytes)?);
            }
            (MessageHeader::Schema(_), Some(_)) => return Err(self.fault("is a second schema")),
            (_, None) => return Err(self.fault("comes before the schema")),
            (MessageHeader::Dictionary(dictionary), Some(table)) => {
                let parts = table.add_dictionary(dictionary, begin..end)?;
                self.ask_parts(parts);
            }
            (MessageHeader::Batch(batch), Some(table)) => {
                let parts = table.add(batch, message.version, begin..end)?;
                if table.batches > BATCHES_MAX {
                    return Err(self.fault(format!("is one more than {BATCHES_MAX} batches")));
                }
                self.ask_parts(parts);
            }
        }
        self.ask_message(end)
    }

    fn ask_parts(&mut self, parts: Vec<BodyPart>) {
        for (mut range, targets) in parts {
            let [Target::Offsets(column)] = targets[..] else {
                self.targets.insert(range.start, targets);
                self.reads.push(range, ReadPart::Body);
                continue;
            };
            while !range.is_empty() {
                let end = range.end.min(range.start + OFFSETS_PIECE_BYTES);
                self.reads.push(range.start..end, ReadPart::Offsets(column));
                range.start = end;
            }
        }
    }

    fn place(&self) -> String {
        format!("message at byte {}", self.message.begin)
    }

    fn fault(&self, why: impl Into<String>) -> Fault {
        Fault::new(self.place(), why)
    }
}

impl Scan for ArrowScan {
    fn wants(&self) -> Option<Range<u64>> {
        self.reads.wants()
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while let Some((range, part, bytes)) = self.reads.take(&mut bytes) {
            self.take_part(part, range, &bytes)?;
        }
        self.reads.plan();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Table, Fault> {
        match self.table {
            Some(table) => Ok(table.finish()),
            None => Err(Fault::new("schema", "is missing: the file is empty or was cut off")),
        }
    }
}

/// Checks that the blocks of a footer, which begins at `limit`, lie one after the other before it.
fn check_blocks(noun: &str, blocks: &[MessagePlace], limit: u64) -> Result<(), Fault> {
    let mut end = MAGIC.len() as u64;
    for (index, block) in blocks.iter().enumerate() {
        if block.begin < end || block.end > limit {
            let (from, to) = (block.begin, block.end);
            let why = format!("lies at {from}..{to}, which is not in {end}..{limit}");
            return Err(Fault::new(format!("{noun} {index}"), why));
        }
        end = block.end;
    }
    Ok(())
}

/// Returns the place of a column for a fault.
fn column_named(name: &str) -> String {
    format!("column '{}'", shown(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_past_the_limit_is_a_fault() {
        let bytes = include_bytes!("../tests/files/arrow/saved.stream.arrow");
        let mut scan = ArrowScan::new(bytes.len() as u64);
        let fault = bytes.iter().find_map(|byte| {
            if let Some(table) = scan.table.as_mut().filter(|table| table.batches == 0) {
                table.batches = BATCHES_MAX;
            }
            scan.take(std::slice::from_ref(byte)).err()
        });
        assert_eq!(fault.map(|fault| fault.why), Some("is one more than 10000000 batches".into()));
    }
}
