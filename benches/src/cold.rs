//! Cold epochs: an S3 server of others (garage) behind one node, against plain ranged GETs of the same bytes from the
//! same server in the same run.
//!
//! Every cold round starts a node that holds nothing; garage stays, so that what it has read before lies in the page
//! cache for all contenders alike. Server, node and client share the cores of one machine: where that is what bounds a
//! figure, the CPU time of each says so.
//!
//! Non-goals: what a real store or a real network does; disks.

mod data;
mod epochs;
mod plain;

use larder_client::admin::Manifest;
use larder_tests::Garage;
use larder_wire::limits;

use crate::Error;
use crate::children::Node;
use crate::measure::{Round, alternate, median};
use crate::report::Report;
use data::Format;
use epochs::Epochs;
use plain::Plain;

/// GETs in flight among which the plain reader's best is looked for.
const PARALLELISM: [usize; 4] = [4, 8, 16, 64];

/// Measures both formats.
pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    let garage = Garage::start(&std::env::temp_dir())?;
    let store = plain::connect(&garage)?;
    for format in [Format::Safetensors, Format::Npy] {
        data::upload(&store, format)?;
        let node = Node::start(&origin(), &garage.env())?;
        let indexed = node.connect(&uri(format))?;
        let plain = Plain::new(&store, indexed.manifest(), limits::FILL_PART_BYTES);
        drop(node);
        compare(report, &garage, &plain, format, indexed.manifest())?;
    }
    Ok(())
}

fn origin() -> String {
    format!("s3://{}", larder_tests::garage::BUCKET)
}

fn uri(format: Format) -> String {
    format!("{}/{}", origin(), format.prefix())
}

fn compare(
    report: &mut Report,
    garage: &Garage,
    plain: &Plain,
    format: Format,
    manifest: &Manifest,
) -> Result<(), Error> {
    let mut best = (0.0, 0);
    for in_flight in PARALLELISM {
        let rounds = [plain.round(in_flight, garage)?, plain.round(in_flight, garage)?];
        let rate = median(rounds.iter().map(Round::rate));
        best = if rate > best.0 { (rate, in_flight) } else { best };
    }
    let epochs = Epochs::new(garage, uri(format));
    epochs.check()?;
    let results = alternate(
        report.rounds(),
        &mut [
            &mut || plain.round(limits::FILL_WORKERS, garage),
            &mut || plain.round(best.1, garage),
            &mut || epochs.fill(),
            &mut || epochs.cold(),
            &mut || epochs.warm(),
            &mut || epochs.cold_in_order(),
        ],
    )?;
    let names = [
        &format!("plain GETs, {} in flight as a node", limits::FILL_WORKERS),
        &format!("plain GETs, {} in flight (its best)", best.1),
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
