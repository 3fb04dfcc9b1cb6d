//! Refuses requests that a web page made a browser send.
//!
//! A page of any site can send requests to a port on loopback, where a node takes commands from its
//! own host. Browsers mark them: with an `Origin`, and with content types of forms. If the name of
//! a site was made to point at loopback, the request shows that name as `Host`.

use std::fs;
use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Request, StatusCode, header};

use super::CALLS;
use crate::config::Config;

/// Names that are taken from `/etc/hosts`. Lists of blocked sites name very many.
const HOSTS_NAMES_MAX: usize = 1_024;

/// The names by which processes of this host may call a node.
#[derive(Debug, Clone)]
pub(super) struct Names(Vec<String>);

impl Names {
    pub(super) fn of(config: &Config) -> Self {
        let advertised = [&config.advertise, &config.data_advertise].into_iter().flatten();
        let names = advertised.map(|address| without_port(address)).chain([&*config.host]);
        // Without the file, the other names remain.
        let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
        let names = names.chain(["localhost"]).chain(loopback_names(&hosts));
        Self(names.map(str::to_lowercase).collect())
    }

    /// Whether this is an address or one of the names. Nobody else can own a name below
    /// `localhost`.
    fn contain(&self, host: &str) -> bool {
        let host = without_port(host).to_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok() || self.0.contains(&host) || host.ends_with(".localhost")
    }

    /// Returns why a request is refused, if it is. `from` is the caller.
    pub(super) fn refusal<B>(
        &self,
        request: &Request<B>,
        from: IpAddr,
    ) -> Option<(StatusCode, String)> {
        let headers = request.headers();
        if headers.contains_key(header::ORIGIN) {
            let why = "requests of web pages are not answered: this one has an Origin\n";
            return Some((StatusCode::FORBIDDEN, why.to_owned()));
        }
        let shown = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = request.uri().authority().map(Authority::as_str).or(shown).unwrap_or("");
        if !request.uri().path().starts_with(CALLS) {
            return None;
        }
        if from.to_canonical().is_loopback() && !host.is_empty() && !self.contain(host) {
            let host = larder_base::printable(host);
            let why = format!("this node is not called '{host}'; call it by an address\n");
            return Some((StatusCode::FORBIDDEN, why));
        }
        if !is_grpc(headers) {
            let why = "calls have the content type application/grpc\n";
            return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned()));
        }
        None
    }
}

/// The names that `/etc/hosts` gives to loopback addresses, such as the full name of the host. No
/// site can have one of them here, because the file takes precedence over its servers.
fn loopback_names(hosts: &str) -> impl Iterator<Item = &str> {
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let names = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        address.is_loopback().then_some(words)
    });
    names.flatten().take(HOSTS_NAMES_MAX)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether these are the headers of a gRPC message.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    kind.strip_prefix(b"application/grpc").is_some_and(|rest| {
        rest.is_empty() || rest.starts_with(b"+proto") || rest.starts_with(b";")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(from: &str, uri: &str, headers: &[(&str, &str)]) -> Option<StatusCode> {
        let names = Names(vec!["box".to_owned(), "localhost".to_owned()]);
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        names.refusal(&request, from.parse().unwrap()).map(|(status, _)| status)
    }

    const CALL: &str = "/larder.v1.Node/Describe";
    const GRPC: (&str, &str) = ("content-type", "application/grpc");

    #[test]
    fn names_in_the_hosts_file_count_only_with_loopback_addresses() {
        let hosts = "127.0.0.1 localhost # a\n#::1 b\n127.0.1.1\tgpu01.corp gpu01\n::1 six\n\
                     10.0.0.1 other\nno 127.0.0.1 c";
        let names: Vec<&str> = loopback_names(hosts).collect();
        assert_eq!(names, ["localhost", "gpu01.corp", "gpu01", "six"]);
    }

    #[test]
    fn requests_of_browsers_are_refused() {
        let forbidden = Some(StatusCode::FORBIDDEN);
        assert_eq!(refused("127.0.0.1", CALL, &[GRPC, ("origin", "http://evil.com")]), forbidden);
        assert_eq!(refused("127.0.0.1", "/metrics", &[("origin", "null")]), forbidden);
        assert_eq!(refused("127.0.0.1", CALL, &[GRPC, ("host", "evil.com:7070")]), forbidden);
        assert_eq!(refused("::1", CALL, &[GRPC, ("host", "localhost.evil.org")]), forbidden);
        let form = ("content-type", "text/plain");
        let wrong_type = Some(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        for headers in [&[form][..], &[], &[("content-type", "application/grpcx")]] {
            assert_eq!(refused("10.0.0.1", CALL, headers), wrong_type);
        }
    }

    #[test]
    fn calls_of_clients_are_answered() {
        for host in
            ["127.0.0.1:7070", "[::1]:7070", "localhost:7070", "box", "BOX:1", "a.localhost"]
        {
            assert_eq!(refused("127.0.0.1", CALL, &[GRPC, ("host", host)]), None, "{host}");
        }
        assert_eq!(refused("127.0.0.1", "http://127.0.0.1:7070/larder.v1.Node/X", &[GRPC]), None);
        // Only callers of this host are held to its names: others may know it by any.
        assert_eq!(refused("10.0.0.1", CALL, &[GRPC, ("host", "larder.svc:7070")]), None);
        assert_eq!(refused("127.0.0.1", "/healthz", &[("host", "any")]), None);
    }
}
