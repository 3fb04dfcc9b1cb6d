//! An operator's calls to a cluster that can change its members: status, plans, commands.
//!
//! Any node of the cluster answers. A query goes to the next node if one is silent. A command goes
//! once, to a node that was just heard, so that the node that runs it also reports the result.
//!
//! Thread rule: shared freely. Calls block the caller for a bounded time. Non-goals: decisions (the
//! cluster makes them) and display (a tool does it).

use std::{future::Future, sync::Arc, time::Duration};

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
    Cluster, MemberAnswer,
    answers::{Pieces, within},
    control::OperatorClient,
};
use crate::{Error, runtime};

/// Timeout of an operator's call: longer than an agent tries to do a command.
const ADMIN_CALL_TIMEOUT: Duration = Duration::from_secs(90);

/// An operator of a cluster.
pub struct Operator {
    cluster: Arc<Cluster>,
    token: Option<BinaryMetadataValue>,
    asked_by: String,
}

/// A plan, and its effects.
#[derive(Debug, Clone)]
pub struct PlannedChange {
    /// Its effects.
    pub figures: PlanFigures,
    /// The plan, to be kept and applied unchanged. At most [`limits::PLANNED_BYTES_MAX`].
    pub bytes: Bytes,
}

/// The answers of one node about itself.
#[derive(Debug)]
pub struct NodeAnswers {
    /// Its name.
    pub id: String,
    /// Its description.
    pub description: Result<NodeDescription, Error>,
    /// A summary of its state in the cluster.
    pub standing: Result<ClusterStatus, Error>,
}

impl Operator {
    /// An operator named `asked_by`, with the cluster's token if it has one.
    pub fn new(cluster: Arc<Cluster>, token: Option<&str>, asked_by: String) -> Self {
        let token = token.map(|token| BinaryMetadataValue::from_bytes(token.trim().as_bytes()));
        Self { cluster, token, asked_by }
    }

    /// The cluster that it operates.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The cluster as the first answering node sees it.
    ///
    /// # Errors
    /// Errors of the node, and `Unavailable` if no node answers.
    pub fn status(&self) -> Result<ClusterStatus, Error> {
        runtime::block_on(self.first())?.map(|(_, status)| status)
    }

    /// The latest finished changes, the oldest first.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub fn history(&self) -> Result<ClusterHistory, Error> {
        runtime::block_on(self.on_any(|address, mut client| async move {
            let call = client.get_history(GetHistoryRequest {});
            within(&address, limits::CONTROL_CALL_TIMEOUT, call).await
        }))?
    }

    /// Asks all of these nodes (names and control addresses) about themselves at once.
    pub fn look(&self, nodes: &[(String, String)]) -> Vec<NodeAnswers> {
        let seen = nodes.iter().map(async |(id, address)| {
            let described = self.cluster.control.describe(address);
            let (description, standing) = join(described, self.stands(address, true)).await;
            NodeAnswers { id: id.clone(), description, standing }
        });
        runtime::block_on(join_all(seen.collect::<Vec<_>>())).unwrap_or_else(|error| {
            let unseen = |(id, _): &(String, _)| NodeAnswers {
                id: id.clone(),
                description: Err(error.clone()),
                standing: Err(error.clone()),
            };
            nodes.iter().map(unseen).collect()
        })
    }

    /// Computes the moves of a change. Changes nothing.
    ///
    /// # Errors
    /// As [`status`](Self::status), and `DataLoss` if the plan arrives incomplete.
    pub fn plan(&self, request: &PlanChangeRequest) -> Result<PlannedChange, Error> {
        runtime::block_on(self.on_any(|address, mut client| async move {
            let call = client.plan_change(request.clone());
            let pieces = within(&address, ADMIN_CALL_TIMEOUT, call).await?;
            let collected = collect(&address, pieces);
            let collected = tokio::time::timeout(limits::BLOB_TRANSFER_TIMEOUT, collected).await;
            collected.unwrap_or_else(|_| Err(torn(&address, "it came too slowly")))
        }))?
    }

    /// Begins a change by a plan. With `check_only`, only reports its effects and whether it can
    /// begin. `rate` is bytes per second over all nodes.
    ///
    /// # Errors
    /// Errors of the node, with `DataChanged` if the ring has changed since. `Unavailable` if no
    /// node answers.
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
            within(&address, ADMIN_CALL_TIMEOUT, call).await
        })
    }

    /// Sends one command to the cluster.
    ///
    /// # Errors
    /// Errors of the node, with `DataChanged` if the cluster's state does not allow it.
    /// `Unavailable` if no node answers.
    pub fn command(&self, command: command_request::Command) -> Result<(), Error> {
        let request = CommandRequest { asked_by: self.asked_by.clone(), command: Some(command) };
        self.on_one(async move |address, mut client| {
            within(&address, ADMIN_CALL_TIMEOUT, client.command(request)).await
        })
        .map(drop)
    }

    /// Makes the node named `on`, or the first that answers, the coordinator. For a coordinator
    /// that is lost for good.
    ///
    /// # Errors
    /// `NotFound` if no node has this name, and errors of the node.
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
            within(&address, ADMIN_CALL_TIMEOUT, client.take_over(request)).await
        })?
    }

    /// The owners and the state of a shard, by every member of the ring.
    pub fn explain(
        &self,
        snapshot: Option<SnapshotId>,
        what: &explain_request::What,
    ) -> Vec<MemberAnswer<Explanation>> {
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

    /// Possible control addresses: first those of the user, then those of the ring.
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

    /// The first node that answers, and its view of the cluster.
    async fn first(&self) -> Result<(String, ClusterStatus), Error> {
        self.on_any(|address, _| async move {
            let status = self.stands(&address, false).await?;
            Ok((address, status))
        })
        .await
    }

    /// Asks one node after the other, until the answer is no error that another node may mend.
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

    /// Sends a call to one node that was just heard.
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
