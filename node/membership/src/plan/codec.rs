//! A plan as bytes. All numbers are little-endian.
//!
//! ```text
//! magic 8 | base 8 | edits: count 4, each (0 member | 1 id) | scheme 4
//!         | target: flag 1 [16]
//!         | names: count 4, each text | snapshots: count 4, each 16
//!         | moves: count 4, each (snapshot 2, shard 16, bytes 8, from 2, stays 1, to 2)
//!         | checksum 8
//! ```

use larder_base::{ShardId, SnapshotId, limits};

use super::{Edit, Move, Plan, Planned};
use crate::{
    BlobId, Malformed,
    codec::{Reader, Writer},
};

const MAGIC: &[u8; 8] = b"ldr-pln2";
const PLANNED_MAGIC: &[u8; 8] = b"ldr-pld1";
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
        out.scheme(self.scheme);
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
        let scheme = fields.scheme()?;
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
        Ok(Self { base, edits, scheme, target, names, moves })
    }
}

impl Planned {
    /// The name of the plan. As the plan names its placement, it stands for both.
    pub fn id(&self) -> BlobId {
        BlobId::of(&self.plan)
    }

    /// Plan and placement in one piece, as an operator keeps them.
    ///
    /// ```text
    /// magic 8 | plan: length 8, bytes | placement: flag 1 [length 8, bytes]
    /// ```
    pub fn encode(&self) -> Vec<u8> {
        let mut out = PLANNED_MAGIC.to_vec();
        let put = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        put(&mut out, &self.plan);
        out.push(u8::from(self.placement.is_some()));
        self.placement.iter().for_each(|placement| put(&mut out, placement));
        out
    }

    /// Reads what [`Planned::encode`] wrote, and the plan in it.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not that, or the placement is not the one that the plan leads to.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Plan), Malformed> {
        let malformed = |why| Malformed { what: "a plan", why };
        let short = || malformed("it ends too soon");
        let mut rest =
            bytes.strip_prefix(PLANNED_MAGIC).ok_or_else(|| malformed("it is no plan"))?;
        let plan = take_blob(&mut rest).ok_or_else(short)?.to_vec();
        let placement = match take(&mut rest, 1).ok_or_else(short)? {
            [0] => None,
            [1] => Some(take_blob(&mut rest).ok_or_else(short)?.to_vec()),
            _ => return Err(malformed("a flag is neither 0 nor 1")),
        };
        if !rest.is_empty() {
            return Err(malformed("bytes follow its end"));
        }
        let planned = Self { plan, placement };
        let plan = Plan::decode(&planned.plan)?;
        if plan.target != planned.placement.as_deref().map(BlobId::of) {
            return Err(malformed("its placement is another plan's"));
        }
        Ok((planned, plan))
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn take_blob<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u64::from_le_bytes(take(rest, 8)?.try_into().ok()?);
    let length = usize::try_from(length).ok().filter(|length| *length <= limits::BLOB_BYTES_MAX)?;
    take(rest, length)
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
    use larder_base::Scheme;

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
            scheme: Scheme::one_replica(1),
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
    fn a_plan_is_kept_with_its_placement_and_read_back_whole_or_not_at_all() {
        let placed = Planned { plan: plan().encode(), placement: Some(b"exceptions".to_vec()) };
        let bare = Plan { target: None, ..plan() };
        let bare = Planned { plan: bare.encode(), placement: None };
        for planned in [placed, bare] {
            let bytes = planned.encode();
            assert_eq!(Planned::decode(&bytes).unwrap().0, planned);
            for cut in 0..bytes.len() {
                assert!(Planned::decode(&bytes[..cut]).is_err());
            }
            for index in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[index] ^= 1;
                assert!(Planned::decode(&flipped).is_err(), "byte {index}");
            }
            assert!(Planned::decode(&[bytes, vec![0]].concat()).is_err());
        }
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
