//! Cold epochs: an independent S3 server (garage) behind one node, against plain ranged GETs of the
//! same bytes from the same server in the same run.
//!
//! Every cold round starts an empty node. garage keeps running, so its files are in the page cache
//! for all contenders alike. garage has the last core alone; the node and the client have the other
//! cores. The store then behaves like another machine. On shared cores, a contender that uses less
//! CPU would leave more of it to the server.
//!
//! Non-goals: real stores, real networks, disks.

mod data;
mod epochs;
mod plain;

use larder_base::limits;
use larder_client::admin::Manifest;
use larder_tests::Garage;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::Error;
use crate::children::Node;
use crate::measure::alternate;
use crate::report::Report;
use data::Format;
use epochs::Epochs;
use plain::Plain;

/// The most rounds: a round of all contenders takes half a minute.
const ROUNDS_MAX: usize = 5;

/// Counts of GETs in flight to try for the plain reader.
const PARALLELISM: [usize; 4] = [4, 8, 16, 64];

/// Measures both formats.
pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    let cores = std::thread::available_parallelism()?.get();
    let last = (cores - 1).to_string();
    let garage = Garage::start(&std::env::temp_dir(), &["taskset", "-c", &last])?;
    keep_to(0..(cores - 1).max(1))?;
    let store = plain::connect(&garage)?;
    for format in [Format::Safetensors, Format::Npy] {
        data::upload(&store, format)?;
        let node = Node::start(&origin(), &garage.env())?;
        let indexed = node.connect(&uri(format))?;
        let plain = Plain::new(&store, &indexed.whole_manifest()?, limits::FILL_PART_BYTES);
        drop(node);
        compare(report, &garage, &plain, format, indexed.manifest())?;
    }
    Ok(())
}

/// Restricts this process, and its later children and threads, to some cores.
fn keep_to(cores: std::ops::Range<usize>) -> Result<(), Error> {
    let mut set = CpuSet::new();
    cores.into_iter().try_for_each(|core| set.set(core))?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

fn origin() -> String {
    format!("s3://{}", larder_tests::garage::BUCKET)
}

fn uri(format: Format) -> String {
    format!("{}/{}", origin(), format.prefix())
}

/// The count of plain GETs in flight with the highest rate.
fn best_parallelism(plain: &Plain, garage: &Garage) -> Result<usize, Error> {
    let mut best = (0.0, limits::FILL_GETS_MAX);
    for in_flight in PARALLELISM {
        let rate = plain.round(in_flight, garage)?.rate();
        best = if rate > best.0 { (rate, in_flight) } else { best };
    }
    Ok(best.1)
}

fn compare(
    report: &mut Report,
    garage: &Garage,
    plain: &Plain,
    format: Format,
    manifest: &Manifest,
) -> Result<(), Error> {
    let best = best_parallelism(plain, garage)?;
    let epochs = Epochs::new(garage, uri(format));
    epochs.check()?;
    let results = alternate(
        report.rounds().min(ROUNDS_MAX),
        &mut [
            &mut || plain.round(limits::FILL_GETS_MAX, garage),
            &mut || plain.round(best, garage),
            &mut || epochs.fill(),
            &mut || epochs.cold(),
            &mut || epochs.warm(),
            &mut || epochs.cold_in_order(),
        ],
    )?;
    let names = [
        &format!("plain GETs, {} in flight as a node", limits::FILL_GETS_MAX),
        &format!("plain GETs, {best} in flight (its best)"),
        "larder, fills alone",
        "larder, cold epoch, shuffle auto",
        "larder, the epoch after it",
        "larder, cold epoch, no shuffle",
    ];
    let title = format!(
        "cold, {} samples of {} B in {} shards of {format}",
        manifest.samples(),
        data::IMAGE_BYTES,
        manifest.shard_count()
    );
    report.add(&title, "GiB/s", &names, &results);
    let title = format!("time to the first batch, {format}");
    report.add_times(&title, &names[3..], &epochs.first_batches());
    Ok(())
}
