//! Tracks whether a control connection is in use.
//!
//! A client that answers PINGs could hold a connection for ever without a request, or without
//! reading the answer. So pending work is counted: requests until their answers begin, and streamed
//! answers while the next piece is made. A connection without pending work for long is closed. So
//! is one with a client that does not take a piece for as long.
//!
//! Thread rule: shared by the tasks of one connection.

use std::pin::Pin;
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

/// The pending work of one connection.
#[derive(Debug, Clone)]
pub(super) struct Usage(watch::Sender<usize>);

/// A request, or a piece of its answer, that the client waits for.
#[derive(Debug)]
struct InProgress(Usage);

impl Usage {
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

    /// Counts a request while it is answered. An incomplete request is answered with a timeout.
    pub(super) async fn count(self, request: Request, next: Next) -> Response {
        let _in_progress = InProgress::begin(self.clone());
        match timeout(limits::CONTROL_REQUEST_TIMEOUT, next.run(request)).await {
            Ok(answer) => answer.map(|body| Body::new(self.counted(body))),
            Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
        }
    }

    fn counted(self, body: Body) -> Counted {
        Counted { body, usage: self, in_progress: None }
    }
}

impl InProgress {
    fn begin(usage: Usage) -> Self {
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
    usage: Usage,
    /// Set while the next piece is made. A finished piece is for the client to take.
    in_progress: Option<InProgress>,
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
    use std::convert::Infallible;
    use std::future::poll_fn;

    use futures_util::{StreamExt, stream};

    use super::*;

    /// Long enough to see that a future completes at once. Pending futures are never given more.
    const MOMENT: Duration = Duration::from_millis(50);

    async fn next_piece(answer: &mut Counted) -> Option<Bytes> {
        let frame = poll_fn(|context| Pin::new(&mut *answer).poll_frame(context)).await;
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    }

    /// Returns an answer of one piece that then stays pending.
    fn answer(usage: &Usage) -> Counted {
        let piece = stream::iter([Ok::<_, Infallible>("news")]);
        usage.clone().counted(Body::from_stream(piece.chain(stream::pending())))
    }

    #[tokio::test]
    async fn connection_is_in_use_while_its_client_waits() {
        let usage = Usage::new();
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
        let usage = Usage::new();
        let mut answer = answer(&usage);
        usage.unused_for(Duration::ZERO).await;
        assert_eq!(next_piece(&mut answer).await.unwrap(), "news");
        usage.unused_for(Duration::ZERO).await;
    }

    #[tokio::test]
    async fn connection_without_requests_is_unused_after_a_delay() {
        let usage = Usage::new();
        drop(InProgress::begin(usage.clone()));
        let waiting = usage.unused_for(Duration::from_secs(3600));
        assert!(timeout(MOMENT, waiting).await.is_err());
    }
}
