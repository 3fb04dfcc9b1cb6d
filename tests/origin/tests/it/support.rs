//! A served bucket, a real client for it, and a raw one that shows the bytes on the wire.
#![expect(clippy::unwrap_used, reason = "every line of it is a test")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Method;
use larder_origin::{ACCESS_KEY, Options, REGION, S3Server, SECRET_KEY};
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsAuthorizer, AwsCredential};
use object_store::client::HttpRequestBody;
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{ClientOptions, RetryConfig};
use tempfile::TempDir;

/// Longer than any answer takes, also on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server over a temporary directory with one bucket, `bucket`.
pub(crate) struct Site {
    directory: TempDir,
    bucket: PathBuf,
    pub(crate) server: S3Server,
}

impl Site {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = S3Server::start(directory.path(), &Options::default()).unwrap();
        let bucket = server.create_bucket("bucket").unwrap();
        Self { directory, bucket, server }
    }

    /// Makes an object, in the way the demo's data is made: as a file.
    pub(crate) fn file(&self, key: &str, bytes: &[u8]) {
        let path = self.bucket.join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn into_parts(self) -> (TempDir, S3Server) {
        (self.directory, self.server)
    }
}

/// Bytes in which every stretch differs from its neighbours.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..count).map(|_| random.u8(..)).collect()
}

pub(crate) fn builder(server: &S3Server) -> AmazonS3Builder {
    // Someone else may have set it already: one is as good as the other.
    let _ = rustls::crypto::ring::default_provider().install_default();
    AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region(REGION)
        .with_bucket_name("bucket")
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
        .with_client_options(
            ClientOptions::new().with_allow_http(true).with_timeout(Duration::from_secs(10)),
        )
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
}

/// A client that does not try again, so that each fault shows.
pub(crate) fn client(server: &S3Server) -> AmazonS3 {
    builder(server).build().unwrap()
}

/// How a raw connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Reset,
    /// Still open, with nothing said for a while.
    Open,
}

/// A raw answer, parsed as far as possible.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Everything, head included.
    pub(crate) raw: Vec<u8>,
    /// 0 when there was no status line.
    pub(crate) status: u16,
    /// The head in lower case, up to the empty line.
    pub(crate) head: String,
    /// The bytes after the head; all bytes when there was no head.
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn parse(raw: Vec<u8>, end: End) -> Self {
        let split = raw.windows(4).position(|four| four == b"\r\n\r\n");
        let is_http = raw.starts_with(b"HTTP/1.1 ");
        let (head, body) = match split.filter(|_| is_http) {
            Some(at) => {
                (String::from_utf8_lossy(&raw[..at]).to_lowercase(), raw[at + 4..].to_vec())
            }
            None => (String::new(), raw.clone()),
        };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { raw, status, head, body, end }
    }
}

/// Sends `request` and reads until the server closes, resets, or says nothing for as long as
/// `patience`.
pub(crate) fn talk(address: &str, request: &[u8], patience: Duration) -> Answer {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.write_all(request).unwrap();
    let mut raw = Vec::new();
    let mut piece = vec![0; 1 << 16];
    let end = loop {
        match socket.read(&mut piece) {
            Ok(0) => break End::Closed,
            Ok(count) => raw.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break End::Open,
            Err(_) => break End::Reset,
        }
    };
    Answer::parse(raw, end)
}

/// The path and query of a signed GET of `target` (`/bucket/key`).
pub(crate) async fn presigned(server: &S3Server, target: &str) -> String {
    let key = target.strip_prefix("/bucket/").unwrap();
    let path = Path::parse(key).unwrap_or_else(|_| Path::from(key));
    let url =
        client(server).signed_url(Method::GET, &path, Duration::from_secs(600)).await.unwrap();
    format!("{}?{}", url.path(), url.query().unwrap())
}

/// A GET of a presigned path over a connection of its own.
pub(crate) fn get(
    server: &S3Server,
    path_and_query: &str,
    range: &str,
    patience: Duration,
) -> Answer {
    let address = server.address().to_string();
    let request = format!(
        "GET {path_and_query} HTTP/1.1\r\nhost: {address}\r\nrange: {range}\r\nconnection: close\r\n\r\n"
    );
    talk(&address, request.as_bytes(), patience)
}

/// The document of a signed GET of the bucket with this query.
pub(crate) fn listing(server: &S3Server, query: &str) -> String {
    let uri = format!("{}/bucket?{query}", server.endpoint());
    let mut request = hyper::Request::builder().uri(uri).body(HttpRequestBody::empty()).unwrap();
    let (key_id, secret_key) = (ACCESS_KEY.to_owned(), SECRET_KEY.to_owned());
    let credential = AwsCredential { key_id, secret_key, token: None };
    AwsAuthorizer::new(&credential, "s3", REGION).try_authorize(&mut request, None).unwrap();
    let address = server.address().to_string();
    let mut raw =
        format!("GET /bucket?{query} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in request.headers() {
        raw.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    let answer = talk(&address, format!("{raw}\r\n").as_bytes(), PATIENCE);
    assert_eq!(answer.status, 200, "{answer:?}");
    String::from_utf8(answer.body).unwrap()
}
