//! The largest placement: a million shards on a thousand members. Measures the time of a plan and
//! of a lookup.
//!
//! The baseline of lookups is a hash map of all shards, 18 bytes or more each, which a client would
//! need without a ring. Plans have no baseline; their moved bytes stand beside the ideal.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use larder_base::{Member, Placement, Ring, ShardId, SnapshotId, placement::Exceptions};
use larder_rebalance::{Change, Plan, SizedShard, Snapshot, Step, plan};

use crate::Error;
use crate::measure::seconds;
use crate::report::Report;

const MEMBERS: usize = 1_000;
const SHARDS: u64 = 1_000_000;
/// Lookups of one round: the seconds of a round are then tenths of a microsecond for each lookup.
const LOOKUPS: u64 = 10_000_000;
pub(crate) const SNAPSHOT: SnapshotId = SnapshotId::from_bytes([1; 32]);

pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    for copies in [1, 3] {
        let shards: Vec<SizedShard> = (0..SHARDS).map(shard).collect();
        let empty = Arc::new(Ring::new(1, (0..MEMBERS).map(member).collect())?);
        let placed = planned(&empty, &shards, None, copies, Vec::new())?;
        plans(report, &placed, &shards, copies)?;
        lookups(report, &placed.snapshots()[0].placement, &shards, copies);
    }
    Ok(())
}

/// Plans that add one member, remove one, and add twenty at once.
fn plans(
    report: &mut Report,
    placed: &Plan,
    shards: &[SizedShard],
    copies: u8,
) -> Result<(), Error> {
    let (ring, present) = (placed.next(), &placed.snapshots()[0].placement);
    let leaver = ring.members()[MEMBERS / 2].id.clone();
    let changes: [(&str, Option<&Placement>, Vec<Step>); 4] = [
        ("placed for the first time", None, Vec::new()),
        ("one member more", Some(present), vec![Step::Add(member(MEMBERS))]),
        ("one member less", Some(present), vec![Step::Drain { id: leaver }]),
        (
            "twenty more",
            Some(present),
            (MEMBERS..MEMBERS + 20).map(|i| Step::Add(member(i))).collect(),
        ),
    ];
    let (mut names, mut times) = (Vec::new(), Vec::new());
    for (name, present, steps) in changes {
        let mut rounds = Vec::new();
        let mut summary = None;
        for _ in 0..report.rounds() {
            let (took, plan) = seconds(|| planned(ring, shards, present, copies, steps.clone()));
            rounds.push(took);
            summary = Some(plan?.summary());
        }
        let summary = summary.ok_or("no rounds")?;
        let of_ideal = summary.share_of_ideal().unwrap_or(0.0);
        names.push(format!("{name} ({of_ideal:.3} of ideal, skew {:.3})", summary.skew()));
        times.push(rounds);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let title = format!("plan of {SHARDS} shards on {MEMBERS} members, {copies} copies");
    report.add_times(&title, &names, &times);
    Ok(())
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

/// The placement after these steps.
pub(crate) fn planned(
    ring: &Arc<Ring>,
    shards: &[SizedShard],
    present: Option<&Placement>,
    copies: u8,
    steps: Vec<Step>,
) -> Result<Plan, Error> {
    let change =
        Change { ring_version: ring.version(), steps, replicas: Some(copies), at_once: false };
    let snapshot = Snapshot { id: SNAPSHOT, shards, present };
    Ok(plan(ring, change, &[snapshot])?)
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
