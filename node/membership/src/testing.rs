//! Members, records and a planner for tests.

use std::collections::BTreeMap;

use larder_base::{Member, Ring, Scheme, ShardId, SnapshotId};

use crate::plan::{Move, Task, edited};
use crate::record::{DatasetRecord, State};
use crate::{PlanBlobs, Planner, Record, RingPlan};

pub(crate) fn member(id: &str, weight: u32) -> Member {
    let control = format!("http://{id}.example:7070");
    Member { id: id.to_owned(), weight, control, host: format!("host-{id}"), zone: String::new() }
}

/// A dataset of some size.
pub(crate) fn dataset(number: u16) -> DatasetRecord {
    let mut snapshot = [0; 32];
    snapshot[..2].copy_from_slice(&number.to_be_bytes());
    let uri = format!("s3://bucket/data/{number}");
    let manifest = format!("{uri}/m.manifest");
    DatasetRecord { snapshot: SnapshotId::from_bytes(snapshot), uri, manifest, shards: 7, bytes: 8 }
}

/// Datasets with names so long that the record has room for 32 of them.
pub(crate) fn long(numbers: std::ops::Range<u16>) -> Vec<DatasetRecord> {
    let long =
        |number| DatasetRecord { uri: format!("s3://bucket/{number:03984}"), ..dataset(number) };
    numbers.map(long).collect()
}

/// A ring of these members, as if they had always been in it.
pub(crate) fn record(ids: &[&str]) -> Record {
    let mut record = Record::founded([1; 16], member(ids[0], 1), Scheme::one_replica(1));
    for id in &ids[1..] {
        record = record.joined(member(id, 1)).unwrap().record;
    }
    for entry in &mut record.members {
        entry.state = State::Active;
    }
    record
}

/// Plans by the ring alone: each shard goes where the ring says. Placements are as even as the ring
/// is, and no better.
#[derive(Debug, Clone, Default)]
pub(crate) struct RingOnly {
    /// The shards of all snapshots and their bytes.
    pub(crate) shards: Vec<(SnapshotId, ShardId, u64)>,
}

impl Planner for RingOnly {
    fn plan(&self, task: &Task, _: Option<&[u8]>) -> Result<PlanBlobs, String> {
        let target = edited(&task.members, &task.edits);
        let words = |error: larder_base::Error| error.to_string();
        let members = task.members.clone();
        let before = Ring::with_scheme(task.base, members, task.scheme).map_err(words)?;
        let after = before.next(target).map_err(words)?;
        let mut names: Vec<String> =
            before.members().iter().chain(after.members()).map(|m| m.id.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let index: BTreeMap<&str, u16> = names.iter().map(String::as_str).zip(0_u16..).collect();
        let mut moves = Vec::new();
        for &(snapshot, shard, bytes) in &self.shards {
            let (from, to) = (&before.owner(shard).id, &after.owner(shard).id);
            if from != to {
                // A member that leaves at once cannot be a source.
                let there = !task.urgent || after.member(from).is_some();
                let from = there.then(|| index[from.as_str()]);
                moves.push(Move {
                    snapshot,
                    shard,
                    bytes,
                    from,
                    stays: false,
                    to: index[to.as_str()],
                });
            }
        }
        let edits = task.edits.clone();
        let plan =
            RingPlan { base: task.base, edits, scheme: after.scheme(), target: None, names, moves };
        Ok(PlanBlobs { plan: plan.encode(), placement: None })
    }
}
