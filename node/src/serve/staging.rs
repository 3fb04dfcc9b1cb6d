//! The buffers of one connection, reused from request to request.
//!
//! Frames and tables are small. The staging piece holds short rows before they are sent. It comes
//! from an allowance that all connections share: a full piece if there is room, else the smallest
//! useful one. An idle connection holds none.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_base::limits;
use larder_wire::data::DataRun;

/// Bytes of a staging piece, into which small rows are gathered before a send. Fits a core's L2
/// with room for the rows it copies from.
const STAGING_BYTES: usize = 256 << 10;

/// Buffers larger than this are not kept from one request to the next.
const KEPT_BYTES: usize = 64 << 10;

/// The buffers for answering requests.
#[derive(Debug)]
pub(super) struct Scratch {
    pool: Arc<BytePool>,
    frame: Vec<u8>,
    body: Vec<u8>,
    piece: Option<StagingPiece>,
    /// The checksum and the length of each row of the current run.
    pub(super) crcs: Vec<u32>,
    pub(super) lengths: Vec<u32>,
}

/// The staging piece.
#[derive(Debug)]
pub(super) struct StagingPiece {
    bytes: Box<[u8]>,
    _held: Option<HeldBytes>,
}

impl Scratch {
    pub(super) fn new(pool: &Arc<BytePool>) -> Self {
        Self {
            pool: Arc::clone(pool),
            frame: Vec::new(),
            body: Vec::new(),
            piece: None,
            crcs: Vec::new(),
            lengths: Vec::new(),
        }
    }

    /// Returns the empty buffer for the next frame.
    pub(super) fn frame(&mut self) -> &mut Vec<u8> {
        self.frame.clear();
        &mut self.frame
    }

    /// Returns the frame that was written.
    pub(super) fn frame_bytes(&self) -> &[u8] {
        &self.frame
    }

    /// Writes the DATA frame of a run, with the tables in `crcs` and `lengths`.
    pub(super) fn encode_run(&mut self, request: u64, slot: u16, first: u32, ragged: bool) -> u64 {
        let payload_bytes = self.lengths.iter().map(|&bytes| u64::from(bytes)).sum();
        let run = DataRun {
            tensor_slot: slot,
            first,
            crcs: &self.crcs,
            lengths: ragged.then_some(&self.lengths),
            payload_bytes,
        };
        self.frame.clear();
        run.encode(request, &mut self.frame);
        payload_bytes
    }

    /// Clears the tables of the last run.
    pub(super) fn begin_run(&mut self) {
        self.crcs.clear();
        self.lengths.clear();
    }

    pub(super) fn body(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }

    /// Frees the buffer of a large request after its decoding.
    pub(super) fn forget_body(&mut self) {
        if self.body.capacity() > KEPT_BYTES {
            self.body = Vec::new();
        }
    }

    /// Takes the staging piece. Put it back with [`return_piece`](Self::return_piece).
    pub(super) fn take_piece(&mut self) -> StagingPiece {
        self.piece.take().unwrap_or_else(|| {
            let held = self.pool.take(STAGING_BYTES, Duration::ZERO);
            let bytes = if held.is_some() { STAGING_BYTES } else { limits::STAGING_BYTES_MIN };
            StagingPiece { bytes: vec![0; bytes].into(), _held: held }
        })
    }

    pub(super) fn return_piece(&mut self, piece: StagingPiece) {
        self.piece = Some(piece);
    }

    /// Frees the buffers that only help while requests follow each other.
    pub(super) fn rest(&mut self) {
        *self = Self::new(&self.pool);
    }

    pub(super) fn is_resting(&self) -> bool {
        let Self { pool: _, frame, body, piece, crcs, lengths } = self;
        let empty = frame.capacity() + body.capacity() + crcs.capacity() + lengths.capacity() == 0;
        empty && piece.is_none()
    }
}

impl std::ops::Deref for StagingPiece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for StagingPiece {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Memory that all connections of a node share: the bytes that are left to reserve. They are
/// reserved before use, and returned on drop.
#[derive(Debug)]
pub(crate) struct BytePool {
    left: Mutex<usize>,
    returned: Condvar,
}

/// A reserved part of an allowance.
#[derive(Debug)]
pub(super) struct HeldBytes {
    from: Arc<BytePool>,
    bytes: usize,
}

impl BytePool {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(bytes), returned: Condvar::new() })
    }

    /// Reserves `bytes`. Waits at most `timeout` for other connections to return theirs.
    pub(super) fn take(self: &Arc<Self>, bytes: usize, timeout: Duration) -> Option<HeldBytes> {
        let short = |left: &mut usize| *left < bytes;
        let waited = self.returned.wait_timeout_while(self.lock(), timeout, short);
        let (mut left, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *left = left.checked_sub(bytes)?;
        Some(HeldBytes { from: Arc::clone(self), bytes })
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldBytes {
    /// Returns all but `bytes`.
    pub(super) fn keep(&mut self, bytes: usize) {
        let returned = self.bytes.saturating_sub(bytes);
        self.bytes -= returned;
        *self.from.lock() += returned;
        self.from.returned.notify_all();
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.keep(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_bytes_can_be_reserved_again_within_the_limit() {
        let pool = BytePool::new(100);
        let held = pool.take(60, Duration::ZERO).expect("there is enough");
        assert!(pool.take(41, Duration::ZERO).is_none());
        drop(held);
        let mut held = pool.take(100, Duration::ZERO).unwrap();
        held.keep(30);
        assert!(pool.take(71, Duration::ZERO).is_none());
        assert!(pool.take(70, Duration::ZERO).is_some());
        drop(held);
        assert!(pool.take(100, Duration::ZERO).is_some());
        assert!(pool.take(101, Duration::ZERO).is_none());
    }
}
