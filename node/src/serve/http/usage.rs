//! Whether a control connection is in use.
//!
//! Who answers PINGs could hold a connection for ever without asking anything. So requests are counted, from
//! their heads until the last byte of their answers, and who has had none for long is asked to close.
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
use larder_wire::limits;
use tokio::sync::watch;
use tokio::time::timeout;

/// The requests in progress on one connection.
#[derive(Debug, Clone)]
pub(super) struct Usage(watch::Sender<usize>);

/// A request in progress.
#[derive(Debug)]
struct InProgress(Usage);

impl Usage {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Ends once there was no request for `span`.
    pub(super) fn unused_for(&self, span: Duration) -> impl Future<Output = ()> + Send + use<> {
        let mut count = self.0.subscribe();
        async move {
            loop {
                // The sender lives as long as the connection does.
                let _ = count.wait_for(|&count| count == 0).await;
                if timeout(span, count.changed()).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Counts a request while it is answered. One that does not come whole is answered in its place.
    pub(super) async fn count(self, request: Request, next: Next) -> Response {
        let in_progress = InProgress::begin(self);
        match timeout(limits::CONTROL_REQUEST_TIMEOUT, next.run(request)).await {
            Ok(answer) => answer.map(|body| Body::new(Counted { body, _in_progress: in_progress })),
            Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
        }
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

/// An answer on its way.
struct Counted {
    body: Body,
    _in_progress: InProgress,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
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
    use super::*;

    /// Long enough to see what ends at once; what does not end is found not to after any time.
    const MOMENT: Duration = Duration::from_millis(50);

    fn answer(usage: &Usage) -> Counted {
        Counted { body: Body::empty(), _in_progress: InProgress::begin(usage.clone()) }
    }

    #[tokio::test]
    async fn a_connection_is_in_use_until_its_last_answer_has_been_sent() {
        let usage = Usage::new();
        usage.unused_for(Duration::ZERO).await;
        let (first, second) = (answer(&usage), answer(&usage));
        let mut waiting = Box::pin(usage.unused_for(Duration::ZERO));
        assert!(timeout(MOMENT, &mut waiting).await.is_err());
        drop(first);
        assert!(timeout(MOMENT, &mut waiting).await.is_err());
        drop(second);
        waiting.await;
    }

    #[tokio::test]
    async fn a_connection_without_requests_is_unused_only_after_its_time() {
        let usage = Usage::new();
        drop(answer(&usage));
        let waiting = usage.unused_for(Duration::from_secs(3600));
        assert!(timeout(MOMENT, waiting).await.is_err());
    }
}
