//! Warns if objects were added under a prefix after it was indexed.
//!
//! The first process of a job lists the prefix once, in the background of an open. No batch waits
//! for it. A process that can't list says nothing: it may read rows through nodes only.

use std::{env, thread};

use larder_base::SnapshotId;
use larder_dataset::{DatasetError, Manifest, Origin, added_warning, count_added};
use larder_extent::fork_count;

use crate::{DatasetName, runtime};

/// Counts in a thread of its own, and warns. The thread parses the system's certificates for some
/// tens of milliseconds, in which the runtime's only worker would answer no control call.
///
/// Does nothing if `name` pins a snapshot: its user wants no newer objects.
pub(super) fn warn_if_added(name: &DatasetName, manifest: &Manifest) {
    let pinned = name.reference.tag().parse::<SnapshotId>().is_ok();
    if pinned || !is_first(env::var("RANK").ok().as_deref(), fork_count()) {
        return;
    }
    let (manifest, given) = (manifest.clone(), name.manifest.clone());
    let thread = thread::Builder::new().name("larder-added".to_owned());
    let count = async move |manifest: &Manifest| -> Result<u64, DatasetError> {
        let origin = Origin::connect(manifest.uri()).await?;
        Box::pin(count_added(&origin, manifest, given.as_ref())).await
    };
    let counting = thread.spawn(move || match runtime::block_on(count(&manifest)) {
        Ok(Ok(0)) => {}
        Ok(Ok(added)) => tracing::warn!("{}", added_warning(manifest.uri(), added)),
        Ok(Err(error)) => tracing::debug!(%error, "added objects were not counted"),
        Err(error) => tracing::debug!(%error, "added objects were not counted"),
    });
    if let Err(error) = counting {
        tracing::debug!(%error, "added objects are not counted");
    }
}

/// Whether this is the first process of its job: rank 0, and no forked worker.
fn is_first(rank: Option<&str>, forks: u32) -> bool {
    forks == 0 && rank.is_none_or(|rank| rank.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_process_of_a_job_counts_added_objects() {
        assert!(is_first(None, 0) && is_first(Some("0"), 0));
        assert!(!is_first(Some("1"), 0) && !is_first(None, 1));
    }
}
