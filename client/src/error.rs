//! The error of the client: a coarse kind for programs, and for people the failure, its reason and
//! a hint.

pub(crate) mod warnings;

use std::{error, fmt, sync::Arc};

use larder_base::{Advice, ErrorKind};
use larder_dataset::OriginUri;

/// A failure, its reason, and a hint. Cheap to clone.
#[derive(Clone)]
pub struct Error {
    inner: Arc<ErrorParts>,
}

#[derive(Clone)]
struct ErrorParts {
    kind: ErrorKind,
    what: String,
    why: Option<String>,
    hint: Option<String>,
    source: Option<Arc<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind. `what` names the failure, in lower case and without a full stop.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        let inner = ErrorParts { kind, what: what.into(), why: None, hint: None, source: None };
        Self { inner: Arc::new(inner) }
    }

    /// Adds the reason in words.
    #[must_use]
    pub fn because(self, why: impl fmt::Display) -> Self {
        self.change(|inner| inner.why = Some(why.to_string()))
    }

    /// Adds a hint for the user.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        self.change(|inner| inner.hint = Some(hint.into()))
    }

    /// Adds the underlying error. Its text becomes the reason unless one is given.
    #[must_use]
    pub fn with_source(self, source: impl error::Error + Send + Sync + 'static) -> Self {
        self.change(|inner| {
            inner.why.get_or_insert_with(|| chain(&source));
            inner.source = Some(Arc::new(source));
        })
    }

    /// Wraps the error: `what` failed, because of this error.
    #[must_use]
    pub fn context(self, what: impl Into<String>) -> Self {
        self.change(|inner| {
            let before = std::mem::replace(&mut inner.what, what.into());
            inner.why = Some(match inner.why.take() {
                Some(why) => format!("{before}: {why}"),
                None => before,
            });
        })
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The advice to the caller: short for `kind().advice()`.
    pub fn advice(&self) -> Advice {
        self.inner.kind.advice()
    }

    /// The failure.
    pub fn what(&self) -> &str {
        &self.inner.what
    }

    /// The reason, if there is one.
    pub fn why(&self) -> Option<&str> {
        self.inner.why.as_deref()
    }

    /// The hint for the user, if there is one.
    pub fn advice_text(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }

    /// Adds a hint to the error of opening or indexing `uri`. An error of a node has no hint, and
    /// often comes from the origin.
    pub(crate) fn hint_at_opening(self, uri: &OriginUri) -> Self {
        if self.advice_text().is_some() {
            return self;
        }
        match self.kind() {
            ErrorKind::OriginUnavailable => {
                self.hint(format!("larder doctor {uri} says what of the origin can be reached"))
            }
            ErrorKind::PermissionDenied => {
                self.hint(format!("larder doctor {uri} says which rights are missing"))
            }
            ErrorKind::NotFound => {
                self.hint(format!("check the address; larder doctor {uri} says what is there"))
            }
            ErrorKind::DataChanged => {
                self.hint(format!("index it again: larder dataset index {uri}"))
            }
            _ => self,
        }
    }

    /// Adds a hint to the error of reading rows of an open dataset.
    pub(crate) fn hint_at_reading(self, uri: &OriginUri) -> Self {
        if self.advice_text().is_some() {
            return self;
        }
        match self.kind() {
            ErrorKind::Unauthenticated | ErrorKind::NotFound => {
                self.hint(format!("open the dataset again; larder doctor {uri} says what is there"))
            }
            ErrorKind::ResourceExhausted => self.hint(
                "larder node show says how full a node is: give it more --memory, or read less at once",
            ),
            ErrorKind::Unavailable => self.hint(
                "larder doctor says which nodes answer, given the same LARDER_CLUSTER or --cluster",
            ),
            ErrorKind::DataLoss => self.hint(format!(
                "larder dataset verify {uri} says which files differ: write those again"
            )),
            ErrorKind::VersionMismatch => {
                self.hint("run the same version of Larder here and on the nodes")
            }
            _ => self.hint_at_opening(uri),
        }
    }

    fn change(mut self, change: impl FnOnce(&mut ErrorParts)) -> Self {
        change(Arc::make_mut(&mut self.inner));
        self
    }
}

/// The texts of an error and of its sources, joined. Skips a text that the next one repeats.
fn chain(error: &(dyn error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let reason = source.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        next = source.source();
    }
    text
}

/// `what: why`, without the hint.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.what)?;
        self.inner.why.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.inner.kind)?;
        self.inner.hint.as_ref().map_or(Ok(()), |hint| write!(f, " (hint: {hint})"))
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

/// Keeps the kind of a node's error. Its message becomes the failure.
impl From<larder_base::Error> for Error {
    fn from(error: larder_base::Error) -> Self {
        let failed = Self::new(error.kind(), error.message());
        match error.hint() {
            Some(hint) => failed.hint(hint),
            None => failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_has_context_and_cause_but_not_the_hint() {
        let error = Error::new(ErrorKind::Unavailable, "node b does not answer")
            .because("connection refused")
            .hint("start it")
            .context("cannot read 3 rows");
        assert_eq!(
            error.to_string(),
            "cannot read 3 rows: node b does not answer: connection refused"
        );
        assert_eq!(error.advice_text(), Some("start it"));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn cause_is_the_text_of_the_source_errors() {
        let io = std::io::Error::other("disk on fire");
        let error = Error::new(ErrorKind::Internal, "cannot read").with_source(io);
        assert_eq!(error.to_string(), "cannot read: disk on fire");
    }

    fn uri() -> OriginUri {
        OriginUri::parse("s3://bucket/data").unwrap()
    }

    #[test]
    fn node_error_keeps_its_hint_or_gets_one_for_its_kind() {
        let hint = |error: Error| error.hint_at_opening(&uri()).advice_text().map(str::to_owned);
        for kind in [ErrorKind::OriginUnavailable, ErrorKind::PermissionDenied, ErrorKind::NotFound]
        {
            let found = hint(Error::new(kind, "the call to node a failed")).unwrap();
            assert!(found.contains("larder doctor s3://bucket/data"), "{found}");
        }
        let changed = Error::new(ErrorKind::DataChanged, "the call to node a failed");
        assert_eq!(hint(changed).unwrap(), "index it again: larder dataset index s3://bucket/data");
        let own = Error::new(ErrorKind::PermissionDenied, "no").hint("ask for it");
        assert_eq!(hint(own).unwrap(), "ask for it");
    }

    #[test]
    fn read_errors_have_hints_except_invalid_argument_and_internal() {
        for &kind in ErrorKind::ALL {
            let error = Error::new(kind, "node a answered").hint_at_reading(&uri());
            let own = matches!(kind, ErrorKind::InvalidArgument | ErrorKind::Internal);
            assert_eq!(error.advice_text().is_none(), own, "{error:?}");
        }
        let own = Error::new(ErrorKind::DataLoss, "no").hint("look");
        assert_eq!(own.hint_at_reading(&uri()).advice_text(), Some("look"));
    }
}
