//! Parses the name of a dataset, opens the dataset on the origin or through nodes, and reads rows
//! from the origin: strict reads with a few retries.

use std::{path::Path, time::Duration};

use larder_client::{
    Dataset, IndexedNow, OpenOptions,
    admin::{self, DatasetRef, FetchError, Manifest, OpenedManifest, Origin, OriginUri},
};

use crate::{
    context::{Context, Nodes},
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
) -> Result<(Origin, OpenedManifest), Failure> {
    let progress = context.progress(&format!("opening {reference}"));
    let opened = context.block_on(async {
        let origin = Origin::connect(reference.uri()).await.map_err(Failure::from)?;
        let opened = Box::pin(admin::open_with(&origin, reference, manifest)).await;
        opened.map(|opened| (origin, opened)).map_err(Failure::from)
    })?;
    drop(progress);
    let indexed = opened.as_ref().ok().and_then(|(_, opened)| IndexedNow::of(opened));
    if let Some(indexed) = indexed {
        tell(context, reference.uri(), &indexed);
    }
    opened
}

/// Counts the objects that were added since the prefix was indexed, and warns of them. `None` if
/// they can't be counted: the command works without.
pub(super) fn warn_of_added(
    context: &Context,
    manifest: &Manifest,
    given: Option<&OriginUri>,
) -> Result<Option<u64>, Failure> {
    let progress = context.progress(&format!("listing {}", manifest.uri()));
    let added = context.block_on(async {
        let origin = Origin::connect(manifest.uri()).await.ok()?;
        Box::pin(admin::count_added(&origin, manifest, given)).await.ok()
    })?;
    drop(progress);
    if let Some(added @ 1..) = added {
        context.output.warn(&admin::added_warning(manifest.uri(), added));
    }
    Ok(added)
}

/// Opens a dataset through nodes. Fails if no node answers: a training job then reads from the
/// origin, but the user of a command wants to read through the nodes.
pub(crate) fn open_through_nodes(
    context: &Context,
    nodes: &Nodes,
    reference: &str,
    manifest: Option<&OriginUri>,
    local: bool,
) -> Result<Dataset, Failure> {
    let words = format!("opening {reference} through {nodes}");
    let dataset = open_by(context, &words, nodes.options().local(local), reference, manifest)?;
    if !dataset.opened_by_node() {
        return Err(Failure::new(Exit::Unavailable, format!("no node of {nodes} answers"))
            .hint("larder doctor says why; with --cluster none the origin itself is read"));
    }
    tell_of(context, &dataset);
    Ok(dataset)
}

/// Opens a dataset that this process reads from the origin itself.
pub(super) fn open_at_origin(
    context: &Context,
    reference: &str,
    manifest: Option<&OriginUri>,
) -> Result<Dataset, Failure> {
    let words = format!("opening {reference}");
    let dataset = open_by(context, &words, Dataset::options(), reference, manifest)?;
    tell_of(context, &dataset);
    Ok(dataset)
}

/// Opens a dataset by these options, with `words` for the progress.
fn open_by(
    context: &Context,
    words: &str,
    options: OpenOptions,
    reference: &str,
    manifest: Option<&OriginUri>,
) -> Result<Dataset, Failure> {
    let progress = context.progress(words);
    let options = options.progress(progress.shows());
    let options = manifest.iter().fold(options, |o, uri| o.manifest(uri.to_string()));
    Ok(options.open(reference)?)
}

/// Says that the prefix was indexed for this command, if it was.
fn tell_of(context: &Context, dataset: &Dataset) {
    if let Some(indexed) = dataset.indexed_now() {
        tell(context, dataset.name().reference.uri(), indexed);
    }
}

/// Says that the prefix was indexed for this command.
fn tell(context: &Context, uri: &OriginUri, indexed: &IndexedNow) {
    context.output.note(&format!("{uri} {indexed}"));
    indexed.warnings.iter().for_each(|warning| context.output.warn(warning));
}

/// Tries of one read before it counts as failed.
const TRIES: u32 = 5;
/// Pause before the second try. It doubles before each further try.
const PAUSE: Duration = Duration::from_millis(200);

/// Performs a read of the origin, and repeats it if that may help.
pub(super) async fn with_retries<T>(
    read: impl AsyncFn() -> Result<T, FetchError>,
) -> Result<T, FetchError> {
    let mut tried = 1;
    loop {
        match read().await {
            Err(error) if error.is_retryable() && tried < TRIES => {
                tokio::time::sleep(PAUSE * 2_u32.pow(tried - 1)).await;
                tried += 1;
            }
            other => return other,
        }
    }
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
    fn web_address_and_pattern_are_refused_with_the_prefix() {
        let failure = parse_reference("https://bucket.s3.amazonaws.com/images").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("write s3://bucket/images"));
        let failure = parse_reference("s3://bucket/images/*.npy").unwrap_err();
        assert!(failure.what.ends_with("patterns are not understood"), "{}", failure.what);
        let hint = "name the prefix that the files lie under: s3://bucket/images";
        assert_eq!(failure.hint.as_deref(), Some(hint));
    }

    #[test]
    fn a_prefix_has_no_tag() {
        let failure = parse_prefix("s3://b/p@v3", "--tag").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("write s3://b/p --tag v3"));
        assert_eq!(parse_prefix("s3://b/p", "--tag").unwrap().to_string(), "s3://b/p");
    }
}
