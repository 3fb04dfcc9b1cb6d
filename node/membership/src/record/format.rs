//! The record as bytes, and the checks that every record passes.

use std::collections::BTreeSet;

use larder_base::{codec, limits};

use super::{DatasetRecord, Record};
use crate::{Malformed, plan::Edit, record::step::Refused};

const WHAT: &str = "the record";
const MAGIC: &[u8; 8] = b"ldr-rec3";
/// The cluster is the first field: the header of the array, then the header of 16 bytes.
const CLUSTER_AT: usize = MAGIC.len() + 3;

impl Record {
    /// Returns the record as bytes.
    ///
    /// # Errors
    /// [`Refused`] if it is not well formed, or longer than [`limits::RECORD_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, Refused> {
        self.check().map_err(|why| Refused::new(format!("this would break the record: {why}")))?;
        let bytes = codec::encode(MAGIC, self);
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
    pub fn cluster_of(bytes: &[u8]) -> Option<[u8; 16]> {
        bytes.get(CLUSTER_AT..)?.first_chunk().copied()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a record, or one that no step leads to.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let record: Self = codec::decode(WHAT, MAGIC, bytes, limits::RECORD_BYTES_MAX)?;
        let checked = record.check();
        checked.map_err(|_| Malformed { what: WHAT, why: "no step leads to it" })?;
        Ok(record)
    }
}

impl DatasetRecord {
    /// Returns its length in an encoded record.
    pub(super) fn encoded_bytes(&self) -> usize {
        const ID: usize = 2 + 32;
        const TEXT_HEADER: usize = 3;
        const NUMBER: usize = 9;
        1 + ID + 2 * TEXT_HEADER + self.uri.len() + self.manifest.len() + 2 * NUMBER
    }
}

impl Record {
    /// Checks that steps can have led to this record.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_members()?;
        let snapshots: BTreeSet<_> = self.datasets.iter().map(|one| one.snapshot).collect();
        let (count, max) = (self.datasets.len(), limits::RECORD_DATASETS_MAX);
        if count > max || snapshots.len() < count {
            return Err(format!("{count} datasets, at most {max}, each once"));
        }
        if let Some(previous) = &self.previous
            && previous.version >= self.version
        {
            return Err(format!("ring {} after ring {}", self.version, previous.version));
        }
        self.check_change()
    }

    fn check_members(&self) -> Result<(), String> {
        let members = &self.members;
        if members.len() > limits::RING_MEMBERS_MAX {
            return Err(format!("{} members, at most {}", members.len(), limits::RING_MEMBERS_MAX));
        }
        if !members.windows(2).all(|pair| pair[0].member.id < pair[1].member.id) {
            return Err("members are not sorted by id, each once".to_owned());
        }
        if self.version == 0 || self.in_ring().next().is_none() {
            return Err("no member is in the ring".to_owned());
        }
        let max = limits::RING_WEIGHT_MAX;
        let odd = members.iter().find(|e| !(1..=max).contains(&e.member.weight));
        odd.map_or(Ok(()), |entry| {
            let (id, weight) = (&entry.member.id, entry.member.weight);
            Err(format!("member '{id}' has weight {weight}, not 1 to {max}"))
        })
    }

    fn check_change(&self) -> Result<(), String> {
        let Some(change) = &self.change else {
            return Ok(());
        };
        let changes_nothing = change.edits.is_empty() && change.replicas(self).is_none();
        if changes_nothing || change.number > self.changes {
            return Err("the change in flight changes nothing or has no number".to_owned());
        }
        let unknown = change.edits.iter().find(|edit| self.entry(edit.id()).is_none());
        match unknown {
            Some(Edit::Put(member)) => Err(format!("the change adds '{}', unknown", member.id)),
            Some(Edit::Remove(id)) => Err(format!("the change removes '{id}', unknown")),
            None => Ok(()),
        }
    }
}
