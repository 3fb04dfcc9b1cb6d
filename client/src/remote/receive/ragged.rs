//! Receives the ragged rows of one DATA frame: in pieces that are checked while in the CPU cache,
//! and straight into place where rows are adjacent.

use std::io::Read;

use larder_extent::crc::crc32c;

use super::{Failure, Lengths, PIECE_BYTES, is_contiguous, receive_row};

/// Receives the payload of a run into `out`, the buffer of its tensor. `at` has the ascending
/// places of the rows in the batch, and `crcs` their checksums. `done` counts the rows that are in
/// place and valid.
pub(in crate::remote) fn receive_ragged(
    reader: &mut impl Read,
    (at, crcs): (&[u32], &[u32]),
    lengths: Lengths<'_>,
    out: &mut [u8],
    staging: &mut Vec<u8>,
    done: &mut usize,
) -> Result<(), Failure> {
    while *done < at.len() {
        let first = lengths.range(at[*done]);
        if first.len() > PIECE_BYTES {
            receive_row(reader, &mut out[first], crcs[*done], *done)?;
            *done += 1;
            continue;
        }
        let count = rows_of_piece(&at[*done..], lengths);
        let (at, crcs) = (&at[*done..*done + count], &crcs[*done..*done + count]);
        let io = |error| Failure::from_io(&error);
        if is_contiguous(at) {
            let last = lengths.range(at[count - 1]);
            reader.read_exact(&mut out[first.start..last.end]).map_err(io)?;
        } else {
            staging.resize(lengths.sum(at), 0);
            reader.read_exact(staging).map_err(io)?;
            let mut rest = &staging[..];
            for &at in at {
                let place = &mut out[lengths.range(at)];
                let (row, after) = rest.split_at(place.len());
                place.copy_from_slice(row);
                rest = after;
            }
        }
        for (&at, &crc) in at.iter().zip(crcs) {
            if crc32c(&out[lengths.range(at)]) != crc {
                return Err(Failure::Corrupt { slot: 0, row: *done });
            }
            *done += 1;
        }
    }
    Ok(())
}

/// The number of these rows that fit a piece, at least one.
fn rows_of_piece(at: &[u32], lengths: Lengths<'_>) -> usize {
    let mut bytes = 0;
    let more = at.iter().take_while(|&&at| {
        bytes += lengths.range(at).len();
        bytes <= PIECE_BYTES
    });
    more.count().max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            let run = (&at[..], &crcs[..]);
            let result =
                receive_ragged(&mut &sent[..], run, lengths, &mut out, &mut staging, &mut done);
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
