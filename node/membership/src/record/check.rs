//! What holds in every record.

use std::collections::BTreeSet;

use larder_base::limits;

use super::Record;
use crate::plan::Edit;

impl Record {
    /// Whether steps can have led here.
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
