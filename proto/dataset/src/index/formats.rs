//! Formats with one or more samples in each file: tars, MDS shards, Arrow files, lines, and folders
//! of pictures. `larder-formats` parses the files; this module reads them and agrees on columns.
//!
//! Non-goals: tensors with samples along their first dimension (see `group`).

mod estimate;
mod folder;
mod forms;
mod kind;
mod mds;
mod metadata;
mod partitions;
mod saved;
mod scan;
mod tables;

use larder_formats::Forms;

use super::{LeftOuts, Progress, group::IndexPlan};
use crate::{DatasetError, ObjectInfo, Origin, OriginUri};
use kind::Kind;

pub use estimate::PlannedReads;
pub use kind::Format;
pub(crate) use kind::format_of;
pub(super) use kind::most_bytes;
pub use tables::Missing;

/// The samples to index.
pub(super) struct WantedSamples<'a> {
    pub(super) format: Format,
    /// `None` is all columns.
    pub(super) columns: Option<&'a [String]>,
    pub(super) missing: Missing,
    /// Whether each `.npy` file is a sample, which makes it a file of the format.
    pub(super) arrays: bool,
}

/// Plans a dataset of these data and notes. Also returns a JSON document about its columns.
pub(super) async fn plan(
    origin: &Origin,
    uri: &OriginUri,
    data: Vec<ObjectInfo>,
    notes: Vec<ObjectInfo>,
    WantedSamples { format, columns, missing, arrays }: &WantedSamples<'_>,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<(IndexPlan, String), DatasetError> {
    let mut document = String::new();
    let tables = match Kind::of(*format) {
        Some(kind) => {
            let data = match notes.is_empty() {
                true => data,
                false => saved::named_files(origin, uri, data, notes, left_out).await?,
            };
            let begin = |file| scan::begin(kind, file, *columns, &Forms::new());
            let scans = data.into_iter().map(begin).collect();
            let tables = scan::scan_all(origin, uri, scans, *columns, left_out, progress);
            let tables = Box::pin(tables).await?;
            let tables = forms::agree(origin, uri, kind, tables, *columns, left_out, progress);
            let mut tables = Box::pin(tables).await?;
            document = metadata::of(uri, &tables, *columns)?;
            metadata::name_media(&document, &mut tables);
            partitions::add(&mut tables, *columns);
            tables
        }
        None if *format == Format::Mds => {
            Box::pin(mds::tables(origin, uri, data, notes, left_out, *columns, progress)).await?
        }
        None => {
            let data = match arrays {
                true => Box::pin(folder::arrays(origin, uri, data, left_out, progress)).await?,
                false => folder::bytes(data, left_out),
            };
            let found = folder::tables(origin, uri, data, notes, left_out);
            let (tables, classes) = Box::pin(found).await?;
            document = classes;
            tables
        }
    };
    Ok((tables::plan(uri, tables, *columns, *missing, left_out)?, document))
}

/// Returns the format whose data a file may describe, by its name.
pub(super) fn note_format(key: &str) -> Option<Format> {
    match key.rsplit('/').next().unwrap_or(key) {
        "index.json" => Some(Format::Mds),
        "metadata.csv" | "metadata.jsonl" => Some(Format::Folder),
        "state.json" => Some(Format::Arrow),
        _ => None,
    }
}
