//! The strict read: returns exactly the requested bytes of the requested version of an object.
//! Otherwise it returns an error that says which of the two failed.
//!
//! The request carries the range and `If-Match`. The answer must be a 206 with exactly that range,
//! the expected total and the expected etag. The library checks the first two; this module checks
//! all three, and counts the bytes of the body, before it trusts any of them.

use std::{
    fs::File,
    io,
    ops::{ControlFlow, Range},
    os::unix::fs::FileExt,
};

use futures_util::TryStreamExt;
use larder_base::root_cause;
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload};

use super::{Origin, OriginError, messages, ways::Tries};
use crate::{Damaged, Leaf, OriginUri};

/// Bytes read at a time from a local file.
const LOCAL_READ_BYTES: usize = 1 << 20;

/// Why a read did not give the requested bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The object is not the version that was indexed.
    #[error("{object} changed since it was indexed ({why}): index the dataset again")]
    Changed {
        /// The object.
        object: OriginUri,
        /// The difference.
        why: String,
    },
    /// The body ended early.
    #[error("{object}: the answer ended after {got} of {wanted} bytes")]
    Truncated {
        /// The object.
        object: OriginUri,
        /// Bytes requested.
        wanted: u64,
        /// Bytes received.
        got: u64,
    },
    /// The body went on after the last requested byte.
    #[error("{object}: more than the {wanted} bytes asked for came")]
    Overlong {
        /// The object.
        object: OriginUri,
        /// Bytes requested.
        wanted: u64,
    },
    /// The answer is for other bytes than the requested ones.
    #[error("{object}: the store did not answer the request that was made: {why}")]
    NotAsAsked {
        /// The object.
        object: OriginUri,
        /// The difference.
        why: String,
    },
    /// The bytes are of the version that was indexed, and can't be decoded to its rows.
    #[error("{object} can't be decoded: {why}: write the file again")]
    Damaged {
        /// The object.
        object: OriginUri,
        /// The place and the mistake.
        why: String,
    },
    /// The store refused, could not be reached, timed out, is overloaded or failed.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The sink asked for no more.
    #[error("the read of {object} was stopped by its caller")]
    Stopped {
        /// The object.
        object: OriginUri,
    },
}

impl FetchError {
    /// Returns whether the same request may succeed if it is repeated.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Truncated { .. } | Self::Overlong { .. } | Self::NotAsAsked { .. } => true,
            Self::Origin(error) => !matches!(
                error,
                OriginError::NotFound { .. }
                    | OriginError::Denied { .. }
                    | OriginError::Unsupported { .. }
            ),
            Self::Changed { .. } | Self::Damaged { .. } | Self::Stopped { .. } => false,
        }
    }

    /// Returns whether this is a final answer of the store that stores are known to give by
    /// mistake: denied, changed or not found. The caller should ask once more before it reports the
    /// error.
    pub fn may_be_spurious(&self) -> bool {
        match self {
            Self::Changed { .. } => true,
            Self::Origin(error) => {
                matches!(error, OriginError::NotFound { .. } | OriginError::Denied { .. })
            }
            _ => false,
        }
    }

    /// Returns whether the store has too many requests: it says so, or is too slow.
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Origin(OriginError::Busy { .. }))
    }

    /// Returns whether a limit of this process is the cause. It says nothing of the store.
    pub fn is_of_this_process(&self) -> bool {
        matches!(self, Self::Origin(OriginError::NoDescriptor { .. }))
    }

    /// Returns whether the dataset must be indexed again.
    pub fn is_changed(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }
}

impl From<Damaged> for FetchError {
    fn from(Damaged { object, why }: Damaged) -> Self {
        Self::Damaged { object, why }
    }
}

/// A version of an object to read bytes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) object: OriginUri,
    pub(crate) etag: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) size_bytes: u64,
}

/// Takes the bytes of a read, in order; `Break` ends it.
type Sink<'a> = &'a mut (dyn FnMut(&[u8]) -> ControlFlow<()> + Send);

impl Origin {
    /// Reads a range of an object of a dataset in one attempt. Hands the bytes to `sink`, in order
    /// and exactly as many as requested. After an error the caller must discard the bytes that
    /// reached the sink.
    ///
    /// # Errors
    /// [`FetchError::is_retryable`] says whether a repeated attempt may succeed; the error says
    /// why.
    ///
    /// # Panics
    /// If the leaf has no such object.
    pub async fn read_exact_range(
        &self,
        leaf: &Leaf,
        object: u32,
        range: &Range<u64>,
        sink: Sink<'_>,
    ) -> Result<(), FetchError> {
        let (target, bytes) = (target(leaf, object), range.end - range.start);
        self.read_exact(Tries::One, &target, range.start, bytes, sink).await.map(|_| ())
    }

    /// Reads as [`Origin::read_exact_range`], with retries, into memory.
    pub(crate) async fn read_range(
        &self,
        leaf: &Leaf,
        object: u32,
        range: &Range<u64>,
    ) -> Result<Vec<u8>, FetchError> {
        let (target, bytes) = (target(leaf, object), range.end - range.start);
        Ok(self.read_header(&target, range.start, bytes).await?.0)
    }

    /// Reads a header as [`Origin::read_exact_range`], with retries, into memory. Also
    /// returns the version that the store names in its answer.
    pub(crate) async fn read_header(
        &self,
        target: &Target,
        offset: u64,
        bytes: u64,
    ) -> Result<(Vec<u8>, Option<String>), FetchError> {
        let mut read = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        let mut sink = |chunk: &[u8]| {
            read.extend_from_slice(chunk);
            ControlFlow::Continue(())
        };
        let version = self.read_exact(Tries::ForAMinute, target, offset, bytes, &mut sink).await?;
        Ok((read, version))
    }

    /// Reads a whole object, with retries, as [`Origin::read_exact_range`].
    pub(crate) async fn read_whole(
        &self,
        target: &Target,
        sink: Sink<'_>,
    ) -> Result<(), FetchError> {
        self.read_exact(Tries::ForAMinute, target, 0, target.size_bytes, sink).await.map(|_| ())
    }

    async fn read_exact(
        &self,
        tries: Tries,
        target: &Target,
        offset: u64,
        bytes: u64,
        sink: Sink<'_>,
    ) -> Result<Option<String>, FetchError> {
        if bytes == 0 {
            return Ok(None);
        }
        let object = &target.object;
        check_etag(target)?;
        let options = GetOptions {
            if_match: target.etag.clone(),
            version: target.version.clone(),
            range: Some(GetRange::Bounded(offset..offset + bytes)),
            ..GetOptions::default()
        };
        let failed = |error| from_store(object, &error);
        let result = self.request(tries, object, options, failed).await?;
        check_answer(&result, target, offset, bytes)?;
        let version = result.meta.version.clone();
        let mut counted = Counted { object, left: bytes, wanted: bytes, sink };
        match result.payload {
            GetResultPayload::File(file, _) => {
                let range = offset..offset + bytes;
                self.read_file(object, file, range, |chunk| counted.take(chunk)).await?;
                // A file can be written to while it is read, so its etag is checked once more.
                let options = GetOptions {
                    head: true,
                    if_match: target.etag.clone(),
                    ..GetOptions::default()
                };
                self.request(tries, object, options, failed).await?;
            }
            GetResultPayload::Stream(mut body) => {
                while let Some(chunk) = body.try_next().await.map_err(failed)? {
                    counted.take(&chunk)?;
                }
            }
        }
        counted.finish()?;
        Ok(version)
    }

    /// Reads a local file in large pieces, off the async threads, until `range` or the file ends.
    pub(super) async fn read_file<E: From<OriginError>>(
        &self,
        object: &OriginUri,
        file: File,
        range: Range<u64>,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |error: io::Error| OriginError::Failed {
            object: object.clone(),
            why: root_cause(&error),
        };
        let mut at = range.start;
        let mut shared = (file, Vec::new());
        while at < range.end {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let read = self.local.run(object, move || {
                let (file, mut buffer) = shared;
                buffer.resize(left.min(LOCAL_READ_BYTES), 0);
                let read = read_up_to(&file, &mut buffer, at);
                ((file, buffer), read)
            });
            let (back, read) = read.await.map_err(|why| why.into_error(object))?;
            shared = back;
            let read = read.map_err(failed)?;
            if read == 0 {
                return Ok(());
            }
            take(&shared.1[..read])?;
            at += read as u64;
        }
        Ok(())
    }
}

/// Refuses a weak etag. No condition on it ever holds, so that each object would seem changed.
fn check_etag(target: &Target) -> Result<(), OriginError> {
    match &target.etag {
        Some(etag) if etag.starts_with("W/") => Err(OriginError::Unsupported {
            object: target.object.clone(),
            why: format!(
                "its etag {etag} is weak, so it doesn't tell whether the bytes are the same; a \
                 proxy that compresses makes etags weak: turn that off, or read past the proxy"
            ),
        }),
        _ => Ok(()),
    }
}

/// Returns the version of an object to read.
fn target(leaf: &Leaf, object: u32) -> Target {
    let found = leaf.object(object);
    Target {
        object: leaf.object_uri(object),
        etag: found.etag.map(str::to_owned),
        version: found.version.map(str::to_owned),
        size_bytes: found.size_bytes,
    }
}

/// Checks that the answer has the requested range, size and etag.
fn check_answer(
    result: &GetResult,
    target: &Target,
    offset: u64,
    bytes: u64,
) -> Result<(), FetchError> {
    let object = target.object.clone();
    let (found, wanted) = (result.meta.size, target.size_bytes);
    let bare = |etag: &str| etag.trim_matches('"').to_owned();
    match (&target.etag, &result.meta.e_tag) {
        (Some(wanted), Some(found)) if bare(wanted) != bare(found) => {
            let why = format!("its etag is {found} and was {wanted}");
            return Err(FetchError::Changed { object, why });
        }
        (Some(_), None) => {
            return Err(FetchError::NotAsAsked { object, why: "the answer has no etag".into() });
        }
        (Some(_), Some(_)) if found != wanted => {
            let why = format!("the total is {found} bytes where the same etag had {wanted}");
            return Err(FetchError::NotAsAsked { object, why });
        }
        (None, _) if found != wanted => {
            let why = format!("it has {found} bytes and had {wanted}");
            return Err(FetchError::Changed { object, why });
        }
        _ => {}
    }
    if let (Some(wanted), Some(found)) = (&target.version, &result.meta.version)
        && wanted != found
    {
        let why = format!("version {found} came where {wanted} was asked for");
        return Err(FetchError::NotAsAsked { object, why });
    }
    if result.range != (offset..offset + bytes) {
        let (start, end) = (result.range.start, result.range.end);
        let why =
            format!("bytes {start}..{end} came where {offset}..{} were asked for", offset + bytes);
        return Err(FetchError::NotAsAsked { object, why });
    }
    Ok(())
}

struct Counted<'a> {
    object: &'a OriginUri,
    wanted: u64,
    left: u64,
    sink: Sink<'a>,
}

impl Counted<'_> {
    fn take(&mut self, chunk: &[u8]) -> Result<(), FetchError> {
        let Some(left) = self.left.checked_sub(chunk.len() as u64) else {
            return Err(FetchError::Overlong { object: self.object.clone(), wanted: self.wanted });
        };
        self.left = left;
        match (self.sink)(chunk) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(FetchError::Stopped { object: self.object.clone() }),
        }
    }

    fn finish(self) -> Result<(), FetchError> {
        if self.left == 0 {
            return Ok(());
        }
        let got = self.wanted - self.left;
        Err(FetchError::Truncated { object: self.object.clone(), wanted: self.wanted, got })
    }
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn from_store(object: &OriginUri, error: &object_store::Error) -> FetchError {
    if matches!(error, object_store::Error::Precondition { .. }) {
        let why = messages::plain(error);
        return FetchError::Changed { object: object.clone(), why };
    }
    OriginError::from_store(object, error).into()
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectMeta, path::Path};

    use super::*;

    fn target(etag: Option<&str>) -> Target {
        Target {
            object: OriginUri::parse("s3://bucket/data/a").unwrap(),
            etag: etag.map(str::to_owned),
            version: None,
            size_bytes: 100,
        }
    }

    /// Makes an answer as a store gives it: range, total and etag.
    fn answer(range: Range<u64>, size: u64, e_tag: Option<&str>) -> GetResult {
        let meta = ObjectMeta {
            location: Path::from("data/a"),
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size,
            e_tag: e_tag.map(str::to_owned),
            version: None,
        };
        GetResult {
            payload: GetResultPayload::Stream(Box::pin(futures_util::stream::empty())),
            meta,
            range,
            attributes: object_store::Attributes::default(),
            extensions: object_store::Extensions::default(),
        }
    }

    #[test]
    fn weak_etag_is_refused_at_once_and_not_called_a_change() {
        let error = FetchError::from(check_etag(&target(Some("W/\"a\""))).unwrap_err());
        assert!(!error.is_retryable() && !error.is_changed(), "{error}");
        assert!(error.to_string().contains("weak"), "{error}");
        check_etag(&target(Some("\"a\""))).unwrap();
    }

    #[test]
    fn accepts_only_the_requested_range_total_and_etag() {
        let check = |result: GetResult, etag| check_answer(&result, &target(etag), 10, 20);
        check(answer(10..30, 100, Some("a")), Some("a")).unwrap();
        check(answer(10..30, 100, None), None).unwrap();
        let changed = [
            check(answer(10..30, 100, Some("b")), Some("a")),
            check(answer(10..30, 99, Some("b")), Some("a")),
            check(answer(10..30, 99, None), None),
        ];
        for result in changed {
            assert!(result.unwrap_err().is_changed());
        }
        let strange = [
            check(answer(10..30, 101, Some("a")), Some("a")),
            check(answer(10..30, 100, None), Some("a")),
            check(answer(0..100, 100, Some("a")), Some("a")),
            check(answer(11..31, 100, Some("a")), Some("a")),
            check(answer(10..29, 100, Some("a")), Some("a")),
        ];
        for result in strange {
            let error = result.unwrap_err();
            assert!(error.is_retryable() && !error.is_changed(), "{error}");
        }
    }

    #[test]
    fn bytes_are_counted_and_neither_more_nor_fewer_are_accepted() {
        let object = target(None).object;
        let mut taken = Vec::new();
        let mut sink = |chunk: &[u8]| {
            taken.extend_from_slice(chunk);
            ControlFlow::Continue(())
        };
        let mut counted = Counted { object: &object, wanted: 5, left: 5, sink: &mut sink };
        counted.take(b"abc").unwrap();
        let error = counted.take(b"def").unwrap_err();
        assert!(matches!(error, FetchError::Overlong { .. }) && error.is_retryable());
        let error = counted.finish().unwrap_err();
        assert!(matches!(error, FetchError::Truncated { wanted: 5, got: 3, .. }), "{error}");
        assert_eq!(taken, b"abc", "what is too much never reaches the sink");
    }

    #[test]
    fn sink_can_stop_a_read() {
        let object = target(None).object;
        let mut sink = |_: &[u8]| ControlFlow::Break(());
        let mut counted = Counted { object: &object, wanted: 5, left: 5, sink: &mut sink };
        let error = counted.take(b"abc").unwrap_err();
        assert!(matches!(error, FetchError::Stopped { .. }) && !error.is_retryable());
    }
}
