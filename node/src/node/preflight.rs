//! Warns at the start about conditions that make a node slow or useless later.
//!
//! It only warns and never refuses. An origin may come back, and a folder may be mounted later. A
//! cache that may be swapped out is still a cache.
//!
//! Thread rule: the caller checks the host; a background task checks the origins, until each has
//! answered once. Non-goals: origins that fail later. Their fills report that.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use larder_base::Bytes;
use larder_dataset::{IndexOptions, Origin, OriginUri, Scheme};
use larder_extent::pages;
use tokio::{task, time};

use crate::cache::MemoryUsage;
use crate::shared::Shared;

/// Time for the first answer of an origin.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Time until the next look at origins that did not answer.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// Checks the host now and the origins in the background.
pub(crate) fn look(shared: &Arc<Shared>) {
    let MemoryUsage { limit_bytes: budget_bytes, shards_max, .. } = shared.cache.usage();
    match pages::probe() {
        Ok(report) => {
            tracing::info!("shards come in pages of {}", Bytes(report.page_size.bytes()));
            if let Some(warning) = locking(report.lock_bytes_max, budget_bytes)
                && has_swap()
            {
                tracing::warn!("{warning}");
            }
            if let Some(warning) = files(shards_max, budget_bytes) {
                tracing::warn!("{warning}");
            }
        }
        Err(why) => tracing::warn!("this host gives no memory for shards now: {why}"),
    }
    let looking = look_at_origins(Arc::clone(shared));
    shared.runtime.spawn(shared.stopping.clone().run_until_cancelled_owned(looking));
}

/// Looks at the origins until each has answered. Warns of each fault once, and keeps the present
/// ones for descriptions of the node.
async fn look_at_origins(shared: Arc<Shared>) {
    let mut left = shared.config.origins.clone();
    let mut told: Vec<String> = Vec::new();
    loop {
        let faults = join_all(left.iter().map(unusable)).await;
        left = left
            .into_iter()
            .zip(&faults)
            .filter_map(|(it, fault)| fault.as_ref().map(|_| it))
            .collect();
        let faults: Vec<String> = faults.into_iter().flatten().collect();
        for fault in faults.iter().filter(|fault| !told.contains(fault)) {
            tracing::warn!("--origin: {fault}");
        }
        if faults.is_empty() && !told.is_empty() {
            tracing::info!("every origin answers now");
        }
        shared.origin_faults.store(Arc::new(faults.clone()));
        told = faults;
        if left.is_empty() {
            return;
        }
        time::sleep(LOOK_INTERVAL).await;
    }
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

/// Returns a warning if as many shards as may be open, of the size that indexing aims at, take less
/// memory than the budget has.
fn files(shards_max: usize, budget_bytes: u64) -> Option<String> {
    let bytes = (shards_max as u64).saturating_mul(IndexOptions::default().shard_bytes);
    (bytes < budget_bytes).then(|| {
        format!(
            "this process may have {shards_max} shards open and mapped, about {} of the {} for \
             shards; raise LimitNOFILE in the unit (or ulimit -n) and vm.max_map_count",
            Bytes(bytes),
            Bytes(budget_bytes)
        )
    })
}

/// Returns why an origin can't be read, as far as one cheap request shows.
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
    let answer = async { Origin::connect(origin).await?.probe(origin).await };
    match time::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(answer) => answer.err().map(|why| format!("{why}; larder doctor {origin} checks it")),
        Err(_) => Some(format!(
            "{origin} did not answer within {ANSWER_TIMEOUT:?}: check the network and AWS_ENDPOINT_URL; \
             larder doctor {origin} checks it"
        )),
    }
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

    #[test]
    fn warns_if_shards_that_may_be_open_are_less_than_the_budget() {
        assert_eq!(files(512, 32 << 30), None);
        let warning = files(512, 64 << 30).expect("a warning");
        assert!(
            warning.contains("512 shards open and mapped, about 32 GiB of the 64 GiB"),
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
