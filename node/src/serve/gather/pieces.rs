//! Rows that are not kept and too long for the staging memory. They are read by range and sent in
//! pieces, each with its own checksum.

use larder_base::{Error, ErrorKind, limits};
use larder_extent::crc::crc32c;
use larder_wire::data::{DataPiece, Features};

use super::column::{len, table_len};
use super::keepalive::while_alive;
use super::{Answer, Ended, Slot};
use crate::fill::RowWanted;

impl Answer<'_> {
    /// Sends the row with this index, which exceeds the staging memory. Returns 1.
    pub(super) fn send_in_pieces(&mut self, slot: Slot, index: usize) -> Result<usize, Ended> {
        let row = self.plan.rows[index];
        let bytes = slot.column.span(self.plan.dataset.manifest(), row).bytes;
        if !self.agreed.features.contains(Features::PIECES) {
            return Err(not_taken(bytes).into());
        }
        let mut sent = 0;
        while sent < bytes {
            // Pieces ignore the client's smaller limit for runs of rows: each piece is a request to
            // the origin.
            let piece = sent..bytes.min(sent + u64::from(limits::DATA_PAYLOAD_BYTES_MAX));
            sent = piece.end;
            self.send_piece(slot, index, piece)?;
        }
        Ok(1)
    }

    fn send_piece(
        &mut self,
        slot: Slot,
        index: usize,
        piece: std::ops::Range<u64>,
    ) -> Result<(), Ended> {
        let (peer, request, shared) = (self.peer, self.request, &self.context.shared);
        let bytes = len(piece.end - piece.start);
        let _reserved = while_alive(peer, request, || shared.read_through.reserve(bytes))?;
        let mut payload = vec![0; bytes];
        let row = self.plan.rows[index];
        let wanted =
            RowWanted { shard: row.shard, row: row.row, tensor: slot.column.tensor, at: 0 };
        let dataset = &self.plan.dataset;
        let read = || shared.read_through.read_piece(dataset, &wanted, piece.start, &mut payload);
        while_alive(peer, request, read)??;
        let announced = DataPiece {
            tensor_slot: slot.number,
            row: u32::try_from(index).expect("a gather has at most 65,536 rows"),
            offset: table_len(piece.start)?,
            crc: crc32c(&payload),
            payload_bytes: bytes as u64,
        };
        announced.encode(request, self.scratch.frame());
        self.context.activity.sent_bytes.add(bytes as u64);
        self.peer.send_both(self.scratch.frame_bytes(), &payload)?;
        Ok(())
    }
}

/// Returns the error for a client that is older than rows in pieces.
fn not_taken(bytes: u64) -> Error {
    let max = limits::RANGE_STAGING_BYTES;
    let message = format!(
        "a row of {bytes} bytes of a shard that is not kept; of a read by range at most {max} are sent at \
         once, so update the client, or give the node more memory"
    );
    Error::new(ErrorKind::InvalidArgument, message)
}
