//! The planner that knows the ring and no exceptions: each shard goes where the ring says.

use std::collections::BTreeMap;

use larder_base::{Ring, ShardId, SnapshotId};

use super::{Move, Plan, Planned, Planner, Task, edited};

/// Plans by the ring alone. With it placements are as even as the ring is, and no better.
#[derive(Debug, Clone, Default)]
pub(crate) struct RingOnly {
    /// The shards of all snapshots and their bytes.
    pub(crate) shards: Vec<(SnapshotId, ShardId, u64)>,
}

impl Planner for RingOnly {
    fn plan(&self, task: &Task, _: Option<&[u8]>) -> Result<Planned, String> {
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
            Plan { base: task.base, edits, scheme: after.scheme(), target: None, names, moves };
        Ok(Planned { plan: plan.encode(), placement: None })
    }
}
