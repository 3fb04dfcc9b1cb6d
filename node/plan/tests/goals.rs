//! What a plan promises, over a hundred random rings: the figures are printed, and asserted.

mod support;

use fastrand::Rng;
use larder_plan::{Plan, Step};
use support::{Cluster, Sizes, drain, mean, member, percentile, ring, shards, stranger};

const RINGS: u64 = 100;

/// A thousand shards on sixteen members, evenly placed.
fn cluster(rng: &mut Rng, sizes: Sizes, weight: impl Fn(&mut Rng) -> u32) -> Cluster {
    let members = (0..16)
        .map(|_| {
            let w = weight(rng);
            stranger(rng, w)
        })
        .collect();
    let shards = shards(rng, 1_000, sizes);
    Cluster::new(ring(members), shards, 1)
}

/// Bytes that a plan moves between two members that its change does not name.
fn between_bystanders(plan: &Plan) -> u64 {
    let named = |id: &str| plan.change().steps.iter().any(|step| step.id() == id);
    let moves = plan.snapshots()[0].moves.iter();
    let bystanders = moves.filter(|each| {
        let from = plan.source(each).map_or("", |member| member.id.as_str());
        !named(from) && !named(&plan.target(each).id)
    });
    bystanders.map(|each| each.bytes).sum()
}

#[derive(Default)]
struct Figures {
    skew: Vec<f64>,
    of_ideal: Vec<f64>,
    bystanders: Vec<f64>,
    excepted: Vec<f64>,
}

impl Figures {
    fn note(&mut self, plan: &Plan) {
        let summary = plan.summary();
        assert!(summary.is_even());
        self.skew.push(summary.skew());
        self.of_ideal.extend(summary.share_of_ideal());
        self.bystanders.push(between_bystanders(plan) as f64 / summary.bytes as f64);
        self.excepted.push(summary.exceptions as f64 / summary.shards as f64);
    }

    fn print(&self, what: &str) {
        let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
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
    }
}

fn one_comes(rng: &mut Rng, weight: u32) -> Step {
    Step::Add(stranger(rng, weight))
}

fn one_goes(rng: &mut Rng, cluster: &Cluster) -> Step {
    drain(&cluster.ring.members()[rng.usize(..16)].id)
}

#[test]
fn one_member_more_or_less_moves_little_more_than_its_share() {
    for sizes in [Sizes::Equal, Sizes::Mixed] {
        let (mut more, mut less) = (Figures::default(), Figures::default());
        for seed in 0..RINGS {
            let mut rng = Rng::with_seed(seed);
            let cluster = cluster(&mut rng, sizes, |_| 1);
            more.note(&cluster.plan(vec![one_comes(&mut rng, 1)]));
            less.note(&cluster.plan(vec![one_goes(&mut rng, &cluster)]));
        }
        more.check(&format!("16 + 1, {sizes:?}"));
        less.check(&format!("16 - 1, {sizes:?}"));
    }
}

#[test]
fn members_of_unlike_weights_come_and_go_as_cheaply() {
    let (mut more, mut less) = (Figures::default(), Figures::default());
    for seed in 0..RINGS {
        let mut rng = Rng::with_seed(seed);
        let cluster = cluster(&mut rng, Sizes::Mixed, |rng| rng.u32(1..=4));
        let weight = rng.u32(1..=4);
        more.note(&cluster.plan(vec![one_comes(&mut rng, weight)]));
        less.note(&cluster.plan(vec![one_goes(&mut rng, &cluster)]));
    }
    more.check("16 + 1, weights 1 to 4");
    less.check("16 - 1, weights 1 to 4");
}

#[test]
fn exceptions_do_not_pile_up_over_two_hundred_changes() {
    let mut rng = Rng::with_seed(1);
    let mut cluster = cluster(&mut rng, Sizes::Mixed, |rng| rng.u32(1..=4));
    for era in 0..10 {
        let mut figures = Figures::default();
        for _ in 0..20 {
            let members = cluster.ring.members();
            let weight = rng.u32(1..=4);
            let victim = members[rng.usize(..members.len())].id.clone();
            let step = match rng.u32(..3) {
                0 if members.len() < 24 => one_comes(&mut rng, weight),
                1 if members.len() > 8 => drain(&victim),
                _ => Step::Reweight { id: victim, weight },
            };
            let plan = cluster.plan(vec![step]);
            figures.note(&plan);
            cluster.apply(&plan);
        }
        figures.print(&format!("changes {} to {}", era * 20 + 1, era * 20 + 20));
    }
    let _ = member("x", 1);
}
