//! Turns the honest answer into the faulty one: another answer for hyper, or a script for the
//! socket.

use bytes::Bytes;
use hyper::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    LOCATION, RETRY_AFTER,
};
use hyper::{Response, StatusCode};
use s3s::Body;

use super::honest::Honest;
use super::plan::Injection;
use super::script::{self, Script};
use super::{Fault, corrupt};

/// The action that replaces the honest answer.
pub(crate) enum Action {
    /// Another answer, sent by hyper; the connection stays in use.
    Reply(Response<Body>),
    /// Bytes, pauses and an end, written to the bare socket; the connection ends with them.
    Play(Script),
}

impl Honest {
    /// Returns `self` with a header set to `value`, or without it.
    fn header(mut self, name: HeaderName, value: Option<&str>) -> Self {
        let value =
            value.map(|value| HeaderValue::from_str(value).expect("faults write visible ASCII"));
        match value {
            Some(value) => self.headers.insert(name, value),
            None => self.headers.remove(name),
        };
        self
    }

    /// Returns `self` with another body and the Content-Length that fits it.
    fn body(mut self, body: Bytes) -> Self {
        let length = body.len().to_string();
        self.body = body;
        self.header(CONTENT_LENGTH, Some(&length))
    }

    /// Returns other bytes of the object; none if the file was truncated meanwhile.
    fn bytes(&self, start: u64, end: u64) -> Bytes {
        corrupt::bytes_at(&self.read.path, start..end).unwrap_or_default().into()
    }

    fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Makes it a 206 that claims `start..end` of `total`.
    fn partial(self, start: u64, end: u64, total: &str) -> Self {
        let content_range = format!("bytes {start}-{}/{total}", end.saturating_sub(1));
        self.status(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, Some(&content_range))
    }

    fn reply(self) -> Action {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        Action::Reply(response)
    }
}

/// Turns the honest answer into the fault of `injection`. Blocks for file reads.
pub(crate) fn spoil(honest: Honest, injection: Injection) -> Action {
    if let Some(response) = refused(injection.fault).or_else(|| document(&honest, injection.fault))
    {
        return Action::Reply(response);
    }
    match script::write(&honest, injection) {
        Some(script) => Action::Play(script),
        None if injection.fault.needs_checksum() => {
            let wrong = wrong_bytes(&honest, injection.fault, injection.seed);
            honest.body(wrong).reply()
        }
        None => altered(honest, injection.fault).reply(),
    }
}

fn response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    if !kind.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response
}

fn error_document(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>\
         <RequestId>0123456789ABCDEF</RequestId></Error>"
    )
}

fn error(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    response(status, "application/xml", error_document(code, message))
}

/// Returns answers that refuse: a status other than 200 and 206.
fn refused(fault: Fault) -> Option<Response<Body>> {
    let with = |mut response: Response<Body>, name: HeaderName, value: &'static str| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
        response
    };
    Some(match fault {
        Fault::SlowDown => {
            error(StatusCode::SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate.")
        }
        Fault::ServiceUnavailable => response(StatusCode::SERVICE_UNAVAILABLE, "", ""),
        Fault::InternalError => {
            error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "Please try again.")
        }
        Fault::BadGateway => {
            response(StatusCode::BAD_GATEWAY, "text/html", "<html>Bad Gateway</html>")
        }
        Fault::GatewayTimeout => response(StatusCode::GATEWAY_TIMEOUT, "", ""),
        Fault::TooManyRequests => {
            with(response(StatusCode::TOO_MANY_REQUESTS, "", ""), RETRY_AFTER, "0")
        }
        Fault::TokenExpired => {
            error(StatusCode::FORBIDDEN, "ExpiredToken", "The token has expired.")
        }
        Fault::AccessDenied => error(StatusCode::FORBIDDEN, "AccessDenied", "Access Denied"),
        Fault::NotFoundOnce => error(StatusCode::NOT_FOUND, "NoSuchKey", "The key does not exist."),
        Fault::PreconditionFailedOnce => error(
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
            "At least one of the preconditions did not hold.",
        ),
        Fault::NotModified => response(StatusCode::NOT_MODIFIED, "", ""),
        Fault::MovedPermanently => with(
            error(
                StatusCode::MOVED_PERMANENTLY,
                "PermanentRedirect",
                "Use the specified endpoint.",
            ),
            LOCATION,
            "/elsewhere/moved",
        ),
        Fault::TemporaryRedirect => with(
            error(
                StatusCode::TEMPORARY_REDIRECT,
                "TemporaryRedirect",
                "Please resend the request.",
            ),
            LOCATION,
            "/elsewhere/moved",
        ),
        _ => return None,
    })
}

/// Returns answers with status 200 or 206 and a document instead of the object.
fn document(honest: &Honest, fault: Fault) -> Option<Response<Body>> {
    let document = error_document("InternalError", "We encountered an internal error.");
    match fault {
        Fault::OkHtmlPage => {
            let page = "<!DOCTYPE html><html><body>Please sign in to this network.</body></html>";
            Some(response(StatusCode::OK, "text/html", page))
        }
        Fault::OkErrorDocument => Some(response(StatusCode::OK, "application/xml", document)),
        Fault::PartialErrorDocument => {
            let mut response = response(StatusCode::PARTIAL_CONTENT, "application/xml", document);
            for name in [CONTENT_RANGE, ETAG] {
                if let Some(value) = honest.headers.get(&name) {
                    response.headers_mut().insert(name, value.clone());
                }
            }
            Some(response)
        }
        Fault::MultipartRanges => {
            let content_range =
                honest.headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
            let opening = format!(
                "--larder\r\nContent-Type: binary/octet-stream\r\nContent-Range: {}\r\n\r\n",
                content_range.unwrap_or("bytes */*")
            );
            let body = [opening.as_bytes(), &honest.body, b"\r\n--larder--\r\n"].concat();
            Some(response(
                StatusCode::PARTIAL_CONTENT,
                "multipart/byteranges; boundary=larder",
                body,
            ))
        }
        _ => None,
    }
}

/// Returns answers with another range, or with a missing or wrong statement of the range.
fn altered(honest: Honest, fault: Fault) -> Honest {
    let (start, end, total) = (honest.read.range.start, honest.read.range.end, honest.read.total);
    let stated = total.to_string();
    match fault {
        Fault::RangeIgnored => {
            let whole = honest.bytes(0, total);
            honest.status(StatusCode::OK).header(CONTENT_RANGE, None).body(whole)
        }
        Fault::RangeWidened => {
            let whole = honest.bytes(0, total);
            honest.partial(0, total, &stated).body(whole)
        }
        Fault::RangeShortened => {
            let half = honest.body.slice(..honest.body.len() / 2);
            honest.partial(start, start + (end - start) / 2, &stated).body(half)
        }
        Fault::RangePastEnd => {
            let longer = [&honest.bytes(start, total), [0; 512].as_slice()].concat();
            honest.partial(start, total + 512, &stated).body(longer.into())
        }
        Fault::ContentRangeStartWrong => honest.partial(start + 1, end, &stated),
        Fault::ContentRangeEndWrong => honest.partial(start, end + 1, &stated),
        Fault::ContentRangeTotalWrong => honest.partial(start, end, &(total + 1).to_string()),
        Fault::ContentRangeTotalUnknown => honest.partial(start, end, "*"),
        Fault::ContentRangeMissing => {
            honest.status(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, None)
        }
        Fault::ContentRangeGarbled => honest
            .status(StatusCode::PARTIAL_CONTENT)
            .header(CONTENT_RANGE, Some("bytes from here to there")),
        Fault::Overwritten => {
            let other = corrupt::stale(&honest.body);
            let other_etag = "\"11111111111111111111111111111111\"";
            honest
                .partial(start, end, &(total + 4096).to_string())
                .header(ETAG, Some(other_etag))
                .body(other)
        }
        Fault::BodyEmpty => honest.body(Bytes::new()),
        Fault::ContentLengthShort => {
            let kept = honest.body.len().saturating_sub(10);
            let shorter = honest.body.slice(..kept);
            honest.body(shorter)
        }
        _ => relabelled(honest, fault),
    }
}

/// Returns the right bytes with another label.
fn relabelled(honest: Honest, fault: Fault) -> Honest {
    let etag =
        honest.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or("\"\"").to_owned();
    match fault {
        Fault::GzipLie => honest.header(CONTENT_ENCODING, Some("gzip")),
        Fault::EtagMissing => honest.header(ETAG, None),
        Fault::EtagChanged => honest.header(ETAG, Some("\"00000000000000000000000000000000\"")),
        Fault::PageWithoutToken => page(honest, None),
        Fault::PageRepeated => page(honest, Some("the-same")),
        Fault::EtagWeak => honest.header(ETAG, Some(&format!("W/{etag}"))),
        other => unreachable!(
            "{} is neither refused, a document, a script nor wrong bytes",
            other.name()
        ),
    }
}

/// Returns a page that says that more keys follow, from `token` on.
fn page(honest: Honest, token: Option<&str>) -> Honest {
    let text = String::from_utf8_lossy(&honest.body).into_owned();
    let text = text.replace("<IsTruncated>false", "<IsTruncated>true");
    let (open, close) = ("<NextContinuationToken>", "</NextContinuationToken>");
    let text = match text.split_once(open).and_then(|(a, b)| Some((a, b.split_once(close)?.1))) {
        Some((before, behind)) => format!("{before}{behind}"),
        None => text,
    };
    let end = "</ListBucketResult>";
    let next = token.map(|token| format!("{open}{token}{close}")).unwrap_or_default();
    let text = text.replace(end, &format!("{next}{end}"));
    honest.body(text.into())
}

fn wrong_bytes(honest: &Honest, fault: Fault, seed: u64) -> Bytes {
    match fault {
        Fault::TailZeroed => corrupt::tail_zeroed(&honest.body, seed),
        Fault::PiecesSwapped => corrupt::pieces_swapped(&honest.body, seed),
        Fault::PieceRepeated => corrupt::piece_repeated(&honest.body, seed),
        Fault::RangeShifted => corrupt::range_shifted(honest, seed),
        Fault::OtherObject => corrupt::of_other_object(honest, seed),
        Fault::StaleBytes => corrupt::stale(&honest.body),
        _ => corrupt::bit_flipped(&honest.body, seed),
    }
}
