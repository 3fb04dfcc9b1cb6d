//! Indexes a prefix: when an operator asks for it, and when a dataset without a manifest is opened.

use std::fmt;

use larder_base::{limits, printable_line};
use larder_dataset::{
    DatasetError, IndexOptions, IndexProgress, Indexed, Opened, Origin, OriginUri, Snapshot, index,
};

use super::address::parse_prefix;
use crate::{CancelToken, Error, ErrorKind, OpenDataset, runtime};

/// The report of indexing an opened prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedNow {
    /// How samples are formed of the files, as [`Snapshot::summary`].
    pub samples: String,
    /// As [`Snapshot::one_sample_per_file`].
    pub warning: Option<String>,
    /// The address of the new manifest.
    pub manifest: String,
    /// The first files that were left out, each with the reason.
    pub left_out: Vec<String>,
    /// How many files were left out.
    pub left_out_count: u64,
}

impl IndexedNow {
    /// The report of indexing by this process. `None` if there was a manifest.
    pub fn of(opened: &Opened) -> Option<Self> {
        opened.indexed_now.then(|| {
            let (manifest, leaves) = (opened.manifest.clone(), opened.leaves.clone());
            let snapshot = Snapshot { manifest, leaves };
            let left_out = opened.left_out.iter().map(ToString::to_string);
            Self {
                samples: snapshot.summary(),
                warning: snapshot.one_sample_per_file(),
                manifest: opened.location.uri().to_string(),
                left_out: first(left_out),
                left_out_count: opened.left_out.len() as u64,
            }
        })
    }

    /// The report of indexing by a node.
    pub(super) fn by_node(snapshot: &Snapshot, opened: OpenDataset) -> Self {
        Self {
            samples: snapshot.summary(),
            warning: snapshot.one_sample_per_file(),
            manifest: opened.manifest_uri,
            left_out: first(opened.left_out.into_iter()),
            left_out_count: opened.left_out_count,
        }
    }
}

/// The entries to name, each on one line.
fn first(left_out: impl Iterator<Item = String>) -> Vec<String> {
    let named = left_out.take(limits::LEFT_OUT_TOLD_MAX);
    named.map(|one| printable_line(&one).into_owned()).collect()
}

/// For example `had no manifest and was indexed now: 80 samples (...) from 5 files; manifest ...`.
impl fmt::Display for IndexedNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, manifest, left_out, left_out_count, .. } = self;
        write!(f, "had no manifest and was indexed now: {samples}; manifest {manifest}")?;
        if left_out.is_empty() {
            return Ok(());
        }
        write!(f, "; left out: {}", left_out.join(", "))?;
        match left_out_count.saturating_sub(left_out.len() as u64) {
            0 => Ok(()),
            more => write!(f, ", and {more} more (larder dataset index lists them)"),
        }
    }
}

/// Indexes a prefix, as [`index()`], and waits for it. Threads of this library call `progress`.
/// After cancellation it ends soon, and publishes only if it had already begun to. Warns if each
/// file looks like one sample.
///
/// # Errors
/// - `InvalidArgument` for an invalid prefix or data that can't be indexed, with the object and
///   field.
/// - The origin's error.
/// - An error if it was cancelled.
pub fn index_prefix(
    uri: &str,
    options: &IndexOptions,
    progress: &(dyn Fn(IndexProgress) + Send + Sync),
    cancel: &CancelToken,
) -> Result<Indexed, Error> {
    let prefix = &parse_prefix(uri)?;
    let indexed = runtime::block_on(cancel.unless(async {
        let origin = Origin::connect(prefix).await.map_err(DatasetError::from)?;
        Box::pin(index(&origin, prefix, options, progress)).await
    }))??;
    let indexed = indexed.map_err(|error| index_error(prefix, error))?;
    let warning = indexed.snapshot.one_sample_per_file();
    warning.iter().for_each(|warning| tracing::warn!("{prefix}: {warning}"));
    Ok(indexed)
}

/// The client's error for a prefix that could not be indexed.
fn index_error(prefix: &OriginUri, error: DatasetError) -> Error {
    let kind = ErrorKind::from(&error);
    let error = Error::new(kind, format!("cannot index {prefix}")).with_source(error);
    error.hint_at_opening(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexed(left_out: &[&str], left_out_count: u64) -> IndexedNow {
        let left_out = first(left_out.iter().map(ToString::to_string));
        let samples = "8 samples (x uint8) from 2 files".to_owned();
        let manifest = "s3://b/p/.larder/x".to_owned();
        IndexedNow { samples, warning: None, manifest, left_out, left_out_count }
    }

    #[test]
    fn lists_some_left_out_files_with_reasons_and_counts_the_others() {
        let said = "had no manifest and was indexed now: 8 samples (x uint8) from 2 files; \
                    manifest s3://b/p/.larder/x";
        assert_eq!(indexed(&[], 0).to_string(), said);
        let one = indexed(&["a\nb is empty"], 1).to_string();
        assert_eq!(one, format!("{said}; left out: a\\nb is empty"));
        let many = indexed(&["a is empty"; 7], 9).to_string();
        assert!(
            many.ends_with("a is empty, and 5 more (larder dataset index lists them)"),
            "{many}"
        );
    }
}
