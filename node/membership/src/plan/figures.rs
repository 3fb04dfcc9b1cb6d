//! The costs and results of a plan, for the operator that decides on it.
//!
//! The figures follow only from the plan, the members it starts from, and the bytes that each of
//! them owns. So the same plan has the same figures everywhere.
//!
//! - *Share*: the bytes that a member would own if all bytes were spread by weight.
//! - *Ideal*: the fewest bytes to move if every member owns its share before and after. It is the
//!   growth of all shares that grow, added up.
//!
//! Non-goals: times and rates; residency (an owner may lack a shard that it owns).

use std::collections::BTreeMap;

use larder_base::Member;

use super::{RingPlan, edited};

/// The figures of one plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Shards that move.
    pub moves: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, bytes without a live source. They come from the origin.
    pub bytes_from_origin: u64,
    /// Bytes that an even placement must move.
    pub bytes_ideal: u64,
    /// Every member before or after, sorted by id.
    pub nodes: Vec<NodeFigures>,
}

/// The figures of one member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFigures {
    /// Its name.
    pub id: String,
    /// Its weight before; 0 outside of the ring.
    pub weight_before: u32,
    /// Its weight after; 0 outside of the ring.
    pub weight: u32,
    /// Bytes of the shards it owns before.
    pub owned_before: u64,
    /// The same after.
    pub owned: u64,
    /// Bytes that move to it.
    pub bytes_in: u64,
    /// Bytes that it gives away. Shards that it keeps and others copy do not count.
    pub bytes_out: u64,
}

impl Figures {
    /// Returns the figures of `plan`, which starts from `members` that own these bytes each.
    /// `lives` tells which members can be pulled from.
    pub fn of(
        plan: &RingPlan,
        members: &[Member],
        owned: &BTreeMap<String, u64>,
        lives: impl Fn(&str) -> bool,
    ) -> Self {
        let mut nodes: BTreeMap<String, NodeFigures> = BTreeMap::new();
        for member in members {
            let owned_before = owned.get(&member.id).copied().unwrap_or(0);
            let node = entry(&mut nodes, &member.id);
            (node.weight_before, node.owned_before) = (member.weight, owned_before);
        }
        for member in &edited(members, &plan.edits) {
            entry(&mut nodes, &member.id).weight = member.weight;
        }
        let mut bytes_from_origin = 0;
        for step in &plan.moves {
            entry(&mut nodes, plan.name(step.to)).bytes_in += step.bytes;
            let from = step.from.map(|from| plan.name(from));
            if let Some(from) = from.filter(|_| !step.stays) {
                entry(&mut nodes, from).bytes_out += step.bytes;
            }
            if !from.is_some_and(&lives) {
                bytes_from_origin += step.bytes;
            }
        }
        let mut nodes: Vec<NodeFigures> = nodes.into_values().collect();
        for node in &mut nodes {
            let kept = node.owned_before.saturating_sub(node.bytes_out);
            node.owned = if node.weight == 0 { 0 } else { kept + node.bytes_in };
        }
        let (moves, bytes) = (plan.moves.len() as u64, plan.bytes());
        let bytes_ideal = ideal(&nodes);
        Self { moves, bytes, bytes_from_origin, bytes_ideal, nodes }
    }

    /// Sets the bytes that members own after the change. Needed where the number of owners changes,
    /// as they do not follow from the moves then.
    pub fn owned_after(&mut self, owned: &BTreeMap<String, u64>) {
        for node in &mut self.nodes {
            node.owned = owned.get(&node.id).copied().unwrap_or(0);
        }
    }
}

fn entry<'a>(nodes: &'a mut BTreeMap<String, NodeFigures>, id: &str) -> &'a mut NodeFigures {
    let new = || NodeFigures { id: id.to_owned(), ..NodeFigures::default() };
    nodes.entry(id.to_owned()).or_insert_with(new)
}

/// Returns the growth of all shares that grow, added up.
fn ideal(nodes: &[NodeFigures]) -> u64 {
    let total: u64 = nodes.iter().map(|node| node.owned_before).sum();
    let before: u64 = nodes.iter().map(|node| u64::from(node.weight_before)).sum();
    let after: u64 = nodes.iter().map(|node| u64::from(node.weight)).sum();
    let growth = |node: &NodeFigures| {
        let share_before = share(total, node.weight_before, before);
        share(total, node.weight, after).saturating_sub(share_before)
    };
    nodes.iter().map(growth).sum()
}

fn share(total: u64, weight: u32, weights: u64) -> u64 {
    let share = u128::from(total) * u128::from(weight) / u128::from(weights.max(1));
    u64::try_from(share).expect("a part of the total")
}

#[cfg(test)]
mod tests {
    use larder_base::{ShardId, SnapshotId};

    use larder_base::Scheme;

    use super::*;
    use crate::{
        plan::{Edit, Move},
        testing::member,
    };

    fn plan(edits: Vec<Edit>, moves: &[(u64, Option<u16>, u16)]) -> RingPlan {
        let step = |&(bytes, from, to): &(u64, Option<u16>, u16)| Move {
            snapshot: SnapshotId::from_bytes([1; 32]),
            shard: ShardId::from_bytes([2; 16]),
            bytes,
            from,
            stays: false,
            to,
        };
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let moves = moves.iter().map(step).collect();
        RingPlan { base: 1, edits, scheme: Scheme::one_replica(1), target: None, names, moves }
    }

    fn owned(bytes: &[(&str, u64)]) -> BTreeMap<String, u64> {
        bytes.iter().map(|(id, bytes)| ((*id).to_owned(), *bytes)).collect()
    }

    #[test]
    fn joining_member_gets_its_share_from_the_owners() {
        let plan = plan(vec![Edit::Put(member("c", 1))], &[(30, Some(0), 2), (20, Some(1), 2)]);
        let members = [member("a", 1), member("b", 1)];
        let figures = Figures::of(&plan, &members, &owned(&[("a", 90), ("b", 60)]), |_| true);
        assert_eq!((figures.moves, figures.bytes, figures.bytes_ideal), (2, 50, 50));
        assert_eq!(figures.bytes_from_origin, 0);
        let owned: Vec<_> = figures.nodes.iter().map(|n| (n.owned_before, n.owned)).collect();
        assert_eq!(owned, [(90, 60), (60, 40), (0, 50)]);
        assert_eq!(figures.nodes[2].bytes_in, 50);
    }

    #[test]
    fn source_of_a_copy_keeps_owning_the_shard() {
        let mut plan = plan(vec![Edit::Put(member("c", 1))], &[(30, Some(0), 2)]);
        plan.moves[0].stays = true;
        let members = [member("a", 1), member("b", 1)];
        let figures = Figures::of(&plan, &members, &owned(&[("a", 90), ("b", 60)]), |_| true);
        assert_eq!((figures.nodes[0].bytes_out, figures.nodes[0].owned), (0, 90));
        assert_eq!(figures.nodes[2].owned, 30);
    }

    #[test]
    fn shards_of_dead_members_are_read_from_the_origin() {
        let edits = vec![Edit::Remove("a".to_owned())];
        let plan = plan(edits, &[(40, Some(0), 1), (20, None, 2), (5, Some(1), 2)]);
        let members = ["a", "b", "c"].map(|id| member(id, 1));
        let owned = owned(&[("a", 60), ("b", 60), ("c", 60)]);
        let figures = Figures::of(&plan, &members, &owned, |id| id != "a");
        assert_eq!((figures.bytes, figures.bytes_from_origin), (65, 60));
        assert_eq!(figures.bytes_ideal, 60);
        let after: Vec<_> = figures.nodes.iter().map(|n| (n.weight, n.owned)).collect();
        assert_eq!(after, [(0, 0), (1, 95), (1, 85)]);
    }

    #[test]
    fn shares_follow_weights() {
        let plan = plan(vec![Edit::Put(member("a", 3))], &[(50, Some(1), 0)]);
        let members = [member("a", 1), member("b", 1)];
        let figures = Figures::of(&plan, &members, &owned(&[("a", 100), ("b", 100)]), |_| true);
        assert_eq!(figures.bytes_ideal, 50);
        assert_eq!((figures.nodes[0].weight_before, figures.nodes[0].weight), (1, 3));
    }
}
