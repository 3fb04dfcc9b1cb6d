//! An operator's calls to a cluster whose members can change: how it stands, plans, commands.
//!
//! Any node of the cluster answers. What only asks goes to the next node when one is silent; what
//! changes something goes once, to a node that was just heard, so that what becomes of it is said
//! by who did it.
//!
//! Thread rule: shared freely; calls block the caller, each in bounded time.
//! Non-goals: deciding; showing. The cluster does the one, a tool the other.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use futures_util::{
    future::{join, join_all},
    stream,
};
use larder_base::{Advice, ErrorKind, SnapshotId, limits};
use larder_wire::control::{
    ApplyPlanRequest, ApplyPlanResponse, ApplyTerms, ClusterHistory, ClusterStatus, CommandRequest,
    ExplainRequest, Explanation, GetClusterRequest, GetHistoryRequest, NodeDescription,
    PlanChangeRequest, PlanFigures, PlanPiece, TakeOverRequest, TakeOverResponse, command_request,
    explain_request,
};
use tonic::{Streaming, metadata::BinaryMetadataValue};

use super::{
    Answer, Cluster,
    answers::{Pieces, within},
    control::OperatorClient,
};
use crate::{Error, runtime};

/// Somebody who looks after a cluster.
pub struct Operator {
    cluster: Arc<Cluster>,
    token: Option<BinaryMetadataValue>,
    asked_by: String,
}

/// A plan, and what it does.
#[derive(Debug, Clone)]
pub struct PlannedChange {
    /// What it does.
    pub figures: PlanFigures,
    /// The plan, to be kept and applied as it is: at most [`limits::PLANNED_BYTES_MAX`].
    pub bytes: Bytes,
}

/// What one node says about itself.
#[derive(Debug)]
pub struct Seen {
    /// Its name.
    pub id: String,
    /// Its description.
    pub description: Result<NodeDescription, Error>,
    /// How it stands in the cluster, in brief.
    pub standing: Result<ClusterStatus, Error>,
}

impl Operator {
    /// Somebody who calls themselves `asked_by` and shows the cluster's token, if it has one.
    pub fn new(cluster: Arc<Cluster>, token: Option<&str>, asked_by: String) -> Self {
        let token = token.map(|token| BinaryMetadataValue::from_bytes(token.trim().as_bytes()));
        Self { cluster, token, asked_by }
    }

    /// The cluster as the first node that answers sees it.
    ///
    /// # Errors
    /// The node's; `Unavailable` when none answers.
    pub fn status(&self) -> Result<ClusterStatus, Error> {
        runtime::block_on(self.first())?.map(|(_, status)| status)
    }

    /// The latest changes that are over, the oldest first.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn history(&self) -> Result<ClusterHistory, Error> {
        runtime::block_on(self.on_any(|address, mut client| async move {
            let call = client.get_history(GetHistoryRequest {});
            within(&address, limits::CONTROL_CALL_TIMEOUT, call).await
        }))?
    }

    /// What each of these nodes (names and control addresses) says about itself, all asked at once.
    pub fn look(&self, nodes: &[(String, String)]) -> Vec<Seen> {
        let seen = nodes.iter().map(async |(id, address)| {
            let described = self.cluster.control.describe(address);
            let (description, standing) = join(described, self.stands(address, true)).await;
            Seen { id: id.clone(), description, standing }
        });
        runtime::block_on(join_all(seen.collect::<Vec<_>>())).unwrap_or_else(|error| {
            let unseen = |(id, _): &(String, _)| Seen {
                id: id.clone(),
                description: Err(error.clone()),
                standing: Err(error.clone()),
            };
            nodes.iter().map(unseen).collect()
        })
    }

    /// What would move. Nothing is changed.
    ///
    /// # Errors
    /// As [`status`](Self::status); `DataLoss` for a plan that does not come whole.
    pub fn plan(&self, request: &PlanChangeRequest) -> Result<PlannedChange, Error> {
        runtime::block_on(self.on_any(|address, mut client| async move {
            let call = client.plan_change(request.clone());
            let pieces = within(&address, limits::ADMIN_CALL_TIMEOUT, call).await?;
            let collected = collect(&address, pieces);
            let collected = tokio::time::timeout(limits::BLOB_TRANSFER_TIMEOUT, collected).await;
            collected.unwrap_or_else(|_| Err(torn(&address, "it came too slowly")))
        }))?
    }

    /// Begins a change by a plan, or, with `check_only`, says what it does and whether it can be
    /// begun. `rate` is bytes a second over all nodes.
    ///
    /// # Errors
    /// The node's, with `DataChanged` when the ring has moved on; `Unavailable` when none answers.
    pub fn apply(
        &self,
        plan: &Bytes,
        rate: Option<u64>,
        check_only: bool,
    ) -> Result<ApplyPlanResponse, Error> {
        let bytes = plan.len() as u64;
        let terms = ApplyTerms { asked_by: self.asked_by.clone(), rate, check_only, bytes };
        let pieces = (0..plan.len()).step_by(limits::BLOB_PIECE_BYTES).map(|from| {
            let piece = plan.slice(from..plan.len().min(from + limits::BLOB_PIECE_BYTES));
            ApplyPlanRequest { terms: (from == 0).then(|| terms.clone()), piece }
        });
        let pieces: Vec<ApplyPlanRequest> = pieces.collect();
        self.on_one(async move |address, mut client| {
            let call = client.apply_plan(stream::iter(pieces));
            within(&address, limits::ADMIN_CALL_TIMEOUT, call).await
        })
    }

    /// Does one thing to the cluster.
    ///
    /// # Errors
    /// The node's, with `DataChanged` when the cluster is not in a state for it; `Unavailable` when none
    /// answers.
    pub fn command(&self, command: command_request::Command) -> Result<(), Error> {
        let request = CommandRequest { asked_by: self.asked_by.clone(), command: Some(command) };
        self.on_one(async move |address, mut client| {
            within(&address, limits::ADMIN_CALL_TIMEOUT, client.command(request)).await
        })
        .map(drop)
    }

    /// Makes the node called `on`, or the first that answers, the coordinator in place of one that
    /// is lost for good.
    ///
    /// # Errors
    /// `NotFound` when no node is called so; the node's.
    pub fn take_over(
        &self,
        on: Option<&str>,
        lost: Vec<String>,
    ) -> Result<TakeOverResponse, Error> {
        let request = TakeOverRequest { asked_by: self.asked_by.clone(), lost };
        runtime::block_on(async {
            let (mut address, status) = self.first().await?;
            if let Some(on) = on {
                let members = status.nodes.iter().filter_map(|node| node.member.as_ref());
                let found = members.into_iter().find(|member| member.id == on);
                let found = found.ok_or_else(|| {
                    Error::new(
                        ErrorKind::NotFound,
                        format!("no node of the cluster is named '{on}'"),
                    )
                })?;
                address.clone_from(&found.control);
            }
            let mut client = self.client(&address)?;
            within(&address, limits::ADMIN_CALL_TIMEOUT, client.take_over(request)).await
        })?
    }

    /// Where a shard belongs and how it stands, by every member of the ring.
    pub fn explain(
        &self,
        snapshot: Option<SnapshotId>,
        what: &explain_request::What,
    ) -> Vec<Answer<Explanation>> {
        let snapshot = snapshot.map(|id| Bytes::copy_from_slice(id.as_bytes())).unwrap_or_default();
        let request = ExplainRequest { snapshot, what: Some(what.clone()) };
        self.cluster.ask_all(|member| {
            let request = request.clone();
            async move {
                let call_to = &member.control;
                let mut client = self.client(call_to)?;
                within(call_to, limits::CONTROL_CALL_TIMEOUT, client.explain(request)).await
            }
        })
    }

    fn client(&self, address: &str) -> Result<OperatorClient, Error> {
        self.cluster.control.operator(address, self.token.clone())
    }

    /// Where nodes may be: as the user said, then as the ring says.
    fn addresses(&self) -> Vec<String> {
        let mut addresses = self.cluster.addresses.clone();
        for member in self.cluster.members() {
            if !addresses.contains(&member.control) {
                addresses.push(member.control);
            }
        }
        addresses
    }

    async fn stands(&self, address: &str, brief: bool) -> Result<ClusterStatus, Error> {
        let mut client = self.client(address)?;
        let call = client.get_cluster(GetClusterRequest { brief });
        let limit = if brief { limits::OWNER_SILENT_TIMEOUT } else { limits::CONTROL_CALL_TIMEOUT };
        within(address, limit, call).await
    }

    /// The first node that answers, and what it says of the cluster.
    async fn first(&self) -> Result<(String, ClusterStatus), Error> {
        self.on_any(|address, _| async move {
            let status = self.stands(&address, false).await?;
            Ok((address, status))
        })
        .await
    }

    /// Asks one node after the other until one does not fail in a way that the next may mend.
    async fn on_any<T, F>(&self, ask: impl Fn(String, OperatorClient) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut failed = None;
        for address in self.addresses() {
            let client = self.client(&address)?;
            match ask(address, client).await {
                Err(error) if error.advice() == Advice::TryNextNode => {
                    failed.get_or_insert(error);
                }
                answer => return answer,
            }
        }
        Err(failed.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "no node is known")))
    }

    /// Tells one node that was just heard.
    fn on_one<T: Send, F>(
        &self,
        tell: impl FnOnce(String, OperatorClient) -> F + Send,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        runtime::block_on(async {
            let (address, _) = self.first().await?;
            let client = self.client(&address)?;
            tell(address, client).await
        })?
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (by, entitled) = (&self.asked_by, self.token.is_some());
        f.debug_struct("Operator").field("asked_by", by).field("entitled", &entitled).finish()
    }
}

async fn collect(address: &str, stream: Streaming<PlanPiece>) -> Result<PlannedChange, Error> {
    let mut pieces = Pieces::new(address, stream);
    let first = pieces.next().await?.unwrap_or_default();
    let figures = first.figures.clone();
    let figures = figures.ok_or_else(|| torn(address, "it comes without figures"))?;
    let (announced, max) = (first.bytes, limits::PLANNED_BYTES_MAX);
    if announced > max as u64 {
        return Err(torn(address, &format!("it has {announced} bytes, the limit is {max}")));
    }
    let bytes = pieces.collect(Some(first), announced).await?;
    if (bytes.len() as u64) < announced {
        return Err(torn(address, &format!("it ends after {} of {announced} bytes", bytes.len())));
    }
    Ok(PlannedChange { figures, bytes })
}

fn torn(address: &str, why: &str) -> Error {
    Error::new(ErrorKind::DataLoss, format!("node {address} sent what is no plan")).because(why)
}
