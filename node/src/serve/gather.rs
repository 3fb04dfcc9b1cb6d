//! Answers one GATHER: many rows of many shards, sent in the requested order.
//!
//! All shards are looked up first, and all missing ones begin to be filled. Then each tensor's rows
//! are split into runs. Each run is sent in the way that suits it:
//!
//! - *direct*: resident rows of [`limits::SENDFILE_ROW_BYTES_MIN`] or more go from the extent to
//!   the socket without a copy in this process;
//! - *staged*: shorter resident rows are copied together, and checked, before they are sent;
//! - *cold*: runs with rows that are being filled or not kept are collected first. Rows that are
//!   not kept are read by range in parallel. A row that is too long for that is read and sent in
//!   pieces.
//!
//! During every wait the client receives PONG, so that it can tell a slow origin from a dead node.
//! The PONG also shows this node when the client is gone.
//!
//! Thread rule: runs on its connection's thread and blocks it. Non-goal: reordering, because a
//! batch is complete only with its last row.

mod cold;
mod column;
mod direct;
mod rows;
mod staged;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Instant;
use std::{io, thread};

use larder_base::{Error, ErrorKind, limits};
use larder_extent::crc::crc32c;
use larder_wire::data::{DataPiece, Features, Gather, GatherEnd, PeerLimits, Pong};

use super::Context;
use super::peer::Peer;
use super::staging::Scratch;
use crate::cache::FoundShard;
use crate::clock;
use crate::dataset::Dataset;
use crate::fill::RowWanted;
use column::{Column, len, table_len};
use rows::GatherRows;

/// Rows of a run that is copied before it is sent: its tables stay at 64 KiB.
const STAGED_ROWS_MAX: usize = 8_192;

/// Why a gather ends early.
#[derive(Debug)]
pub(super) enum GatherFailure {
    /// Its rows can't be sent. The client is told, and may request others.
    Refused(Error),
    /// The connection failed.
    Broken(io::Error),
}

impl From<Error> for GatherFailure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<Arc<Error>> for GatherFailure {
    fn from(error: Arc<Error>) -> Self {
        Self::Refused(Arc::unwrap_or_clone(error))
    }
}

impl From<io::Error> for GatherFailure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// The terms agreed in HELLO.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    pub(super) limits: PeerLimits,
    pub(super) features: Features,
}

/// A gather in progress.
#[derive(Debug)]
struct GatherAnswer<'a> {
    context: &'a Context,
    peer: &'a Peer,
    agreed: Agreed,
    request: u64,
    payload_bytes_max: u64,
    verify: bool,
    /// When the client was last told that a wait goes on.
    told_alive: Cell<Instant>,
    /// Bytes that were read by range.
    ranged_bytes: u64,
    wanted: GatherRows<'a>,
    scratch: &'a mut Scratch,
}

/// A tensor that is being sent.
#[derive(Debug, Clone, Copy)]
struct TensorSlot {
    number: u16,
    column: Column,
}

/// The way in which a row is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    Staged,
    Cold,
}

/// Answers one gather, including its GATHER_END.
pub(super) fn answer(
    context: &Context,
    peer: &Peer,
    agreed: Agreed,
    request: u64,
    dataset: Arc<Dataset>,
    wanted: &Gather,
    scratch: &mut Scratch,
) -> Result<(), GatherFailure> {
    check_count(wanted, agreed.limits)?;
    let rows = GatherRows::new(context, peer, request, dataset, wanted)?;
    let (rows_memory, rows_origin) = rows.rows_by_source();
    let payload_bytes_max = agreed.limits.payload_bytes_max.min(limits::DATA_PAYLOAD_BYTES_MAX);
    let (payload_bytes_max, verify) = (u64::from(payload_bytes_max), wanted.verify);
    let ranged_bytes = 0;
    let mut answer = GatherAnswer {
        context,
        peer,
        agreed,
        request,
        payload_bytes_max,
        verify,
        told_alive: Cell::new(clock::now()),
        ranged_bytes,
        wanted: rows,
        scratch,
    };
    let manifest = answer.wanted.dataset.manifest();
    let columns = wanted.tensors.iter().map(|&tensor| Column::new(manifest, tensor));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    answer.wanted.tell_fills(&columns);
    for (number, column) in (0..).zip(columns) {
        answer.send_column(TensorSlot { number, column })?;
    }
    context.activity.rows_memory.add(rows_memory);
    context.activity.rows_origin.add(rows_origin);
    let ring_version = context.shared.placements.load().ring().version();
    let origin_bytes = answer.ranged_bytes + answer.wanted.filled_bytes();
    let end = GatherEnd { rows_memory, rows_origin, ring_version, origin_bytes };
    end.encode(request, answer.scratch.frame());
    peer.send(answer.scratch.frame_bytes())?;
    Ok(())
}

fn check_count(wanted: &Gather, agreed: PeerLimits) -> Result<(), Error> {
    let (rows, max) = (wanted.rows.len(), agreed.gather_rows_max as usize);
    if rows <= max {
        return Ok(());
    }
    let message = format!("{rows} rows in one gather; {max} were agreed on in HELLO");
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

impl GatherAnswer<'_> {
    fn send_column(&mut self, slot: TensorSlot) -> Result<(), GatherFailure> {
        let mut sent = 0;
        while sent < self.wanted.rows.len() {
            // A run may be empty if its first row is found corrupt. That row is then sent in
            // another way.
            sent += match self.way(slot.column, sent) {
                Way::Direct => self.send_direct(slot, sent)?,
                Way::Staged => self.send_staged(slot, sent)?,
                Way::Cold => self.send_cold(slot, sent)?,
            };
        }
        Ok(())
    }

    /// Returns the way for the `index`-th row.
    fn way(&mut self, column: Column, index: usize) -> Way {
        let bytes = column.span(&self.wanted.places, self.wanted.rows[index]).bytes;
        match self.wanted.look(index) {
            FoundShard::Resident(_) if bytes >= limits::SENDFILE_ROW_BYTES_MIN => Way::Direct,
            FoundShard::Resident(_) => Way::Staged,
            FoundShard::InFlight(_) | FoundShard::NotKept => Way::Cold,
        }
    }

    /// Encodes the frame of the run with the tables in the scratch. `first` is its first row.
    fn encode_run(&mut self, slot: TensorSlot, first: usize) {
        let first = u32::try_from(first).expect("a gather has at most 65,536 rows");
        let ragged = slot.column.is_ragged();
        let bytes = self.scratch.encode_run(self.request, slot.number, first, ragged);
        self.context.activity.sent_bytes.add(bytes);
    }

    /// Returns true if a row of `bytes` fits the current run, which holds `held` bytes.
    fn fits(&self, held: u64, bytes: u64, bytes_max: u64) -> bool {
        let rows = self.scratch.crcs.len();
        rows == 0 || (rows < STAGED_ROWS_MAX && held + bytes <= bytes_max)
    }
}

/// Tells the client that its request is in progress.
///
/// # Errors
/// The client is gone.
fn send_keepalive(peer: &Peer, request: u64) -> io::Result<()> {
    peer.check_alive()?;
    let mut frame = Vec::new();
    Pong.encode(request, &mut frame);
    peer.send(&frame)
}

/// Runs blocking work, and ticks meanwhile.
///
/// # Errors
/// The client is gone when the work is done.
fn while_alive<T>(peer: &Peer, request: u64, work: impl FnOnce() -> T) -> io::Result<T> {
    thread::scope(|scope| {
        let (done, waiting) = sync_channel::<()>(1);
        let ticks = move || {
            while let Err(RecvTimeoutError::Timeout) =
                waiting.recv_timeout(limits::KEEPALIVE_INTERVAL)
            {
                send_keepalive(peer, request)?;
            }
            io::Result::Ok(())
        };
        let ticking = thread::Builder::new().name("larder-alive".to_owned());
        let ticking = ticking.spawn_scoped(scope, ticks)?;
        let worked = work();
        drop(done);
        ticking.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        Ok(worked)
    })
}

impl GatherAnswer<'_> {
    /// Sends the row with this index, which exceeds the staging memory. Returns 1.
    fn send_in_pieces(&mut self, slot: TensorSlot, index: usize) -> Result<usize, GatherFailure> {
        let row = self.wanted.rows[index];
        let bytes = slot.column.span(&self.wanted.places, row).bytes;
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
        slot: TensorSlot,
        index: usize,
        piece: std::ops::Range<u64>,
    ) -> Result<(), GatherFailure> {
        let (peer, request, shared) = (self.peer, self.request, &self.context.shared);
        let bytes = len(piece.end - piece.start);
        let _reserved = while_alive(peer, request, || shared.read_through.reserve(bytes))?;
        let mut payload = vec![0; bytes];
        let row = self.wanted.rows[index];
        let wanted = RowWanted { row, tensor: slot.column.tensor, at: 0 };
        let dataset = &self.wanted.dataset;
        let read = || {
            let places = shared.leaves.wait(shared.leaves.places(dataset, &[row.shard], true))?;
            shared.read_through.read_piece(dataset, &places, &wanted, piece.start, &mut payload)
        };
        while_alive(peer, request, read)??;
        self.ranged_bytes += bytes as u64;
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
