//! The one HTTP port: gRPC for clients and tools, `/metrics` for Prometheus, `/healthz` for the
//! service manager.

mod greeting;
mod usage;

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{self, DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
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
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::Connected;
use tonic::{Request, Status};

use super::Context;
use super::control::Service;
use super::control::admin::Admin;
use super::metrics;
use crate::membership::Cluster;
use greeting::Greeted;
use usage::Usage;

/// The paths of operators' calls, and of the call that sends a plan in pieces.
const ADMIN_CALLS: &str = "/larder.v1.Admin/";
const PLAN_CALL: &str = "/larder.v1.Admin/ApplyPlan";

/// How long requests in flight may take when the node stops.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// The limit on connections, as a semaphore counts it.
const ALL_PLACES: u32 = 1_024;
const _: () = assert!(ALL_PLACES as usize == limits::CONTROL_CONNECTIONS_MAX);

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
        let serving = serve(router(context), listener, stop.clone());
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
        .max_decoding_message_size(limits::ADMIN_MESSAGE_BYTES_MAX)
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
    calls.merge(pages).fallback(unknown)
}

/// Bounds the buffered part of an operator's request before its permission is checked. A plan is
/// exempt: it is sent in pieces after that check.
async fn bound_body(mut request: extract::Request, next: middleware::Next) -> Response {
    let path = request.uri().path();
    if path.starts_with(ADMIN_CALLS) && path != PLAN_CALL {
        DefaultBodyLimit::max(limits::ADMIN_REQUEST_BYTES_MAX).apply(&mut request);
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

/// Healthy while it accepts connections: a draining node must get no more.
async fn show_health(State(context): State<Arc<Context>>) -> impl IntoResponse {
    if context.stop.is_given() || context.shared.stopping.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    (StatusCode::OK, "ok\n")
}

/// Serves connections until the stop, then finishes the requests in flight.
async fn serve(router: Router, listener: TcpListener, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(limits::CONTROL_CONNECTIONS_MAX));
    loop {
        // Without a free place, connections wait in the kernel's queue.
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = stop.cancelled() => break,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let serving = serve_one(stream, router.clone(), stop.clone());
                tokio::spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            Err(why) => {
                tracing::warn!("a control connection could not be accepted: {why}");
                tokio::time::sleep(limits::KEEPALIVE_INTERVAL).await;
            }
        }
    }
    drop(listener);
    // All places are free again when all connections have ended.
    let places = places.acquire_many(ALL_PLACES);
    let _ = tokio::time::timeout(FINISH_TIMEOUT, places).await;
}

/// Serves a connection until its client closes it, has not used it for long, or the node stops.
fn serve_one(
    stream: TcpStream,
    router: Router,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HANDSHAKE_TIMEOUT)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::CONTROL_STREAMS_MAX)
        .keep_alive_interval(limits::CONTROL_CALL_TIMEOUT)
        .keep_alive_timeout(limits::CONTROL_CALL_TIMEOUT);
    // The permission to change a cluster may depend on the caller's address.
    let router = router.layer(Extension(stream.connect_info()));
    let usage = Usage::new();
    let counting = usage.clone();
    let count = move |request, next| counting.clone().count(request, next);
    let service = TowerToHyperService::new(router.layer(middleware::from_fn(count)));
    let stream = TokioIo::new(Greeted::new(stream, limits::HANDSHAKE_TIMEOUT));
    let connection = builder.serve_connection(stream, service).into_owned();
    let graceful = GracefulShutdown::new();
    let mut watched = Box::pin(graceful.watch(connection));
    async move {
        let ended = tokio::select! {
            ended = &mut watched => Some(ended),
            () = usage.unused_for(limits::CONTROL_IDLE_TIMEOUT) => None,
            () = stop.cancelled() => None,
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
}
