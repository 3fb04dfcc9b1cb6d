//! A plan as bytes, and a plan with its placement as operators keep it.

use larder_base::{Scheme, ShardId, SnapshotId, codec, limits};
use serde::{Deserialize, Serialize};

use super::{Edit, Move, PlanBlobs, RingPlan};
use crate::{BlobId, Malformed};

const WHAT: &str = "a plan";
const MAGIC: &[u8; 8] = b"ldr-pln4";
const PLANNED_MAGIC: &[u8; 8] = b"ldr-pld2";

/// A plan whose moves name each snapshot by its number, so that a move takes at most 32 bytes.
#[derive(Serialize, Deserialize)]
struct Form {
    base: u64,
    edits: Vec<Edit>,
    scheme: Scheme,
    target: Option<BlobId>,
    names: Vec<String>,
    snapshots: Vec<SnapshotId>,
    moves: Vec<Step>,
}

/// Snapshot, shard, bytes, source, whether the source keeps its copy, and target of a move.
type Step = (u16, ShardId, u64, Option<u16>, bool, u16);

impl RingPlan {
    /// Returns the plan as bytes, whose hash is its name.
    pub fn encode(&self) -> Vec<u8> {
        let mut snapshots: Vec<SnapshotId> = self.moves.iter().map(|step| step.snapshot).collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let step = |step: &Move| {
            let snapshot = snapshots.binary_search(&step.snapshot).expect("listed above");
            let snapshot = u16::try_from(snapshot).expect("at most as many as the record names");
            (snapshot, step.shard, step.bytes, step.from, step.stays, step.to)
        };
        let moves = self.moves.iter().map(step).collect();
        let Self { base, edits, scheme, target, names, .. } = self.clone();
        codec::encode(MAGIC, &Form { base, edits, scheme, target, names, snapshots, moves })
    }

    /// Decodes a plan.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a plan.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let form: Form = codec::decode(WHAT, MAGIC, bytes, limits::BLOB_BYTES_MAX)?;
        let Form { base, edits, scheme, target, names, snapshots, moves } = form;
        let malformed = |why| Malformed { what: WHAT, why };
        let read = |(snapshot, shard, bytes, from, stays, to): Step| {
            let snapshot = snapshots.get(usize::from(snapshot));
            let snapshot = *snapshot.ok_or_else(|| malformed("no such snapshot"))?;
            if from.into_iter().chain([to]).any(|index| usize::from(index) >= names.len()) {
                return Err(malformed("no such member"));
            }
            Ok(Move { snapshot, shard, bytes, from, stays, to })
        };
        let moves = moves.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { base, edits, scheme, target, names, moves })
    }
}

impl PlanBlobs {
    /// Returns the id of the plan. As the plan names its placement, the id stands for both.
    pub fn id(&self) -> BlobId {
        BlobId::of(&self.plan)
    }

    /// Returns plan and placement in one piece, as an operator keeps them.
    ///
    /// ```text
    /// magic 8 | plan: length 8, bytes | placement: flag 1 [length 8, bytes]
    /// ```
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(PLANNED_MAGIC, self)
    }

    /// Decodes the bytes of [`PlanBlobs::encode`], and the plan in them.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not that, or the plan leads to another placement.
    pub fn decode(bytes: &[u8]) -> Result<(Self, RingPlan), Malformed> {
        let planned: Self = codec::decode(WHAT, PLANNED_MAGIC, bytes, limits::PLANNED_BYTES_MAX)?;
        let plan = RingPlan::decode(&planned.plan)?;
        if plan.target != planned.placement.as_deref().map(BlobId::of) {
            return Err(Malformed { what: WHAT, why: "its placement is another plan's" });
        }
        Ok((planned, plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::member;

    fn plan() -> RingPlan {
        let step = |shard, from, to| Move {
            snapshot: SnapshotId::from_bytes([shard % 2; 32]),
            shard: ShardId::from_bytes([shard; 16]),
            bytes: 64 << 20,
            from,
            stays: shard == 3,
            to,
        };
        RingPlan {
            base: 7,
            edits: vec![Edit::Put(member("c", 2)), Edit::Remove("a".to_owned())],
            scheme: Scheme::one_replica(1),
            target: Some(BlobId::of(b"exceptions")),
            names: ["a", "b", "c"].map(str::to_owned).to_vec(),
            moves: vec![step(1, Some(0), 2), step(2, None, 1), step(3, Some(1), 2)],
        }
    }

    #[test]
    fn plan_reads_back_and_lists_moves_by_node() {
        let plan = RingPlan::decode(&plan().encode()).unwrap();
        assert_eq!(plan, self::plan());
        assert_eq!(plan.moves_to("c").count(), 2);
        assert_eq!(plan.moves_from("a").count(), 1);
        assert_eq!(plan.moves_from("b").count(), 0, "b keeps its copy");
        assert_eq!(plan.moves_from("nobody").count(), 0);
        assert_eq!(plan.receivers().into_iter().collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn planned_change_reads_back_and_damage_is_refused() {
        let placed = PlanBlobs { plan: plan().encode(), placement: Some(b"exceptions".to_vec()) };
        let bare = RingPlan { target: None, ..plan() };
        let bare = PlanBlobs { plan: bare.encode(), placement: None };
        for planned in [placed, bare] {
            let bytes = planned.encode();
            assert_eq!(PlanBlobs::decode(&bytes).unwrap().0, planned);
            for cut in 0..bytes.len() {
                assert!(PlanBlobs::decode(&bytes[..cut]).is_err());
            }
            for index in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[index] ^= 1;
                assert!(PlanBlobs::decode(&flipped).is_err(), "byte {index}");
            }
            assert!(PlanBlobs::decode(&[bytes, vec![0]].concat()).is_err());
        }
    }

    #[test]
    fn bytes_that_are_not_a_plan_are_refused() {
        let mut wrong = plan();
        wrong.moves[0].to = 3;
        assert!(RingPlan::decode(&wrong.encode()).is_err());
        let of_before = codec::encode(b"ldr-pln3", &());
        assert!(RingPlan::decode(&of_before).unwrap_err().to_string().contains("another kind"));
        let bytes = plan().encode();
        for cut in 0..bytes.len() {
            assert!(RingPlan::decode(&bytes[..cut]).is_err());
        }
    }
}
