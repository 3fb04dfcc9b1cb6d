//! The pages of a listing.
//!
//! A page counts only if it is a listing from its begin to its end, and if it says where the next
//! page begins whenever there is one. Otherwise the library would take it as the last page, and the
//! rest of the objects would be lost in silence.
//!
//! One key that no request can name makes the library refuse the page that has it. So such keys are
//! replaced by marked ones, which the library takes: the mark, and the percent-encoded rest of the
//! key behind the listed prefix. [`marked_name`] reads them back. Then the object is left out by
//! its name.
//!
//! Thread rule: plain values. Non-goals: marks in pages of Azure, which differ.

use std::{fmt::Write as _, str};

use object_store::{client::HttpRequest, path::Path};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use quick_xml::{Reader, events::Event};

use super::messages;

/// Begins a marked key. A character of the private use area, which no writer puts into keys.
const MARK: char = '\u{e0ad}';

/// Returns the name of an object whose key was marked, as it is in the store.
pub(super) fn marked_name(key: &str) -> Option<String> {
    let encoded = key.strip_prefix(MARK)?;
    Some(percent_decode_str(encoded).decode_utf8_lossy().into_owned())
}

/// Why a page is no part of a listing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("a page of the listing {0}")]
    NoListing(String),
    #[error(
        "a page of the listing says that more keys follow, and not where: the store, or a proxy \
         before it, is faulty"
    )]
    NoToken,
    #[error("the listing does not advance: {0}; the store, or a proxy before it, is faulty")]
    Stuck(&'static str),
}

impl Fault {
    /// Returns whether the same request may get a right page.
    pub(super) fn may_pass(&self) -> bool {
        !matches!(self, Self::Stuck(_))
    }
}

const REPEATS: Fault = Fault::Stuck("the next page is the one that came");
/// For a listing without keys on many pages.
pub(super) const NO_KEYS: Fault = Fault::Stuck("page follows page, and none has a key");

/// A request for a page.
#[derive(Debug)]
pub(super) struct Asked {
    form: Form,
    prefix: String,
    token: String,
}

/// The words of a store for its listings.
#[derive(Debug)]
struct Form {
    root: &'static str,
    token: &'static str,
    key: &'static str,
}

const S3: Form = Form { root: "ListBucketResult", token: "NextContinuationToken", key: "<Key>" };
const AZURE: Form = Form { root: "EnumerationResults", token: "NextMarker", key: "<Name>" };

impl Asked {
    /// Reads a request. `None` if it asks for no listing.
    pub(super) fn by(request: &HttpRequest) -> Option<Self> {
        let query = request.uri().query()?;
        let value = |name: &str| {
            let mut pairs = url::form_urlencoded::parse(query.as_bytes());
            pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        let form = match value("list-type") {
            Some(_) => S3,
            None if value("comp").as_deref() == Some("list") => AZURE,
            None => return None,
        };
        let token = value("continuation-token").or_else(|| value("marker")).unwrap_or_default();
        let prefix = value("prefix").unwrap_or_default();
        (request.method() == "GET").then_some(Self { form, prefix, token })
    }

    /// Checks the page that came. Returns whether it has keys, or is the last one.
    pub(super) fn check(&self, page: &[u8]) -> Result<bool, Fault> {
        let Form { root, token, key } = &self.form;
        let page = str::from_utf8(page).map_err(|_| Fault::NoListing("is not UTF-8".into()))?;
        let page = page.trim_start_matches('\u{feff}');
        let broken = |error| Fault::NoListing(format!("is broken: {error}"));
        let mut reader = Reader::from_str(page);
        let (mut depth, mut is_listing) = (0_usize, false);
        loop {
            let event = reader.read_event().map_err(broken)?;
            if let Event::Start(start) | Event::Empty(start) = &event
                && depth == 0
            {
                is_listing = !is_listing && start.local_name().as_ref() == root.as_bytes();
                if !is_listing {
                    break;
                }
            }
            match event {
                Event::Start(_) => depth += 1,
                Event::End(_) => depth = depth.saturating_sub(1),
                Event::Eof => break,
                _ => {}
            }
        }
        if !is_listing || depth > 0 {
            return Err(Fault::NoListing(messages::not_a_listing(page)));
        }
        let next = messages::element(page, token).unwrap_or_default();
        let next = quick_xml::escape::unescape(next).unwrap_or(next.into());
        match &*next {
            "" if messages::element(page, "IsTruncated") == Some("true") => Err(Fault::NoToken),
            next if !next.is_empty() && next == self.token => Err(REPEATS),
            next => Ok(next.is_empty() || page.contains(key)),
        }
    }

    /// Returns the page with marked keys. `None` if all keys can be addressed.
    pub(super) fn marked(&self, page: &[u8]) -> Option<String> {
        marked(page, &self.prefix)
    }
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

    fn asked(query: &str) -> Asked {
        let uri = format!("http://h/bucket?{query}");
        let request = http::Request::get(uri).body(object_store::client::HttpRequestBody::empty());
        Asked::by(&request.expect("a request")).expect("a listing")
    }

    #[test]
    fn only_a_whole_listing_that_goes_on_counts_as_a_page() {
        let listing = |inner: &str| {
            format!(
                "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\">{inner}</ListBucketResult>"
            )
        };
        let (more, token) = ("<IsTruncated>true</IsTruncated>", "<NextContinuationToken>");
        let next = |to: &str| listing(&format!("{more}{token}{to}</NextContinuationToken>"));
        let no_listing = |page: &str| {
            matches!(asked("list-type=2").check(page.as_bytes()), Err(Fault::NoListing(_)))
        };
        let second = asked("list-type=2&continuation-token=a%26b&prefix=d%2F");
        assert_eq!(second.check(listing("").as_bytes()), Ok(true));
        assert_eq!(second.check(b"<ListBucketResult/>"), Ok(true));
        assert_eq!(second.check(next("c").as_bytes()), Ok(false));
        assert_eq!(second.check(next("a&amp;b").as_bytes()), Err(REPEATS));
        assert_eq!(second.check(next("").as_bytes()), Err(Fault::NoToken));
        assert_eq!(second.check(listing(more).as_bytes()), Err(Fault::NoToken));
        let keys = listing(&format!("{more}{token}c</NextContinuationToken><Key>k</Key>"));
        assert_eq!(second.check(keys.as_bytes()), Ok(true));
        let whole = next("c");
        assert!((0..whole.len()).all(|cut| no_listing(&whole[..cut])));
        for page in [
            "<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>",
            "<html><body>please log in</body></html>",
            "<!doctype html><p>one<p>two",
            "plain",
            "<ListBucketResult/><ListBucketResult/>",
        ] {
            assert!(no_listing(page), "{page}");
        }
        let azure = asked("restype=container&comp=list&marker=m");
        let page = "<EnumerationResults><NextMarker>m</NextMarker></EnumerationResults>";
        assert_eq!(azure.check(page.as_bytes()), Err(REPEATS));
    }

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
