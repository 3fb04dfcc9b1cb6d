//! Receives the rows of one DATA frame from the socket into their places in the batch.
//!
//! Rows arrive back to back, for ascending places of the batch. They are received in pieces that
//! stay in the CPU cache until they are checked:
//!
//! - neighbours in the batch: in one read, straight into place
//! - scattered rows of at least 4 KiB: by a scattered read, straight into place
//! - other scattered rows: into a staging buffer, then copied, which costs less than one I/O vector
//!   per row
//! - one row larger than a piece: in several pieces, under one running checksum

use std::io::{self, IoSliceMut, Read};

use larder_extent::crc::{Crc32c, crc32c};

use super::{Failure, placed::Lengths};

/// Bytes received between two checks. They are still in the second-level cache then.
const PIECE_BYTES: usize = 256 << 10;

/// Rows of at least this size are received straight into scattered places.
const SCATTER_ROW_BYTES_MIN: usize = 4 << 10;

/// Places of one scattered read: the number of smallest rows that fill a piece.
const PLACES_MAX: usize = PIECE_BYTES / SCATTER_ROW_BYTES_MIN;

/// A row with a wrong checksum. The connection says which one it is.
const CORRUPT: Failure = Failure::Corrupt { slot: 0, row: 0 };

/// The buffers of a batch, one for each tensor, and the lengths of their rows.
pub(crate) struct Batch<'a, 'b> {
    pub(crate) out: &'a mut [&'b mut [u8]],
    pub(crate) lengths: &'a [Lengths<'a>],
}

/// The rows of one frame.
pub(super) struct Run<'a> {
    /// Their places in the batch, ascending.
    pub(super) at: &'a [u32],
    pub(super) crcs: &'a [u32],
    pub(super) lengths: Lengths<'a>,
}

impl Run<'_> {
    /// How often a byte is moved. Scattered rows are staged if they are short, or ragged.
    pub(super) fn copies(&self) -> u64 {
        if is_contiguous(self.at) || self.scatters() { 1 } else { 2 }
    }

    fn scatters(&self) -> bool {
        matches!(self.lengths, Lengths::Even(bytes) if bytes >= SCATTER_ROW_BYTES_MIN)
    }

    /// The number of these rows that fit a piece; at least one.
    fn rows_of_piece(&self, at: &[u32]) -> usize {
        let count = match self.lengths {
            Lengths::Even(row_bytes) => at.len().min(PIECE_BYTES / row_bytes.max(1)),
            Lengths::Ragged(_) => {
                let mut bytes = 0;
                let more = at.iter().take_while(|&&at| {
                    bytes += self.lengths.range(at).len();
                    bytes <= PIECE_BYTES
                });
                more.count()
            }
        };
        count.max(1)
    }
}

/// Whether rows at these ascending places are adjacent.
fn is_contiguous(at: &[u32]) -> bool {
    at.first().zip(at.last()).is_none_or(|(first, last)| (last - first) as usize == at.len() - 1)
}

/// Receives the payload of a run into `out`, the buffer of its tensor. `done` counts the rows that
/// are in place and valid.
pub(super) fn receive(
    reader: &mut impl Read,
    run: &Run<'_>,
    out: &mut [u8],
    staging: &mut Vec<u8>,
    done: &mut usize,
) -> Result<(), Failure> {
    let lengths = run.lengths;
    while *done < run.at.len() {
        let first = lengths.range(run.at[*done]);
        if first.len() > PIECE_BYTES {
            receive_row(reader, &mut out[first], run.crcs[*done])?;
            *done += 1;
            continue;
        }
        let rows = *done..*done + run.rows_of_piece(&run.at[*done..]);
        let (at, crcs) = (&run.at[rows.clone()], &run.crcs[rows]);
        let received = if is_contiguous(at) {
            let last = lengths.range(at[at.len() - 1]);
            reader.read_exact(&mut out[first.start..last.end])
        } else if run.scatters() {
            receive_scattered(reader, at, lengths, out)
        } else {
            receive_staged(reader, at, lengths, out, staging)
        };
        received.map_err(|error| Failure::from_io(&error))?;
        for (&at, &crc) in at.iter().zip(crcs) {
            if crc32c(&out[lengths.range(at)]) != crc {
                return Err(CORRUPT);
            }
            *done += 1;
        }
    }
    Ok(())
}

/// Receives one row in pieces, or the part of a row under one checksum.
pub(super) fn receive_row(reader: &mut impl Read, row: &mut [u8], crc: u32) -> Result<(), Failure> {
    let mut computed = Crc32c::new();
    for piece in row.chunks_mut(PIECE_BYTES) {
        reader.read_exact(piece).map_err(|error| Failure::from_io(&error))?;
        computed.update(piece);
    }
    if computed.finish() == crc { Ok(()) } else { Err(CORRUPT) }
}

/// Receives rows into the staging buffer, and copies each to its place.
fn receive_staged(
    reader: &mut impl Read,
    at: &[u32],
    lengths: Lengths<'_>,
    out: &mut [u8],
    staging: &mut Vec<u8>,
) -> io::Result<()> {
    staging.resize(lengths.sum(at), 0);
    reader.read_exact(staging)?;
    let mut rest = &staging[..];
    for &at in at {
        let place = &mut out[lengths.range(at)];
        let (row, after) = rest.split_at(place.len());
        place.copy_from_slice(row);
        rest = after;
    }
    Ok(())
}

fn receive_scattered(
    reader: &mut impl Read,
    at: &[u32],
    lengths: Lengths<'_>,
    out: &mut [u8],
) -> io::Result<()> {
    let mut places: [IoSliceMut<'_>; PLACES_MAX] =
        std::array::from_fn(|_| IoSliceMut::new(&mut []));
    let (mut rest, mut rest_at) = (out, 0);
    for (place, &at) in places.iter_mut().zip(at) {
        let range = lengths.range(at);
        let (_, from_start) = rest.split_at_mut(range.start - rest_at);
        let (row, after) = from_start.split_at_mut(range.len());
        *place = IoSliceMut::new(row);
        (rest, rest_at) = (after, range.end);
    }
    let mut places = &mut places[..at.len()];
    while !places.is_empty() {
        match reader.read_vectored(places) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => IoSliceMut::advance_slices(&mut places, got),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reader that returns at most `self.1` bytes at a time, into one place at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let most = into.len().min(self.1);
            self.0.read(&mut into[..most])
        }
    }

    fn row(index: u32, row_bytes: usize) -> Vec<u8> {
        let byte = |at: usize| u8::try_from((at * 31 + index as usize * 7) % 251).unwrap();
        (0..row_bytes).map(byte).collect()
    }

    fn receive_all(
        at: &[u32],
        row_bytes: usize,
        most: usize,
        flip: Option<usize>,
    ) -> (Vec<u8>, usize, bool) {
        let rows: Vec<_> = at.iter().map(|&at| row(at, row_bytes)).collect();
        let crcs: Vec<_> = rows.iter().map(|row| crc32c(row)).collect();
        let mut sent = rows.concat();
        if let Some(flip) = flip {
            sent[flip] ^= 4;
        }
        let places = at.last().unwrap() + 2;
        let mut out = vec![0xee; places as usize * row_bytes];
        let (mut staging, mut done) = (Vec::new(), 0);
        let run = Run { at, crcs: &crcs, lengths: Lengths::Even(row_bytes) };
        let result = receive(&mut Trickle(&sent, most), &run, &mut out, &mut staging, &mut done);
        (out, done, result.is_ok())
    }

    #[test]
    fn rows_of_every_size_are_written_at_their_indices_only() {
        let scattered: Vec<u32> = (0..150).map(|row| row * 2 + 1).collect();
        let together: Vec<u32> = (3..153).collect();
        for row_bytes in [1, 3, 512, 4096, 5000, 70_000, PIECE_BYTES, PIECE_BYTES + 1, 600_001] {
            for at in [&scattered, &together] {
                let at = if row_bytes > 10_000 { &at[..8] } else { &at[..] };
                let (out, done, sound) = receive_all(at, row_bytes, 1000 + row_bytes / 3, None);
                assert!(sound);
                assert_eq!(done, at.len());
                for (place, bytes) in (0..).zip(out.chunks_exact(row_bytes)) {
                    let wanted = at.contains(&place).then(|| row(place, row_bytes));
                    assert_eq!(bytes, wanted.unwrap_or_else(|| vec![0xee; row_bytes]), "{place}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn flipped_bit_is_detected_at_its_row(
            row_bytes in prop_oneof![1_usize..100, 4000_usize..6000, Just(PIECE_BYTES + 5)],
            gaps in proptest::collection::vec(1_u32..3, 1..20),
            flip in any::<proptest::sample::Index>(),
        ) {
            let at: Vec<u32> = gaps.iter().scan(0, |sum, gap| { *sum += gap; Some(*sum) }).collect();
            let flip = flip.index(at.len() * row_bytes);
            let (_, done, sound) = receive_all(&at, row_bytes, usize::MAX, Some(flip));
            prop_assert!(!sound);
            prop_assert_eq!(done, flip / row_bytes);
        }
    }

    #[test]
    fn early_end_of_stream_is_a_broken_connection() {
        let run = Run { at: &[0, 2], crcs: &[1, 2], lengths: Lengths::Even(8) };
        let mut done = 0;
        let result = receive(&mut &[0_u8; 9][..], &run, &mut [0; 24], &mut Vec::new(), &mut done);
        assert!(matches!(result, Err(Failure::Broken(_))), "{result:?}");
        assert_eq!(done, 0);
    }

    proptest! {
        #[test]
        fn receives_rows_of_any_length_and_detects_a_flipped_bit(
            lengths in proptest::collection::vec(
                prop_oneof![Just(0_usize), 0_usize..700, 0_usize..90_000, Just(PIECE_BYTES + 5)], 1..25,
            ),
            wanted in any::<u32>(),
            flip in proptest::option::of(any::<proptest::sample::Index>()),
        ) {
            let begins: Vec<usize> = std::iter::once(0)
                .chain(lengths.iter().scan(0, |end, length| { *end += length; Some(*end) }))
                .collect();
            let lengths = Lengths::Ragged(&begins);
            let all = 0..u32::try_from(begins.len() - 1).unwrap();
            let at: Vec<u32> = all.clone().filter(|place| wanted >> place & 1 == 1).collect();
            let byte = |at: usize| u8::try_from(at * 31 % 251).unwrap();
            let row = |at: u32| lengths.range(at).map(byte).collect::<Vec<u8>>();
            let crcs: Vec<u32> = at.iter().map(|&at| crc32c(&row(at))).collect();
            let mut sent: Vec<u8> = at.iter().flat_map(|&at| row(at)).collect();
            let flip = flip.filter(|_| !sent.is_empty()).map(|flip| flip.index(sent.len()));
            flip.into_iter().for_each(|flip| sent[flip] ^= 4);
            let mut out = vec![0xee; *begins.last().unwrap()];
            let (mut staging, mut done) = (Vec::new(), 0);
            let run = Run { at: &at, crcs: &crcs, lengths };
            let result = receive(&mut &sent[..], &run, &mut out, &mut staging, &mut done);
            prop_assert_eq!(result.is_ok(), flip.is_none());
            if let Some(flip) = flip {
                let mut ends = at.iter().scan(0, |end, &at| { *end += row(at).len(); Some(*end) });
                prop_assert_eq!(Some(done), ends.position(|end| end > flip));
            } else {
                prop_assert_eq!(done, at.len());
                for place in all {
                    let expected = match at.contains(&place) {
                        true => row(place),
                        false => vec![0xee; lengths.range(place).len()],
                    };
                    prop_assert_eq!(&out[lengths.range(place)], expected);
                }
            }
        }
    }
}
