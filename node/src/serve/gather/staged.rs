//! Short resident rows: copied together into a piece that stays in the core's own cache, and sent
//! with one call.
//!
//! Rows of one length are copied in bulk and sent with the checksums that were taken at the fill.
//! The client compares them with the bytes it received, and requests again with VERIFY if they
//! differ. Only with VERIFY, and if short rows share a checksum, are they checked here. Rows with
//! lengths of their own are checked one by one, because the stored checksums belong to blocks.

use larder_extent::{RegionRows, RowCopy, copy_rows, copy_rows_verified};

use super::column::{len, sent_crc, table_len};
use super::{GatherAnswer, GatherFailure, TensorSlot, Way};
use crate::cache::FoundShard;
use crate::serve::staging::StagingPiece;

impl GatherAnswer<'_> {
    /// Sends the longest run of staged rows from row `first` that fits the piece. Returns its row
    /// count: 0 if the first row is corrupt.
    pub(super) fn send_staged(
        &mut self,
        slot: TensorSlot,
        first: usize,
    ) -> Result<usize, GatherFailure> {
        let mut piece = self.scratch.take_piece();
        let copied = match slot.column.is_ragged() {
            true => self.copy_one_by_one(slot, first, &mut piece),
            false => self.copy_in_bulk(slot, first, &mut piece),
        };
        let sent = copied.and_then(|bytes| {
            let rows = self.scratch.crcs.len();
            if rows > 0 {
                self.encode_run(slot, first);
                self.peer.send_both(self.scratch.frame_bytes(), &piece[..bytes])?;
            }
            Ok(rows)
        });
        self.scratch.return_piece(piece);
        sent
    }

    /// Copies rows of one length into the piece, and their tables into the scratch. Returns the
    /// bytes copied.
    fn copy_in_bulk(
        &mut self,
        slot: TensorSlot,
        first: usize,
        piece: &mut StagingPiece,
    ) -> Result<usize, GatherFailure> {
        let row = self.wanted.rows[first];
        let bytes = slot.column.span(&self.wanted.places, row).bytes;
        let (row_bytes, row_length) = (len(bytes), table_len(bytes)?);
        let bytes_max = self.payload_bytes_max.min(piece.len() as u64);
        let rows_max = bytes_max.checked_div(bytes).map_or(super::STAGED_ROWS_MAX, len);
        let end = first + rows_max.clamp(1, super::STAGED_ROWS_MAX);
        let run = first..end.min(self.wanted.rows.len());
        let rows = self.wanted.rows;
        let resident = self.wanted.resident(slot.column.tensor, run.clone());
        let copy = |index: usize| {
            let (source, row) = (resident.source(index)?, rows[index].row.into());
            Some(RowCopy { source, row, at: (index - first) * row_bytes })
        };
        let copies = run.map_while(copy);
        let unchecked =
            !self.verify && resident.source(first).is_some_and(RegionRows::has_own_crcs);
        let mut corrupt = None;
        if unchecked {
            copy_rows(copies.clone(), piece);
        } else {
            copy_rows_verified(copies.clone(), piece, |row| corrupt = corrupt.or(Some(row.at)));
        }
        let sound = copies.take_while(|row| corrupt.is_none_or(|at| row.at < at));
        self.scratch.begin_run();
        self.scratch.crcs.extend(
            sound.map(|RowCopy { source, row, at }| {
                sent_crc(source, row, &piece[at..at + row_bytes])
            }),
        );
        let count = self.scratch.crcs.len();
        self.scratch.lengths.resize(count, row_length);
        if corrupt.is_some() {
            self.wanted.corrupt(first + count);
        }
        Ok(count * row_bytes)
    }

    /// Copies rows with lengths of their own into the piece, checked, and their tables into the
    /// scratch. Returns the bytes copied.
    fn copy_one_by_one(
        &mut self,
        slot: TensorSlot,
        first: usize,
        piece: &mut StagingPiece,
    ) -> Result<usize, GatherFailure> {
        let column = slot.column;
        let bytes_max = self.payload_bytes_max.min(piece.len() as u64);
        let mut held = 0;
        self.scratch.begin_run();
        for index in first..self.wanted.rows.len() {
            if index > first && self.way(column, index) != Way::Staged {
                break;
            }
            let row = self.wanted.rows[index];
            let span = column.span(&self.wanted.places, row);
            let FoundShard::Resident(extent) = self.wanted.found(index) else { break };
            if !self.fits(held, span.bytes, bytes_max) {
                break;
            }
            let target = &mut piece[len(held)..len(held + span.bytes)];
            let Ok(crc) = column.copy(extent, row, span, target) else {
                self.wanted.corrupt(index);
                break;
            };
            held += span.bytes;
            self.scratch.crcs.push(crc);
            self.scratch.lengths.push(table_len(span.bytes)?);
        }
        Ok(len(held))
    }
}
