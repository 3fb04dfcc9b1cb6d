//! `larder bench`: reads a dataset of the user from the origin, over the network and from shared
//! memory, with one loader and the same samples each time.
//!
//! Each way is read once before the timed passes, so that nodes are warm and connections open. Then
//! whole passes are timed. The figures are those of this host now: compare ways, not runs.

use std::time::Duration;

use clap::Args;
use larder_client::{
    Dataset, Loader, Sources,
    sampler::{Last, Shuffle},
};
use serde::Serialize;

use super::dataset::{open_through_nodes, parse_reference};
use crate::{
    context::Context,
    error::{Exit, Failure},
    output::{Page, Report, TextTable, units},
    progress::Bar,
};

/// Measures your dataset: from the origin, over the network, from memory on this host.
///
/// The nodes are those of --cluster or LARDER_CLUSTER, else the node of this host, if it runs.
/// Without nodes only the origin is measured.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The dataset: URI, URI@TAG or URI@SNAPSHOT
    #[arg(value_name = "DATASET")]
    reference: String,

    /// Samples to read: the first of the dataset, in random order
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..))]
    samples: u64,

    /// Samples of a batch
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch_size: u32,

    /// Shortest time for which each way is measured, in whole passes
    #[arg(long, default_value_t = 3, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

#[derive(Debug, Serialize)]
struct BenchReport {
    uri: String,
    snapshot: String,
    samples: u64,
    batch_size: u32,
    ways: Vec<Way>,
}

/// One way to the rows.
#[derive(Debug, Serialize)]
struct Way {
    /// `origin`, `network` or `local`.
    way: &'static str,
    passes: u64,
    samples: u64,
    bytes: u64,
    seconds: f64,
    gib_per_second: f64,
    /// The wait for a batch: median and 99th percentile.
    wait_ms_median: f64,
    wait_ms_p99: f64,
    rows_local: u64,
    rows_remote: u64,
    rows_origin: u64,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let reference = parse_reference(&arguments.reference)?;
    let uri = arguments.reference.as_str();
    let progress = context.progress("reading from the origin");
    let direct = Dataset::open(uri, None)?;
    if direct.samples() == 0 {
        return Err(Failure::new(Exit::NotFound, format!("{uri} has no samples")));
    }
    let mut ways = vec![measure(context, arguments, &direct, "origin", &progress)?];
    let nodes = context.nodes()?;
    if let Some(nodes) = &nodes {
        for (way, local) in [("network", false), ("local", true)] {
            let dataset = open_through_nodes(context, nodes, uri, None, local)?;
            ways.push(measure(context, arguments, &dataset, way, &progress)?);
        }
    }
    drop(progress);
    context.output.print(&BenchReport {
        uri: reference.to_string(),
        snapshot: direct.snapshot().to_string(),
        samples: arguments.samples.min(direct.samples()),
        batch_size: arguments.batch_size,
        ways,
    })?;
    if nodes.is_none() {
        context.output.note("name a cluster (--cluster or LARDER_CLUSTER) to compare its nodes");
    }
    Ok(())
}

fn measure(
    context: &Context,
    arguments: &Arguments,
    dataset: &Dataset,
    way: &'static str,
    progress: &Bar,
) -> Result<Way, Failure> {
    let samples = arguments.samples.min(dataset.samples());
    let loader = dataset.loader().samples(0..samples).batch_size(arguments.batch_size);
    let mut loader = loader.shuffle(Shuffle::Global).last(Last::Uneven).build()?;
    progress.items(&format!("{way}, warming up"), samples);
    let mut waits = Vec::new();
    pass(context, &mut loader, 0, progress, &mut waits)?;
    waits.clear();
    let (mut sources, mut passes) = (Sources::default(), 0);
    let begun = context.now();
    while passes == 0 || begun.elapsed() < Duration::from_secs(arguments.seconds) {
        passes += 1;
        progress.items(way, samples);
        sources += pass(context, &mut loader, passes, progress, &mut waits)?;
    }
    let time = begun.elapsed();
    waits.sort_unstable();
    let at = |hundredths: usize| {
        waits.get(waits.len().saturating_sub(1) * hundredths / 100).copied().unwrap_or_default()
    };
    Ok(Way {
        way,
        passes,
        samples: samples * passes,
        bytes: sources.bytes,
        seconds: time.as_secs_f64(),
        gib_per_second: units::gib_per_second(sources.bytes, time),
        wait_ms_median: at(50).as_secs_f64() * 1e3,
        wait_ms_p99: at(99).as_secs_f64() * 1e3,
        rows_local: sources.rows_local,
        rows_remote: sources.rows_remote,
        rows_origin: sources.rows_origin,
    })
}

/// Reads all samples once.
fn pass(
    context: &Context,
    loader: &mut Loader,
    number: u64,
    progress: &Bar,
    waits: &mut Vec<Duration>,
) -> Result<Sources, Failure> {
    let mut sources = Sources::default();
    let mut epoch = loader.epoch(number)?;
    loop {
        let asked = context.now();
        let Some(batch) = epoch.next() else { return Ok(sources) };
        let batch = batch?;
        waits.push(asked.elapsed());
        sources += batch.sources();
        progress.add(batch.len() as u64);
    }
}

impl Report for BenchReport {
    fn show(&self, page: &mut Page) {
        page.line(&format!(
            "{}: {} in random order, batches of {}",
            self.uri,
            units::counted(self.samples, "sample"),
            self.batch_size
        ));
        page.line("");
        let mut table = TextTable::new(
            "WAY | >SAMPLES/S | >GIB/S | >WAIT A BATCH | >P99 | >AGAINST ORIGIN | >ROWS LOCAL/REMOTE/ORIGIN",
        );
        let rate = |way: &Way| units::per_second(way.samples, Duration::from_secs_f64(way.seconds));
        let base = self.ways.first().map_or(1.0, rate).max(f64::MIN_POSITIVE);
        for way in &self.ways {
            table.row([
                way.way.to_owned(),
                units::rate(way.samples, Duration::from_secs_f64(way.seconds)),
                format!("{:.2}", way.gib_per_second),
                format!("{:.2} ms", way.wait_ms_median),
                format!("{:.2} ms", way.wait_ms_p99),
                format!("{:.1} x", rate(way) / base),
                format!("{}/{}/{}", way.rows_local, way.rows_remote, way.rows_origin),
            ]);
        }
        page.table(&table);
    }
}
