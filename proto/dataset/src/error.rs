//! The one error that indexing and opening a dataset can end with.

use crate::{BuildError, DatasetRef, FetchError, ManifestError, OriginError, OriginUri, UriError};

/// Why a dataset could not be indexed or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The origin could not be asked.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The header of a file could not be read.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A file is damaged or not what it says it is.
    #[error("{object}: {field}: {why}")]
    File {
        /// Which object.
        object: OriginUri,
        /// Which field of its header.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing under the prefix can be used as samples.
    #[error("nothing under {prefix} can be indexed: {why}")]
    NothingToIndex {
        /// Which prefix.
        prefix: OriginUri,
        /// What was found there.
        why: String,
    },
    /// The files do not make one dataset.
    #[error("the files under {prefix} do not fit together: {why}")]
    Inconsistent {
        /// Which prefix.
        prefix: OriginUri,
        /// What differs, and what to do.
        why: String,
    },
    /// An option is out of its range.
    #[error("{option}: {why}")]
    Option {
        /// Which option.
        option: &'static str,
        /// What it may be.
        why: String,
    },
    /// The manifest can't be written.
    #[error("{prefix} can't be indexed: {source}")]
    Build {
        /// Which prefix.
        prefix: OriginUri,
        /// The limit that was passed.
        source: BuildError,
    },
    /// The manifest can't be read.
    #[error("{object}: {source}")]
    Manifest {
        /// Where it lies.
        object: OriginUri,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// A tag does not point to a manifest of this dataset.
    #[error("{object}: {why}")]
    Tag {
        /// Where the tag lies.
        object: OriginUri,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such tag or snapshot.
    #[error("{dataset} has no {what}: see its tags with 'larder dataset ls', or index it")]
    NoSuchVersion {
        /// Which dataset.
        dataset: OriginUri,
        /// Which tag or snapshot.
        what: String,
    },
    /// There is no manifest where it was said to lie.
    #[error(
        "there is no manifest of {dataset} under {home}: correct that address, or index the dataset \
         into it ({})",
        index_into(dataset, home)
    )]
    NoManifest {
        /// Which dataset, and which version of it.
        dataset: DatasetRef,
        /// Where it was said to lie.
        home: OriginUri,
    },
    /// The manifest is of data that lay elsewhere when it was indexed.
    #[error(
        "{object} was made of the data at {indexed}, and this is {opened}: if it was moved or copied, index \
         it again (larder dataset index {opened}); if both are one place, open it as {indexed}"
    )]
    Moved {
        /// The manifest.
        object: OriginUri,
        /// Where the data lay.
        indexed: OriginUri,
        /// Where it is opened.
        opened: OriginUri,
    },
    /// Somebody else keeps moving the tag.
    #[error("{object} was moved by somebody else {attempts} times while it was written: try again")]
    TagContended {
        /// Where the tag lies.
        object: OriginUri,
        /// How often it was tried.
        attempts: usize,
    },
    /// An address can't be.
    #[error(transparent)]
    Uri(#[from] UriError),
}

/// The command that makes a manifest where one is missing.
fn index_into(dataset: &DatasetRef, home: &OriginUri) -> String {
    let (uri, tag) = (dataset.uri(), dataset.tag());
    let tag = if tag == DatasetRef::TAG_DEFAULT { String::new() } else { format!(" --tag {tag}") };
    format!("larder dataset index {uri} --manifest {home}{tag}")
}
