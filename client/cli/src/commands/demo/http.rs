//! One GET of a server on this machine.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// An answer that is longer is none of the demo's.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The body of the answer. `url` is `http://host:port[/path]`.
pub(super) fn get(url: &str) -> io::Result<String> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| io::Error::other(format!("it answered {answer:?}")))
}
