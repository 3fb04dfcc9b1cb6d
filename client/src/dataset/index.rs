//! Indexes a prefix: when an operator asks for it, and when a dataset without a manifest is opened.

use std::fmt;

use larder_base::{limits, printable_line};
use larder_dataset::{
    Addressed, DatasetError, IndexOptions, Indexed, LeftOut, ManifestLocation, NamedFiles,
    OpenedManifest, Origin, OriginError, OriginUri, Snapshot, find_with, index, index_warnings,
    left_out_by_reason, warning_of_run_folder,
};

use super::address::{parse_prefix, resolved};
use crate::{
    CancelToken, DatasetName, Error, ErrorKind, OpenDataset,
    progress::{Progress, Reporter},
    runtime,
};

/// The report of indexing an opened prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedNow {
    /// How samples are formed of the files, as [`Snapshot::summary`].
    pub samples: String,
    /// As [`index_warnings`], and a warning of a manifest that does not last.
    pub warnings: Vec<String>,
    /// The address of the new manifest.
    pub manifest: String,
    /// What was left out, counted by reason: the most frequent reasons.
    pub left_out: Vec<String>,
    /// The number of reasons.
    pub left_out_count: u64,
}

impl IndexedNow {
    /// The report of indexing by this process. `None` if there was a manifest.
    pub fn of(opened: &OpenedManifest) -> Option<Self> {
        opened.indexed_now.then(|| {
            let (manifest, leaves) = (opened.manifest.clone(), opened.leaves.clone());
            let snapshot = Snapshot { manifest, leaves };
            Self::new(&snapshot, &opened.location, &opened.left_out)
        })
    }

    /// The report of indexing files that were named.
    fn of_files(indexed: &Indexed) -> Self {
        Self::new(&indexed.snapshot, &indexed.location, &indexed.left_out)
    }

    fn new(snapshot: &Snapshot, location: &ManifestLocation, left_out: &[LeftOut]) -> Self {
        let left_out = left_out_by_reason(left_out);
        let manifest = location.uri().to_string();
        Self {
            samples: snapshot.summary(),
            warnings: warnings(snapshot, &manifest),
            manifest,
            left_out_count: left_out.len() as u64,
            left_out: first(left_out.iter().map(ToString::to_string)),
        }
    }

    /// The report of indexing by a node.
    pub(super) fn by_node(snapshot: &Snapshot, opened: OpenDataset) -> Self {
        Self {
            samples: snapshot.summary(),
            warnings: warnings(snapshot, &opened.manifest_uri),
            manifest: opened.manifest_uri,
            left_out: first(opened.left_out.into_iter()),
            left_out_count: opened.left_out_count,
        }
    }
}

fn warnings(snapshot: &Snapshot, manifest: &str) -> Vec<String> {
    index_warnings(snapshot).into_iter().chain(warning_of_run_folder(manifest)).collect()
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
        write!(f, "; left out: {}", left_out.join("; "))?;
        match left_out_count.saturating_sub(left_out.len() as u64) {
            0 => Ok(()),
            more => write!(f, "; and for {more} more reasons (larder dataset index --list)"),
        }
    }
}

/// Indexes the files of a dataset if they have no manifest. `None` if they have one, or if this
/// process can't look: then a node may have it.
pub(super) fn index_files(
    files: &NamedFiles,
    name: &DatasetName,
    reporter: &Reporter<'_>,
) -> Result<Option<IndexedNow>, Error> {
    let indexed = runtime::block_on(async {
        let origin = Origin::connect(&files.prefix).await?;
        let home = name.manifest.as_ref();
        if find_with(&origin, &name.reference, home).await?.is_some() {
            return Ok(None);
        }
        let options = IndexOptions {
            include: files.include.clone(),
            tag: Some(files.tag()),
            manifest: name.manifest.clone(),
            write: Some(name.write),
            ..IndexOptions::default()
        };
        Box::pin(index(&origin, &files.prefix, &options, &|step| reporter.report(step)))
            .await
            .map(Some)
    })?;
    match indexed {
        Ok(indexed) => Ok(indexed.map(|indexed| IndexedNow::of_files(&indexed))),
        Err(DatasetError::Origin(OriginError::Credentials { .. } | OriginError::Denied { .. })) => {
            Ok(None)
        }
        Err(error) => Err(failed("index", &files.prefix, error)),
    }
}

/// Indexes a prefix, as [`index()`], and waits for it. Threads of this library call `progress`.
/// After cancellation it ends soon, and publishes only if it had already begun to. Says as warnings
/// what [`index_warnings`] finds. `uris` may also name files: see
/// [`OpenOptions::open_all`](crate::OpenOptions::open_all). Their tag is then that of their names.
///
/// # Errors
/// - `InvalidArgument` for an invalid prefix or data that can't be indexed, with the object and
///   field.
/// - The origin's error.
/// - An error if it was cancelled.
pub fn index_prefix(
    uris: &[String],
    options: &IndexOptions,
    progress: &(dyn Fn(Progress) + Send + Sync),
    cancel: &CancelToken,
) -> Result<Indexed, Error> {
    let (prefix, options) = match (uris, resolved(uris)?) {
        ([uri], Addressed::Prefix(_)) => (parse_prefix(uri)?, options.clone()),
        (_, Addressed::Files(files)) => with_files(files, options)?,
        (_, Addressed::Prefix(reference)) => (reference.uri().clone(), options.clone()),
    };
    let (prefix, options) = (&prefix, &options);
    let reporter = Reporter::new(progress);
    let indexed = runtime::block_on(cancel.unless(async {
        let origin = Origin::connect(prefix).await.map_err(DatasetError::from)?;
        Box::pin(index(&origin, prefix, options, &|step| reporter.report(step))).await
    }))??;
    let indexed = indexed.map_err(|error| failed("index", prefix, error))?;
    let warnings = warnings(&indexed.snapshot, &indexed.location.uri().to_string());
    warnings.iter().for_each(|warning| tracing::warn!("{prefix}: {warning}"));
    Ok(indexed)
}

/// The prefix of files, and the options to index them.
fn with_files(
    files: NamedFiles,
    options: &IndexOptions,
) -> Result<(OriginUri, IndexOptions), Error> {
    if !options.include.is_empty() {
        let what = "files are named by their addresses, and by include as well";
        return Err(Error::new(ErrorKind::InvalidArgument, what).hint("name them in one way"));
    }
    let tag = options.tag.clone().or_else(|| Some(files.tag()));
    let NamedFiles { prefix, include } = files;
    Ok((prefix, IndexOptions { include, tag, ..options.clone() }))
}

/// The client's error for a prefix that could not be opened or indexed.
pub(super) fn failed(verb: &str, prefix: &OriginUri, error: DatasetError) -> Error {
    let (kind, hint) = (ErrorKind::from(&error), error.hint());
    let failed = Error::new(kind, format!("cannot {verb} {prefix}")).with_source(error);
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed.hint_at_opening(prefix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexed(left_out: &[&str], left_out_count: u64) -> IndexedNow {
        let left_out = first(left_out.iter().map(ToString::to_string));
        let samples = "8 samples (x uint8) from 2 files".to_owned();
        let manifest = "s3://b/p/.larder/x".to_owned();
        IndexedNow { samples, warnings: Vec::new(), manifest, left_out, left_out_count }
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
            many.ends_with("a is empty; and for 5 more reasons (larder dataset index --list)"),
            "{many}"
        );
    }
}
