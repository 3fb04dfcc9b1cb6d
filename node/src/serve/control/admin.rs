//! Operators' calls (`larder.v1.Admin`): decoded, passed to the cluster's agent, and encoded.
//!
//! A caller that requests a change must be [entitled](rights) to it before any part of the request
//! is read. Each request for a change is a line of the audit log, done or not. Plans are large, so
//! few are in memory at a time.
//!
//! Thread rule: async, on the node's runtime; walks over many shards go to a blocking thread.
//! Non-goals: decisions about the cluster (the agent decides).

mod command;
mod explain;
mod owned;
mod plan;
mod rights;
mod status;
mod transfer;

use std::pin::Pin;
use std::slice;
use std::sync::Arc;

use futures_util::Stream;
use larder_base::{Error, ErrorKind};
use larder_coordinator::ClusterPeer;
use larder_membership::Record;
use larder_membership::agent::{Answer as Done, Command};
use larder_membership::plan::PlanBlobs;
use larder_wire::control::admin_server::Admin as Contract;
use larder_wire::control::{
    ApplyPlanRequest, ApplyPlanResponse, ClusterHistory, ClusterStatus, CommandRequest,
    CommandResponse, ExplainRequest, Explanation, GetClusterRequest, GetHistoryRequest,
    PlanChangeRequest, PlanFigures, PlanPiece, TakeOverRequest, TakeOverResponse,
};
use larder_wire::status::to_status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Response, Status, Streaming};

use super::{Answer, walk};
use crate::cluster::{Cluster, Standing};
use crate::serve::Context;
use owned::OwnedBytes;
use rights::Asker;

/// Plans that one node makes, sends or takes for operators at a time: each may be held in memory
/// whole.
pub(in crate::serve) const PLANS_AT_ONCE_MAX: usize = 2;

/// Plans at a time for users without the right to change the cluster, to preview moves. Counted
/// apart, so that they never keep operators from planning.
pub(in crate::serve) const PLANS_OF_ANYBODY_MAX: usize = 1;

/// Answers operators.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Admin {
    context: Arc<Context>,
    /// Limits the plans of callers that may change the cluster.
    plans: Arc<Semaphore>,
    /// Limits the plans of all other callers.
    plans_of_anybody: Arc<Semaphore>,
    owned: Arc<OwnedBytes>,
}

impl Admin {
    pub(in crate::serve) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            plans: Arc::new(Semaphore::new(PLANS_AT_ONCE_MAX)),
            plans_of_anybody: Arc::new(Semaphore::new(PLANS_OF_ANYBODY_MAX)),
            owned: Arc::default(),
        }
    }

    fn cluster(&self) -> Result<&Cluster, Error> {
        self.context.shared.cluster.as_ref().ok_or_else(|| {
            refused(
                "the ring of this node is a list in its configuration, which nothing changes while it runs; \
                 a cluster that changes has nodes with --state or --etcd",
            )
        })
    }

    /// Takes a turn to plan. Callers that may change the cluster do not wait for callers that only
    /// look.
    pub(in crate::serve) fn turn_to_plan<T>(
        &self,
        request: &Request<T>,
    ) -> Result<OwnedSemaphorePermit, Error> {
        let (plans, refused): (_, fn() -> Error) = match self.asker(request) {
            Ok(_) => (&self.plans, plan::too_many),
            Err(_) => (&self.plans_of_anybody, plan::too_many_of_anybody),
        };
        Arc::clone(plans).try_acquire_owned().map_err(|_| refused())
    }

    /// Returns the caller of a change. A refusal is a line of the audit log too.
    fn changer<T>(&self, request: &Request<T>) -> Result<Asker, Error> {
        let from = request.remote_addr();
        self.asker(request).inspect_err(|why| rights::audit_stranger(from, why))
    }

    /// Runs an operator's command.
    async fn obey(&self, command: Command) -> Result<(), Error> {
        // A node that has left counts as gone, even if it never existed. So refuse unknown names
        // here.
        let named = match &command {
            Command::Remove(ids) => ids.as_slice(),
            Command::Drain { id, .. } | Command::Undrain(id) => slice::from_ref(id),
            _ => &[],
        };
        if !named.is_empty() {
            let standing = self.cluster()?.standing();
            let record = record(&standing)?;
            if let Some(unknown) = named.iter().find(|id| record.entry(id).is_none()) {
                return Err(command::unknown(record, unknown));
            }
        }
        self.done(command).await.map(drop)
    }

    /// Passes a command to the agent.
    async fn done(&self, command: Command) -> Result<Done, Error> {
        // The agent refuses because of the cluster's state, not because of a malformed request.
        self.cluster()?.command(command).await.map_err(|why| match why.kind() {
            ErrorKind::InvalidArgument => refused(why.message()),
            _ => why,
        })
    }
}

#[tonic::async_trait]
impl Contract for Admin {
    async fn get_cluster(&self, request: Request<GetClusterRequest>) -> Answer<ClusterStatus> {
        let (context, standing) =
            (Arc::clone(&self.context), self.cluster().map_err(to_status)?.standing());
        if request.get_ref().brief {
            return walk(&self.context, move || Ok(status::brief(&context, &standing))).await;
        }
        let owned = Arc::clone(&self.owned);
        walk(&self.context, move || Ok(status::whole(&context, &standing, &owned))).await
    }

    async fn get_history(&self, _: Request<GetHistoryRequest>) -> Answer<ClusterHistory> {
        let standing = self.cluster().map_err(to_status)?.standing();
        Ok(Response::new(status::history(record(&standing).map_err(to_status)?)))
    }

    type PlanChangeStream = Pin<Box<dyn Stream<Item = Result<PlanPiece, Status>> + Send>>;

    async fn plan_change(
        &self,
        request: Request<PlanChangeRequest>,
    ) -> Answer<Self::PlanChangeStream> {
        let turn = self.turn_to_plan(&request).map_err(to_status)?;
        let (admin, request) = (self.clone(), request.into_inner());
        let planning = async move { Ok((admin.plan(&request).await?, turn)) };
        let ((figures, planned), turn) = to_the_end(planning).await.map_err(to_status)?;
        Ok(Response::new(Box::pin(transfer::send(figures, planned.encode().into(), turn))))
    }

    async fn apply_plan(
        &self,
        request: Request<Streaming<ApplyPlanRequest>>,
    ) -> Answer<ApplyPlanResponse> {
        let asker = self.changer(&request).map_err(to_status)?;
        let turn = Arc::clone(&self.plans)
            .try_acquire_owned()
            .map_err(|_| plan::too_many())
            .map_err(to_status)?;
        let (terms, bytes) = transfer::receive(request.into_inner()).await?;
        let asker = asker.named(&terms.asked_by).map_err(to_status)?;
        let admin = self.clone();
        let applying = async move {
            let _turn = turn;
            plan::apply(&admin, &asker, &terms, bytes.into()).await
        };
        Ok(Response::new(to_the_end(applying).await.map_err(to_status)?))
    }

    async fn command(&self, request: Request<CommandRequest>) -> Answer<CommandResponse> {
        let asker = self.changer(&request).map_err(to_status)?;
        let CommandRequest { asked_by, command } = request.into_inner();
        let asker = asker.named(&asked_by).map_err(to_status)?;
        let (command, words) =
            asker.heard(command::read(command), "a command").map_err(to_status)?;
        let obeyed = self.obey(command).await;
        asker.audit(&words, obeyed.as_ref().copied());
        obeyed.map_err(to_status)?;
        Ok(Response::new(CommandResponse {}))
    }

    async fn take_over(&self, request: Request<TakeOverRequest>) -> Answer<TakeOverResponse> {
        let asker = self.changer(&request).map_err(to_status)?;
        let TakeOverRequest { asked_by, lost } = request.into_inner();
        let asker = asker.named(&asked_by).map_err(to_status)?;
        let admin = self.clone();
        let taking = async move {
            let taken = admin.take_over_from(&lost).await;
            let words = format!("take over as coordinator, lost: {}", lost.join(", "));
            asker.audit(&words, taken.as_ref().map(drop));
            taken
        };
        Ok(Response::new(to_the_end(taking).await.map_err(to_status)?))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Answer<Explanation> {
        let context = Arc::clone(&self.context);
        walk(&self.context, move || explain::explain(&context, &request.into_inner())).await
    }
}

impl Admin {
    /// Returns the caller, if it may change the cluster.
    fn asker<T>(&self, request: &Request<T>) -> Result<Asker, Error> {
        let cluster = self.context.shared.config.cluster.as_ref();
        let token = cluster.and_then(crate::config::ClusterConfig::token);
        Asker::entitled(token, request.metadata(), request.remote_addr())
    }

    /// Has a change planned, and computes its figures.
    async fn plan(&self, request: &PlanChangeRequest) -> Result<(PlanFigures, PlanBlobs), Error> {
        let cluster = self.cluster()?;
        let standing = cluster.standing();
        let wanted = plan::wanted(record(&standing)?, &standing, request)?;
        let Done::Planned(planned) = cluster.command(wanted).await? else {
            return Err(Error::new(ErrorKind::Internal, "the planner gave no plan"));
        };
        // By now it may be for a newer ring.
        plan::figures(self, cluster.standing(), planned).await
    }

    async fn take_over_from(&self, lost: &[String]) -> Result<TakeOverResponse, Error> {
        let standing = self.cluster()?.standing();
        let seat = self.cluster()?.seat().ok_or_else(|| {
            refused("the record of this cluster is kept by etcd: repair etcd, nothing is to be taken over here")
        })?;
        let peer = |node: &larder_membership::record::Entry| ClusterPeer {
            node_id: node.member.id.clone(),
            address: node.member.control.clone(),
        };
        let record = record(&standing)?;
        let nodes: Vec<ClusterPeer> = record.members.iter().map(peer).collect();
        // A drained coordinator is no longer in the record, and may be named all the same.
        let place = seat.located().coordinator;
        if nodes.iter().any(|node| node.address == place)
            && let Some(unknown) = lost.iter().find(|id| record.entry(id).is_none())
        {
            return Err(command::unknown(record, unknown));
        }
        let taken = seat.take_over(&nodes, lost).await?;
        Ok(TakeOverResponse {
            node_id: self.context.shared.config.node_id.clone(),
            generation: taken.generation.into(),
            untold: taken.untold,
        })
    }
}

/// Runs work to its end even if the caller is gone. A planner goes on and keeps its turn. A
/// takeover is written to the audit log.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|death| Err(Error::new(ErrorKind::Internal, death.to_string())))
}

/// Returns the record, if this node has seen one.
fn record(standing: &Standing) -> Result<&Arc<Record>, Error> {
    standing.record.as_ref().ok_or_else(|| {
        let away = standing.away.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let message = format!(
            "this node has not seen the cluster's record yet{away}; try again, or another node"
        );
        Error::new(ErrorKind::Unavailable, message)
    })
}

/// Returns the error for a request that the cluster's state does not allow.
fn refused(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::DataChanged, why)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn turn_is_held_until_abandoned_work_ends() {
        let turns = Arc::new(Semaphore::new(1));
        let turn = Arc::clone(&turns).try_acquire_owned().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let work = async move {
            let _turn = turn;
            let _ = ended.await;
            Ok(())
        };
        timeout(Duration::ZERO, to_the_end(work)).await.unwrap_err();
        assert_eq!(turns.available_permits(), 0);
        end.send(()).unwrap();
        let _next = timeout(Duration::from_secs(30), turns.acquire()).await.unwrap().unwrap();
    }
}
