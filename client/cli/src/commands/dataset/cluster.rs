//! Datasets read through nodes.

use larder_client::{Dataset, admin::OriginUri};

use crate::{
    context::Context,
    error::{Exit, Failure},
    nodes::Nodes,
};

/// Opens a dataset through nodes. Fails if no node answers: a training job then reads from the
/// origin, but the user of a command wants to read through the nodes.
pub(crate) fn open(
    context: &Context,
    nodes: &Nodes,
    reference: &str,
    manifest: Option<&OriginUri>,
    local: bool,
) -> Result<Dataset, Failure> {
    let progress = context.progress(&format!("opening {reference} through {nodes}"));
    let options = nodes.options().local(local);
    let options = manifest.iter().fold(options, |o, uri| o.manifest(uri.to_string()));
    let dataset = options.open(reference)?;
    drop(progress);
    if !dataset.opened_by_node() {
        return Err(Failure::new(Exit::Unavailable, format!("no node of {nodes} answers"))
            .hint("larder doctor says why; with --cluster none the origin itself is read"));
    }
    if let Some(indexed) = dataset.indexed_now() {
        context.output.note(&format!("{} {indexed}", dataset.name().reference.uri()));
    }
    Ok(dataset)
}
