//! One connection. hyper serves it until it ends, a fault takes the socket over, or the server
//! stops.
//!
//! For a fault that breaks HTTP, hyper waits for an answer that never comes. The service hands over
//! the fault's script, and the connection takes the socket out of hyper and plays the script.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::service::Service;
use crate::fault::{Script, Step};

/// How long a connection that the server closed waits for the client to close it too.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

enum End {
    Over,
    Stopped,
    Fault(Script),
}

/// Serves S3 on `socket`.
pub(super) async fn serve(
    socket: TcpStream,
    service: Arc<Service>,
    mut stopped: watch::Receiver<bool>,
) {
    // Without this a lone connection's answers wait for the client's delayed acknowledgements.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::warn!(%error, "could not set TCP_NODELAY");
    }
    let (hand_over, mut scripts) = mpsc::channel(1);
    let answer = service_fn(move |request: Request<Incoming>| -> BoxFuture<'static, _> {
        let (service, hand_over) = (Arc::clone(&service), hand_over.clone());
        Box::pin(async move { service.answer(request, &hand_over).await })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(socket), answer);
    let end = tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => End::Stopped,
        Some(script) = scripts.recv() => End::Fault(script),
        // The client has seen the same end.
        _ = &mut connection => End::Over,
    };
    match end {
        End::Over => {}
        End::Stopped => reset_on_drop(connection.into_parts().io.inner()),
        End::Fault(script) => {
            let mut socket = connection.into_parts().io.into_inner();
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => reset_on_drop(&socket),
                reset_wanted = play(&mut socket, script) => if reset_wanted { reset_on_drop(&socket) },
            }
        }
    }
}

/// Makes `socket` end with a reset instead of an orderly close, when it is dropped.
fn reset_on_drop(socket: &TcpStream) {
    if let Err(error) = socket.set_zero_linger() {
        tracing::debug!(%error, "the connection was gone before it could be reset");
    }
}

/// Plays a script. Returns true when it asks for a reset at its end. A client that hangs up ends it
/// early.
async fn play(socket: &mut TcpStream, script: Script) -> bool {
    for step in script {
        match step {
            Step::Send(bytes) => {
                if socket.write_all(&bytes).await.is_err() {
                    return false;
                }
            }
            Step::Pause(duration) => tokio::time::sleep(duration).await,
            Step::Stall(duration) => drop(timeout(duration, socket.read(&mut [0; 64])).await),
            Step::Reset => return true,
        }
    }
    if socket.shutdown().await.is_ok() {
        // A close with unread bytes would be a reset, which can overtake the sent bytes.
        let mut rest = [0; 1024];
        let drain = async { while socket.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
        drop(timeout(CLOSE_WAIT, drain).await);
    }
    false
}

/// Answers `GET /_counts` with the counts, one connection after the other.
pub(super) async fn serve_counts(
    listener: TcpListener,
    service: Arc<Service>,
    mut stopped: watch::Receiver<bool>,
) {
    let answer = service_fn(|request: Request<Incoming>| {
        let response = counts_response(&service, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    loop {
        let accepted = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((socket, _)) = accepted else { continue };
        let connection =
            http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(socket), answer);
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            // A silent client must not block the others.
            _ = timeout(CLOSE_WAIT, connection) => {}
        }
    }
}

fn counts_response(service: &Service, request: &Request<Incoming>) -> Response<Body> {
    if request.method() != Method::GET || request.uri().path() != "/_counts" {
        let mut response =
            Response::new(Body::from(Bytes::from_static(b"GET /_counts is all there is\n")));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    let json = serde_json::to_vec(&service.counters.summary())
        .expect("counts are plain numbers and names");
    let mut response = Response::new(Body::from(json));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
