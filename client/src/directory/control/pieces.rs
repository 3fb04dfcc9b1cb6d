//! Answers that come in pieces, put together up to a length that was compared with a limit before.

use bytes::{Bytes, BytesMut};
use larder_base::{ErrorKind, limits};
use larder_wire::control::{ExceptionsChunk, ManifestChunk};
use tonic::{Status, Streaming};

use super::from_status;
use crate::Error;

/// A message that holds the next bytes of something.
pub(super) trait Piece {
    /// What they are of, for messages.
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

/// What the node at an address sends.
pub(super) struct Pieces<'a, P> {
    address: &'a str,
    stream: Streaming<P>,
}

impl<'a, P: Piece> Pieces<'a, P> {
    pub(super) fn new(address: &'a str, stream: Streaming<P>) -> Self {
        Self { address, stream }
    }

    /// The next piece; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<P>, Error> {
        let next = tokio::time::timeout(limits::CONTROL_CALL_TIMEOUT, self.stream.message()).await;
        let next = next.unwrap_or_else(|_| Err(Status::deadline_exceeded("it stopped")));
        next.map_err(|status| from_status(self.address, &status))
    }

    /// The bytes of this piece and of all that follow it.
    ///
    /// # Errors
    /// `DataLoss` when they are more than `bytes_max`, or a piece is empty.
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
