//! Addresses: the place of a dataset, and a version of it.
//!
//! An [`OriginUri`] is checked once, when it is parsed. It has a known scheme, a bucket of allowed
//! characters, and a path without empty, `.` or `..` segments. Paths are taken literally: nothing
//! is percent-decoded.

use std::{fmt, str::FromStr, sync::Arc};

use larder_base::limits::URI_BYTES_MAX;

/// Longest tag, in bytes: it becomes one file name.
const TAG_BYTES_MAX: usize = 128;

/// Why a string is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a dataset address: {why}")]
pub struct UriError {
    text: String,
    why: &'static str,
}

impl UriError {
    /// Returns the reason alone, for a caller with a message of its own.
    pub fn why(&self) -> &'static str {
        self.why
    }

    /// Returns the address that the text probably means, as advice. `None` without a guess.
    pub fn hint(&self) -> Option<String> {
        if let Some(rest) = ["https://", "http://"].iter().find_map(|s| self.text.strip_prefix(s)) {
            return Some(match of_web_address(rest) {
                Some(address) => format!("write {address}"),
                None => {
                    "write s3://bucket/prefix, and set AWS_ENDPOINT_URL to the address of the store"
                        .to_owned()
                }
            });
        }
        let (before, _) = self.text.split_once('*')?;
        let folder = &before[..before.rfind('/')?];
        let names_folder = OriginUri::parse(folder).is_ok();
        names_folder.then(|| format!("name the prefix that the files lie under: {folder}"))
    }
}

/// Returns the address of what a URL of S3, GCS or Azure names, from the text after its scheme.
fn of_web_address(rest: &str) -> Option<String> {
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.split(':').next().unwrap_or(host);
    let is_s3 = |label: &str| label == "s3" || label.starts_with("s3-");
    let labels: Vec<&str> = host.split('.').collect();
    let address = if host == "storage.googleapis.com" {
        format!("gs://{path}")
    } else if let Some(bucket) = host.strip_suffix(".storage.googleapis.com") {
        format!("gs://{bucket}/{path}")
    } else if host.ends_with(".blob.core.windows.net") {
        format!("az://{path}")
    } else {
        match labels.iter().rposition(|label| is_s3(label))? {
            0 => format!("s3://{path}"),
            at => format!("s3://{}/{path}", labels[..at].join(".")),
        }
    };
    OriginUri::parse(address.trim_end_matches('/')).ok().map(|uri| uri.to_string())
}

/// The kinds of origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Amazon S3 or anything that speaks its protocol: `s3://bucket/prefix`.
    S3,
    /// Google Cloud Storage: `gs://bucket/prefix`.
    Gs,
    /// Azure Blob Storage: `az://container/prefix`.
    Az,
    /// A local folder: `file:///absolute/path`.
    File,
}

impl Scheme {
    /// Returns the scheme as it is written before `://`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gs => "gs",
            Self::Az => "az",
            Self::File => "file",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::S3, Self::Gs, Self::Az, Self::File].into_iter().find(|s| s.as_str() == text)
    }
}

/// The address of a prefix or an object. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OriginUri {
    scheme: Scheme,
    bucket: Arc<str>,
    path: Arc<str>,
}

impl OriginUri {
    /// Parses `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or
    /// `file:///folder`. A trailing `/` is dropped.
    ///
    /// # Errors
    /// Says which part is missing or not allowed.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        let refused = |why| refuse(text, why);
        if text.len() > URI_BYTES_MAX {
            return Err(refused("it is longer than 4,096 bytes"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            refused("expected s3://bucket/prefix, gs://, az:// or file:///folder")
        })?;
        let scheme = Scheme::parse(scheme)
            .ok_or_else(|| refused("its scheme is none of s3, gs, az and file"))?;
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        if scheme == Scheme::File {
            if !bucket.is_empty() {
                return Err(refused("a folder is written with three slashes: file:///folder"));
            }
        } else if !is_bucket(bucket) {
            return Err(refused("the bucket is missing or has characters a bucket can't have"));
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.contains('*') {
            return Err(refused("patterns are not understood"));
        }
        if !path.is_empty() {
            check_path(path).map_err(refused)?;
        }
        Ok(Self { scheme, bucket: bucket.into(), path: path.into() })
    }

    /// Returns the kind of origin.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the bucket or container; empty for a local folder.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the path inside the bucket (or from the root of the file system), without `/` at its
    /// ends.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the address of `relative` under this one.
    ///
    /// # Errors
    /// If `relative` has empty, `.` or `..` segments or control characters, or the result is too
    /// long.
    pub fn join(&self, relative: &str) -> Result<Self, UriError> {
        self.check_relative(relative).map_err(|why| refuse(relative, why))?;
        let path = if self.path.is_empty() {
            relative.into()
        } else {
            format!("{}/{relative}", self.path).into()
        };
        Ok(Self { scheme: self.scheme, bucket: Arc::clone(&self.bucket), path })
    }

    /// Checks that `relative` can be [joined](Self::join), without memory for the address.
    pub(crate) fn check_relative(&self, relative: &str) -> Result<(), &'static str> {
        check_path(relative)?;
        match self.path.len() + relative.len() + 1 > URI_BYTES_MAX {
            true => Err("it is longer than 4,096 bytes"),
            false => Ok(()),
        }
    }

    /// Returns whether this address is `prefix` or lies under it, in whole path segments.
    pub fn starts_with(&self, prefix: &Self) -> bool {
        self.scheme == prefix.scheme
            && self.bucket == prefix.bucket
            && (prefix.path.is_empty()
                || self
                    .path
                    .strip_prefix(&*prefix.path)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

impl fmt::Display for OriginUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.bucket)?;
        if self.path.is_empty() && self.scheme != Scheme::File {
            return Ok(());
        }
        write!(f, "/{}", self.path)
    }
}

impl fmt::Debug for OriginUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for OriginUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        Self::parse(text)
    }
}

/// A dataset and a version of it: `s3://bucket/prefix@v3`. Without a tag the version is `latest`. A
/// tag of 64 hex digits is the id of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DatasetRef {
    uri: OriginUri,
    tag: String,
}

impl DatasetRef {
    /// The tag used if none is named.
    pub const TAG_DEFAULT: &str = "latest";

    /// Parses `URI` or `URI@TAG`. The last `@` of the last path segment begins the tag.
    ///
    /// # Errors
    /// As [`OriginUri::parse`]; and a tag has 1 to 128 of letters, digits, `.`, `_` and `-`.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        let last_segment = text.rfind('/').map_or(0, |at| at + 1);
        let (uri, tag) = match text[last_segment..].rfind('@') {
            Some(at) => (&text[..last_segment + at], &text[last_segment + at + 1..]),
            None => (text, Self::TAG_DEFAULT),
        };
        check_tag(tag).map_err(|why| refuse(text, why))?;
        Ok(Self { uri: OriginUri::parse(uri)?, tag: tag.into() })
    }

    /// Refers to the dataset at `uri` by its tag `latest`.
    pub fn latest(uri: OriginUri) -> Self {
        Self { uri, tag: Self::TAG_DEFAULT.into() }
    }

    /// Returns the address of the dataset.
    pub fn uri(&self) -> &OriginUri {
        &self.uri
    }

    /// Returns the tag, `latest` if none was named.
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl fmt::Display for DatasetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.uri, self.tag)
    }
}

impl FromStr for DatasetRef {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        Self::parse(text)
    }
}

/// Checks a path that is relative to some prefix: an object's key, for example.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.len() > URI_BYTES_MAX {
        return Err("it is longer than 4,096 bytes");
    }
    if path.bytes().any(|b| b.is_ascii_control()) {
        return Err("it holds a control character");
    }
    for segment in path.split('/') {
        match segment {
            "" => return Err("it has an empty path segment"),
            "." | ".." => return Err("it has a '.' or '..' path segment"),
            _ => {}
        }
    }
    Ok(())
}

/// Checks a tag, which becomes a file name.
pub(crate) fn check_tag(tag: &str) -> Result<(), &'static str> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if tag.is_empty() || tag.len() > TAG_BYTES_MAX {
        return Err("a tag has 1 to 128 characters");
    }
    if tag.starts_with('.') || !tag.bytes().all(allowed) {
        return Err("a tag holds letters, digits, '.', '_' and '-' and does not begin with '.'");
    }
    Ok(())
}

fn is_bucket(bucket: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'$');
    (1..=255).contains(&bucket.len()) && bucket.bytes().all(allowed) && !bucket.starts_with('.')
}

pub(crate) fn refuse(text: &str, why: &'static str) -> UriError {
    UriError { text: text.chars().take(256).collect(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> OriginUri {
        OriginUri::parse(text).unwrap()
    }

    #[test]
    fn address_is_parsed_and_displayed() {
        for text in ["s3://bucket/a/b", "s3://bucket", "gs://b/x", "az://c/y", "file:///tmp/d"] {
            assert_eq!(uri(text).to_string(), text);
        }
        let a = uri("s3://bucket/a/b/");
        assert_eq!((a.scheme(), a.bucket(), a.path()), (Scheme::S3, "bucket", "a/b"));
        assert_eq!(uri("file:///tmp/d").path(), "tmp/d");
        assert_eq!(uri("s3://b").join("k/x").unwrap().to_string(), "s3://b/k/x");
    }

    #[test]
    fn a_prefix_ends_where_a_segment_ends() {
        assert!(uri("s3://b/a/x").starts_with(&uri("s3://b/a")));
        assert!(uri("s3://b/a").starts_with(&uri("s3://b/a")));
        assert!(uri("s3://b/a").starts_with(&uri("s3://b")));
        assert!(!uri("s3://b/ab").starts_with(&uri("s3://b/a")));
        assert!(!uri("s3://bb/a").starts_with(&uri("s3://b")));
        assert!(!uri("gs://b/a").starts_with(&uri("s3://b/a")));
    }

    #[test]
    fn refuses_addresses_that_climb_or_confuse() {
        for text in [
            "",
            "bucket/x",
            "http://b/x",
            "s3://",
            "s3:///x",
            "s3://b//x",
            "s3://b/a/../c",
            "s3://b/./c",
            "file://host/x",
            "s3://b/a\nb",
            "s3://b a/x",
            "s3://b/x//",
        ] {
            assert!(OriginUri::parse(text).is_err(), "{text}");
        }
        assert!(uri("s3://b/a").join("../x").is_err());
        assert!(uri("s3://b/a").join("/x").is_err());
        assert!(uri("s3://b/a").join("").is_err());
    }

    #[test]
    fn web_address_ends_in_hint_with_its_bucket() {
        let hint = |text: &str| DatasetRef::parse(text).unwrap_err().hint();
        for (text, address) in [
            ("https://bucket.s3.amazonaws.com", "s3://bucket"),
            ("https://bucket.s3.us-west-2.amazonaws.com/a/b/", "s3://bucket/a/b"),
            ("https://my.bucket.s3-eu-west-1.amazonaws.com/a?x=1", "s3://my.bucket/a"),
            ("https://s3.us-west-2.amazonaws.com/bucket/a", "s3://bucket/a"),
            ("http://bucket.s3.example.org:9000/a", "s3://bucket/a"),
            ("https://storage.googleapis.com/bucket/a", "gs://bucket/a"),
            ("https://bucket.storage.googleapis.com/a", "gs://bucket/a"),
            ("https://account.blob.core.windows.net/container/a", "az://container/a"),
        ] {
            assert_eq!(hint(text), Some(format!("write {address}")), "{text}");
        }
        for text in ["http://localhost:9000/bucket/a", "https://s3.amazonaws.com"] {
            let endpoint = hint(text).is_some_and(|hint| hint.contains("set AWS_ENDPOINT_URL"));
            assert!(endpoint, "{text}");
        }
        assert_eq!(hint("imagenet"), None);
    }

    #[test]
    fn pattern_is_refused_with_the_prefix_before_it() {
        for (text, prefix) in [
            ("s3://b/p/*.npy", Some("s3://b/p")),
            ("s3://b/p/part-*/x@v3", Some("s3://b/p")),
            ("s3://b/*", Some("s3://b")),
            ("s3://*/p", None),
        ] {
            let error = DatasetRef::parse(text).unwrap_err();
            let hint = prefix.map(|p| format!("name the prefix that the files lie under: {p}"));
            assert_eq!(error.hint(), hint, "{text}");
            assert!(hint.is_none() || error.why() == "patterns are not understood", "{text}");
        }
    }

    #[test]
    fn a_reference_has_a_tag_or_means_latest() {
        let named = DatasetRef::parse("s3://b/p@v3").unwrap();
        assert_eq!((named.uri().to_string().as_str(), named.tag()), ("s3://b/p", "v3"));
        assert_eq!(DatasetRef::parse("s3://b/p").unwrap().tag(), "latest");
        assert_eq!(DatasetRef::parse("s3://b/p@x/q").unwrap().uri().path(), "p@x/q");
        for text in ["s3://b/p@", "s3://b/p@a b", "s3://b/p@..", "s3://b/p@.hidden"] {
            assert!(DatasetRef::parse(text).is_err(), "{text}");
        }
    }
}
