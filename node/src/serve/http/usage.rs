//! Tracks whether a control connection is in use, and bounds its requests.
//!
//! A client that answers PINGs could hold a connection for ever without a request, or without
//! reading the answer. So pending work is counted: requests until their answers begin, and streamed
//! answers while the next piece is made. A connection without pending work for long is closed. So
//! is one with a client that does not take a piece for as long. A request must arrive in time. It
//! has a share of the allowance until its answer has ended, and a turn if that answer may be large.
//!
//! Thread rule: shared by the tasks of one connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use larder_base::limits;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::allowance::{Admitted, Share};
use super::answers::{self, AnswerTurn, LargeAnswers};

/// Time in which a request's body must arrive, unless it is sent in pieces.
const CONTROL_ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls that send a request in pieces, for as long as that takes.
const LONG_CALLS: [&str; 2] = ["/larder.v1.Admin/ApplyPlan", "/larder.v1.Coordinator/PutBlob"];

/// The pending work of one connection.
#[derive(Debug, Clone)]
pub(super) struct PendingWork(watch::Sender<usize>);

/// A request, or a piece of its answer, that the client waits for.
#[derive(Debug)]
struct InProgress(PendingWork);

impl PendingWork {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Completes once the client has waited for nothing for `span`.
    pub(super) fn unused_for(&self, span: Duration) -> impl Future<Output = ()> + Send + use<> {
        let mut count = self.0.subscribe();
        async move {
            loop {
                // The sender lives as long as the connection.
                let _ = count.wait_for(|&count| count == 0).await;
                if timeout(span, count.changed()).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Answers a request within the bounds of all connections.
    pub(super) async fn count(
        self,
        share: Arc<Share>,
        answers: Arc<LargeAnswers>,
        request: Request,
        next: Next,
    ) -> Response {
        let _in_progress = InProgress::begin(self.clone());
        let Ok(admitted) = share.begin().map(Arc::new) else {
            let why = "this node has no memory for another request; try again\n";
            return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
        };
        let turn = match answers::units(request.uri().path()) {
            Some(units) => Some(answers.turn(units, &share).await),
            None => None,
        };
        let arrived = CancellationToken::new();
        let late = close_if_late(&request, arrived.clone(), Arc::clone(&share));
        let request = request.map(|body| Body::new(Arriving::new(body, &admitted, arrived)));
        let answering = timeout(limits::CONTROL_REQUEST_TIMEOUT, next.run(request));
        let answer = tokio::select! {
            answer = answering => answer,
            never = late => match never {},
        };
        admitted.answered();
        if let Some(turn) = &turn {
            turn.note_made(true);
        }
        match answer {
            Ok(answer) => answer.map(|body| Body::new(self.counted(body, admitted, turn))),
            Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
        }
    }

    fn counted(self, body: Body, admitted: Arc<Admitted>, turn: Option<AnswerTurn>) -> Counted {
        Counted { body, usage: self, in_progress: None, _admitted: admitted, turn }
    }
}

/// Closes the connection of a request that does not arrive in time.
fn close_if_late(
    request: &Request,
    arrived: CancellationToken,
    share: Arc<Share>,
) -> impl Future<Output = Infallible> + Send + use<> {
    let is_long = LONG_CALLS.contains(&request.uri().path());
    async move {
        let arrives = timeout(CONTROL_ARRIVAL_TIMEOUT, arrived.cancelled()).await.is_ok();
        if !arrives && !is_long {
            share.close();
        }
        std::future::pending().await
    }
}

/// The body of a request.
struct Arriving {
    body: Body,
    admitted: Arc<Admitted>,
    arrived: Option<DropGuard>,
}

impl Arriving {
    fn new(body: Body, admitted: &Arc<Admitted>, arrived: CancellationToken) -> Self {
        let mut arriving =
            Self { body, admitted: Arc::clone(admitted), arrived: Some(arrived.drop_guard()) };
        if arriving.body.is_end_stream() {
            arriving.end();
        }
        arriving
    }

    fn end(&mut self) {
        self.arrived = None;
        self.admitted.arrived();
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.end();
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.end();
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

impl InProgress {
    fn begin(usage: PendingWork) -> Self {
        usage.0.send_modify(|count| *count += 1);
        Self(usage)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// An answer that is being sent.
struct Counted {
    body: Body,
    usage: PendingWork,
    /// Set while the next piece is made. A finished piece is for the client to take.
    in_progress: Option<InProgress>,
    _admitted: Arc<Admitted>,
    turn: Option<AnswerTurn>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        this.in_progress.get_or_insert_with(|| InProgress::begin(this.usage.clone()));
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if polled.is_ready() {
            this.in_progress = None;
        }
        if let Some(turn) = &this.turn {
            turn.note_made(polled.is_ready());
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::IpAddr;

    use futures_util::{StreamExt, stream};

    use super::super::allowance::Allowance;
    use super::*;

    /// Long enough to see that a future completes at once. Pending futures are never given more.
    const MOMENT: Duration = Duration::from_millis(50);

    async fn next_piece(answer: &mut Counted) -> Option<Bytes> {
        let frame = poll_fn(|context| Pin::new(&mut *answer).poll_frame(context)).await;
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    }

    /// Returns an answer of one piece that then stays pending.
    fn answer(usage: &PendingWork) -> Counted {
        let piece = stream::iter([Ok::<_, Infallible>("news")]);
        let share = Allowance::new(1 << 20, 1).try_admit(IpAddr::from([127, 0, 0, 1])).unwrap();
        let admitted = Arc::new(share.begin().unwrap());
        let body = Body::from_stream(piece.chain(stream::pending()));
        usage.clone().counted(body, admitted, None)
    }

    #[tokio::test]
    async fn connection_is_in_use_while_its_client_waits() {
        let usage = PendingWork::new();
        usage.unused_for(Duration::ZERO).await;
        let (request, mut answer) = (InProgress::begin(usage.clone()), answer(&usage));
        assert_eq!(next_piece(&mut answer).await.unwrap(), "news");
        assert!(timeout(MOMENT, next_piece(&mut answer)).await.is_err());
        let mut waiting = Box::pin(usage.unused_for(Duration::ZERO));
        assert!(timeout(MOMENT, &mut waiting).await.is_err());
        drop(request);
        assert!(timeout(MOMENT, &mut waiting).await.is_err(), "it waits for news");
        drop(answer);
        waiting.await;
    }

    #[tokio::test]
    async fn connection_is_unused_when_its_client_stops_reading() {
        let usage = PendingWork::new();
        let mut answer = answer(&usage);
        usage.unused_for(Duration::ZERO).await;
        assert_eq!(next_piece(&mut answer).await.unwrap(), "news");
        usage.unused_for(Duration::ZERO).await;
    }

    #[tokio::test]
    async fn connection_without_requests_is_unused_after_a_delay() {
        let usage = PendingWork::new();
        drop(InProgress::begin(usage.clone()));
        let waiting = usage.unused_for(Duration::from_secs(3600));
        assert!(timeout(MOMENT, waiting).await.is_err());
    }
}
