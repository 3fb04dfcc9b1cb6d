//! The answers to control calls. Each has a time limit. Answers in pieces are joined, up to a
//! length that was compared with a limit before.

use std::{error, future::Future, time::Duration};

use bytes::{Bytes, BytesMut};
use larder_base::{ErrorKind, limits};
use larder_wire::{
    control::{ExceptionsChunk, ManifestChunk, PlanPiece},
    status,
};
use tonic::{Response, Status, Streaming};

use crate::Error;

/// The name of the private node of this host in place of its address. The user did not choose that
/// node, so its answers stand without its address.
pub(super) const OF_THIS_HOST: &str = "of this host";

/// Waits for the answer to a call, at most `limit`.
pub(super) async fn within<T>(
    address: &str,
    limit: Duration,
    call: impl Future<Output = Result<Response<T>, Status>> + Send,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(from_status(address, &status)),
        Err(_) => Err(Error::new(ErrorKind::Unavailable, format!("node {address} is silent"))
            .because(format!("it did not answer within {limit:?}"))),
    }
}

/// Converts a status. Only a status of the transport has a cause. Any other is the answer of a
/// node, with its own message.
fn from_status(address: &str, status: &Status) -> Error {
    let kind = status::kind(status.code());
    if let Some(cause) = error::Error::source(status) {
        let what = format!("node {address} does not answer");
        return Error::new(kind, what).because(larder_base::root_cause(cause));
    }
    let said = status.message();
    let why = if said.is_empty() { status.code().description() } else { said };
    let error = match address {
        OF_THIS_HOST => Error::new(kind, why),
        _ => Error::new(kind, format!("the call to node {address} failed")).because(why),
    };
    match status::hint(status) {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// A message with the next bytes of a longer answer.
pub(super) trait Piece {
    /// The name of the answer, for messages.
    const WHAT: &str;

    fn bytes(&self) -> &[u8];
}

impl Piece for ManifestChunk {
    const WHAT: &str = "a manifest";

    fn bytes(&self) -> &[u8] {
        &self.chunk
    }
}

impl Piece for ExceptionsChunk {
    const WHAT: &str = "a table of exceptions";

    fn bytes(&self) -> &[u8] {
        &self.chunk
    }
}

impl Piece for PlanPiece {
    const WHAT: &str = "a plan";

    fn bytes(&self) -> &[u8] {
        &self.piece
    }
}

/// The pieces of one answer.
pub(super) struct Pieces<'a, P> {
    address: &'a str,
    stream: Streaming<P>,
}

impl<'a, P: Piece> Pieces<'a, P> {
    pub(super) fn new(address: &'a str, stream: Streaming<P>) -> Self {
        Self { address, stream }
    }

    /// Waits for the next piece. `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<P>, Error> {
        let next = tokio::time::timeout(limits::CONTROL_CALL_TIMEOUT, self.stream.message()).await;
        let next = next.unwrap_or_else(|_| Err(Status::deadline_exceeded("it stopped")));
        next.map_err(|status| from_status(self.address, &status))
    }

    /// Joins this piece and all later ones.
    ///
    /// # Errors
    /// `DataLoss` if they exceed `bytes_max`, or if a piece is empty.
    pub(super) async fn collect(
        mut self,
        first: Option<P>,
        bytes_max: u64,
    ) -> Result<Bytes, Error> {
        let mut bytes = BytesMut::new();
        let mut next = first;
        while let Some(piece) = next {
            let piece = piece.bytes();
            let sent = (bytes.len() + piece.len()) as u64;
            if sent > bytes_max || piece.is_empty() {
                let (address, what) = (self.address, P::WHAT);
                let why = format!("{sent} bytes came of {bytes_max}");
                let what = format!("node {address} sends other pieces of {what} than it announced");
                return Err(Error::new(ErrorKind::DataLoss, what).because(why));
            }
            bytes.extend_from_slice(piece);
            next = self.next().await?;
        }
        Ok(bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_the_host_node_stands_without_its_address() {
        let status = Status::not_found("there is no tag v3");
        let remote = from_status("http://10.0.0.1:7070", &status).to_string();
        assert_eq!(remote, "the call to node http://10.0.0.1:7070 failed: there is no tag v3");
        assert_eq!(from_status(OF_THIS_HOST, &status).to_string(), "there is no tag v3");
    }
}
