//! The share of rows that ranks read on their own host, with global batches divided by locality and
//! in slices; and the time to divide a batch.
//!
//! Shares are counts over one whole epoch: every run has the same, on any machine. Only the times
//! depend on the machine. The placement is that of a plan for nodes of equal weight, one on each
//! host. Without locality the expected share is 1 divided by the number of hosts. No division can
//! make all rows local if a batch has more rows of one host than its ranks take.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;

use larder_base::Ring;
use larder_client::sampler::{
    BatchPlan, DatasetShape, Last, Order, PassId, RankHosts, Shuffle, View, WINDOW_SHARDS_DEFAULT,
};
use larder_membership::plan::{EvenPlanner, SizedShard};

use super::placement::{SNAPSHOT, member, planned, shard};
use crate::Error;
use crate::measure::seconds;
use crate::report::Report;

const SHARDS: u64 = 1_000;
/// As in `ImageNet`: 1,281,000 samples.
const ROWS_OF_SHARD: u32 = 1_281;
const BATCH: NonZeroU32 = NonZeroU32::new(256).unwrap();

/// A job and the cluster that it reads from.
struct Job {
    view: View,
    ranks: RankHosts,
    /// The host of each shard.
    holders: Vec<u16>,
}

/// Rows of an epoch.
#[derive(Default)]
struct Counts {
    all: u64,
    in_slices: u64,
    by_locality: u64,
    /// The most local rows of any division.
    most: u64,
}

pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    let window = Shuffle::Window { shards: WINDOW_SHARDS_DEFAULT };
    for hosts in [4, 16] {
        for ranks_of_host in [1, 8] {
            let job = Job::new(hosts, ranks_of_host)?;
            for shuffle in [Shuffle::Global, window] {
                let title = format!(
                    "rows read on the own host: {hosts} hosts, {ranks_of_host} ranks each, shuffle {shuffle}"
                );
                job.count(shuffle)?.add_to(report, &title, hosts);
            }
            job.time(report, hosts, ranks_of_host)?;
        }
    }
    Ok(())
}

impl Job {
    fn new(hosts: u16, ranks_of_host: u16) -> Result<Self, Error> {
        let shards: Vec<SizedShard> = (0..SHARDS).map(shard).collect();
        let ring = Arc::new(Ring::new(1, (0..hosts).map(|host| member(host.into())).collect())?);
        let planner = EvenPlanner { snapshots: vec![(SNAPSHOT, shards)] };
        let placement = planned(&planner, &ring, None, Vec::new())?.placement;
        let shards = &planner.snapshots[0].1;
        let shape = DatasetShape::from_rows(shards.iter().map(|_| ROWS_OF_SHARD))?;
        Ok(Self {
            view: View::all(*SNAPSHOT.as_bytes(), shape),
            ranks: RankHosts::new((0..hosts * ranks_of_host).map(|rank| rank / ranks_of_host)),
            holders: shards.iter().map(|shard| placement.owners(shard.id)[0]).collect(),
        })
    }

    fn epoch(&self, shuffle: Shuffle) -> Result<(Order, BatchPlan), Error> {
        let order = Order::new(PassId::new(&self.view, 0, 0, shuffle), &self.view)?;
        let world = NonZeroU32::new(self.ranks.world()).ok_or("no ranks")?;
        let batches = BatchPlan::new(order.len(), 0, BATCH, world, Last::Drop)?;
        Ok((order, batches))
    }

    /// The host of each row of a global batch.
    fn hosts_of_rows(
        &self,
        order: &Order,
        batches: &BatchPlan,
        batch: u64,
    ) -> Result<Vec<u16>, Error> {
        let mut samples = Vec::new();
        order.fill(batches.batch(batch).ok_or("no such batch")?, &mut samples);
        let shape = self.view.shape();
        let host = |sample| shape.shard_of(sample).map(|shard| self.holders[shard as usize]);
        Ok(samples.into_iter().filter_map(host).collect())
    }

    fn count(&self, shuffle: Shuffle) -> Result<Counts, Error> {
        let (order, batches) = self.epoch(shuffle)?;
        let mut counts = Counts::default();
        for batch in 0..batches.batches_in_epoch() {
            counts.add(&self.ranks, &self.hosts_of_rows(&order, &batches, batch)?)?;
        }
        Ok(counts)
    }

    /// Times the work of a rank for one batch, except reading it.
    fn time(&self, report: &mut Report, hosts: u16, ranks_of_host: u16) -> Result<(), Error> {
        const TIMES: u16 = 10;
        let (order, batches) = self.epoch(Shuffle::Global)?;
        let rows = self.hosts_of_rows(&order, &batches, 0)?;
        let count = u32::try_from(rows.len())?;
        let (mut slice, mut all, mut divide) = (Vec::new(), Vec::new(), Vec::new());
        let per_thousand = |(took, ()): (f64, ())| took / f64::from(TIMES) * 1e3;
        let repeat = |work: &dyn Fn()| per_thousand(seconds(|| (0..TIMES).for_each(|_| work())));
        for _ in 0..report.rounds() {
            let share = batches.share(0, 0).ok_or("no such batch")?;
            slice.push(repeat(&|| {
                let mut samples = Vec::new();
                order.fill(share.positions(), &mut samples);
                black_box(samples);
            }));
            all.push(repeat(&|| {
                black_box(self.hosts_of_rows(&order, &batches, 0).ok());
            }));
            divide.push(repeat(&|| {
                let division = self.ranks.divide(count, |row| rows.get(row as usize));
                black_box(division.rows_of(0));
            }));
        }
        let title = format!(
            "1,000 batches of {} rows: {hosts} hosts, {ranks_of_host} ranks each, shuffle global",
            rows.len()
        );
        let names = ["order of the own slice", "order and host of all rows", "dividing them"];
        report.add_times(&title, &names, &[slice, all, divide]);
        Ok(())
    }
}

impl Counts {
    /// Counts a global batch, given the host of each row.
    fn add(&mut self, ranks: &RankHosts, rows: &[u16]) -> Result<(), Error> {
        let count = u32::try_from(rows.len())?;
        let division = ranks.divide(count, |row| rows.get(row as usize));
        for (rank, &host) in (0..).zip(ranks.hosts()) {
            let own = division.rows_of(rank);
            self.by_locality +=
                own.iter().filter(|&&row| rows[row as usize] == host).count() as u64;
            let slice = &rows[rank as usize * own.len()..][..own.len()];
            self.in_slices += slice.iter().filter(|&&held| held == host).count() as u64;
        }
        self.all += u64::from(count);
        let room =
            |host| ranks.hosts().iter().filter(|&&of| of == host).count() * BATCH.get() as usize;
        let hosts = 0..=ranks.hosts().last().copied().unwrap_or(0);
        let held = |host| rows.iter().filter(|&&held| held == host).count();
        self.most += hosts.map(|host| held(host).min(room(host)) as u64).sum::<u64>();
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "shares of a million")]
    fn add_to(&self, report: &mut Report, title: &str, hosts: u16) {
        let share = |rows: u64| rows as f64 / self.all as f64;
        let shares = [
            ("in slices", share(self.in_slices)),
            ("in slices, expected", 1.0 / f64::from(hosts)),
            ("by locality", share(self.by_locality)),
            ("the most that any division has", share(self.most)),
        ];
        report.add_shares(title, &shares);
    }
}
