//! Keys that can't be addressed. One of them makes the library refuse the page of the listing that
//! has it, so that no object of the prefix can be read.
//!
//! [`Listings`] stands between the library and the network. In each page of a listing in S3's form
//! it replaces such keys by marked ones, which the library takes: the mark, and the percent-encoded
//! rest of the key behind the listed prefix. [`marked_name`] reads them back. Then the object is
//! left out by its name.
//!
//! Thread rule: plain values. Non-goals: pages of Azure, which differ.

use std::{fmt::Write as _, future::Future, pin::Pin, str};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService, ReqwestConnector,
    },
    path::Path,
};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Begins a marked key. A character of the private use area, which no writer puts into keys.
const MARK: char = '\u{e0ad}';
/// Largest page of a listing: 1,000 keys take 1.5 MB at most, and some stores send more keys.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// Returns the name of an object whose key was marked, as it is in the store.
pub(super) fn marked_name(key: &str) -> Option<String> {
    let encoded = key.strip_prefix(MARK)?;
    Some(percent_decode_str(encoded).decode_utf8_lossy().into_owned())
}

/// Connects to a store whose listings are those of S3.
#[derive(Debug)]
pub(super) struct Listings;

impl HttpConnector for Listings {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Marking { client }))
    }
}

#[derive(Debug)]
struct Marking {
    client: HttpClient,
}

impl HttpService for Marking {
    fn call<'service, 'call>(
        &'service self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'call>>
    where
        'service: 'call,
    {
        Box::pin(async move {
            let Some(prefix) = listed_prefix(&request) else {
                return self.client.execute(request).await;
            };
            let response = self.client.execute(request).await?;
            if !response.status().is_success() {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            let page = whole(body).await?;
            let page = marked(&page, &prefix).map_or(page, Bytes::from);
            Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(page)))
        })
    }
}

/// Returns the prefix that a request lists. `None` if it is no listing.
fn listed_prefix(request: &HttpRequest) -> Option<String> {
    let query = request.uri().query()?;
    let value = |name: &str| {
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let is_listing = request.method() == "GET" && value("list-type").is_some();
    is_listing.then(|| value("prefix").unwrap_or_default())
}

/// Reads a page, which the library would read whole as well.
async fn whole(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let mut page = Vec::new();
    let mut stream = body.bytes_stream();
    while let Some(piece) = stream.try_next().await? {
        if page.len() + piece.len() > PAGE_BYTES_MAX {
            let why = format!("a page of the listing has more than {PAGE_BYTES_MAX} bytes");
            return Err(HttpError::new(HttpErrorKind::Decode, std::io::Error::other(why)));
        }
        page.extend_from_slice(&piece);
    }
    Ok(page.into())
}

/// Returns the page with marked keys. `None` if all keys can be addressed.
fn marked(page: &[u8], prefix: &str) -> Option<String> {
    let (open, close) = ("<Key>", "</Key>");
    let mut rest = str::from_utf8(page).ok()?;
    let mut out = String::new();
    let mut kept = rest;
    while let Some(at) = rest.find(open) {
        let behind = &rest[at + open.len()..];
        let end = behind.find(close)?;
        let key = quick_xml::escape::unescape(&behind[..end]).ok()?;
        rest = &behind[end..];
        if is_addressable(&key) {
            continue;
        }
        let (listed, name) = match key.strip_prefix(prefix) {
            Some(name) => (prefix, name),
            None => ("", &*key),
        };
        out.push_str(&kept[..kept.len() - behind.len()]);
        out.push_str(&quick_xml::escape::escape(listed));
        let _ = write!(out, "{MARK}{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
        kept = rest;
    }
    if out.is_empty() {
        return None;
    }
    out.push_str(kept);
    Some(out)
}

/// Returns whether requests can name a key. The library drops a slash at its begin, which would
/// make another key of it.
fn is_addressable(key: &str) -> bool {
    !key.starts_with('/') && Path::parse(key).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[&str]) -> String {
        let contents = keys.iter().map(|key| format!("<Contents><Key>{key}</Key></Contents>"));
        format!("<ListBucketResult>{}</ListBucketResult>", contents.collect::<String>())
    }

    #[test]
    fn keys_that_no_request_can_name_are_marked_and_read_back() {
        let bad = ["d//x", "d/./x", "d/a&#10;b", "/x", "d/../x", "d/&amp;//"];
        for key in bad {
            let text = marked(page(&["d/a", key, "d/b"]).as_bytes(), "d/").expect("marked");
            let keys: Vec<&str> = text
                .split("<Key>")
                .skip(1)
                .filter_map(|part| part.split("</Key>").next())
                .collect();
            assert_eq!((keys[0], keys[2], keys.len()), ("d/a", "d/b", 3), "{text}");
            let stored = quick_xml::escape::unescape(key).expect("valid").into_owned();
            let name = keys[1].strip_prefix("d/").unwrap_or(keys[1]);
            let whole = marked_name(name).expect("a marked key");
            assert_eq!(whole, stored.strip_prefix("d/").unwrap_or(&stored));
            assert!(is_addressable(keys[1]), "{}", keys[1]);
        }
        let good = page(&["d/", "d/a b", "d/a&amp;b", "d/._x"]);
        assert_eq!(marked(good.as_bytes(), "d/"), None);
        assert_eq!(marked_name("a"), None);
    }
}
