//! Formats with one or more samples in each file: tars, MDS shards, Arrow files, lines, and folders
//! of pictures. `larder-formats` parses the files; this module reads them and agrees on columns.
//!
//! Non-goals: tensors with samples along their first dimension (see `group`).

mod folder;
mod kind;
mod mds;
mod scan;
mod tables;

use larder_formats::Table;

use super::{LeftOut, Progress, group::Plan, unknown_kind};
use crate::{DatasetError, ObjectInfo, Origin, OriginUri};
use kind::Kind;

pub use kind::Format;
pub(super) use kind::{format_of, most_bytes};
pub use tables::Missing;

/// The samples to index.
pub(super) struct Wanted<'a> {
    pub(super) format: Format,
    /// `None` is all columns.
    pub(super) columns: Option<&'a [String]>,
    pub(super) missing: Missing,
}

/// Plans a dataset of the files of this format. Also returns a JSON document about its columns.
pub(super) async fn plan(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    Wanted { format, columns, missing }: &Wanted<'_>,
    left_out: &mut Vec<LeftOut>,
    progress: Progress<'_>,
) -> Result<(Plan, String), DatasetError> {
    let (own, mut other): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| format_of(&file.key) == Some(*format));
    let why_other = match own.is_empty() {
        true => format!("is of another format than {format}"),
        false => format!("lies beside {format} files, which are the dataset"),
    };
    let mut metadata = String::new();
    let tables = match Kind::of(*format) {
        Some(kind) => {
            let scans = own.into_iter().map(|file| scan::begin(kind, file)).collect();
            let tables = Box::pin(scan::scan_all(origin, uri, scans, progress)).await?;
            metadata = tables.first().map_or_else(String::new, |(_, table)| document(table));
            tables
        }
        None if *format == Format::Mds => {
            let (indexes, rest) = other.into_iter().partition(|file| mds::is_index(&file.key));
            other = rest;
            let files = [own, indexes].concat();
            Box::pin(mds::tables(origin, uri, files, left_out, progress)).await?
        }
        None => {
            let (known, rest) = other.into_iter().partition(|file| folder::is_metadata(&file.key));
            other = rest;
            let found = folder::tables(origin, uri, own, known, left_out);
            let (tables, classes) = Box::pin(found).await?;
            metadata = classes;
            tables
        }
    };
    for file in other {
        let why = match format_of(&file.key) {
            Some(_) => why_other.clone(),
            None => unknown_kind(&file.key),
        };
        left_out.push(LeftOut::object(&file.key, why));
    }
    Ok((tables::plan(uri, tables, *columns, *missing, left_out)?, metadata))
}

/// Returns what a file says about its columns as one JSON document. Empty if it says nothing.
fn document(table: &Table) -> String {
    let value = |text: &str| {
        serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_owned()))
    };
    let pairs = table.metadata.iter().map(|(key, text)| (key.clone(), value(text)));
    let pairs: serde_json::Map<_, _> = pairs.collect();
    if pairs.is_empty() { String::new() } else { serde_json::Value::Object(pairs).to_string() }
}
