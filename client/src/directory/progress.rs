//! How far nodes are with what this process waits for: the opening of a dataset, and the fills of
//! its shards.

use std::{future::Future, pin::pin, time::Duration};

use bytes::Bytes;
use futures_util::future::{Either, join_all, select};
use larder_base::{ErrorKind, SnapshotId, WaitNotice, limits, printable_line};
use larder_dataset::IndexProgress;
use larder_wire::control::{
    FillProgress, GetFillProgressRequest, GetOpenProgressRequest, OpenStep,
};
use tokio::time;

use super::{Cluster, DatasetName, answers::within, control::Control};
use crate::{
    Error, process,
    progress::{Progress, Reporter},
};

/// How often the progress of a wait is looked at.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Most nodes that are asked for the progress of fills.
const NODES_ASKED_MAX: usize = 64;

impl DatasetName {
    /// Waits for the dataset to open, and calls `look` meanwhile. Without a program that shows the
    /// progress, tells users of a long wait.
    pub(crate) async fn told_if_long<T>(
        &self,
        opening: impl Future<Output = T>,
        reporter: &Reporter<'_>,
        look: impl Fn(),
    ) -> T {
        let (begun, notice, mut opening) = (process::now(), WaitNotice::default(), pin!(opening));
        loop {
            if let Ok(opened) = time::timeout(LOOK_INTERVAL, opening.as_mut()).await {
                return opened;
            }
            look();
            let waited = process::now() - begun;
            if reporter.is_silent() && notice.is_due(waited, waited) {
                let (uri, seconds) = (self.reference.uri(), waited.as_secs());
                tracing::warn!(
                    "{uri} is still being opened after {seconds} s: one that nobody has indexed yet is \
                     indexed first; to see how far that is, index it beforehand"
                );
            }
        }
    }
}

/// The progress of fills of a snapshot on all nodes that answered.
#[derive(Debug, Default)]
pub(crate) struct Fills {
    /// Nodes that answered.
    pub(crate) nodes: usize,
    /// Bytes of the snapshot's shards on them, replicas included.
    pub(crate) here_bytes: u64,
    /// Bytes that they may use for shards.
    pub(crate) budget_bytes: u64,
    /// For each shard that was asked about, the bytes that no node has.
    pub(crate) missing_bytes: Vec<u64>,
}

impl Fills {
    fn add(&mut self, answer: FillProgress) {
        self.nodes += 1;
        self.here_bytes = self.here_bytes.saturating_add(answer.here_bytes);
        self.budget_bytes = self.budget_bytes.saturating_add(answer.budget_bytes);
        for (missing, here) in self.missing_bytes.iter_mut().zip(answer.missing_bytes) {
            *missing = here.min(*missing);
        }
    }
}

impl Cluster {
    /// Asks the members for the progress of fills. `shards` are those that a reader waits for, of
    /// which the first are asked about.
    pub(crate) async fn fills(&self, snapshot: SnapshotId, shards: &[u32]) -> Fills {
        let shards = &shards[..shards.len().min(limits::PAGE_ENTRIES_MAX as usize)];
        let missing_bytes = vec![u64::MAX; shards.len()];
        let mut fills = Fills { missing_bytes, ..Fills::default() };
        let Some(view) = self.view() else { return fills };
        let members = view.members.iter().take(NODES_ASKED_MAX);
        let asked =
            members.map(|member| self.control.fill_progress(&member.control, snapshot, shards));
        let answers = join_all(asked.collect::<Vec<_>>()).await;
        answers.into_iter().flatten().for_each(|answer| fills.add(answer));
        fills
    }
}

impl Control {
    /// Waits for `opening`, which this node does, and reports its progress.
    pub(super) async fn report_opening<T>(
        &self,
        address: &str,
        name: &DatasetName,
        reporter: &Reporter<'_>,
        opening: impl Future<Output = T>,
    ) -> T {
        if reporter.is_silent() {
            return opening.await;
        }
        let mut opening = pin!(opening);
        loop {
            let asked = async {
                time::sleep(LOOK_INTERVAL).await;
                self.open_progress(address, name).await
            };
            match select(opening.as_mut(), pin!(asked)).await {
                Either::Left((opened, _)) => return opened,
                Either::Right((Ok(progress), _)) => reporter.report(progress),
                // The next answer may come, and the opening goes on without any.
                Either::Right((Err(error), _)) => {
                    tracing::debug!(%error, "the progress of an opening is not known");
                }
            }
        }
    }

    async fn open_progress(&self, address: &str, name: &DatasetName) -> Result<Progress, Error> {
        let request = GetOpenProgressRequest {
            uri: name.reference.to_string(),
            manifest_uri: name.manifest.as_ref().map(ToString::to_string).unwrap_or_default(),
        };
        let mut client = self.client(address)?;
        let call = client.get_open_progress(request);
        let answer = within(self.named(address), limits::OWNER_SILENT_TIMEOUT, call).await?;
        let (step, done, total) = (answer.step(), answer.done, answer.total.unwrap_or_default());
        let progress = match step {
            OpenStep::Unspecified => Progress::of("opening"),
            OpenStep::Listing => IndexProgress::Listed { objects: done }.into(),
            OpenStep::Headers => IndexProgress::Headers { done, total }.into(),
            OpenStep::Offsets => IndexProgress::Offsets { done, total }.into(),
            OpenStep::Publishing => IndexProgress::Publishing.into(),
        };
        let trouble = printable_line(&answer.trouble);
        Ok(progress.waiting((!trouble.is_empty()).then_some(trouble)))
    }

    async fn fill_progress(
        &self,
        address: &str,
        snapshot: SnapshotId,
        shards: &[u32],
    ) -> Result<FillProgress, Error> {
        let snapshot = Bytes::copy_from_slice(snapshot.as_bytes());
        let mut client = self.client(address)?;
        let call =
            client.get_fill_progress(GetFillProgressRequest { snapshot, shards: shards.to_vec() });
        let answer = within(self.named(address), limits::OWNER_SILENT_TIMEOUT, call).await?;
        if answer.missing_bytes.len() != shards.len() {
            let what = format!("node {address} answers about other shards");
            return Err(Error::new(ErrorKind::DataLoss, what));
        }
        Ok(answer)
    }
}
