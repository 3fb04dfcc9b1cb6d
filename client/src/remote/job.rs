//! The rows of a gather, one request for a part of them, and the progress of an answer.

use std::ops::Range;

use larder_base::{RowRef, SnapshotId};

use super::Batch;
use crate::CopyStats;

/// The rows of one gather, and the batch that they go to.
pub(crate) struct Wanted<'a, 'b> {
    pub(crate) snapshot: SnapshotId,
    /// The version of the ring that chose the nodes.
    pub(crate) ring_version: u64,
    /// In the order of the batch.
    pub(crate) rows: &'a [RowRef],
    /// One for each slot of the batch.
    pub(crate) tensors: &'a [u16],
    pub(crate) batch: Batch<'a, 'b>,
    /// Bytes put into the batch so far.
    pub(crate) copies: CopyStats,
}

/// Rows of a batch to fetch, for some of its tensors. Forms a rectangle, so that it fits one
/// request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// Tensors of the batch, by slot.
    pub(crate) slots: Range<usize>,
    /// Places of the rows in the batch, ascending.
    pub(crate) at: Vec<u32>,
    /// The node checks its own bytes before it sends them.
    pub(crate) verify: bool,
}

/// The progress of a job. Rows come in order, one tensor after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Complete tensors.
    pub(crate) slots: usize,
    /// Rows of the next tensor that are received and checked.
    pub(crate) rows: usize,
    /// Bytes received of the next row, if it comes in pieces. A retry requests the whole row again.
    pub(crate) bytes: usize,
}

impl Job {
    /// Counts received rows, and moves to the next tensor after the last.
    pub(crate) fn advance(&self, progress: &mut Progress, rows: usize) {
        if rows > 0 {
            *progress = Progress { rows: progress.rows + rows, bytes: 0, ..*progress };
        }
        if progress.rows >= self.at.len() {
            *progress = Progress { slots: progress.slots + 1, rows: 0, bytes: 0 };
        }
    }

    /// Counts received bytes of the next row of `row_bytes`.
    pub(crate) fn advance_within(&self, progress: &mut Progress, bytes: usize, row_bytes: usize) {
        progress.bytes += bytes;
        if progress.bytes >= row_bytes {
            self.advance(progress, 1);
        }
    }

    pub(crate) fn is_complete(&self, progress: Progress) -> bool {
        progress.slots >= self.slots.len()
    }

    /// The missing rows, as at most two rectangles: the rest of a begun tensor, and the other
    /// tensors.
    pub(crate) fn rest(mut self, progress: Progress) -> impl Iterator<Item = Self> {
        let begun = self.slots.start + progress.slots;
        let untouched = if progress.rows == 0 { begun } else { begun + 1 };
        let rest_of_begun = (progress.rows > 0).then(|| Self {
            slots: begun..begun + 1,
            at: self.at[progress.rows..].to_vec(),
            verify: self.verify,
        });
        self.slots.start = untouched;
        let jobs = rest_of_begun.into_iter().chain([self]);
        jobs.filter(|job| !job.slots.is_empty() && !job.at.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job { slots: 1..4, at: vec![3, 5, 8, 9], verify: false }
    }

    fn rest(slots: usize, rows: usize) -> Vec<Job> {
        job().rest(Progress { slots, rows, bytes: 7 }).collect()
    }

    #[test]
    fn received_rows_are_not_requested_again() {
        assert_eq!(rest(0, 0), [job()]);
        assert_eq!(rest(1, 0), [Job { slots: 2..4, ..job() }]);
        let begun = Job { slots: 2..3, at: vec![8, 9], verify: false };
        assert_eq!(rest(1, 2), [begun, Job { slots: 3..4, ..job() }]);
        assert_eq!(rest(2, 3), [Job { slots: 3..4, at: vec![9], verify: false }]);
        assert_eq!(rest(3, 0), []);
    }

    #[test]
    fn progress_counts_cells_in_order_of_arrival() {
        let (job, mut progress) = (job(), Progress::default());
        for (rows, slots, left) in [(3, 0, 3), (1, 1, 0), (4, 2, 0), (4, 3, 0)] {
            assert!(!job.is_complete(progress));
            job.advance(&mut progress, rows);
            assert_eq!(progress, Progress { slots, rows: left, bytes: 0 });
        }
        assert!(job.is_complete(progress));
    }

    #[test]
    fn row_in_pieces_counts_with_its_last_piece() {
        let (job, mut progress) = (job(), Progress::default());
        for (bytes, rows, left) in [(6, 0, 6), (4, 1, 0), (9, 1, 9), (1, 2, 0)] {
            job.advance_within(&mut progress, bytes, 10);
            assert_eq!(progress, Progress { slots: 0, rows, bytes: left });
        }
        job.advance_within(&mut progress, 10, 10);
        job.advance_within(&mut progress, 10, 10);
        assert_eq!(progress, Progress { slots: 1, rows: 0, bytes: 0 });
    }
}
