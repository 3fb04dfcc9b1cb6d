//! Formats with one or more samples in each file: tars, MDS shards, Arrow files, lines, and folders
//! of pictures. `larder-formats` parses the files; this module reads them and agrees on columns.
//!
//! Non-goals: tensors with samples along their first dimension (see `group`).

mod folder;
mod kind;
mod mds;
mod metadata;
mod scan;
mod tables;

use super::{LeftOut, Progress, extension, group::Plan, unknown_kind};
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
    /// Whether each `.npy` file is a sample, which makes it a file of the format.
    pub(super) arrays: bool,
}

/// Plans a dataset of the files of this format. Also returns a JSON document about its columns.
pub(super) async fn plan(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    Wanted { format, columns, missing, arrays }: &Wanted<'_>,
    left_out: &mut Vec<LeftOut>,
    progress: Progress<'_>,
) -> Result<(Plan, String), DatasetError> {
    let is_own = |key: &str| match arrays {
        true => extension(key) == "npy",
        false => format_of(key) == Some(*format),
    };
    let (own, mut other): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| is_own(&file.key));
    let why_other = match own.is_empty() {
        _ if *arrays => "is no .npy file".to_owned(),
        true => format!("is of another format than {format}"),
        false => format!("lies beside {format} files, which are the dataset"),
    };
    let mut document = String::new();
    let tables = match Kind::of(*format) {
        Some(kind) => {
            let scans = own.into_iter().map(|file| scan::begin(kind, file, *columns)).collect();
            let tables = scan::scan_all(origin, uri, scans, *columns, progress);
            let tables = Box::pin(tables).await?;
            document = metadata::of(uri, &tables, *columns)?;
            tables
        }
        None if *format == Format::Mds => {
            let (indexes, rest) = other.into_iter().partition(|file| mds::is_index(&file.key));
            other = rest;
            let files = [own, indexes].concat();
            Box::pin(mds::tables(origin, uri, files, left_out, *columns, progress)).await?
        }
        None => {
            let (known, rest) = other.into_iter().partition(|file| folder::is_metadata(&file.key));
            other = rest;
            let own = match arrays {
                true => Box::pin(folder::arrays(origin, uri, own, left_out, progress)).await?,
                false => folder::bytes(own, left_out),
            };
            let found = folder::tables(origin, uri, own, known, left_out);
            let (tables, classes) = Box::pin(found).await?;
            document = classes;
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
    Ok((tables::plan(uri, tables, *columns, *missing, left_out)?, document))
}
