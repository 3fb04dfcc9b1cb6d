//! The demo's output: the parts that run, the epochs, and commands to continue by hand.

use std::time::Duration;

use larder_client::Dataset;
use serde::Serialize;

use super::{BATCH_SIZE, images::Images};
use crate::{
    context::Context,
    output::{Ink, Page, Report, TextTable, units},
};

/// The result. Scripts rely on these names.
#[derive(Debug, Serialize)]
pub(super) struct DemoReport {
    pub(super) epochs: Vec<EpochFigures>,
    pub(super) verified: bool,
}

/// One epoch.
#[derive(Debug, Serialize)]
pub(super) struct EpochFigures {
    pub(super) epoch: u64,
    pub(super) samples: u64,
    pub(super) seconds: f64,
    pub(super) rows_local: u64,
    pub(super) rows_remote: u64,
    pub(super) rows_origin: u64,
    /// Counted by the nodes.
    pub(super) origin_requests: u64,
    /// Counted by the nodes.
    pub(super) origin_bytes: u64,
    /// Bytes of the rows.
    #[serde(skip)]
    pub(super) bytes: u64,
}

/// The parts that run, in a few words.
pub(super) fn opening(context: &Context, dataset: &Dataset, images: &Images) -> String {
    let mut page = context.output.page();
    let (count, bytes) = (units::count(images.samples()), units::bytes(images.bytes()));
    let shards = dataset.manifest().shard_count();
    let nodes = "a (read through shared memory) and b (read over TCP)";
    page.fields(&[
        ("origin", format!("{}: {count} images, {bytes}, in .safetensors files", images.uri())),
        ("nodes", format!("{nodes}, {shards} shards between them")),
        ("client", format!("shuffled batches of {BATCH_SIZE}, every row compared with its source")),
    ]);
    page.line("");
    page.text().to_owned()
}

/// The lines to paste while the demo is left running.
pub(super) fn how_to_use(uri: &str, cluster: &str) -> String {
    format!(
        "
It is left running until Ctrl-C. To use it from another terminal:

  export DEMO={uri}
  export LARDER_CLUSTER={cluster}

  larder node ls
  larder dataset verify $DEMO --against-source
  larder dataset sample $DEMO 0 --tensor image --out first.npy

In Python:

  import larder
  for batch in larder.open(\"{uri}\").loader(batch_size=256, shuffle=\"auto\", seed=0):
      print(batch[\"image\"].shape)

In Rust:

  let dataset = larder_client::Dataset::open(\"{uri}\", Some(\"{cluster}\"))?;
  for batch in dataset.loader().batch_size(256).build()?.epoch(0)? {{
      println!(\"{{:?}}\", batch?.tensor(\"image\"));
  }}
"
    )
}

impl Report for DemoReport {
    fn show(&self, page: &mut Page) {
        let mut table = TextTable::new(
            ">EPOCH | >SAMPLES/S | >GIB/S | >TIME | >ROWS LOCAL | >REMOTE | >FROM ORIGIN | >ORIGIN REQUESTS | >ORIGIN BYTES",
        );
        for epoch in &self.epochs {
            let time = Duration::from_secs_f64(epoch.seconds);
            table.row([
                epoch.epoch.to_string(),
                units::rate(epoch.samples, time),
                format!("{:.2}", units::gib_per_second(epoch.bytes, time)),
                units::duration(time),
                units::count(epoch.rows_local),
                units::count(epoch.rows_remote),
                units::count(epoch.rows_origin),
                units::count(epoch.origin_requests),
                units::bytes(epoch.origin_bytes),
            ]);
        }
        page.table(&table);
        let verified = page.ink(Ink::Green, "verified:");
        page.line(&format!(
            "{verified} every sample exactly once, every byte checked against the source"
        ));
    }
}
