//! The parameters of a seed: the size of the cluster, and its troubles.

use std::time::Duration;

/// The kind of trouble of a run. Seeds take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing goes wrong, but operators are busy. Figures are exact here.
    Calm,
    /// Everything goes wrong now and then.
    Churn,
    /// One node's announcement comes and goes a hundred times in ten minutes.
    Flaps,
    /// Many nodes vanish at once.
    MassLoss,
    /// The coordinator is slow, away, restarted, taken over.
    Coordinator,
}

/// The parameters of one run, drawn from its seed.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) kind: Kind,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// Shards of each snapshot.
    pub(crate) snapshots: Vec<usize>,
    /// When the last of several snapshots is opened; the others are from the beginning.
    pub(crate) opened: Duration,
    /// Owners of a shard, where there are enough nodes.
    pub(crate) replicas: usize,
    /// Zones that nodes stand in, in turns; none when zero.
    pub(crate) zones: usize,
    /// The last node comes while there is trouble already.
    pub(crate) late: bool,
    /// Shards one node keeps at most.
    pub(crate) room: usize,
    /// Troubles begin and end.
    pub(crate) troubled: (Duration, Duration),
    /// Mean time between two troubles.
    pub(crate) trouble_every: Duration,
    /// One message in so many is lost; none when zero.
    pub(crate) lost_one_in: u32,
    /// Mean time between two reads of a client.
    pub(crate) read_every: Duration,
}

impl Scene {
    pub(crate) fn draw(seed: u64, rng: &mut fastrand::Rng) -> Self {
        let kind = match seed % 8 {
            0 => Kind::Calm,
            1 => Kind::Flaps,
            2 => Kind::MassLoss,
            3 | 4 => Kind::Coordinator,
            _ => Kind::Churn,
        };
        let secs = Duration::from_secs;
        let nodes = match kind {
            Kind::Flaps => 3,
            Kind::MassLoss => 6,
            _ => rng.usize(3..=5),
        };
        let shards = rng.usize(6..=20);
        let mut snapshots = vec![shards];
        while snapshots.len() < 3 && rng.bool() {
            let rest = snapshots.pop().expect("there is a last one");
            snapshots.extend([rest.div_ceil(2), rest / 2]);
        }
        let replicas = 1 + usize::from(rng.u32(..3) == 0);
        let zones = if rng.bool() { rng.usize(2..=3) } else { 0 };
        let tight = kind == Kind::Churn && rng.u32(..4) == 0;
        Self {
            kind,
            nodes,
            clients: 2,
            snapshots,
            opened: secs(rng.u64(40..200)),
            replicas,
            zones,
            late: matches!(kind, Kind::Calm | Kind::Churn) && seed / 8 % 4 == 1,
            room: if tight { 1 + (replicas * shards).div_ceil(nodes - 1) } else { usize::MAX },
            troubled: (secs(50), secs(50 + if kind == Kind::Flaps { 600 } else { 150 })),
            trouble_every: match kind {
                Kind::Calm => secs(20),
                Kind::Flaps => secs(6),
                _ => secs(rng.u64(4..=12)),
            },
            lost_one_in: match kind {
                Kind::Calm | Kind::Flaps => 0,
                _ => rng.u32(30..=300),
            },
            read_every: if kind == Kind::Flaps { secs(20) } else { secs(4) },
        }
    }
}
