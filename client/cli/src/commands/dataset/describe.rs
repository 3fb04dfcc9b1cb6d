//! Describes a snapshot: its tensors, its size, the place of its manifest.

use larder_client::admin::{LeftOut, LeftOutGroup, Manifest, ManifestLocation, left_out_by_reason};
use serde::Serialize;

use crate::output::{Ink, Page, TextTable, units};

/// Files left out that are listed on a page; JSON has them all.
const LEFT_OUT_SHOWN: usize = 12;

/// The facts of a snapshot.
#[derive(Debug, Serialize)]
pub(super) struct Description {
    pub(super) snapshot: String,
    pub(super) samples: u64,
    pub(super) shards: u32,
    pub(super) bytes: u64,
    pub(super) tensors: Vec<TensorFacts>,
    pub(super) location: String,
}

/// One tensor.
#[derive(Debug, Serialize)]
pub(super) struct TensorFacts {
    pub(super) name: String,
    pub(super) dtype: String,
    /// The meaning of the values, such as `text` or `timestamp[ms]`.
    pub(super) logical: &'static str,
    /// The shape of one sample. The first dimension is absent if rows differ in it.
    pub(super) shape: Vec<Option<u64>>,
    /// Absent if rows differ in length.
    pub(super) row_bytes: Option<u64>,
}

impl Description {
    pub(super) fn new(manifest: &Manifest, location: &ManifestLocation) -> Self {
        let tensors = manifest.tensors().iter().map(|tensor| TensorFacts {
            name: tensor.name().to_owned(),
            dtype: tensor.dtype().to_string(),
            logical: tensor.logical().name(),
            shape: tensor.sample_shape(),
            row_bytes: (!tensor.is_ragged()).then_some(tensor.row_bytes()),
        });
        Self {
            snapshot: manifest.snapshot().to_string(),
            samples: manifest.samples(),
            shards: manifest.shard_count(),
            bytes: manifest.total_bytes(),
            tensors: tensors.collect(),
            location: location.uri().to_string(),
        }
    }

    /// Name and value of each number, for a page.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let mean = self.bytes / u64::from(self.shards.max(1));
        vec![
            ("snapshot", self.snapshot.clone()),
            ("samples", units::count(self.samples)),
            ("bytes", units::bytes(self.bytes)),
            (
                "shards",
                format!("{} of about {}", units::count(self.shards.into()), units::bytes(mean)),
            ),
            ("manifest", self.location.clone()),
        ]
    }

    pub(super) fn show_tensors(&self, page: &mut Page) {
        let mut table =
            TextTable::new("TENSOR | DTYPE | MEANING | SHAPE OF A SAMPLE | >BYTES OF A ROW");
        for tensor in &self.tensors {
            let row_bytes = tensor.row_bytes.map_or("differ".to_owned(), units::count);
            let shape = shape(&tensor.shape);
            let (name, dtype) = (tensor.name.clone(), tensor.dtype.clone());
            table.row([name, dtype, tensor.logical.to_owned(), shape, row_bytes]);
        }
        page.table(&table);
    }
}

/// `224 x 224 x 3`, `any x 4`, or `scalar`.
pub(super) fn shape(shape: &[Option<u64>]) -> String {
    if shape.is_empty() {
        return "scalar".to_owned();
    }
    let name = |side: &Option<u64>| side.map_or("any".to_owned(), |side| side.to_string());
    shape.iter().map(name).collect::<Vec<_>>().join(" x ")
}

/// Lists the parts that were left out and the reasons. Otherwise a user could learn of them from
/// the loss curve.
pub(super) fn show_left_out(page: &mut Page, left_out: &[LeftOut]) {
    if left_out.is_empty() {
        return;
    }
    page.heading(&format!("Left out ({})", units::count(left_out.len() as u64)));
    let reasons = left_out_by_reason(left_out);
    for LeftOutGroup { why, count, first } in reasons.iter().take(LEFT_OUT_SHOWN) {
        let tensor = first.tensor.as_ref().map(|name| format!(", tensor '{name}'"));
        let others = match count - 1 {
            0 => String::new(),
            more => format!(" and {} more", units::count(more)),
        };
        let name = format!("{}{}{others}", first.object, tensor.unwrap_or_default());
        page.line(&format!("{name}  {}", page.ink(Ink::Dim, why)));
    }
    if let Some(more @ 1..) = reasons.len().checked_sub(LEFT_OUT_SHOWN) {
        page.line(&format!("and {more} more reasons: see -o json"));
    }
}
