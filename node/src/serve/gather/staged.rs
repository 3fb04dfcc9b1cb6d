//! Short rows that are resident: copied together into a piece that stays in the core's own cache,
//! checked on the way, and sent with one call.

use std::hint::black_box;

use larder_extent::ExtentView;

use super::column::{Column, len, table_len};
use super::{Answer, Ended, Slot, Way};
use crate::cache::Found;
use crate::serve::staging::StagingPiece;

/// How many rows ahead of the copy a row's first bytes are touched.
const ROWS_AHEAD: usize = 4;

impl Answer<'_> {
    /// Sends the longest run of staged rows from row `first` that fits the piece. Returns how many; 0
    /// if the first is found corrupt.
    pub(super) fn send_staged(&mut self, slot: Slot, first: usize) -> Result<usize, Ended> {
        let mut piece = self.scratch.take_piece();
        let copied = self.copy_run(slot, first, &mut piece);
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

    /// Copies rows into the piece, their tables into the scratch. Returns the bytes copied.
    fn copy_run(
        &mut self,
        slot: Slot,
        first: usize,
        piece: &mut StagingPiece,
    ) -> Result<usize, Ended> {
        let column = slot.column;
        let bytes_max = self.payload_bytes_max.min(piece.len() as u64);
        let mut held = 0;
        self.scratch.begin_run();
        for index in first..self.plan.rows.len() {
            if index > first && self.way(column, index) != Way::Staged {
                break;
            }
            self.touch(column, index + ROWS_AHEAD);
            let row = self.plan.rows[index];
            let span = column.span(self.plan.dataset.manifest(), row);
            let Found::Resident(extent) = self.plan.found(index) else { break };
            if !self.fits(held, span.bytes, bytes_max) {
                break;
            }
            let target = &mut piece[len(held)..len(held + span.bytes)];
            let Ok(crc) = column.copy(extent, row, span, target) else {
                self.plan.corrupt(index);
                break;
            };
            held += span.bytes;
            self.scratch.crcs.push(crc);
            self.scratch.lengths.push(table_len(span.bytes)?);
        }
        Ok(len(held))
    }

    /// Has the memory begin to bring in a row that is copied soon.
    fn touch(&self, column: Column, index: usize) {
        let Some(&row) = self.plan.rows.get(index) else { return };
        if let Found::Resident(extent) = self.plan.found(index) {
            let extent: &ExtentView = extent;
            let span = column.span(self.plan.dataset.manifest(), row);
            for line in column.bytes(extent, span).iter().step_by(64) {
                black_box(*line);
            }
        }
    }
}
