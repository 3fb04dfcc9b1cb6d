//! `larder dataset ls`.

mod nodes;
mod tags;

use clap::Args;

use super::reference::parse_prefix;
use crate::{context::Context, error::Failure};

/// Lists the datasets that the nodes of the cluster have open.
///
/// With a prefix it lists tags and snapshots on the origin, and asks no node. It also lists those
/// in this user's cache, where they go if the prefix can't be written to.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A prefix to list the tags of: s3://bucket/prefix
    uri: Option<String>,

    /// Place of its manifests if not beside the data
    #[arg(long, value_name = "URI", requires = "uri")]
    manifest: Option<String>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.uri {
        Some(uri) => {
            let prefix = parse_prefix(uri, "as")?;
            tags::run(context, &prefix, arguments.manifest.as_deref())
        }
        None => nodes::run(context),
    }
}
