//! Sends the exceptions to a ring.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use larder_base::{Error, ErrorKind, limits, placement::Exceptions};
use larder_wire::control::{ExceptionsChunk, GetExceptionsRequest, snapshot_id};
use tonic::Status;

use crate::placements::Placements;

/// Streams the table of a snapshot in pieces; the first piece carries its length. Streams nothing
/// for a snapshot without exceptions. Also knows the ring before the one in use, because clients
/// learn of a change at different times.
pub(super) fn chunks(
    placements: &Arc<Placements>,
    request: &GetExceptionsRequest,
) -> Result<impl Stream<Item = Result<ExceptionsChunk, Status>> + use<>, Error> {
    let snapshot = snapshot_id(&request.snapshot)?;
    let known = [Some(placements), placements.previous()];
    let mut known = known.into_iter().flatten();
    let asked = known.find(|placements| placements.ring().version() == request.ring_version);
    let asked = asked.ok_or_else(|| goes_by_another(placements, request.ring_version))?;
    let table = asked.exceptions(snapshot).cloned();
    Ok(stream::iter(table.into_iter().flat_map(pieces)))
}

fn pieces(table: Exceptions) -> impl Iterator<Item = Result<ExceptionsChunk, Status>> {
    let length = table.as_bytes().len();
    (0..length).step_by(limits::EXCEPTIONS_CHUNK_BYTES).map(move |begin| {
        let end = length.min(begin + limits::EXCEPTIONS_CHUNK_BYTES);
        let chunk = Bytes::copy_from_slice(&table.as_bytes()[begin..end]);
        let table_bytes = if begin == 0 { length as u64 } else { 0 };
        Ok(ExceptionsChunk { table_bytes, chunk })
    })
}

fn goes_by_another(placements: &Placements, asked: u64) -> Error {
    let version = placements.ring().version();
    let message = format!(
        "exceptions to version {asked} of the ring were asked for, this node uses version {version}; \
         ask for the ring again"
    );
    Error::new(ErrorKind::NotFound, message)
}
