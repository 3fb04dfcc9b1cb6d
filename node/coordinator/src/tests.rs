//! The coordinator's contract, tested with every implementation, and tests of each implementation.

mod contract;
mod embedded;
mod etcd;
mod process;
mod settings;
mod takeover;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_base::BootId;

use super::{Announcement, Coordinator, CoordinatorError, Replaced, Revision, Watch};

/// Longer than any wait of a passing test, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "waited in vain until {what}");
}

/// Waits until a watch shows a state.
async fn until_shown(
    what: &str,
    watch: &mut Watch,
    shows: impl Fn(&super::CoordinatorView) -> bool,
) {
    let waiting = async {
        loop {
            let view = watch.view();
            if watch.away().is_none() && shows(&view) {
                return;
            }
            assert!(watch.changed().await, "the watch ended");
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "waited in vain until the watch shows {what}");
}

/// Waits until the coordinator answers.
async fn until_here(coordinator: &dyn Coordinator) {
    until("the coordinator answers", async || coordinator.read().await.is_ok()).await;
}

/// Creates a node's announcement, for so many seconds.
fn announcement(node_id: &str, boot: u8, seconds: u64) -> Announcement {
    Announcement {
        node_id: node_id.to_owned(),
        boot: BootId::from_bytes([boot; 16]),
        word: Bytes::from(format!("{node_id} lives")),
        ttl: Duration::from_secs(seconds),
    }
}

/// Returns the number that the record holds; 0 before there is one.
async fn number(coordinator: &dyn Coordinator) -> (Option<Revision>, u64) {
    let view = coordinator.read().await.expect("a view");
    view.record.map_or((None, 0), |stored| {
        let text = std::str::from_utf8(&stored.record).expect("digits");
        (Some(stored.revision), text.parse().expect("a number"))
    })
}

fn digits(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}

/// Writes a record over the present one.
async fn write(coordinator: &Arc<dyn Coordinator>, record: &'static str) -> Revision {
    loop {
        let before = coordinator.read().await.expect("a view").record;
        let expected = before.map(|stored| stored.revision);
        match coordinator.replace(expected, Bytes::from_static(record.as_bytes()), vec![]).await {
            Ok(Replaced::Done(revision)) => return revision,
            Ok(Replaced::Moved(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn is_refused<T: std::fmt::Debug>(answer: Result<T, CoordinatorError>) -> String {
    match answer {
        Err(CoordinatorError::Refused(why)) => why.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}
