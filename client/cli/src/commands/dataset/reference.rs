//! Parses the name of a dataset on the command line, and finds the dataset on the origin.

use std::path::Path;

use larder_client::{
    IndexedNow,
    admin::{self, DatasetRef, Opened, Origin, OriginUri},
};

use crate::{
    context::Context,
    error::{Exit, Failure},
};

/// Reads `URI` or `URI@TAG`.
pub(crate) fn parse_reference(text: &str) -> Result<DatasetRef, Failure> {
    DatasetRef::parse(text).map_err(|error| with_path_hint(text, error.into()))
}

/// Reads the address of a prefix, without a tag.
pub(super) fn parse_prefix(text: &str, option: &str) -> Result<OriginUri, Failure> {
    let reference = parse_reference(text)?;
    if reference.tag() != DatasetRef::TAG_DEFAULT {
        let (uri, tag) = (reference.uri(), reference.tag());
        let failure = Failure::new(Exit::Usage, format!("'{text}' names a version, not a prefix"));
        return Err(failure.hint(format!("write {uri} {option} {tag}")));
    }
    Ok(reference.uri().clone())
}

/// Adds the address of the folder to the failure, if the user typed a path.
fn with_path_hint(text: &str, failure: Failure) -> Failure {
    match Path::new(text).canonicalize() {
        Ok(path) if !text.contains("://") => {
            failure.hint(format!("for the local folder write file://{}", path.display()))
        }
        _ => failure,
    }
}

/// Connects to the origin and opens the dataset there. Notes if it was indexed first.
pub(crate) fn open(
    context: &Context,
    reference: &DatasetRef,
    manifest: Option<&OriginUri>,
) -> Result<(Origin, Opened), Failure> {
    let progress = context.progress(&format!("opening {reference}"));
    let opened = context.block_on(async {
        let origin = Origin::connect(reference.uri()).await.map_err(Failure::from)?;
        let opened = Box::pin(admin::open_with(&origin, reference, manifest)).await;
        opened.map(|opened| (origin, opened)).map_err(Failure::from)
    })?;
    drop(progress);
    let indexed = opened.as_ref().ok().and_then(|(_, opened)| IndexedNow::of(opened));
    if let Some(indexed) = indexed {
        context.output.note(&format!("{} {indexed}", reference.uri()));
    }
    opened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_as_reference_is_refused_with_its_file_address() {
        let folder = tempfile::tempdir().unwrap();
        let failure = parse_reference(folder.path().to_str().unwrap()).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.hint.unwrap().contains("write file:///"));
    }

    #[test]
    fn a_prefix_has_no_tag() {
        let failure = parse_prefix("s3://b/p@v3", "--tag").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("write s3://b/p --tag v3"));
        assert_eq!(parse_prefix("s3://b/p", "--tag").unwrap().to_string(), "s3://b/p");
    }
}
