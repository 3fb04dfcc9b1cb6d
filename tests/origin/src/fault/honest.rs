//! Holds the right answer to a read, before a fault spoils it.

use bytes::Bytes;
use futures_util::TryStreamExt;
use hyper::{HeaderMap, StatusCode};
use s3s::{HttpError, HttpResponse};

use crate::objects::ObjectRead;

/// The answer that a read would have got, in full.
pub(crate) struct Honest {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) read: ObjectRead,
}

impl Honest {
    /// Takes the whole body into memory, for a test that reads it in one go.
    pub(crate) async fn collect(
        response: HttpResponse,
        read: Option<ObjectRead>,
    ) -> Result<Self, HttpError> {
        let (head, body) = response.into_parts();
        let pieces: Vec<Bytes> = body.try_collect().await.map_err(HttpError::new)?;
        let body = Bytes::from(pieces.concat());
        let read = read.unwrap_or_else(|| ObjectRead::of_no_object(body.len() as u64));
        Ok(Self { status: head.status, headers: head.headers, body, read })
    }
}
