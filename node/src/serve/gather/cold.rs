//! Runs with rows that are not resident. Rows that are not kept are read by range in parallel; rows
//! that are being filled are waited for.

use std::sync::Arc;

use larder_base::limits;
use larder_extent::crc::crc32c;
use larder_extent::{CopyOutcome, Filling, Sealed};

use super::column::{Corrupt, Span, len, table_len};
use super::{GatherAnswer, GatherFailure, TensorSlot, send_keepalive, while_alive};
use crate::cache::{Awaited, FoundShard, Waited, extent_error};
use crate::clock;
use crate::fill::RowWanted;

/// A run of rows, and the place of each in the run's buffer.
struct ColdRun {
    first: usize,
    spans: Vec<(Span, usize)>,
    bytes: usize,
}

/// A row after a wait for its fill.
enum Arrived {
    /// Its bytes are in the extent that is being filled.
    Ready(Arc<Filling>),
    /// The whole shard is sealed.
    Sealed(Arc<Sealed>),
}

impl GatherAnswer<'_> {
    /// Sends a run of rows of any kind from row `first`. Returns its row count.
    pub(super) fn send_cold(
        &mut self,
        slot: TensorSlot,
        first: usize,
    ) -> Result<usize, GatherFailure> {
        let run = self.lay_out(slot, first)?;
        if run.bytes as u64 > self.payload_bytes_max {
            self.await_long_row(first)?;
            if matches!(self.wanted.found(first), FoundShard::Resident(_)) {
                return Ok(0);
            }
            if run.bytes > limits::RANGE_STAGING_BYTES {
                return self.send_in_pieces(slot, first);
            }
        }
        self.await_run(slot, &run)?;
        let (peer, request, shared) = (self.peer, self.request, &self.context.shared);
        let _reserved = while_alive(peer, request, || shared.read_through.reserve(run.bytes))?;
        let mut bytes = vec![0; run.bytes];
        self.read_by_range(slot, &run, &mut bytes)?;
        for (index, &(span, at)) in (first..).zip(&run.spans) {
            let target = &mut bytes[at..at + len(span.bytes)];
            if self.copy_row(slot, index, span, target)?.is_err() {
                // The run may hold other rows of this shard. Start again, and read them by range.
                self.wanted.corrupt(index);
                return Ok(0);
            }
        }
        self.scratch.begin_run();
        for &(span, at) in &run.spans {
            self.scratch.crcs.push(crc32c(&bytes[at..at + len(span.bytes)]));
            self.scratch.lengths.push(table_len(span.bytes)?);
        }
        self.encode_run(slot, first);
        self.peer.send_both(self.scratch.frame_bytes(), &bytes)?;
        Ok(run.spans.len())
    }

    /// Lays out as many rows as one frame holds, and at least one.
    fn lay_out(&self, slot: TensorSlot, first: usize) -> Result<ColdRun, GatherFailure> {
        let places = &self.wanted.places;
        let mut run = ColdRun { first, spans: Vec::new(), bytes: 0 };
        for &row in self.wanted.rows[first..].iter().take(super::STAGED_ROWS_MAX) {
            let span = slot.column.span(places, row);
            table_len(span.bytes)?;
            let bytes = run.bytes + len(span.bytes);
            if !run.spans.is_empty() && bytes as u64 > self.payload_bytes_max {
                break;
            }
            run.spans.push((span, run.bytes));
            run.bytes = bytes;
        }
        Ok(run)
    }

    /// Waits for the rows of the run that are being filled, before memory is taken for the run.
    /// Otherwise an origin that hangs would hold the staging memory of all datasets.
    fn await_run(&mut self, slot: TensorSlot, run: &ColdRun) -> Result<(), GatherFailure> {
        for (index, &(span, _)) in (run.first..).zip(&run.spans) {
            if let FoundShard::InFlight(flight) = self.wanted.found(index)
                && let Arrived::Sealed(sealed) = self.await_row(flight, slot, span)?
            {
                self.wanted.came_in(index, sealed);
            }
        }
        Ok(())
    }

    /// Waits for the whole shard of a row longer than a frame, if it is being filled. The row is
    /// then sent from the extent.
    fn await_long_row(&mut self, index: usize) -> Result<(), GatherFailure> {
        if let FoundShard::InFlight(flight) = self.wanted.found(index) {
            let sealed = self.await_seal(flight)?;
            self.wanted.came_in(index, sealed);
        }
        Ok(())
    }

    /// Reads the rows of the run that are not kept, in parallel.
    fn read_by_range(
        &mut self,
        slot: TensorSlot,
        run: &ColdRun,
        bytes: &mut [u8],
    ) -> Result<(), GatherFailure> {
        let rows = (run.first..).zip(&run.spans);
        let absent =
            rows.filter(|&(index, _)| matches!(self.wanted.found(index), FoundShard::NotKept));
        let mut read_bytes = 0;
        let want = |(index, &(span, at)): (usize, &(Span, usize))| {
            let row = self.wanted.rows[index];
            read_bytes += span.bytes;
            RowWanted { row, tensor: slot.column.tensor, at }
        };
        let wanted: Vec<_> = absent.map(want).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (shared, dataset) = (&self.context.shared, &self.wanted.dataset);
        let shards: Vec<u32> = wanted.iter().map(|wanted| wanted.row.shard).collect();
        let read = || {
            let places = shared.leaves.wait(shared.leaves.places(dataset, &shards, true))?;
            shared.read_through.read_rows(dataset, &places, &wanted, bytes)
        };
        while_alive(self.peer, self.request, read)??;
        self.ranged_bytes += read_bytes;
        Ok(())
    }

    /// Copies a row that is kept to its place in the run's buffer.
    fn copy_row(
        &mut self,
        slot: TensorSlot,
        index: usize,
        span: Span,
        target: &mut [u8],
    ) -> Result<Result<(), Corrupt>, GatherFailure> {
        let sealed = match self.wanted.found(index) {
            // Read already, together with the others.
            FoundShard::NotKept => return Ok(Ok(())),
            FoundShard::Resident(sealed) => Arc::clone(sealed),
            FoundShard::InFlight(flight) => {
                match self.copy_in_flight(flight, slot, span, target)? {
                    Some(sealed) => sealed,
                    None => return Ok(Ok(())),
                }
            }
        };
        let copied = slot.column.copy(&sealed, self.wanted.rows[index], span, target);
        self.wanted.came_in(index, sealed);
        Ok(copied.map(|_| ()))
    }

    /// Copies a row's bytes once they are in. Returns the shard if it was sealed first.
    fn copy_in_flight(
        &self,
        flight: &Awaited,
        slot: TensorSlot,
        span: Span,
        target: &mut [u8],
    ) -> Result<Option<Arc<Sealed>>, GatherFailure> {
        loop {
            let filling = match self.await_row(flight, slot, span)? {
                Arrived::Ready(filling) => filling,
                Arrived::Sealed(sealed) => return Ok(Some(sealed)),
            };
            let copied = filling.copy(slot.column.tensor, span.range(), target);
            match copied.map_err(extent_error)? {
                CopyOutcome::Copied => return Ok(None),
                CopyOutcome::NotYet => {}
                CopyOutcome::Sealed => return self.await_seal(flight).map(Some),
            }
        }
    }

    /// Waits until a row's bytes are in, or the whole shard is.
    fn await_row(
        &self,
        flight: &Awaited,
        slot: TensorSlot,
        span: Span,
    ) -> Result<Arrived, GatherFailure> {
        loop {
            // The rows before this one may have taken most of the interval.
            let since = clock::now().saturating_duration_since(self.told_alive.get());
            let interval = limits::KEEPALIVE_INTERVAL.saturating_sub(since);
            match flight.wait(slot.column.tensor, &span.range(), interval) {
                Waited::Ready(filling) => return Ok(Arrived::Ready(filling)),
                Waited::Sealed(sealed) => return Ok(Arrived::Sealed(sealed)),
                Waited::Failed(why) => return Err(why.into()),
                Waited::TimedOut => {
                    send_keepalive(self.peer, self.request)?;
                    self.told_alive.set(clock::now());
                }
            }
        }
    }

    fn await_seal(&self, flight: &Awaited) -> Result<Arc<Sealed>, GatherFailure> {
        loop {
            match flight.wait_for_all(limits::KEEPALIVE_INTERVAL) {
                Waited::Sealed(sealed) => return Ok(sealed),
                Waited::Failed(why) => return Err(why.into()),
                Waited::Ready(_) | Waited::TimedOut => send_keepalive(self.peer, self.request)?,
            }
        }
    }
}
