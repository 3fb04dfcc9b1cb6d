//! Datasets read through nodes.

use larder_client::{Dataset, admin::OriginUri};

use crate::{
    context::Context,
    error::{Exit, Failure},
};

/// Opens a dataset through the cluster. That rows would come from the origin because no node answers
/// is what a training job wants, and not what somebody who named a cluster here does.
pub(crate) fn open(
    context: &Context,
    cluster: &str,
    reference: &str,
    manifest: Option<&OriginUri>,
    local: bool,
) -> Result<Dataset, Failure> {
    let progress = context.progress(&format!("opening {reference} through {cluster}"));
    let options = Dataset::options().cluster(cluster).local(local);
    let options = manifest.iter().fold(options, |o, uri| o.manifest(uri.to_string()));
    let dataset = options.open(reference)?;
    drop(progress);
    if !dataset.opened_by_node() {
        return Err(Failure::new(Exit::Unavailable, format!("no node of {cluster} answers"))
            .hint("larder doctor says why; without --cluster the origin itself is read"));
    }
    if let Some(indexed) = dataset.indexed_now() {
        context.output.note(&format!("{} {indexed}", dataset.name().reference.uri()));
    }
    Ok(dataset)
}
