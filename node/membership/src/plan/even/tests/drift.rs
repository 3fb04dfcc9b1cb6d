//! The state that many changes in a row leave behind.

use fastrand::Rng;
use larder_base::Placement;

use super::{
    goals::{Figures, cluster},
    remove,
    support::{Cluster, Sizes, any_edit, mean, stranger, worst},
};
use crate::plan::{Edit, SizedShard};

#[test]
fn exceptions_do_not_accumulate_over_200_changes() {
    let mut excepted = Vec::new();
    for seed in 1..=5 {
        let mut rng = Rng::with_seed(seed);
        let mut cluster = cluster(&mut rng, Sizes::Mixed, |rng| rng.u32(1..=4));
        let mut figures = Figures::default();
        for _ in 0..200 {
            let change = cluster.plan(vec![any_edit(&mut rng, &cluster.ring)]);
            cluster.apply(&change);
            figures.note(&cluster, &change);
        }
        figures.print(&format!("200 changes, seed {seed}"));
        assert!(worst(&figures.skew) <= 1.10);
        assert!(mean(&figures.of_ideal) <= 1.10);
        assert!(worst(&figures.excepted) <= 0.25, "the table grows");
        let (early, late) = (&figures.excepted[20..100], &figures.excepted[120..]);
        assert!(mean(late) <= mean(early) + 0.04, "it grows with every change");
        excepted.extend(figures.excepted);
    }
    assert!(mean(&excepted) <= 0.15);
}

#[test]
fn member_that_joins_and_leaves_moves_its_share_twice() {
    let (mut there, mut back, mut strayed) = (Vec::new(), Vec::new(), Vec::new());
    let strayed_from = |before: &Placement, cluster: &Cluster| {
        let strays =
            |shard: &&SizedShard| before.owner(shard.id).id != cluster.placement.owner(shard.id).id;
        cluster.shards.iter().filter(strays).count() as f64 / cluster.shards.len() as f64
    };
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let mut cluster = cluster(&mut rng, Sizes::Mixed, |_| 1);
        let before = cluster.placement.clone();
        let guest = stranger(&mut rng, 1);
        let change = cluster.plan(vec![Edit::Put(guest.clone())]);
        there.extend(change.figures.of_ideal());
        cluster.apply(&change);
        assert!(strayed_from(&before, &cluster) > 0.04);
        let change = cluster.plan(vec![remove(&guest.id)]);
        back.extend(change.figures.of_ideal());
        cluster.apply(&change);
        strayed.push(strayed_from(&before, &cluster));
    }
    println!(
        "one comes and goes: {:.3} and {:.3} of ideal; {:.2} % of the shards then lie elsewhere (worst {:.2} %)",
        mean(&there),
        mean(&back),
        100.0 * mean(&strayed),
        100.0 * worst(&strayed),
    );
    assert!(mean(&there) + mean(&back) <= 2.10);
    // Most go home, as the walk names the earlier owner.
    assert!(mean(&strayed) <= 0.03);
}
