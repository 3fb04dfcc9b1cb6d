//! Answers that hyper cannot send: bytes, pauses and an end, written to the bare socket.

use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{CONTENT_LENGTH, HeaderValue};

use super::Fault;
use super::honest::Honest;
use super::plan::Injection;

/// The steps on the socket, in order; after the last one the connection closes.
pub(crate) type Script = Vec<Step>;

/// One step on the socket.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send these bytes.
    Send(Bytes),
    /// Send nothing for this long.
    Pause(Duration),
    /// Send nothing until the client hangs up, or for this long.
    Stall(Duration),
    /// Reset the connection: nothing after this.
    Reset,
}

/// The number of pieces of a trickle, and the pause between them.
const TRICKLE_PIECES: usize = 16;
const TRICKLE_PAUSE: Duration = Duration::from_millis(32);
/// The delay of `LateAnswer` and `LateClose`.
const LATE: Duration = Duration::from_millis(250);
/// The pause between bytes and a reset, so that the bytes are on their way first.
const BEFORE_RESET: Duration = Duration::from_millis(20);
/// Longer than any client's header buffer.
const HEADER_BYTES: usize = 1 << 20;

/// Returns the script of a fault; `None` if hyper can send it.
pub(super) fn write(honest: &Honest, injection: Injection) -> Option<Script> {
    let head = head(honest, &honest.headers);
    let body = &honest.body;
    let half = body.slice(..body.len() / 2);
    let stall = Step::Stall(injection.stall);
    Some(match injection.fault {
        Fault::LateAnswer => vec![Step::Pause(LATE), send(&[&head, body])],
        Fault::Trickle => trickle(head, body),
        Fault::ContinueFirst => vec![send(&[b"HTTP/1.1 100 Continue\r\n\r\n", &head, body])],
        Fault::LateClose => vec![send(&[&head, body]), Step::Stall(LATE)],
        Fault::AnswerTwice => {
            let alive = head_alive(honest);
            vec![send(&[&alive, body, &alive, body]), stall]
        }
        Fault::BodyTooLong => vec![send(&[&head, body, &half, b"again"])],
        Fault::BodyCutHalf => vec![send(&[&head, &half])],
        Fault::BodyCutAfterFirstByte => vec![send(&[&head, &body[..body.len().min(1)]])],
        Fault::BodyCutLastByte => vec![send(&[&head, &body[..body.len().saturating_sub(1)]])],
        Fault::CloseBeforeHeaders => vec![],
        Fault::CloseInHeaders => vec![send(&[&head[..head.len() / 2]])],
        Fault::ResetBeforeHeaders => vec![Step::Reset],
        Fault::ResetAfterHeaders => vec![send(&[&head]), Step::Pause(BEFORE_RESET), Step::Reset],
        Fault::ResetInBody => vec![send(&[&head, &half]), Step::Pause(BEFORE_RESET), Step::Reset],
        Fault::StallBeforeHeaders => vec![stall],
        Fault::StallAfterHeaders => vec![send(&[&head]), stall],
        Fault::StallInBody => vec![send(&[&head, &half]), stall],
        Fault::StatusLineGarbage => vec![send(&[b"\x16\x03\x01 SSH-2.0 not http\r\n\r\n", body])],
        Fault::NoHeaders => vec![send(&[body])],
        _ => return reframed(honest, injection.fault, &half),
    })
}

/// Returns scripts for faults in the framing headers and in the frames.
fn reframed(honest: &Honest, fault: Fault, half: &Bytes) -> Option<Script> {
    let body = &honest.body;
    let mut open = honest.headers.clone();
    open.remove(CONTENT_LENGTH);
    let open_head = |more: &[u8]| with_header(&head(honest, &open), more);
    let chunked = || open_head(b"transfer-encoding: chunked\r\n");
    let length = |bytes: usize| {
        let mut headers = open.clone();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        head(honest, &headers)
    };
    Some(match fault {
        Fault::ChunkedBody => vec![send(&[&chunked(), &chunks(body), b"0\r\n\r\n"])],
        Fault::ChunkedCut => vec![send(&[&chunked(), &chunks(half)])],
        Fault::ChunkedShort => vec![send(&[&chunked(), &chunks(half), b"0\r\n\r\n"])],
        Fault::ChunkedGarbled => vec![send(&[&chunked(), &chunks(half), b"not a size\r\n", half])],
        Fault::CloseDelimitedBody => vec![send(&[&open_head(b""), body])],
        Fault::CloseDelimitedCut => vec![send(&[&open_head(b""), half])],
        Fault::ContentLengthLong => vec![send(&[&length(body.len() + 10), body])],
        Fault::ContentLengthTwice => {
            let second = format!("content-length: {}\r\n", body.len() / 2);
            vec![send(&[&with_header(&length(body.len()), second.as_bytes()), body])]
        }
        Fault::HeaderHuge => {
            let huge =
                [b"x-amz-meta-huge: ", vec![b'h'; HEADER_BYTES].as_slice(), b"\r\n"].concat();
            vec![send(&[&with_header(&length(body.len()), &huge), body])]
        }
        Fault::HeaderGarbage => {
            vec![send(&[&with_header(&length(body.len()), b"no colon \x01\x02\x7f\r\n"), body])]
        }
        _ => return None,
    })
}

fn send(parts: &[&[u8]]) -> Step {
    Step::Send(parts.concat().into())
}

/// Returns status line and headers with `Connection: close`, since the connection ends with the
/// script.
fn head(honest: &Honest, headers: &HeaderMap) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {}\r\n", honest.status).into_bytes();
    for (name, value) in headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"connection: close\r\n\r\n");
    head
}

/// Returns the same for a connection that stays open.
fn head_alive(honest: &Honest) -> Vec<u8> {
    let head = head(honest, &honest.headers);
    let end = head.len() - b"connection: close\r\n\r\n".len();
    [&head[..end], b"\r\n"].concat()
}

/// Returns `head` with one more header line.
fn with_header(head: &[u8], line: &[u8]) -> Vec<u8> {
    [&head[..head.len() - 2], line, b"\r\n"].concat()
}

/// Returns `bytes` in up to three chunks, without the last, empty one.
fn chunks(bytes: &Bytes) -> Vec<u8> {
    let mut framed = Vec::with_capacity(bytes.len() + 64);
    for chunk in bytes.chunks(bytes.len().div_ceil(3).max(1)) {
        framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
    }
    framed
}

fn trickle(head: Vec<u8>, body: &Bytes) -> Script {
    let mut script = vec![Step::Send(head.into())];
    for piece in body.chunks(body.len().div_ceil(TRICKLE_PIECES).max(1)) {
        script.push(Step::Pause(TRICKLE_PAUSE));
        script.push(send(&[piece]));
    }
    script
}
