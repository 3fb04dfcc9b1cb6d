//! A node that answers as a test's script says, and records its requests: for tests of operators'
//! tools.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_wire::control::{
    self as schema, JOIN_TOKEN_METADATA,
    admin_server::{Admin, AdminServer},
    node_server::{Node, NodeServer},
};
use tokio::runtime::Runtime;
use tonic::codegen::tokio_stream::{Stream, iter};
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// The node's answers, and the requests that it got.
#[derive(Debug, Default)]
pub struct Script {
    /// The cluster's statuses, one for each request; the last one repeats.
    pub statuses: Vec<schema::ClusterStatus>,
    /// The history.
    pub history: Vec<schema::PastChange>,
    /// The figures of every plan.
    pub figures: schema::PlanFigures,
    /// The plan.
    pub plan: Vec<u8>,
    /// The explanation of every shard.
    pub explanation: schema::Explanation,
    /// The token that changes need; none if empty.
    pub token: Vec<u8>,
    /// The reason with which it refuses every command, if any.
    pub refuses: Option<String>,
    /// Plans that were asked for.
    pub planned: Vec<schema::PlanChangeRequest>,
    /// The terms of plans that came back, and the plans.
    pub applied: Vec<(schema::ApplyTerms, Vec<u8>)>,
    /// Commands.
    pub commands: Vec<schema::CommandRequest>,
    /// Takeovers.
    pub takeovers: Vec<schema::TakeOverRequest>,
}

/// The node, on loopback until it is dropped.
pub struct ScriptedNode {
    script: Arc<Mutex<Script>>,
    address: SocketAddr,
    _runtime: Runtime,
}

impl ScriptedNode {
    /// A node called `a` in the cluster of the script.
    ///
    /// # Panics
    /// When the system gives no port.
    #[must_use]
    pub fn start(script: Script) -> Self {
        let script = Arc::new(Mutex::new(script));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let incoming = runtime.block_on(async { TcpIncoming::bind(any) }).expect("a port");
        let address = incoming.local_addr().expect("a bound socket");
        let says = Says { script: Arc::clone(&script), address };
        let server = tonic::transport::Server::builder()
            .add_service(NodeServer::new(says.clone()))
            .add_service(AdminServer::new(says))
            .serve_with_incoming(incoming);
        runtime.spawn(async move { server.await.expect("it serves") });
        Self { script, address, _runtime: runtime }
    }

    /// For `--cluster`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The script now.
    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct Says {
    script: Arc<Mutex<Script>>,
    address: SocketAddr,
}

impl Says {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entitled(&self, metadata: &MetadataMap) -> Result<MutexGuard<'_, Script>, Status> {
        let shown = metadata.get_bin(JOIN_TOKEN_METADATA).and_then(|shown| shown.to_bytes().ok());
        let script = self.script();
        if script.token.is_empty() || shown.as_deref() == Some(&script.token[..]) {
            return Ok(script);
        }
        Err(Status::unauthenticated("that is not the token"))
    }

    fn member(&self) -> schema::Member {
        schema::Member {
            id: "a".to_owned(),
            weight: 1,
            control: format!("http://{}", self.address),
            host: "here".to_owned(),
            zone: String::new(),
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;
type Sent<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Admin for Says {
    async fn get_cluster(
        &self,
        request: Request<schema::GetClusterRequest>,
    ) -> Answer<schema::ClusterStatus> {
        let mut script = self.script();
        let Some(mut status) = script.statuses.first().cloned() else {
            return Err(Status::failed_precondition("the ring of this node is a list"));
        };
        if !request.get_ref().brief && script.statuses.len() > 1 {
            script.statuses.remove(0);
        }
        // The node of the script listens wherever there was room.
        let own = status.nodes.iter_mut().filter_map(|node| node.member.as_mut());
        own.filter(|member| member.id == "a").for_each(|member| *member = self.member());
        Ok(Response::new(status))
    }

    async fn get_history(
        &self,
        _: Request<schema::GetHistoryRequest>,
    ) -> Answer<schema::ClusterHistory> {
        // A change is over once none is in flight any more.
        let script = self.script();
        let busy = script.statuses.first().is_some_and(|status| status.change.is_some());
        let changes = if busy { Vec::new() } else { script.history.clone() };
        Ok(Response::new(schema::ClusterHistory { changes }))
    }

    type PlanChangeStream = Sent<schema::PlanPiece>;

    async fn plan_change(
        &self,
        request: Request<schema::PlanChangeRequest>,
    ) -> Answer<Self::PlanChangeStream> {
        let mut script = self.script();
        script.planned.push(request.into_inner());
        let mut first = Some((script.figures.clone(), script.plan.len() as u64));
        let pieces: Vec<_> = script
            .plan
            .chunks(100)
            .map(|piece| {
                let (figures, bytes) = first.take().unzip();
                let piece = piece.to_vec().into();
                Ok(schema::PlanPiece { figures, bytes: bytes.unwrap_or(0), piece })
            })
            .collect();
        Ok(Response::new(Box::pin(iter(pieces))))
    }

    async fn apply_plan(
        &self,
        request: Request<Streaming<schema::ApplyPlanRequest>>,
    ) -> Answer<schema::ApplyPlanResponse> {
        drop(self.entitled(request.metadata())?);
        let mut pieces = request.into_inner();
        let (mut terms, mut plan) = (None, Vec::new());
        while let Some(message) = pieces.message().await? {
            terms = terms.or(message.terms);
            plan.extend_from_slice(&message.piece);
        }
        let terms = terms.ok_or_else(|| Status::invalid_argument("no terms"))?;
        let mut script = self.script();
        if let Some(why) = &script.refuses {
            return Err(Status::failed_precondition(why.clone()));
        }
        let change = if terms.check_only { 0 } else { 1 };
        script.applied.push((terms, plan));
        let figures = Some(script.figures.clone());
        Ok(Response::new(schema::ApplyPlanResponse { figures, change }))
    }

    async fn command(
        &self,
        request: Request<schema::CommandRequest>,
    ) -> Answer<schema::CommandResponse> {
        let mut script = self.entitled(request.metadata())?;
        if let Some(why) = &script.refuses {
            return Err(Status::failed_precondition(why.clone()));
        }
        script.commands.push(request.get_ref().clone());
        Ok(Response::new(schema::CommandResponse {}))
    }

    async fn take_over(
        &self,
        request: Request<schema::TakeOverRequest>,
    ) -> Answer<schema::TakeOverResponse> {
        let mut script = self.entitled(request.metadata())?;
        script.takeovers.push(request.get_ref().clone());
        let node_id = "a".to_owned();
        Ok(Response::new(schema::TakeOverResponse { node_id, generation: 3, untold: Vec::new() }))
    }

    async fn explain(&self, _: Request<schema::ExplainRequest>) -> Answer<schema::Explanation> {
        Ok(Response::new(self.script().explanation.clone()))
    }
}

fn unscripted<T>() -> Result<T, Status> {
    Err(Status::unimplemented("not in the script"))
}

fn job() -> schema::ReadJob {
    schema::ReadJob {
        job: "resnet".to_owned(),
        snapshot: vec![1; 32].into(),
        uri: "s3://bucket/images".to_owned(),
        pass: 3,
        windows: 40,
        slowest_window: 11,
        fastest_window: 12,
        loaders: 8,
        rate: Some(0.25),
        set_aside: true,
    }
}

#[tonic::async_trait]
impl Node for Says {
    async fn describe(
        &self,
        _: Request<schema::DescribeRequest>,
    ) -> Answer<schema::NodeDescription> {
        let ring_version = self.script().statuses.first().map_or(1, |status| status.ring_version);
        let memory = schema::MemoryUse {
            budget_bytes: 8 << 30,
            resident_bytes: 3 << 30,
            filling_bytes: 16 << 20,
            orphaned_bytes: 64 << 20,
            page_size_bytes: 4096,
            budget_source: "--memory".to_owned(),
        };
        let load = schema::Load {
            data_connections: 1,
            socket_connections: 2,
            leases: 3,
            gathers: 4,
            fills_running: 5,
            fills_queued: 6,
            tickets: 7,
        };
        let counters = schema::Counters {
            rows_memory: 1,
            rows_origin: 2,
            gathers: 3,
            sent_bytes: 4,
            attaches: 5,
            origin_requests: 6,
            origin_bytes: 7,
            origin_retries: 8,
            fills_started: 9,
            fills_completed: 10,
            fills_failed: 11,
            evicted_shards: 12,
            evicted_bytes: 13,
            recalls: 14,
            prefetched_bytes: 15 << 20,
            given_up_shards: 16,
        };
        Ok(Response::new(schema::NodeDescription {
            node_id: "a".to_owned(),
            boot_id: vec![0xb0; 16].into(),
            data_address: "here:7071".to_owned(),
            socket_path: "/run/larder/larder.sock".to_owned(),
            version: "1.2.3".to_owned(),
            ring_version,
            ring_digest: 0xd1,
            host: "here".to_owned(),
            protocol_version_min: 1,
            protocol_version_max: 2,
            uptime_ms: 1500,
            draining: false,
            origins: vec!["s3://bucket".to_owned()],
            origin_faults: vec!["s3://bucket was not found: no such bucket".to_owned()],
            memory: Some(memory),
            counters: Some(counters),
            load: Some(load),
            read_jobs: vec![job()],
        }))
    }

    async fn get_ring(&self, _: Request<schema::GetRingRequest>) -> Answer<schema::Ring> {
        let members = vec![self.member()];
        Ok(Response::new(schema::Ring { version: 7, members, weight_unit: 0, replicas: 0 }))
    }

    async fn open_dataset(
        &self,
        _: Request<schema::OpenDatasetRequest>,
    ) -> Answer<schema::OpenDatasetResponse> {
        let (snapshot, ticket) = (vec![1; 32].into(), vec![9; 16].into());
        Ok(Response::new(schema::OpenDatasetResponse { snapshot, ticket, ..Default::default() }))
    }

    async fn get_open_progress(
        &self,
        _: Request<schema::GetOpenProgressRequest>,
    ) -> Answer<schema::OpenProgress> {
        unscripted()
    }

    async fn get_fill_progress(
        &self,
        _: Request<schema::GetFillProgressRequest>,
    ) -> Answer<schema::FillProgress> {
        unscripted()
    }

    type GetExceptionsStream = Sent<schema::ExceptionsChunk>;

    async fn get_exceptions(
        &self,
        _: Request<schema::GetExceptionsRequest>,
    ) -> Answer<Self::GetExceptionsStream> {
        unscripted()
    }

    type FetchManifestStream = Sent<schema::ManifestChunk>;

    async fn fetch_manifest(
        &self,
        _: Request<schema::FetchManifestRequest>,
    ) -> Answer<Self::FetchManifestStream> {
        unscripted()
    }

    async fn introduce(
        &self,
        _: Request<schema::IntroduceRequest>,
    ) -> Answer<schema::IntroduceResponse> {
        unscripted()
    }

    async fn tell_plans(
        &self,
        _: Request<schema::TellPlansRequest>,
    ) -> Answer<schema::TellPlansResponse> {
        unscripted()
    }

    async fn list_datasets(
        &self,
        _: Request<schema::ListDatasetsRequest>,
    ) -> Answer<schema::ListDatasetsResponse> {
        let dataset = schema::DatasetStatus {
            snapshot: vec![1; 32].into(),
            uri: "s3://bucket/data".to_owned(),
            samples: 4000,
            shards: 4,
            bytes: 4 << 20,
            resident_shards: 2,
            resident_bytes: 2 << 20,
            sessions: 1,
            idle_ms: 250,
        };
        let (datasets, next_page_token) = (vec![dataset], String::new());
        Ok(Response::new(schema::ListDatasetsResponse { datasets, next_page_token }))
    }

    async fn list_shards(
        &self,
        _: Request<schema::ListShardsRequest>,
    ) -> Answer<schema::ListShardsResponse> {
        let shard = |state: schema::ShardState| schema::ShardStatus {
            state: state.into(),
            ..schema::ShardStatus::default()
        };
        use schema::ShardState::{Filling, Orphaned, Queued, Resident};
        let states = [Queued, Filling, Filling, Resident, Resident, Resident, Orphaned];
        let (shards, next_page_token) = (states.map(shard).to_vec(), String::new());
        Ok(Response::new(schema::ListShardsResponse { shards, next_page_token }))
    }

    type ListLastUsesStream = Sent<schema::LastUses>;

    async fn list_last_uses(
        &self,
        _: Request<schema::ListLastUsesRequest>,
    ) -> Answer<Self::ListLastUsesStream> {
        unscripted()
    }

    async fn list_failures(
        &self,
        _: Request<schema::ListFailuresRequest>,
    ) -> Answer<schema::ListFailuresResponse> {
        let failure = schema::Failure {
            snapshot: vec![1; 32].into(),
            shard: 12,
            shard_id: vec![0x5a; 16].into(),
            object: "s3://bucket/data/part".to_owned(),
            offset: 100,
            bytes: 200,
            kind: 3,
            message: "the object is gone".to_owned(),
            tries: 4,
            age_ms: 2500,
        };
        let failures = vec![failure];
        Ok(Response::new(schema::ListFailuresResponse { failures, total: 11 }))
    }
}
