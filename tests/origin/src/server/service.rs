//! The HTTP layer around the S3 service: counts, latency, faults.

use std::future::pending;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::{Method, Request, Response};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, StdError};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::counts::Counters;
use crate::credentials::Valid;
use crate::fault::{Action, FaultPlan, Honest, Injection, RequestKind, Script, Step, spoil};
use crate::objects::{ObjectRead, Objects};

/// State shared by all connections.
#[derive(Debug)]
pub(super) struct Service {
    s3: S3Service,
    pub(super) credentials: Valid,
    pub(super) counters: Arc<Counters>,
    plan: Mutex<Option<FaultPlan>>,
    latency: Duration,
    rate: Option<u64>,
    /// When the line is free again.
    line_free: Mutex<Option<Instant>>,
}

impl Service {
    pub(super) fn new(directory: &Path, latency: Duration, rate: Option<u64>) -> io::Result<Self> {
        let mut builder = S3ServiceBuilder::new(Objects::new(directory)?);
        let credentials = Valid::default();
        builder.set_auth(credentials.clone());
        builder.set_access(credentials.clone());
        Ok(Self {
            s3: builder.build(),
            credentials,
            counters: Arc::new(Counters::default()),
            plan: Mutex::new(None),
            latency,
            rate,
            line_free: Mutex::new(None),
        })
    }

    pub(super) fn set_plan(&self, plan: Option<FaultPlan>) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    /// Waits until these bytes have crossed the line, behind those of earlier answers.
    async fn take_the_line(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        #[expect(clippy::cast_precision_loss, reason = "a rate is never so exact")]
        let took = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let until = {
            let mut free = self.line_free.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let until = free.unwrap_or(now).max(now) + took;
            *free = Some(until);
            until
        };
        tokio::time::sleep_until(until).await;
    }

    /// Answers a request, or hands a script to the connection and never returns.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        hand_over: &mpsc::Sender<Script>,
    ) -> Result<Response<CountedBody>, HttpError> {
        self.counters.request(request.method() == Method::GET);
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        let (kind, name) = (kind_of(&request), name_of(&request));
        let mut response = self.s3.call(request.map(Body::from)).await?;
        let read = response.extensions_mut().remove::<ObjectRead>();
        let injection = match &read {
            Some(read) => {
                self.counters.object_read(&read.object, read.range.clone());
                self.take_the_line(read.range.end - read.range.start).await;
                let has_bytes = !read.range.is_empty();
                has_bytes.then(|| self.fault_for(RequestKind::Get, &read.object)).flatten()
            }
            None if response.status().is_success() && kind != RequestKind::Get => {
                self.fault_for(kind, &name)
            }
            None => None,
        };
        let Some(injection) = injection else {
            return Ok(self.counted(response));
        };
        self.counters.fault(injection.fault);
        let honest = Honest::collect(response, read).await?;
        let spoilt = tokio::task::spawn_blocking(move || spoil(honest, injection)).await;
        match spoilt.map_err(|error| HttpError::new(error.into()))? {
            Action::Reply(response) => Ok(self.counted(response)),
            Action::Play(script) => {
                let sent = script
                    .iter()
                    .map(|step| if let Step::Send(bytes) = step { bytes.len() } else { 0 });
                self.counters.sent(sent.sum());
                // The connection drops this future when it takes the script.
                let _ = hand_over.send(script).await;
                pending().await
            }
        }
    }

    fn fault_for(&self, kind: RequestKind, object: &str) -> Option<Injection> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.as_mut().and_then(|plan| plan.next(kind, object))
    }

    fn counted(&self, response: Response<Body>) -> Response<CountedBody> {
        response.map(|body| CountedBody { body, counters: Arc::clone(&self.counters) })
    }
}

fn kind_of<B>(request: &Request<B>) -> RequestKind {
    let lists = request.uri().query().is_some_and(|query| query.contains("list-type="));
    match *request.method() {
        Method::HEAD => RequestKind::Head,
        Method::PUT | Method::POST => RequestKind::Put,
        Method::DELETE => RequestKind::Delete,
        _ if lists => RequestKind::List,
        _ => RequestKind::Get,
    }
}

/// Returns the name of a request that is no read: `bucket/key`, or `bucket?query` of a listing.
fn name_of<B>(request: &Request<B>) -> String {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    target.trim_start_matches('/').to_owned()
}

/// A body that counts its bytes as the connection takes them.
pub(super) struct CountedBody {
    body: Body,
    counters: Arc<Counters>,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            self.counters.sent(bytes.len());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
