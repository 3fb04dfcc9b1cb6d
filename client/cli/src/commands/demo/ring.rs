//! `larder demo --cluster`: a ring whose members change while it is read.
//!
//! Three nodes agree on the ring through etcd, or, where there is none, through the first of them. A reader takes
//! batches over TCP without pause and compares every row. A fourth node is started, and another drained and stopped.
//! What moved is asked of the nodes' metrics, and held against what the cluster planned and what perfectly even
//! placements would have to move.

mod change;
mod etcd;
mod members;
mod reader;
mod report;
mod watch;

use larder_client::Dataset;

use super::{Arguments, epochs::Epochs, signals::Interrupt, stage::Stage};
use crate::{context::Context, error::Failure};
use change::Scene;
use members::Members;
use reader::Reader;
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
    progress.say("starting what keeps the ring");
    let mut members = Members::new(context, interrupt, &stage)?;
    for name in FOUNDERS {
        progress.say(&format!("starting node {name}"));
        members.add(name)?;
        interrupt.check()?;
    }
    let operator = members.operator()?;
    let watch = Watch { context, interrupt, operator: &operator };
    progress.say("waiting until a, b and c are one ring");
    watch.until_ring(&FOUNDERS)?;
    // Over the network, as other hosts read: also from who comes later.
    let options = Dataset::options().cluster(members.addresses()?);
    let options = options.over_network(FOUNDERS.into_iter().chain([NEWCOMER]));
    let dataset = options.open(stage.origin.dataset())?;
    drop(progress);
    let for_people = !context.output.is_json() && !context.output.is_quiet();
    if for_people {
        let opening = report::opening(context, &dataset, &stage.origin, members.coordinator());
        context.output.write(&opening)?;
    }
    let mut epochs = Epochs::new(&dataset, &stage.origin, arguments.seed)?;
    let warm = epochs.run(context, interrupt, 0)?;
    let reader = Reader::start(&dataset, &stage.origin, arguments.seed)?;
    let scene = Scene { watch: &watch, dataset: &dataset, reader: &reader };
    let progress = context.progress("node d comes while rows are read");
    let rebalance = scene.join(&mut members, NEWCOMER)?;
    progress.say("node b goes while rows are read");
    let drain = scene.drain(&mut members, LEAVER)?;
    let all = reader.end()?;
    drop(progress);
    let after = epochs.run(context, interrupt, 1)?;
    drop(epochs);
    let report = RingReport::new(members.coordinator(), [warm, after], rebalance, drain, all);
    context.output.print(&report)?;
    if arguments.keep {
        let text = report::how_to_use(&stage.origin, &members)?;
        super::say(context, &text)?;
        interrupt.wait();
    }
    drop(dataset);
    drop(members);
    stage.clear()?;
    report.kept_its_word()
}
