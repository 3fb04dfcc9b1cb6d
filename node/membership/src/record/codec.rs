//! The record as bytes: magic, the fields in the order of the struct, a checksum of all before it.

use std::time::Duration;

use larder_base::{SnapshotId, limits};

use super::{Change, Dataset, Entry, Past, Previous, Record, State, Terms};
use crate::{
    Malformed,
    codec::{Reader, Writer},
    plan::{put_edit, take_edit},
    record::step::Refused,
};

const MAGIC: &[u8; 8] = b"ldr-rec1";
const EDITS_MAX: usize = 2 * limits::RING_MEMBERS_MAX;

impl Record {
    /// The record as bytes.
    ///
    /// # Errors
    /// [`Refused`] when it is not well formed or longer than [`limits::RECORD_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, Refused> {
        self.check().map_err(|why| Refused::new(format!("this would break the record: {why}")))?;
        let mut out = Writer::new(MAGIC);
        out.array(&self.cluster);
        out.u64(self.generation);
        out.u64(self.version);
        out.list(&self.members, put_entry);
        out.scheme(self.scheme);
        out.option(self.placement, Writer::blob_id);
        out.option(self.previous.as_ref(), put_previous);
        out.option(self.settling, Writer::blob_id);
        out.option(self.change.as_ref(), put_change);
        out.list(&self.datasets, put_dataset);
        out.u64(self.changes);
        out.list(&self.history, put_past);
        out.trailing(self.kept, put_terms);
        let bytes = out.end();
        let (length, max) = (bytes.len(), limits::RECORD_BYTES_MAX);
        if length > max {
            return Err(Refused::new(format!(
                "the record would have {length} bytes, the limit is {max}; use shorter names"
            )));
        }
        Ok(bytes)
    }

    /// Returns the cluster that a record names, without decoding the rest; none when the bytes are
    /// too few.
    pub(crate) fn cluster_of(bytes: &[u8]) -> Option<[u8; 16]> {
        bytes.get(MAGIC.len()..)?.first_chunk().copied()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a record, or one that no step leads to.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Reader::new("the record", MAGIC, bytes, limits::RECORD_BYTES_MAX)?;
        let record = Self {
            cluster: fields.array()?,
            generation: fields.u64()?,
            version: fields.u64()?,
            members: fields.list(limits::RING_MEMBERS_MAX, 21, take_entry)?,
            scheme: fields.scheme()?,
            placement: fields.option(Reader::blob_id)?,
            previous: fields.option(take_previous)?,
            settling: fields.option(Reader::blob_id)?,
            change: fields.option(take_change)?,
            datasets: fields.list(limits::RECORD_DATASETS_MAX, 36, take_dataset)?,
            changes: fields.u64()?,
            history: fields.list(limits::RECORD_HISTORY_MAX, 35, take_past)?,
            kept: fields.trailing(take_terms)?,
        };
        let malformed = fields.malformed("no step leads to it");
        fields.end()?;
        record.check().map_err(|_| malformed)?;
        Ok(record)
    }
}

fn put_entry(out: &mut Writer, entry: &Entry) {
    out.member(&entry.member);
    let (state, deadline) = match entry.state {
        State::Joining => (0, None),
        State::Active => (1, None),
        State::Draining { deadline } => (2, deadline),
        State::Down => (3, None),
        State::Condemned => (4, None),
        State::Held => (5, None),
    };
    out.u8(state);
    if state == 2 {
        out.option(deadline, |out, deadline| out.u64(deadline.as_secs()));
    }
    out.u64(entry.since);
}

fn take_entry(fields: &mut Reader<'_>) -> Result<Entry, Malformed> {
    let member = fields.member()?;
    let state = match fields.u8()? {
        0 => State::Joining,
        1 => State::Active,
        2 => State::Draining {
            deadline: fields.option(|fields| fields.u64().map(Duration::from_secs))?,
        },
        3 => State::Down,
        4 => State::Condemned,
        5 => State::Held,
        _ => return Err(fields.malformed("no such state")),
    };
    Ok(Entry { member, state, since: fields.u64()? })
}

fn put_previous(out: &mut Writer, previous: &Previous) {
    out.u64(previous.version);
    out.list(&previous.undo, put_edit);
    out.scheme(previous.scheme);
    out.option(previous.placement, Writer::blob_id);
}

fn take_previous(fields: &mut Reader<'_>) -> Result<Previous, Malformed> {
    Ok(Previous {
        version: fields.u64()?,
        undo: fields.list(EDITS_MAX, 3, take_edit)?,
        scheme: fields.scheme()?,
        placement: fields.option(Reader::blob_id)?,
    })
}

fn put_change(out: &mut Writer, change: &Change) {
    out.u64(change.number);
    out.blob_id(change.plan);
    out.list(&change.edits, put_edit);
    out.scheme(change.scheme);
    out.option(change.target, Writer::blob_id);
    out.u8(u8::from(change.paused));
    out.option(change.rate, Writer::u64);
    out.u64(change.moves);
    out.u64(change.bytes);
    out.u32(change.receivers);
    out.text(&change.asked_by);
}

fn take_change(fields: &mut Reader<'_>) -> Result<Change, Malformed> {
    Ok(Change {
        number: fields.u64()?,
        plan: fields.blob_id()?,
        edits: fields.list(EDITS_MAX, 3, take_edit)?,
        scheme: fields.scheme()?,
        target: fields.option(Reader::blob_id)?,
        paused: fields.flag()?,
        rate: fields.option(Reader::u64)?,
        moves: fields.u64()?,
        bytes: fields.u64()?,
        receivers: fields.u32()?,
        asked_by: fields.text()?,
    })
}

fn put_terms(out: &mut Writer, terms: Terms) {
    out.u8(u8::from(terms.paused));
    out.option(terms.rate, Writer::u64);
}

fn take_terms(fields: &mut Reader<'_>) -> Result<Terms, Malformed> {
    Ok(Terms { paused: fields.flag()?, rate: fields.option(Reader::u64)? })
}

impl Dataset {
    /// Returns its length in an encoded record.
    pub(super) fn encoded_bytes(&self) -> usize {
        const FIXED: usize = 16 + 2 + 2 + 8 + 8;
        FIXED + self.uri.len() + self.manifest.len()
    }
}

fn put_dataset(out: &mut Writer, dataset: &Dataset) {
    out.array(dataset.snapshot.as_bytes());
    out.text(&dataset.uri);
    out.text(&dataset.manifest);
    out.u64(dataset.shards);
    out.u64(dataset.bytes);
}

fn take_dataset(fields: &mut Reader<'_>) -> Result<Dataset, Malformed> {
    Ok(Dataset {
        snapshot: SnapshotId::from_bytes(fields.array()?),
        uri: fields.text()?,
        manifest: fields.text()?,
        shards: fields.u64()?,
        bytes: fields.u64()?,
    })
}

fn put_past(out: &mut Writer, past: &Past) {
    out.u64(past.number);
    out.blob_id(past.plan);
    out.u64(past.version);
    out.u8(u8::from(past.committed));
    out.text(&past.words);
}

fn take_past(fields: &mut Reader<'_>) -> Result<Past, Malformed> {
    Ok(Past {
        number: fields.u64()?,
        plan: fields.blob_id()?,
        version: fields.u64()?,
        committed: fields.option(|_| Ok(()))?.is_some(),
        words: fields.text()?,
    })
}
