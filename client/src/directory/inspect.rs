//! Questions of operators' tools to every member. Asks all at once, so a silent member does not
//! delay the others.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use futures_util::future::join_all;
use larder_base::{SnapshotId, limits};
use larder_wire::control::{
    DatasetStatus, Failure, ListDatasetsRequest, ListFailuresRequest, ListShardsRequest,
    NodeDescription, ShardState,
};
use serde::Serialize;

use super::{Cluster, Member, MemberState, answers::within, control::Control};
use crate::{Error, runtime};

/// A listing with more pages counts as endless.
const PAGES_MAX: usize = 1024;

/// The answer of one member, or its error.
#[derive(Debug)]
pub struct MemberAnswer<T> {
    /// The member.
    pub member: MemberState,
    /// Its answer.
    pub answer: Result<T, Error>,
}

/// Counts of a snapshot's shards on one member, by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ShardCounts {
    /// Waiting for their fill.
    pub queued: u64,
    /// Being filled.
    pub filling: u64,
    /// Sealed and served.
    pub resident: u64,
    /// Evicted, but still mapped by a process.
    pub orphaned: u64,
}

impl Cluster {
    /// The version of the ring. 0 until a node has answered.
    pub fn ring_version(&self) -> u64 {
        self.view().map_or(0, |view| view.ring.version())
    }

    /// Asks every member for its description.
    pub fn describe(&self) -> Vec<MemberAnswer<NodeDescription>> {
        self.ask_all(|member| async move { self.control.describe(&member.control).await })
    }

    /// The datasets that every member has open.
    pub fn datasets(&self) -> Vec<MemberAnswer<Vec<DatasetStatus>>> {
        self.ask_all(|member| async move { self.control.datasets(&member.control).await })
    }

    /// The latest failed fills of every member, the newest first, and how many ever failed.
    pub fn failures(&self) -> Vec<MemberAnswer<(Vec<Failure>, u64)>> {
        self.ask_all(|member| async move { self.control.failures(&member.control).await })
    }

    /// The states of a snapshot's shards on every member. Without a snapshot, of all shards.
    pub fn shards(&self, snapshot: Option<SnapshotId>) -> Vec<MemberAnswer<ShardCounts>> {
        self.ask_all(
            |member| async move { self.control.shard_counts(&member.control, snapshot).await },
        )
    }

    /// Asks every member at once.
    pub(super) fn ask_all<T: Send, F>(&self, ask: impl Fn(Arc<Member>) -> F) -> Vec<MemberAnswer<T>>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let view = self.view();
        let members = || view.iter().flat_map(|view| &view.members);
        let asked = members().map(|member| ask(Arc::clone(member)));
        let answers = runtime::block_on(join_all(asked.collect::<Vec<_>>()))
            .unwrap_or_else(|error| members().map(|_| Err(error.clone())).collect());
        let pair =
            |(member, answer): (&Arc<Member>, _)| MemberAnswer { member: member.state(), answer };
        members().zip(answers).map(pair).collect()
    }
}

impl Control {
    async fn datasets(&self, address: &str) -> Result<Vec<DatasetStatus>, Error> {
        let mut datasets = Vec::new();
        let mut page_token = String::new();
        for _ in 0..PAGES_MAX {
            let mut client = self.client(address)?;
            let request = ListDatasetsRequest { page_size: 0, page_token };
            let call = client.list_datasets(request);
            let page = within(address, limits::CONTROL_CALL_TIMEOUT, call).await?;
            datasets.extend(page.datasets);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        Ok(datasets)
    }

    async fn failures(&self, address: &str) -> Result<(Vec<Failure>, u64), Error> {
        let mut client = self.client(address)?;
        let call = client.list_failures(ListFailuresRequest { page_size: 0 });
        let list = within(address, limits::CONTROL_CALL_TIMEOUT, call).await?;
        Ok((list.failures, list.total))
    }

    async fn shard_counts(
        &self,
        address: &str,
        snapshot: Option<SnapshotId>,
    ) -> Result<ShardCounts, Error> {
        let snapshot = snapshot.map(|snapshot| Bytes::copy_from_slice(snapshot.as_bytes()));
        let mut counts = ShardCounts::default();
        let mut page_token = String::new();
        for _ in 0..PAGES_MAX {
            let mut client = self.client(address)?;
            let request = ListShardsRequest {
                snapshot: snapshot.clone(),
                page_token,
                ..ListShardsRequest::default()
            };
            let call = client.list_shards(request);
            let page = within(address, limits::CONTROL_CALL_TIMEOUT, call).await?;
            page.shards.iter().for_each(|shard| counts.add(shard.state()));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        Ok(counts)
    }
}

impl ShardCounts {
    fn add(&mut self, state: ShardState) {
        match state {
            ShardState::Queued => self.queued += 1,
            ShardState::Filling => self.filling += 1,
            ShardState::Resident => self.resident += 1,
            ShardState::Orphaned => self.orphaned += 1,
            ShardState::Unspecified => {}
        }
    }
}
