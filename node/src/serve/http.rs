//! The one HTTP port: gRPC for clients and tools, `/metrics` for Prometheus, `/healthz` for the
//! service manager.

mod allowance;
mod answers;
mod greeting;
mod usage;
mod users;
mod web_pages;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{self, DefaultBodyLimit, State};
use axum::http::{StatusCode, Version, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, RequestExt, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use larder_base::{Error, ErrorKind, limits};
use larder_wire::{
    control::{TICKET_METADATA, admin_server::AdminServer, node_server::NodeServer},
    status::to_status,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::Connected;
use tonic::{Request, Status};
use tower_layer::Layer;

use super::Context;
use super::control::Service;
use super::control::admin::Admin;
use super::{event, io_error, metrics};
use crate::catalog::Requester;
use crate::cluster::Cluster;
use crate::on_thread;
use allowance::{Allowance, Full, Share};
use answers::LargeAnswers;
use greeting::Greeted;
use usage::PendingWork;
use users::Users;
use web_pages::{Names, is_grpc};

/// Most bytes of an operator's request to a node, plans excepted: the names of all members, twice.
pub(super) const ADMIN_REQUEST_BYTES_MAX: usize =
    2 * limits::RING_MEMBERS_MAX * limits::MEMBER_ID_BYTES_MAX as usize;

/// Most bytes of one message from an operator: a piece of a plan.
const ADMIN_MESSAGE_BYTES_MAX: usize = limits::BLOB_PIECE_BYTES + (64 << 10);

/// Requests in progress on one control connection; HTTP/2 refuses more streams.
const CONTROL_STREAMS_MAX: u32 = 16;

/// Most bytes of the head of a request.
const CONTROL_HEAD_BYTES_MAX: u32 = 8 << 10;

/// Bytes that a client may send on a control connection, or on a stream of it, before the node
/// takes them: the smallest window of HTTP/2.
const CONTROL_WINDOW_BYTES: u32 = 65_535;

/// The paths of calls. Other pages carry neither rows nor secrets.
const CALLS: &str = "/larder.";

/// The paths of operators' calls, and of the call that sends a plan in pieces.
const ADMIN_CALLS: &str = "/larder.v1.Admin/";
const PLAN_CALL: &str = "/larder.v1.Admin/ApplyPlan";

/// Most bytes of the reason of a refusal.
const REFUSAL_BYTES_MAX: usize = 4 << 10;

/// How long requests in flight may take when the node stops.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that may wait for room. They take a socket and a task.
const WAITING_MAX: usize = 256;

/// Wait after a connection could not be accepted: perhaps no descriptors are left.
const RETRY_WAIT: Duration = Duration::from_millis(100);

/// The HTTP server of a node.
#[derive(Debug)]
pub(super) struct Server {
    context: Arc<Context>,
    stop: CancellationToken,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Server {
    /// Starts serving.
    pub(super) fn start(context: &Arc<Context>, listener: StdListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = &context.shared.runtime;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let stop = CancellationToken::new();
        let shared = HttpParts {
            router: router(context),
            allowance: Allowance::new(limits::CONTROL_BYTES_MAX, limits::CONTROL_CONNECTIONS_MAX),
            stop: stop.clone(),
        };
        let serving = serve(shared, listener);
        let task = Mutex::new(Some(runtime.spawn(serving)));
        Ok(Self { context: Arc::clone(context), stop, task })
    }

    /// Refuses further connections.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits at most `grace` until requests in flight are answered. Blocks.
    pub(super) fn wait(&self, grace: Duration) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            let abort = task.abort_handle();
            let finished = async { tokio::time::timeout(grace, task).await };
            if self.context.shared.runtime.block_on(finished).is_err() {
                abort.abort();
            }
        }
    }
}

fn router(context: &Arc<Context>) -> Router {
    let service = NodeServer::new(Service(Arc::clone(context)))
        .max_decoding_message_size(limits::CONTROL_REQUEST_BYTES_MAX)
        .max_encoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX);
    let service = InterceptedService::new(service, doorkeeper(context));
    let admin = AdminServer::new(Admin::new(context))
        .max_decoding_message_size(ADMIN_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX);
    let admin = InterceptedService::new(admin, doorkeeper(context));
    let pages = Router::new()
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(show_health))
        .with_state(Arc::clone(context));
    let unknown = async || (StatusCode::NOT_FOUND, "try /metrics or /healthz\n");
    let mut routes = Routes::new(service).add_service(admin);
    if let Some(seat) = context.shared.cluster.as_ref().and_then(Cluster::seat) {
        routes = routes.add_service(larder_coordinator::Service::guarded(seat));
    }
    let calls = routes.into_axum_router().layer(middleware::from_fn(bound_body));
    let answers = LargeAnswers::new();
    let names = Arc::new(Names::of(&context.shared.config));
    let users = Users::of(&context.shared.config);
    let bound = move |Extension(caller): Extension<Caller>, request, next| {
        let (names, users) = (Arc::clone(&names), users.clone());
        bound_request(caller, names, users, Arc::clone(&answers), request, next)
    };
    let bounded = calls.merge(pages).fallback(unknown).layer(middleware::from_fn(bound));
    bounded.layer(middleware::from_fn(refuse_in_grpc))
}

/// Turns a refusal of a gRPC call into an answer in gRPC, of which clients read the reason.
/// Browsers can't send such calls: they are HTTP/2 without TLS.
async fn refuse_in_grpc(request: extract::Request, next: middleware::Next) -> Response {
    let is_call = request.version() == Version::HTTP_2 && is_grpc(request.headers());
    let answer = next.run(request).await;
    if !is_call || is_grpc(answer.headers()) {
        return answer;
    }
    let kind = match answer.status() {
        StatusCode::FORBIDDEN => ErrorKind::PermissionDenied,
        StatusCode::NOT_FOUND => ErrorKind::VersionMismatch,
        StatusCode::SERVICE_UNAVAILABLE => ErrorKind::ResourceExhausted,
        _ => ErrorKind::Unavailable,
    };
    let why = to_bytes(answer.into_body(), REFUSAL_BYTES_MAX).await.unwrap_or_default();
    to_status(Error::new(kind, String::from_utf8_lossy(&why).trim_end())).into_http()
}

/// Answers a request unless a web page or another user sent it, within the bounds of all
/// connections.
async fn bound_request(
    caller: Caller,
    names: Arc<Names>,
    users: Option<Users>,
    answers: Arc<LargeAnswers>,
    mut request: extract::Request,
    next: middleware::Next,
) -> Response {
    if let Some(refusal) = names.refusal(&request, caller.from.ip()) {
        return refusal.into_response();
    }
    if let Some(users) = users
        && request.uri().path().starts_with(CALLS)
    {
        match caller.admitted_to(users).await {
            Ok(requester) => drop(request.extensions_mut().insert(requester)),
            Err(refusal) => return refusal.into_http(),
        }
    }
    caller.usage.count(caller.share, answers, request, next).await
}

/// Bounds the buffered part of an operator's request before its permission is checked. A plan is
/// exempt: it is sent in pieces after that check.
async fn bound_body(mut request: extract::Request, next: middleware::Next) -> Response {
    let path = request.uri().path();
    if path.starts_with(ADMIN_CALLS) && path != PLAN_CALL {
        DefaultBodyLimit::max(ADMIN_REQUEST_BYTES_MAX).apply(&mut request);
        request = request.with_limited_body();
    }
    next.run(request).await
}

/// Admits callers that show the ticket. Admits all callers if the node is not private.
fn doorkeeper(
    context: &Context,
) -> impl FnMut(Request<()>) -> Result<Request<()>, Status> + Clone + Send + Sync + 'static {
    let wanted = context.shared.config.private.then_some(context.ticket);
    move |request| {
        let shown = request.metadata().get_bin(TICKET_METADATA);
        let shown = shown.and_then(|shown| shown.to_bytes().ok());
        match wanted {
            Some(ticket) if !shown.is_some_and(|shown| ticket.is(&shown)) => {
                let message = "this node serves the processes of one user, which learn its ticket \
                               from its socket; ask another node";
                Err(to_status(Error::new(ErrorKind::PermissionDenied, message)))
            }
            _ => Ok(request),
        }
    }
}

async fn show_metrics(State(context): State<Arc<Context>>) -> impl IntoResponse {
    let text = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, text)], metrics::render(&context))
}

/// Healthy while it accepts connections and can open a dataset, which takes a thread and a
/// descriptor. A draining node must get no more connections.
async fn show_health(State(context): State<Arc<Context>>) -> impl IntoResponse {
    if context.stop.is_given() || context.shared.stopping.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    let what = "no dataset can be opened (raise LimitNOFILE or ulimit -n)";
    match on_thread(move || event().map_err(io_error(what))).await {
        Ok(_) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// What all connections share.
#[derive(Clone)]
struct HttpParts {
    router: Router,
    allowance: Arc<Allowance>,
    stop: CancellationToken,
}

/// Serves connections until the stop, then finishes the requests in flight.
async fn serve(shared: HttpParts, listener: TcpListener) {
    let (tasks, waiting) = (TaskTracker::new(), Arc::new(Semaphore::new(WAITING_MAX)));
    loop {
        let accepted = tokio::select! {
            () = shared.stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => match shared.allowance.try_admit(from.ip()) {
                Ok(share) => drop(tasks.spawn(serve_one(stream, from, share, shared.clone()))),
                Err(Full) => {
                    // One that finds no place to wait is of the address that holds the most.
                    if let Ok(place) = Arc::clone(&waiting).try_acquire_owned() {
                        tasks.spawn(admit(shared.clone(), stream, from, place));
                    }
                }
            },
            Err(why) => {
                tracing::warn!("a control connection could not be accepted: {why}");
                shared.allowance.close_one();
                tokio::time::sleep(RETRY_WAIT).await;
            }
        }
    }
    drop(listener);
    tasks.close();
    let _ = tokio::time::timeout(FINISH_TIMEOUT, tasks.wait()).await;
}

/// Serves a connection once there is room for it.
async fn admit(
    shared: HttpParts,
    stream: TcpStream,
    from: SocketAddr,
    waits: OwnedSemaphorePermit,
) {
    let admitted = tokio::select! {
        () = shared.stop.cancelled() => return,
        admitted = shared.allowance.admit(from.ip()) => admitted,
    };
    drop(waits);
    if let Some(share) = admitted {
        serve_one(stream, from, share, shared).await;
    }
}

/// What the requests of a connection have in common.
#[derive(Debug, Clone)]
struct Caller {
    from: SocketAddr,
    to: SocketAddr,
    /// Set once it was found to be one that may call.
    admitted: Arc<OnceCell<Requester>>,
    usage: PendingWork,
    share: Arc<Share>,
}

impl Caller {
    /// Checks its user until it is admitted.
    async fn admitted_to(&self, users: Users) -> Result<Requester, Status> {
        let (from, to) = (self.from, self.to);
        let identify = async || {
            if let Some(known) = users.recognize(from, to) {
                return Ok(known);
            }
            let turn = users.turn().await;
            let identify = move || {
                let _turn = turn;
                users.identify(from, to)
            };
            on_thread(identify).await.map_err(to_status)
        };
        self.admitted.get_or_try_init(identify).await.copied()
    }
}

/// Serves a connection until its client closes it, has not used it for long, it must make room, or
/// the node stops.
async fn serve_one(stream: TcpStream, from: SocketAddr, share: Arc<Share>, shared: HttpParts) {
    let _ = stream.set_nodelay(true);
    // The permission to change a cluster may depend on the caller's address.
    let info = stream.connect_info();
    let usage = PendingWork::new();
    let Ok(to) = stream.local_addr() else { return };
    let caller = Caller {
        from,
        to,
        admitted: Arc::default(),
        usage: usage.clone(),
        share: Arc::clone(&share),
    };
    let service = Extension(caller).layer(Extension(info).layer(shared.router));
    let service = TowerToHyperService::new(service);
    let socket = Greeted::new(stream, Arc::clone(&share), limits::HANDSHAKE_TIMEOUT);
    let connection = builder().serve_connection(TokioIo::new(socket), service).into_owned();
    let graceful = GracefulShutdown::new();
    let mut watched = Box::pin(graceful.watch(connection));
    let ended = tokio::select! {
        ended = &mut watched => Some(ended),
        () = share.closed() => return,
        () = usage.unused_for(limits::CONTROL_IDLE_TIMEOUT) => None,
        () = shared.stop.cancelled() => None,
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(why)) => tracing::debug!("a control connection ended: {why}"),
        None => {
            let ending = async { tokio::join!(graceful.shutdown(), watched) };
            let _ = tokio::time::timeout(FINISH_TIMEOUT, ending).await;
        }
    }
}

/// How connections are served. All sizes are the smallest that serve calls well.
fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HANDSHAKE_TIMEOUT)
        .max_buf_size(2 * CONTROL_HEAD_BYTES_MAX as usize)
        .http2()
        .timer(TokioTimer::new())
        .initial_connection_window_size(CONTROL_WINDOW_BYTES)
        .initial_stream_window_size(CONTROL_WINDOW_BYTES)
        .max_header_list_size(CONTROL_HEAD_BYTES_MAX)
        .max_send_buf_size(limits::MANIFEST_CHUNK_BYTES)
        .max_concurrent_streams(CONTROL_STREAMS_MAX)
        .keep_alive_interval(limits::CONTROL_CALL_TIMEOUT)
        .keep_alive_timeout(limits::CONTROL_CALL_TIMEOUT);
    builder
}
