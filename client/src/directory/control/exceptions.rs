//! The call for the exceptions to a ring.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::{ErrorKind, Placement, Ring, SnapshotId, limits, placement::Exceptions};
use larder_wire::control::GetExceptionsRequest;

use super::{Control, pieces::Pieces, within};
use crate::Error;

impl Control {
    /// The placement of a snapshot of so many shards on a ring: the ring with the exceptions that
    /// the node at `address` tells of.
    ///
    /// # Errors
    /// `NotFound` when the node goes by another version of the ring, `VersionMismatch` when it is of
    /// an earlier version of the program, `DataLoss` for what are no exceptions to this ring; else
    /// as any call.
    pub(in crate::directory) async fn placement(
        &self,
        address: &str,
        ring: &Arc<Ring>,
        snapshot: SnapshotId,
        shards: u32,
    ) -> Result<Placement, Error> {
        let request = GetExceptionsRequest {
            snapshot: Bytes::copy_from_slice(snapshot.as_bytes()),
            ring_version: ring.version(),
        };
        let mut client = self.client(address)?;
        let call = client.get_exceptions(request);
        let pieces = within(address, limits::OWNER_SILENT_TIMEOUT, call).await?;
        let mut pieces = Pieces::new(address, pieces);
        let Some(first) = pieces.next().await? else {
            return Ok(Placement::of_ring(Arc::clone(ring)));
        };
        let unfit = || {
            let what = format!("node {address} sends exceptions that can't be used");
            Error::new(ErrorKind::DataLoss, what)
        };
        let (announced, max) = (first.table_bytes, Exceptions::bytes_max(shards));
        if announced > max {
            return Err(unfit().because(format!(
                "it announces {announced} bytes, and {shards} shards have {max} at most"
            )));
        }
        let table = pieces.collect(Some(first), announced).await?;
        let table = Exceptions::parse(table).map_err(|error| unfit().with_source(error))?;
        if table.snapshot() != snapshot {
            return Err(unfit().because(format!("they are of snapshot {}", table.snapshot())));
        }
        let placement = Placement::new(Arc::clone(ring), table);
        placement.map_err(|error| unfit().with_source(error))
    }
}
