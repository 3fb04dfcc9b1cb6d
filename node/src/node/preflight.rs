//! Warns at the start about conditions that make a node slow or useless later.
//!
//! It only warns and never refuses. An origin may come back, and a folder may be mounted later. A
//! cache that may be swapped out is still a cache.
//!
//! Thread rule: the caller checks the host; a background task checks the origins.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use larder_base::Bytes;
use larder_dataset::{Origin, OriginUri, Scheme};
use larder_extent::pages;
use tokio::task;

use crate::shared::Shared;

/// Checks the host now and the origins in the background.
pub(crate) fn look(shared: &Arc<Shared>) {
    let budget_bytes = shared.cache.usage().limit_bytes;
    match pages::probe() {
        Ok(report) => {
            tracing::info!("shards come in pages of {}", Bytes(report.page_size.bytes()));
            if let Some(warning) = locking(report.lock_bytes_max, budget_bytes)
                && has_swap()
            {
                tracing::warn!("{warning}");
            }
        }
        Err(why) => tracing::warn!("this host gives no memory for shards now: {why}"),
    }
    let origins = shared.config.origins.clone();
    let looking = async move {
        for origin in &origins {
            if let Some(warning) = unusable(origin).await {
                tracing::warn!("--origin: {warning}");
            }
        }
    };
    shared.runtime.spawn(shared.stopping.clone().run_until_cancelled_owned(looking));
}

/// Returns true if unlocked memory could go to swap, or if that is unknown.
fn has_swap() -> bool {
    let swaps = fs::read_to_string("/proc/swaps");
    // The first line names the columns.
    swaps.map_or(true, |table| table.lines().count() > 1)
}

/// Returns a warning if less memory may be locked than the budget has.
fn locking(lock_bytes_max: Option<u64>, budget_bytes: u64) -> Option<String> {
    let limit = lock_bytes_max.filter(|&limit| limit < budget_bytes)?;
    Some(format!(
        "only {} of the {} for shards may be locked in memory: under pressure the \
         rest may be swapped out, and reads then wait for the disk; raise the limit \
         (LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited), or run without swap",
        Bytes(limit),
        Bytes(budget_bytes)
    ))
}

/// Returns why an origin can't be read, as far as that shows without a request to it.
async fn unusable(origin: &OriginUri) -> Option<String> {
    if origin.scheme() == Scheme::File {
        let folder = format!("/{}", origin.path());
        // A blocking thread, because a file system may hang. One is enough: origins are checked in
        // turn.
        let looked = task::spawn_blocking(move || Path::new(&folder).is_dir()).await;
        return (!looked.unwrap_or(true)).then(|| {
            format!("{origin}: there is no such folder; is the name right, is it mounted?")
        });
    }
    Origin::connect(origin).await.err().map(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_of_memlock_only_if_the_limit_is_below_the_budget() {
        assert_eq!(locking(None, 1 << 30), None);
        assert_eq!(locking(Some(1 << 30), 1 << 30), None);
        let warning = locking(Some(65_536), 1 << 30).expect("a warning");
        assert!(
            warning.contains("only 64 KiB of the 1.0 GiB") && warning.contains("LimitMEMLOCK"),
            "{warning}"
        );
    }

    #[tokio::test]
    async fn warns_only_of_a_folder_that_is_missing() {
        let root = tempfile::tempdir().expect("a folder");
        let uri = |name: &str| {
            OriginUri::parse(&format!("file://{}{name}", root.path().display())).expect("a URI")
        };
        assert_eq!(unusable(&uri("")).await, None);
        let warning = unusable(&uri("/dta")).await.expect("a warning");
        assert!(warning.contains("/dta"), "{warning}");
    }
}
