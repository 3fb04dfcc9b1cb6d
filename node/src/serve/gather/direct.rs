//! Long resident rows: sent from the extent to the socket, without a copy in this process.

use std::ops::Range;
use std::sync::Arc;

use larder_extent::Sealed;

use super::column::{len, table_len};
use super::{GatherAnswer, GatherFailure, TensorSlot, Way};
use crate::cache::FoundShard;

/// Bytes of one extent that are sent with one call.
struct Stretch {
    extent: Arc<Sealed>,
    file: Range<u64>,
}

impl GatherAnswer<'_> {
    /// Sends the longest run of direct rows from row `first`. Returns its row count: 0 if the first
    /// row is corrupt.
    pub(super) fn send_direct(
        &mut self,
        slot: TensorSlot,
        first: usize,
    ) -> Result<usize, GatherFailure> {
        let stretches = self.collect(slot, first)?;
        let rows = self.scratch.crcs.len();
        if rows == 0 {
            return Ok(0);
        }
        self.encode_run(slot, first);
        self.peer.cork(true);
        let sent = self.send_stretches(slot, &stretches);
        self.peer.cork(false);
        sent?;
        Ok(rows)
    }

    /// Collects the rows of a run: tables in the scratch, neighbours in the file as one stretch.
    fn collect(&mut self, slot: TensorSlot, first: usize) -> Result<Vec<Stretch>, GatherFailure> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut held = 0;
        self.scratch.begin_run();
        for index in first..self.wanted.rows.len() {
            if index > first && self.way(slot.column, index) != Way::Direct {
                break;
            }
            let row = self.wanted.rows[index];
            let span = slot.column.span(&self.wanted.places, row);
            let FoundShard::Resident(extent) = self.wanted.found(index) else { break };
            if !self.fits(held, span.bytes, self.payload_bytes_max) {
                break;
            }
            let Ok(crc) = slot.column.crc(extent, row, span, self.verify) else {
                self.wanted.corrupt(index);
                break;
            };
            let begin = extent.file_offset(slot.column.tensor) + span.offset;
            let file = begin..begin + span.bytes;
            match stretches.last_mut() {
                Some(last) if Arc::ptr_eq(&last.extent, extent) && last.file.end == begin => {
                    last.file.end = file.end;
                }
                _ => stretches.push(Stretch { extent: Arc::clone(extent), file }),
            }
            held += span.bytes;
            self.scratch.crcs.push(crc);
            self.scratch.lengths.push(table_len(span.bytes)?);
        }
        Ok(stretches)
    }

    fn send_stretches(&self, slot: TensorSlot, stretches: &[Stretch]) -> std::io::Result<()> {
        self.peer.send(self.scratch.frame_bytes())?;
        for Stretch { extent, file } in stretches {
            if self.peer.is_tcp() {
                self.peer.send_file(extent.file(), file.clone())?;
            } else {
                let begin = extent.file_offset(slot.column.tensor);
                let range = len(file.start - begin)..len(file.end - begin);
                self.peer.send(&extent.region(slot.column.tensor)[range])?;
            }
        }
        Ok(())
    }
}
