//! The strict read: exactly these bytes of exactly this version of an object, or an error that says
//! which of the two could not be had.
//!
//! The request carries the range and `If-Match`; the answer must be a 206 with exactly that range, the
//! expected total and the expected etag (the library checks the first two, we check all of them), and
//! the body is counted here, because nothing else is to be trusted with where bytes go.

use std::{
    fs::File,
    io,
    ops::{ControlFlow, Range},
    os::unix::fs::FileExt,
    sync::Arc,
};

use futures_util::TryStreamExt;
use larder_base::{limits, root_cause};
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, ObjectStore};

use super::{Origin, OriginError, store_path, words};
use crate::{Manifest, OriginUri, PartRead};

/// Why a read did not give the bytes that were asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The object is another one than was indexed.
    #[error("{object} changed since it was indexed ({why}): index the dataset again")]
    Changed {
        /// Which object.
        object: OriginUri,
        /// What differs.
        why: String,
    },
    /// The body ended early.
    #[error("{object}: the answer ended after {got} of {wanted} bytes")]
    Truncated {
        /// Which object.
        object: OriginUri,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that came.
        got: u64,
    },
    /// The body went on after the last byte that was asked for.
    #[error("{object}: more than the {wanted} bytes asked for came")]
    Overlong {
        /// Which object.
        object: OriginUri,
        /// Bytes asked for.
        wanted: u64,
    },
    /// The answer is for other bytes than were asked for.
    #[error("{object}: the store did not answer the request that was made: {why}")]
    NotAsAsked {
        /// Which object.
        object: OriginUri,
        /// What differs.
        why: String,
    },
    /// The store refused, could not be reached, timed out, is overloaded or failed.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The sink asked for no more.
    #[error("the read of {object} was stopped by its caller")]
    Stopped {
        /// Which object.
        object: OriginUri,
    },
}

impl FetchError {
    /// Whether the same request may succeed when it is made again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Truncated { .. } | Self::Overlong { .. } | Self::NotAsAsked { .. } => true,
            Self::Origin(error) => {
                !matches!(error, OriginError::NotFound { .. } | OriginError::Denied { .. })
            }
            Self::Changed { .. } | Self::Stopped { .. } => false,
        }
    }

    /// Whether this is an answer of the store that is final, taken at its word, and yet known to be
    /// given by mistake: denied, changed or gone. Worth asking once more before others are told.
    pub fn may_be_spurious(&self) -> bool {
        match self {
            Self::Changed { .. } => true,
            Self::Origin(error) => {
                matches!(error, OriginError::NotFound { .. } | OriginError::Denied { .. })
            }
            _ => false,
        }
    }

    /// Whether the dataset has to be indexed again.
    pub fn is_changed(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }
}

/// A version of an object from which bytes are wanted.
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
    /// Makes one attempt to read one part of a dataset and hands its bytes, in order and exactly as
    /// many as were asked for, to `sink`. What reached the sink before an error must be discarded.
    ///
    /// # Errors
    /// [`FetchError`] says whether to try again ([`FetchError::is_retryable`]) or why that would not
    /// help.
    pub async fn read_exact_range(
        &self,
        manifest: &Manifest,
        part: &PartRead,
        sink: Sink<'_>,
    ) -> Result<(), FetchError> {
        let target = target(manifest, part);
        self.read_exact(&self.strict, &target, part.object_offset, part.bytes, sink)
            .await
            .map(|_| ())
    }

    /// As [`Origin::read_exact_range`] with a few retries of its own, into memory.
    pub(crate) async fn read_part(
        &self,
        manifest: &Manifest,
        part: &PartRead,
    ) -> Result<Vec<u8>, FetchError> {
        let read =
            self.read_header(&target(manifest, part), part.object_offset, part.bytes).await?;
        Ok(read.0)
    }

    /// As [`Origin::read_exact_range`] with a few retries of its own, into memory, for headers. Also
    /// gives the version that the store says it answered with.
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
        let version = self.read_exact(&self.store, target, offset, bytes, &mut sink).await?;
        Ok((read, version))
    }

    async fn read_exact(
        &self,
        store: &Arc<dyn ObjectStore>,
        target: &Target,
        offset: u64,
        bytes: u64,
        sink: Sink<'_>,
    ) -> Result<Option<String>, FetchError> {
        if bytes == 0 {
            return Ok(None);
        }
        let object = &target.object;
        let path = store_path(object)?;
        let options = GetOptions {
            if_match: target.etag.clone(),
            version: target.version.clone(),
            range: Some(GetRange::Bounded(offset..offset + bytes)),
            ..GetOptions::default()
        };
        self.check_kind(object).await?;
        let result = self.request(store, (object, &path), options).await;
        let result = result.map_err(|error| from_store(object, &error))?;
        self.check_opened(object, &result).await?;
        check_answer(&result, target, offset, bytes)?;
        let version = result.meta.version.clone();
        let mut counted = Counted { object, left: bytes, wanted: bytes, sink };
        match result.payload {
            GetResultPayload::File(file, _) => {
                let range = offset..offset + bytes;
                self.read_file(object, file, range, |chunk| counted.take(chunk)).await?;
                // A file can be written to while it is read, so it is looked at once more.
                let options = GetOptions {
                    head: true,
                    if_match: target.etag.clone(),
                    ..GetOptions::default()
                };
                let after = self.request(store, (object, &path), options).await;
                after.map_err(|error| from_store(object, &error))?;
            }
            GetResultPayload::Stream(mut body) => {
                while let Some(chunk) =
                    body.try_next().await.map_err(|error| from_store(object, &error))?
                {
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
                buffer.resize(left.min(limits::LOCAL_READ_BYTES), 0);
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

/// The object that a part of a dataset lies in.
fn target(manifest: &Manifest, part: &PartRead) -> Target {
    let object = manifest.object(part.object);
    Target {
        object: manifest.uri().join(object.key).expect("keys are checked with the manifest"),
        etag: object.etag.map(str::to_owned),
        version: object.version.map(str::to_owned),
        size_bytes: object.size_bytes,
    }
}

/// The answer is for the range, the size and the etag that were asked for.
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

/// Counts what goes into the sink.
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
        let why = words::plain(error);
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

    /// An answer as a store could give it: its range, its total and its etag.
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
    fn only_the_range_the_total_and_the_etag_that_were_asked_for_are_accepted() {
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
    fn a_sink_may_stop_a_read() {
        let object = target(None).object;
        let mut sink = |_: &[u8]| ControlFlow::Break(());
        let mut counted = Counted { object: &object, wanted: 5, left: 5, sink: &mut sink };
        let error = counted.take(b"abc").unwrap_err();
        assert!(matches!(error, FetchError::Stopped { .. }) && !error.is_retryable());
    }
}
