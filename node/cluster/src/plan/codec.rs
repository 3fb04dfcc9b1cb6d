//! A plan as bytes. All numbers are little-endian.
//!
//! ```text
//! magic 8 | base 8 | edits: count 4, each (0 member | 1 id) | unit 4
//!         | target: flag 1 [16]
//!         | names: count 4, each text | snapshots: count 4, each 16
//!         | moves: count 4, each (snapshot 2, shard 16, bytes 8, from 2, stays 1, to 2)
//!         | checksum 8
//! ```

use larder_dataset::{ShardId, SnapshotId};
use larder_wire::limits;

use super::{Edit, Move, Plan, Planned};
use crate::{
    BlobId, Malformed,
    codec::{Reader, Writer},
};

const MAGIC: &[u8; 8] = b"ldr-pln2";
const MOVE_BYTES: usize = 31;
/// Instead of the index of the member a shard comes from.
const NOBODY: u16 = u16::MAX;
const _: () = assert!(2 * limits::RING_MEMBERS_MAX < NOBODY as usize);
const _: () = assert!(limits::RECORD_DATASETS_MAX < u16::MAX as usize);

impl Plan {
    /// The plan as bytes, whose hash is its name.
    pub fn encode(&self) -> Vec<u8> {
        let mut snapshots: Vec<SnapshotId> = self.moves.iter().map(|step| step.snapshot).collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let mut out = Writer::new(MAGIC);
        out.u64(self.base);
        out.list(&self.edits, put_edit);
        out.u32(self.unit);
        out.option(self.target, Writer::blob_id);
        out.list(&self.names, |out, name| out.text(name));
        out.list(&snapshots, |out, snapshot| out.array(snapshot.as_bytes()));
        out.list(&self.moves, |out, step| {
            let snapshot = snapshots.binary_search(&step.snapshot).expect("listed above");
            out.u16(u16::try_from(snapshot).expect("at most as many as the record names"));
            out.array(step.shard.as_bytes());
            out.u64(step.bytes);
            out.u16(step.from.unwrap_or(NOBODY));
            out.u8(u8::from(step.stays));
            out.u16(step.to);
        });
        out.end()
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Reader::new("a plan", MAGIC, bytes, limits::BLOB_BYTES_MAX)?;
        let members_max = 2 * limits::RING_MEMBERS_MAX;
        let base = fields.u64()?;
        let edits = fields.list(members_max, 3, take_edit)?;
        let unit = fields.u32()?;
        let target = fields.option(Reader::blob_id)?;
        let names = fields.list(members_max, 2, Reader::text)?;
        let snapshots = fields.list(limits::RECORD_DATASETS_MAX, 16, |fields| {
            fields.array().map(SnapshotId::from_bytes)
        })?;
        let moves = fields.list(usize::MAX, MOVE_BYTES, |fields| {
            let snapshot = usize::from(fields.u16()?);
            let snapshot = snapshots.get(snapshot);
            let snapshot = *snapshot.ok_or_else(|| fields.malformed("no such snapshot"))?;
            let shard = ShardId::from_bytes(fields.array()?);
            let bytes = fields.u64()?;
            let from = Some(fields.u16()?).filter(|from| *from != NOBODY);
            let stays = fields.flag()?;
            let to = fields.u16()?;
            if from.into_iter().chain([to]).any(|index| usize::from(index) >= names.len()) {
                return Err(fields.malformed("no such member"));
            }
            Ok(Move { snapshot, shard, bytes, from, stays, to })
        })?;
        fields.end()?;
        Ok(Self { base, edits, unit, target, names, moves })
    }
}

impl Planned {
    /// The name of the plan.
    pub fn id(&self) -> BlobId {
        BlobId::of(&self.plan)
    }
}

pub(crate) fn put_edit(out: &mut Writer, edit: &Edit) {
    match edit {
        Edit::Put(member) => {
            out.u8(0);
            out.member(member);
        }
        Edit::Remove(id) => {
            out.u8(1);
            out.text(id);
        }
    }
}

pub(crate) fn take_edit(fields: &mut Reader<'_>) -> Result<Edit, Malformed> {
    match fields.u8()? {
        0 => fields.member().map(Edit::Put),
        1 => fields.text().map(Edit::Remove),
        _ => Err(fields.malformed("no such edit")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::member;

    fn plan() -> Plan {
        let step = |shard, from, to| Move {
            snapshot: SnapshotId::from_bytes([shard % 2; 16]),
            shard: ShardId::from_bytes([shard; 16]),
            bytes: 64 << 20,
            from,
            stays: shard == 3,
            to,
        };
        Plan {
            base: 7,
            edits: vec![Edit::Put(member("c", 2)), Edit::Remove("a".to_owned())],
            unit: 1,
            target: Some(BlobId::of(b"exceptions")),
            names: ["a", "b", "c"].map(str::to_owned).to_vec(),
            moves: vec![step(1, Some(0), 2), step(2, None, 1), step(3, Some(1), 2)],
        }
    }

    #[test]
    fn a_plan_is_read_back_and_answers_who_moves_what() {
        let plan = Plan::decode(&plan().encode()).unwrap();
        assert_eq!(plan, self::plan());
        assert_eq!(plan.moves_to("c").count(), 2);
        assert_eq!(plan.moves_from("a").count(), 1);
        assert_eq!(plan.moves_from("b").count(), 0, "b keeps its copy");
        assert_eq!(plan.moves_from("nobody").count(), 0);
        assert_eq!(plan.receivers().into_iter().collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn bytes_that_are_no_plan_are_refused() {
        let mut wrong = plan();
        wrong.moves[0].to = 3;
        assert!(Plan::decode(&wrong.encode()).is_err());
        let of_before = Writer::new(b"ldr-pln1").end();
        assert!(Plan::decode(&of_before).unwrap_err().to_string().contains("another kind"));
        let bytes = plan().encode();
        for cut in 0..bytes.len() {
            assert!(Plan::decode(&bytes[..cut]).is_err());
        }
    }
}
