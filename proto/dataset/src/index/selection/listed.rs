//! Lists a prefix, and decides which of its objects are data (`selection`).

use larder_base::limits;
use serde::Serialize;

use super::{Include, Selection, select};
use crate::index::{IndexOptions, IndexProgress, PlannedReads, Progress, check_options};
use crate::{DatasetError, ObjectInfo, Origin, OriginUri};

/// An object under a prefix, and whether it is part of the dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The key, relative to the prefix.
    pub object: String,
    /// Whether the index reads it: it is data, or describes data.
    pub taken: bool,
    /// The format of the data, what it describes, or the reason to leave it out.
    pub why: String,
}

/// Lists the objects under a prefix and says of each whether an index by these options takes it,
/// in the order of the keys. Reads none of them.
///
/// # Errors
/// As [`index()`](super::index()), except for errors in files.
pub async fn verdicts(
    origin: &Origin,
    uri: &OriginUri,
    options: &IndexOptions,
) -> Result<Vec<Verdict>, DatasetError> {
    let listed = Box::pin(ListedFiles::list(origin, uri, options, &|_| {})).await?;
    let ListedFiles(selection) = listed;
    let format = match options.tokens {
        Some(_) => "tokens".to_owned(),
        None => selection.format.to_string(),
    };
    let taken = |why: String| {
        move |file: ObjectInfo| Verdict { object: file.key, taken: true, why: why.clone() }
    };
    let left_out = selection.left_out.into_parts().into_iter().map(|left| Verdict {
        object: left.object,
        taken: false,
        why: left.why,
    });
    let data = selection.data.into_iter().map(taken(format.clone()));
    let notes = selection.notes.into_iter().map(taken(format!("describes {format} files")));
    let mut verdicts: Vec<Verdict> = data.chain(notes).chain(left_out).collect();
    verdicts.sort_by(|one, other| one.object.cmp(&other.object));
    Ok(verdicts)
}

/// The files that an index by some options reads.
#[derive(Debug)]
pub struct ListedFiles(pub(in crate::index) Selection);

impl ListedFiles {
    /// Lists the objects under a prefix and decides which are data. Reads none of them.
    ///
    /// # Errors
    /// As [`index()`](super::index()), except for errors in files.
    pub async fn list(
        origin: &Origin,
        uri: &OriginUri,
        options: &IndexOptions,
        progress: Progress<'_>,
    ) -> Result<Self, DatasetError> {
        check_options(options)?;
        let include = options.include()?;
        Box::pin(list(origin, uri, options, include.as_ref(), progress)).await.map(Self)
    }

    /// Estimates the reads of an index by the same options, as [`PlannedReads`] says.
    ///
    /// # Errors
    /// The origin's.
    pub async fn planned_reads(
        &self,
        origin: &Origin,
        uri: &OriginUri,
        options: &IndexOptions,
    ) -> Result<PlannedReads, DatasetError> {
        let Selection { format, data, notes, .. } = &self.0;
        Box::pin(PlannedReads::estimate(origin, uri, options, *format, data, notes)).await
    }
}

async fn list(
    origin: &Origin,
    uri: &OriginUri,
    options: &IndexOptions,
    include: Option<&Include>,
    progress: Progress<'_>,
) -> Result<Selection, DatasetError> {
    let listing = origin.list_all(uri, limits::OBJECTS_MAX).await?;
    progress(IndexProgress::Listed { objects: listing.objects.len() as u64 });
    if listing.objects.is_empty() && listing.unreadable.is_empty() {
        let why = match origin.head(uri).await {
            Ok(_) => "it is a single object: name the prefix it lies under, and the object as \
                      --include"
                .into(),
            Err(_) if uri.path().contains(['*', '?']) => {
                "it is a pattern: name the folder above, and give the pattern as --include".into()
            }
            Err(_) => "there is nothing".into(),
        };
        return Err(DatasetError::NothingToIndex { prefix: uri.clone(), why });
    }
    select(uri, listing, options, include)
}
