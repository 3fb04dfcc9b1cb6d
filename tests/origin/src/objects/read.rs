//! Reading an object's bytes in large pieces.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream;
use s3s::dto::StreamingBlob;
use s3s::{Body, S3Result, s3_error};

use super::etag::ETags;

/// Bytes a read; a range up to this size is one read and one body frame.
const PIECE_BYTES: u64 = 1 << 20;

/// The open file of an object, with the values of its headers.
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) bytes: u64,
    pub(super) etag: String,
    pub(super) modified: SystemTime,
}

/// A granted read. It travels with the response, for the counters and the faults.
#[derive(Clone, Debug)]
pub(crate) struct ObjectRead {
    /// `bucket/key`.
    pub(crate) object: String,
    /// The path of its file.
    pub(crate) path: PathBuf,
    /// The requested bytes of the object.
    pub(crate) range: Range<u64>,
    /// The object's size in bytes.
    pub(crate) total: u64,
}

impl ObjectRead {
    /// Stands for the body of an answer to another request.
    pub(crate) fn of_no_object(bytes: u64) -> Self {
        Self { object: String::new(), path: PathBuf::new(), range: 0..bytes, total: bytes }
    }
}

/// Opens an object. Blocks, and hashes a file that is new to `etags`.
pub(super) fn open(path: &Path, etags: &ETags) -> S3Result<Opened> {
    let mut file = File::open(path).map_err(|error| s3_error!(error, NoSuchKey))?;
    let metadata = file.metadata().map_err(|error| s3_error!(error, InternalError))?;
    if !metadata.is_file() {
        return Err(s3_error!(NoSuchKey));
    }
    let etag =
        etags.of(path, &mut file, &metadata).map_err(|error| s3_error!(error, InternalError))?;
    let modified = metadata.modified().map_err(|error| s3_error!(error, InternalError))?;
    Ok(Opened { path: path.to_owned(), file, bytes: metadata.len(), etag, modified })
}

/// Returns the body with `range` of `file`. Blocks for one piece at most.
pub(super) fn body(file: File, range: Range<u64>) -> S3Result<StreamingBlob> {
    if range.end - range.start <= PIECE_BYTES {
        let piece = piece(&file, range).map_err(|error| s3_error!(error, InternalError))?;
        return Ok(StreamingBlob::from(Body::from(piece)));
    }
    let pieces = stream::try_unfold((Arc::new(file), range), |(file, left)| async move {
        if left.is_empty() {
            return Ok::<_, io::Error>(None);
        }
        let next = left.start..left.end.min(left.start + PIECE_BYTES);
        let rest = next.end..left.end;
        let reader = Arc::clone(&file);
        let piece = tokio::task::spawn_blocking(move || piece(&reader, next)).await??;
        Ok(Some((piece, (file, rest))))
    });
    Ok(StreamingBlob::wrap(pieces))
}

fn piece(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let count = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut bytes = vec![0; count];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes.into())
}
