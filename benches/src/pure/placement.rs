//! The largest placement: a million shards on a thousand members. Measures the time of a plan and
//! of a lookup.
//!
//! The baseline of lookups is a hash map of all shards, 18 bytes or more each, which a client would
//! need without a ring. Plans have no baseline; their moved bytes stand beside the ideal.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::Arc;

use larder_base::{BlobId, Member, Placement, Ring, ShardId, SnapshotId, placement::Exceptions};
use larder_membership::plan::{
    Edit, EvenPlanner, Figures, PlanBlobs, Planner, RingPlan, SizedShard, Tables, Task, edited,
};

use crate::Error;
use crate::measure::seconds;
use crate::report::Report;

const MEMBERS: usize = 1_000;
const SHARDS: u64 = 1_000_000;
/// Lookups of one round: the seconds of a round are then tenths of a microsecond for each lookup.
const LOOKUPS: u64 = 10_000_000;
pub(crate) const SNAPSHOT: SnapshotId = SnapshotId::from_bytes([1; 32]);

/// A placement, and what tells the same to planners.
pub(crate) struct Planned {
    pub(crate) placement: Placement,
    plan: RingPlan,
    tables: Option<Vec<u8>>,
}

pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    for copies in [1, 3] {
        let shards: Vec<SizedShard> = (0..SHARDS).map(shard).collect();
        let ring = Ring::new(1, (0..MEMBERS).map(member).collect())?;
        let ring = Arc::new(ring.with_replicas(copies)?);
        let planner = EvenPlanner { snapshots: vec![(SNAPSHOT, shards)] };
        let placed = planned(&planner, &ring, None, Vec::new())?;
        plans(report, &planner, &ring, &placed, copies)?;
        lookups(report, &placed.placement, &planner.snapshots[0].1, copies);
    }
    Ok(())
}

/// Plans that add one member, remove one, and add twenty at once.
fn plans(
    report: &mut Report,
    planner: &EvenPlanner,
    first: &Arc<Ring>,
    placed: &Planned,
    copies: u8,
) -> Result<(), Error> {
    let ring = placed.placement.ring();
    let leaver = ring.members()[MEMBERS / 2].id.clone();
    let twenty = (MEMBERS..MEMBERS + 20).map(|index| Edit::Put(member(index))).collect();
    let changes = [
        ("evened out", first, None, Vec::new()),
        ("one member more", ring, Some(placed), vec![Edit::Put(member(MEMBERS))]),
        ("one member less", ring, Some(placed), vec![Edit::Remove(leaver)]),
        ("twenty more", ring, Some(placed), twenty),
    ];
    let (mut names, mut times) = (Vec::new(), Vec::new());
    for (name, ring, present, edits) in changes {
        let mut rounds = Vec::new();
        let mut made = None;
        for _ in 0..report.rounds() {
            let (took, plan) = seconds(|| planned(planner, ring, present, edits.clone()));
            rounds.push(took);
            made = Some(plan?);
        }
        let made = made.ok_or("no rounds")?;
        names.push(format!("{name} ({})", described(planner, ring, present, &made)));
        times.push(rounds);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let title = format!("plan of {SHARDS} shards on {MEMBERS} members, {copies} copies");
    report.add_times(&title, &names, &times);
    Ok(())
}

/// Returns the moved bytes in proportion to the ideal, and the most that a member holds of its
/// share.
fn described(
    planner: &EvenPlanner,
    ring: &Arc<Ring>,
    present: Option<&Planned>,
    made: &Planned,
) -> String {
    let shards = &planner.snapshots[0].1;
    let walked = Placement::of_ring(Arc::clone(ring));
    let before = held(present.map_or(&walked, |present| &present.placement), shards);
    let mut figures = Figures::of(&made.plan, ring.members(), &before, |_| true);
    let after = held(&made.placement, shards);
    figures.owned_after(&after);
    let most = after.values().max().copied().unwrap_or(0);
    let mean = after.values().sum::<u64>() as f64 / made.placement.ring().members().len() as f64;
    let of_ideal = figures.bytes as f64 / figures.bytes_ideal.max(1) as f64;
    let ideal =
        if figures.bytes_ideal > 0 { format!("{of_ideal:.3} of ideal, ") } else { "".into() };
    format!("{ideal}skew {:.3}", most as f64 / mean)
}

/// Bytes by member.
fn held(placement: &Placement, shards: &[SizedShard]) -> BTreeMap<String, u64> {
    let mut held = BTreeMap::new();
    for shard in shards {
        for &owner in placement.owners(shard.id).iter() {
            let id = &placement.ring().members()[usize::from(owner)].id;
            *held.entry(id.clone()).or_default() += shard.bytes;
        }
    }
    held
}

fn lookups(report: &mut Report, placement: &Placement, shards: &[SizedShard], copies: u8) {
    let map: HashMap<ShardId, u16> =
        shards.iter().map(|shard| (shard.id, placement.owners(shard.id)[0])).collect();
    let (mut in_map, mut in_placement) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        in_map.push(lookup(shards, |id| map[&id]));
        in_placement.push(lookup(shards, |id| placement.owners(id)[0]));
    }
    let title = format!(
        "{LOOKUPS} lookups in random order, {copies} copies (1 s is 100 ns each); exceptions {}",
        placement.exceptions().map_or(0, Exceptions::len)
    );
    report.add_times(&title, &["hash map of all shards", "placement"], &[in_map, in_placement]);
}

/// Seconds for all lookups: a stride coprime to the number of shards visits them out of order.
fn lookup(shards: &[SizedShard], owner: impl Fn(ShardId) -> u16) -> f64 {
    let (took, sum) = seconds(|| {
        let index = |number: u64| (number * 7_919 % SHARDS) as usize;
        (0..LOOKUPS).map(|number| u64::from(owner(shards[index(number)].id))).sum::<u64>()
    });
    black_box(sum);
    took
}

/// The placement after these edits of a ring, as an agent gets it.
pub(crate) fn planned(
    planner: &EvenPlanner,
    ring: &Arc<Ring>,
    present: Option<&Planned>,
    edits: Vec<Edit>,
) -> Result<Planned, Error> {
    let tables = present.and_then(|present| present.tables.as_deref());
    let task = Task {
        base: ring.version(),
        members: ring.members().to_vec(),
        scheme: ring.scheme(),
        replicas: ring.scheme().replicas,
        placement: tables.map(BlobId::of),
        edits,
        urgent: false,
    };
    let PlanBlobs { plan, placement: tables } = planner.plan(&task, tables)?;
    let plan = RingPlan::decode(&plan)?;
    let members = edited(&task.members, &task.edits);
    let next = Arc::new(Ring::with_scheme(task.base + 1, members, plan.scheme)?);
    let made = tables.as_deref().map(Tables::decode).transpose()?.unwrap_or_default();
    let placement = match made.get(SNAPSHOT) {
        Some(table) => Placement::new(next, table.clone())?,
        None => Placement::of_ring(next),
    };
    Ok(Planned { placement, plan, tables })
}

pub(crate) fn member(index: usize) -> Member {
    Member {
        id: format!("node-{index}"),
        weight: 1,
        control: format!("http://node-{index}:7070"),
        host: format!("host-{index}"),
        zone: String::new(),
    }
}

/// A shard of 16 to 128 MiB, the same in every run.
pub(crate) fn shard(index: u64) -> SizedShard {
    let mixed = |salt: u64| {
        let mixed = (index ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let mut id = [0; 16];
    id[..8].copy_from_slice(&mixed(1).to_le_bytes());
    id[8..].copy_from_slice(&index.to_le_bytes());
    let bytes = (16 << 20) + (mixed(2) >> 16) % (112 << 20);
    SizedShard { id: ShardId::from_bytes(id), bytes }
}
