//! `larder demo --cluster`: a ring whose members change while it is read.
//!
//! Three nodes agree on the ring through etcd, or, where there is none, through the first of them.
//! A reader takes batches over TCP without pause and compares every row. A fourth node is started,
//! and another drained and stopped. What moved is asked of the nodes' metrics, and held against
//! what the cluster planned and what perfectly even placements would have to move.

mod change;
mod etcd;
mod members;
mod reader;
mod report;
mod watch;

use larder_client::Dataset;

use super::{Arguments, epochs::Epochs, signals::Interrupt, stage::Stage};
use crate::{context::Context, error::Failure, progress::Progress};
use change::Scene;
use members::Members;
use reader::{Reader, Reads};
use report::RingReport;
use watch::Watch;

/// Many enough that shares of a ring come out even.
const SHARD_BYTES: &str = "4MiB";
/// Who is there from the beginning. The first keeps the record if there is no etcd.
const FOUNDERS: [&str; 3] = ["a", "b", "c"];
/// Who comes.
const NEWCOMER: &str = "d";
/// Who goes.
const LEAVER: &str = "b";

pub(super) fn show(
    context: &Context,
    arguments: &Arguments,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let progress = context.progress("making a folder");
    let stage = Stage::set(&progress, arguments.samples, SHARD_BYTES)?;
    interrupt.check()?;
    let mut members = found(context, interrupt, &progress, &stage)?;
    let operator = members.operator()?;
    let watch = Watch { context, interrupt, operator: &operator };
    progress.say("waiting until a, b and c are one ring");
    watch.until_ring(&FOUNDERS)?;
    // Over the network, as other hosts read: also from who comes later.
    let options = Dataset::options().cluster(members.addresses()?);
    let options = options.over_network(FOUNDERS.into_iter().chain([NEWCOMER]));
    let dataset = options.open(stage.origin.dataset())?;
    drop(progress);
    if !context.output.is_json() && !context.output.is_quiet() {
        let opening = report::opening(context, &dataset, &stage.origin, members.coordinator());
        context.output.write(&opening)?;
    }
    let report = change(&watch, arguments.seed, &stage, &mut members, &dataset)?;
    context.output.print(&report)?;
    if arguments.keep {
        super::say(context, &report::how_to_use(&stage.origin, &members)?)?;
        interrupt.wait();
    }
    drop(dataset);
    drop(members);
    stage.clear()?;
    report.kept_its_word()
}

/// Starts those who are there from the beginning.
fn found<'a>(
    context: &Context,
    interrupt: &Interrupt,
    progress: &Progress,
    stage: &'a Stage,
) -> Result<Members<'a>, Failure> {
    progress.say("starting what keeps the ring");
    let mut members = Members::new(context, interrupt, stage)?;
    for name in FOUNDERS {
        progress.say(&format!("starting node {name}"));
        members.add(name)?;
        interrupt.check()?;
    }
    Ok(members)
}

/// Reads all, goes on reading while a node comes and another goes, and reads all once more.
fn change(
    watch: &Watch<'_>,
    seed: u64,
    stage: &Stage,
    members: &mut Members<'_>,
    dataset: &Dataset,
) -> Result<RingReport, Failure> {
    let Watch { context, interrupt, .. } = watch;
    let mut epochs = Epochs::new(dataset, &stage.origin, seed)?;
    let warm = epochs.run(context, interrupt, 0)?;
    let reader = Reader::start(dataset, &stage.origin, seed)?;
    let progress = context.progress("waiting until the nodes know the dataset");
    let at_rest = Reads::default();
    let mut scene = Scene { watch, progress: &progress, dataset, reader: &reader, at_rest };
    let rebalance = scene.join(members, NEWCOMER)?;
    let drain = scene.drain(members, LEAVER)?;
    let all = reader.end()?;
    drop(progress);
    let after = epochs.run(context, interrupt, 1)?;
    Ok(RingReport::new(members.coordinator(), [warm, after], rebalance, drain, all))
}
