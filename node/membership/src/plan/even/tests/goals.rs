//! The goals of a plan for one member more or less, over a hundred random rings. Prints the figures
//! and asserts them.

use fastrand::Rng;
use larder_base::Placement;

use super::{
    remove,
    support::{
        Change, Cluster, Sizes, exceptions, held, mean, percentile, shards, stranger, worst,
    },
};
use crate::plan::Edit;

const RINGS: u64 = 100;

/// A thousand shards on sixteen members, evenly placed.
pub(super) fn cluster(rng: &mut Rng, sizes: Sizes, weight: impl Fn(&mut Rng) -> u32) -> Cluster {
    let mut members = Vec::new();
    for _ in 0..16 {
        let weight = weight(rng);
        members.push(stranger(rng, weight));
    }
    let shards = shards(rng, 1_000, sizes);
    Cluster::new(members, shards, 1)
}

/// Bytes that a plan moves between two members that no edit names.
fn between_bystanders(change: &Change) -> u64 {
    let named = |id: &str| change.edits.iter().any(|edit| edit.id() == id);
    let bystanders = change.moves.iter().filter(|each| {
        let (from, to) = change.ends(each);
        !named(from.unwrap_or_default()) && !named(to)
    });
    bystanders.map(|each| each.bytes).sum()
}

/// Figures of many plans.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) skew: Vec<f64>,
    pub(super) of_ideal: Vec<f64>,
    pub(super) bystanders: Vec<f64>,
    pub(super) excepted: Vec<f64>,
}

impl Figures {
    pub(super) fn note(&mut self, cluster: &Cluster, change: &Change) {
        let figures = &change.figures;
        assert!(figures.is_even());
        self.skew.push(figures.skew());
        self.of_ideal.extend(figures.of_ideal());
        self.bystanders.push(between_bystanders(change) as f64 / figures.bytes as f64);
        self.excepted.push(exceptions(&change.placement) as f64 / cluster.shards.len() as f64);
    }

    pub(super) fn print(&self, what: &str) {
        println!(
            "{what}: skew {:.3} (worst {:.3}); moved of ideal {:.3} (p95 {:.3}, worst {:.3}); \
             between bystanders {:.3} % of all bytes (worst {:.3} %); excepted {:.1} % (worst {:.1} %)",
            mean(&self.skew),
            worst(&self.skew),
            mean(&self.of_ideal),
            percentile(&self.of_ideal, 95),
            worst(&self.of_ideal),
            100.0 * mean(&self.bystanders),
            100.0 * worst(&self.bystanders),
            100.0 * mean(&self.excepted),
            100.0 * worst(&self.excepted),
        );
    }

    fn check(&self, what: &str) {
        self.print(what);
        assert!(self.skew.iter().all(|&skew| skew <= 1.10));
        assert!(mean(&self.of_ideal) <= 1.10);
        assert!(percentile(&self.of_ideal, 95) <= 1.20);
        assert!(worst(&self.bystanders) == 0.0, "no balance required that");
    }
}

fn one_comes(rng: &mut Rng, weight: u32) -> Edit {
    Edit::Put(stranger(rng, weight))
}

fn one_goes(rng: &mut Rng, cluster: &Cluster) -> Edit {
    remove(&cluster.ring.members()[rng.usize(..16)].id)
}

#[test]
fn join_or_leave_moves_little_more_than_its_share() {
    for sizes in [Sizes::Equal, Sizes::Mixed] {
        let (mut more, mut less) = (Figures::default(), Figures::default());
        for seed in 0..RINGS {
            let mut rng = Rng::with_seed(seed);
            let cluster = cluster(&mut rng, sizes, |_| 1);
            more.note(&cluster, &cluster.plan(vec![one_comes(&mut rng, 1)]));
            less.note(&cluster, &cluster.plan(vec![one_goes(&mut rng, &cluster)]));
        }
        more.check(&format!("16 + 1, {sizes:?}"));
        less.check(&format!("16 - 1, {sizes:?}"));
    }
}

#[test]
fn join_and_leave_are_as_cheap_at_unequal_weights() {
    let (mut more, mut less) = (Figures::default(), Figures::default());
    for seed in 0..RINGS {
        let mut rng = Rng::with_seed(seed);
        let cluster = cluster(&mut rng, Sizes::Mixed, |rng| rng.u32(1..=4));
        let weight = rng.u32(1..=4);
        more.note(&cluster, &cluster.plan(vec![one_comes(&mut rng, weight)]));
        less.note(&cluster, &cluster.plan(vec![one_goes(&mut rng, &cluster)]));
    }
    more.check("16 + 1, weights 1 to 4");
    less.check("16 - 1, weights 1 to 4");
}

#[test]
fn exceptions_make_1000_shards_even_on_16_members() {
    for sizes in [Sizes::Equal, Sizes::Mixed] {
        let (mut plain, mut planned, mut excepted) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..RINGS {
            let cluster = cluster(&mut Rng::with_seed(seed), sizes, |_| 1);
            let skew = |placement: &Placement| {
                let held = held(placement, &cluster.shards);
                let most = held.iter().copied().max().unwrap_or(0);
                most as f64 * 16.0 / held.iter().sum::<u64>() as f64
            };
            plain.push(skew(&Placement::of_ring(cluster.ring.clone())));
            planned.push(skew(&cluster.placement));
            excepted.push(cluster.excepted());
        }
        println!(
            "16 members, {sizes:?}: skew of the ring {:.3} (worst {:.3}), planned {:.3} (worst {:.3}), \
             excepted {:.1} %",
            mean(&plain),
            worst(&plain),
            mean(&planned),
            worst(&planned),
            100.0 * mean(&excepted),
        );
        assert!(worst(&planned) <= 1.10);
        assert!(mean(&plain) > 1.10, "then nothing was to be done");
    }
}
