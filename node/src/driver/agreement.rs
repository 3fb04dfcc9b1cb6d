//! Performs the agent's effects on the coordinator, and turns its answers into events.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_base::BootId;
use larder_coordinator::{
    Alive, Announcement, Coordinator, CoordinatorError, RecordAtRevision, Replaced,
};
use larder_membership::{
    BlobId, Record, Revision,
    agent::{self, Event, ProposalOutcome, Ticket},
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time;

use super::Report;

/// Times blobs are put for one proposal: another node may sweep them before the record names them.
const PUTS_MAX: u32 = 3;

/// Time for withdrawing the announcement at a stop. Without it the announcement expires.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_secs(2);

/// A node's connection to the coordinator.
pub(super) struct Agreement {
    coordinator: Arc<dyn Coordinator>,
    node_id: String,
    boot: BootId,
    word: watch::Sender<Option<Bytes>>,
    announcing: JoinHandle<()>,
    report: Report,
}

impl Agreement {
    /// Starts the announcing task. Call it inside a runtime.
    pub(super) fn start(
        coordinator: &Arc<dyn Coordinator>,
        node_id: String,
        boot: BootId,
        ttl: Duration,
        report: Report,
    ) -> Self {
        let (word, words) = watch::channel(None);
        let announcing =
            announce_latest(Arc::clone(coordinator), node_id.clone(), boot, ttl, words);
        let announcing = tokio::spawn(announcing);
        Self { coordinator: Arc::clone(coordinator), node_id, boot, word, announcing, report }
    }

    /// Announces the node from now on, with this word.
    pub(super) fn announce(&self, word: Vec<u8>) {
        self.word.send_replace(Some(word.into()));
    }

    /// Withdraws the announcement and ends the announcing task.
    pub(super) async fn withdraw(self) {
        self.announcing.abort();
        // Wait for a running announcement to end. Otherwise it could arrive after the withdrawal.
        let _ = self.announcing.await;
        let withdrawn = self.coordinator.withdraw(&self.node_id, self.boot);
        match time::timeout(WITHDRAWAL_TIMEOUT, withdrawn).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::debug!("this node could not say that it stops: {why}"),
            Err(_) => tracing::debug!("this node could not say that it stops: no answer"),
        }
    }

    pub(super) fn refresh(&self, ticket: Ticket) {
        self.ask(move |coordinator| async move {
            let read = coordinator.read().await;
            let read = read.inspect_err(|why| tracing::debug!("the record was not read: {why}"));
            let view = read.ok();
            let view = view.map(|view| (view.record.as_ref().map(stored), alive(&view.alive)));
            Event::Refreshed(ticket, view)
        });
    }

    pub(super) fn propose(
        &self,
        ticket: Ticket,
        blobs: Vec<Vec<u8>>,
        expected: Option<Revision>,
        record: Vec<u8>,
    ) {
        let blobs: Vec<Bytes> = blobs.into_iter().map(Bytes::from).collect();
        self.ask(move |coordinator| async move {
            let proposed = propose(&*coordinator, &blobs, expected, record.into()).await;
            let outcome = proposed.unwrap_or_else(|error| match error {
                CoordinatorError::Refused(why) => ProposalOutcome::Refused(why.to_string()),
                CoordinatorError::Away(_) | CoordinatorError::Unknown(_) => {
                    ProposalOutcome::Unknown
                }
            });
            Event::Proposed(ticket, outcome)
        });
    }

    pub(super) fn fetch(&self, blob: BlobId) {
        self.ask(move |coordinator| async move {
            let bytes = coordinator.blob(blob).await;
            let bytes = bytes.inspect_err(|why| tracing::debug!("blob {blob}: {why}"));
            Event::Blob(blob, bytes.ok().flatten().map(Vec::from))
        });
    }

    pub(super) fn sweep(&self, at: Revision) {
        let coordinator = Arc::clone(&self.coordinator);
        tokio::spawn(async move {
            match coordinator.sweep(at).await {
                Ok(Some(swept)) => tracing::debug!(swept, "blobs that the record does not need"),
                Ok(None) => {}
                Err(why) => tracing::debug!("blobs were not swept: {why}"),
            }
        });
    }

    /// Asks the coordinator and reports its answer, which comes within the limits of its contract.
    fn ask<F: Future<Output = Event> + Send + 'static>(
        &self,
        question: impl FnOnce(Arc<dyn Coordinator>) -> F,
    ) {
        let (answered, report) = (question(Arc::clone(&self.coordinator)), self.report.clone());
        tokio::spawn(async move {
            // At a stop the receiver is gone.
            let _ = report.send(answered.await).await;
        });
    }
}

/// Announces the latest word, one after the other, so that an older one never replaces a newer one.
async fn announce_latest(
    coordinator: Arc<dyn Coordinator>,
    node_id: String,
    boot: BootId,
    ttl: Duration,
    mut words: watch::Receiver<Option<Bytes>>,
) {
    while words.changed().await.is_ok() {
        let Some(word) = words.borrow_and_update().clone() else { continue };
        let announcement = Announcement { node_id: node_id.clone(), boot, word, ttl };
        if let Err(why) = coordinator.announce(announcement).await {
            // The agent soon has it announced again.
            tracing::debug!("this node could not say that it lives: {why}");
        }
    }
}

/// Puts all blobs, then replaces the record.
async fn propose(
    coordinator: &dyn Coordinator,
    blobs: &[Bytes],
    expected: Option<Revision>,
    record: Bytes,
) -> Result<ProposalOutcome, CoordinatorError> {
    let needed = match Record::decode(&record) {
        Ok(decoded) => decoded.blobs(),
        Err(why) => return Ok(ProposalOutcome::Refused(why.to_string())),
    };
    for _ in 0..PUTS_MAX {
        for blob in blobs {
            coordinator.put_blob(blob.clone()).await?;
        }
        match coordinator.replace(expected, record.clone(), needed.clone()).await? {
            Replaced::Done(revision) => return Ok(ProposalOutcome::Done(revision)),
            Replaced::Moved(now) => return Ok(ProposalOutcome::Moved(now.as_ref().map(stored))),
            Replaced::Missing(_) => {}
        }
    }
    Ok(ProposalOutcome::Refused("blobs that the record names are not there".to_owned()))
}

/// Converts the record for the agent.
pub(super) fn stored(kept: &RecordAtRevision) -> agent::StoredRecord {
    agent::StoredRecord { revision: kept.revision, bytes: kept.record.to_vec() }
}

/// Converts the announcements for the agent.
pub(super) fn alive(kept: &Alive) -> agent::Alive {
    let nodes = kept.nodes.values().map(|said| (said.node_id.clone(), said.word.to_vec()));
    agent::Alive { stamp: kept.stamp, nodes: nodes.collect() }
}
