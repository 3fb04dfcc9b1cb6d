//! Reads the headers of many files at once, in bounded memory.

use futures_util::{StreamExt, stream};
use larder_base::limits;
use tokio::sync::Semaphore;

use super::{IndexProgress, LeftOuts, Progress};
use crate::{DatasetError, ObjectInfo, Origin, OriginUri, origin::Target};

/// Headers larger than the first read that are in memory at the same time.
const LARGE_HEADERS: usize = 2;

/// A mistake in a file: the field, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileFault {
    pub(super) field: String,
    pub(super) why: String,
}

impl FileFault {
    pub(super) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }

    pub(super) fn of(self, object: OriginUri) -> DatasetError {
        DatasetError::File { object, field: self.field, why: self.why }
    }
}

/// A kind of file with a header at its beginning.
pub(super) trait Format {
    type Header;

    /// Returns the bytes of the header, from the first bytes of the file. Checks them against the
    /// limit of the format and the size of the file.
    fn header_bytes(&self, begin: &[u8], size_bytes: u64) -> Result<u64, FileFault>;

    /// Parses the header; `bytes` are as many as [`Format::header_bytes`] returned.
    fn parse(&self, bytes: &[u8], size_bytes: u64) -> Result<Self::Header, FileFault>;
}

/// Reads the header of each file that is not left out, several at a time, in their order. Notes
/// the version that the store answers with.
pub(super) async fn read_all<F: Format>(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    format: &F,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<Vec<(ObjectInfo, F::Header)>, DatasetError> {
    let total = files.len() as u64;
    let large = Semaphore::new(LARGE_HEADERS);
    let (mut headers, mut done) = (Vec::with_capacity(files.len()), 0);
    let read = async |file: ObjectInfo| {
        (file.key.clone(), read_one(origin, uri, file, format, &large).await)
    };
    let mut reads = stream::iter(files).map(read).buffered(limits::HEADERS_IN_FLIGHT);
    while let Some((key, header)) = reads.next().await {
        headers.extend(left_out.read(&key, header)?);
        done += 1;
        progress(IndexProgress::Headers { done, total });
    }
    Ok(headers)
}

async fn read_one<F: Format>(
    origin: &Origin,
    uri: &OriginUri,
    mut file: ObjectInfo,
    format: &F,
    large: &Semaphore,
) -> Result<(ObjectInfo, F::Header), DatasetError> {
    let object = uri.join(&file.key)?;
    if file.etag.is_none() {
        file.etag = origin.head(&object).await?.etag;
    }
    let mut target = Target {
        object: object.clone(),
        etag: file.etag.clone(),
        version: None,
        size_bytes: file.size_bytes,
    };
    let first = limits::HEADER_PROBE_BYTES.min(file.size_bytes);
    let (mut bytes, version) = origin.read_header(&target, 0, first).await?;
    let fault = |fault: FileFault| fault.of(object.clone());
    let wanted = format.header_bytes(&bytes, file.size_bytes).map_err(fault)?;
    let mut permit = None;
    if wanted > first {
        permit = Some(large.acquire().await.expect("the semaphore is never closed"));
        target.etag.clone_from(&file.etag);
        let (rest, _) = origin.read_header(&target, first, wanted - first).await?;
        bytes.extend_from_slice(&rest);
    }
    bytes.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
    let header = format.parse(&bytes, file.size_bytes).map_err(fault)?;
    drop(permit);
    file.version = version;
    Ok((file, header))
}
