//! What the demo prints: what is there, the epochs, and how to go on by hand.

use std::time::Duration;

use larder_client::Dataset;
use serde::Serialize;

use super::origin::Origin;
use crate::{
    context::Context,
    output::{Align, Ink, Page, Report, Table, units},
};

/// The result: exactly these names, for scripts.
#[derive(Debug, Serialize)]
pub(super) struct DemoReport {
    pub(super) epochs: Vec<Epoch>,
    pub(super) verified: bool,
}

/// One epoch.
#[derive(Debug, Serialize)]
pub(super) struct Epoch {
    pub(super) epoch: u64,
    pub(super) samples: u64,
    pub(super) seconds: f64,
    pub(super) rows_local: u64,
    pub(super) rows_remote: u64,
    pub(super) rows_origin: u64,
    /// Counted by the S3 server.
    pub(super) origin_requests: u64,
    /// Counted by the S3 server.
    pub(super) origin_bytes: u64,
    /// Bytes of the rows.
    #[serde(skip)]
    pub(super) bytes: u64,
}

/// What was started, in a few words.
pub(super) fn opening(context: &Context, dataset: &Dataset, origin: &Origin) -> String {
    let mut page = context.output.page();
    let manifest = dataset.manifest();
    page.fields(&[
        ("origin", origin.words(dataset)),
        (
            "nodes",
            format!(
                "a (read through shared memory) and b (read over TCP), {} shards between them",
                manifest.shard_count()
            ),
        ),
        (
            "client",
            "shuffled batches of 128, every row compared with its file as it comes".to_owned(),
        ),
    ]);
    page.line("");
    page.text().to_owned()
}

/// What to export to use what is left running.
pub(super) fn exports(origin: &Origin, cluster: &str) -> String {
    let mut text =
        "\nIt is left running until Ctrl-C. To use it from another terminal:\n\n".to_owned();
    for (name, value) in origin.settings() {
        text.push_str(&format!("  export {name}={value}\n"));
    }
    text.push_str(&format!("  export LARDER_CLUSTER={cluster}\n"));
    text
}

/// What to export and to paste while it is left running.
pub(super) fn how_to_use(origin: &Origin, cluster: &str) -> String {
    let mut text = exports(origin, cluster);
    let uri = origin.dataset();
    text.push_str(&format!(
        "
  larder node ls
  larder dataset verify {uri} --against-source
  larder dataset sample {uri} 0 --tensor image --out first.npy

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
    ));
    text
}

impl Report for DemoReport {
    fn show(&self, page: &mut Page) {
        show_epochs(&self.epochs, page);
        show_verified(page);
    }
}

/// The epochs, one a line.
pub(super) fn show_epochs(epochs: &[Epoch], page: &mut Page) {
    let mut table = Table::new(&[
        ("EPOCH", Align::Right),
        ("SAMPLES/S", Align::Right),
        ("GIB/S", Align::Right),
        ("TIME", Align::Right),
        ("ROWS LOCAL", Align::Right),
        ("REMOTE", Align::Right),
        ("FROM ORIGIN", Align::Right),
        ("ORIGIN REQUESTS", Align::Right),
        ("ORIGIN BYTES", Align::Right),
    ]);
    for epoch in epochs {
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
    page.table(table);
}

/// What was checked, in one line.
pub(super) fn show_verified(page: &mut Page) {
    let verified = page.ink(Ink::Green, "verified:");
    page.line(&format!(
        "{verified} every sample exactly once, every byte checked against the source"
    ));
}
