//! Wrong bytes of the right length. Each function returns bytes that differ from its input.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;

use super::honest::Honest;

/// The size of swapped or repeated pieces, like a reader's own parts or pages.
const PIECE_BYTES: usize = 4096;

pub(super) fn bit_flipped(body: &Bytes, seed: u64) -> Bytes {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut wrong = body.to_vec();
    wrong[random.usize(..body.len())] ^= 1 << random.u32(..8);
    wrong.into()
}

pub(super) fn tail_zeroed(body: &Bytes, seed: u64) -> Bytes {
    let mut wrong = body.to_vec();
    wrong[body.len() / 2..].fill(0);
    differing(wrong, body, seed)
}

pub(super) fn pieces_swapped(body: &Bytes, seed: u64) -> Bytes {
    let mut wrong = body.to_vec();
    let piece = PIECE_BYTES.min(body.len() / 2);
    let (front, back) = wrong.split_at_mut(body.len() - piece);
    front[..piece].swap_with_slice(back);
    differing(wrong, body, seed)
}

pub(super) fn piece_repeated(body: &Bytes, seed: u64) -> Bytes {
    let mut wrong = body.to_vec();
    let piece = PIECE_BYTES.min(body.len() / 2);
    let pairs = body.len() / (2 * piece).max(1);
    let start = fastrand::Rng::with_seed(seed).usize(..pairs.max(1)) * 2 * piece;
    wrong.copy_within(start..start + piece, start + piece);
    differing(wrong, body, seed)
}

/// Returns the range 4 KiB further on, or further back, or rotated if it is the whole object.
pub(super) fn range_shifted(honest: &Honest, seed: u64) -> Bytes {
    let Range { start, end } = honest.read.range;
    let step = u64::try_from(PIECE_BYTES).expect("a small constant");
    let ahead = step.min(honest.read.total - end);
    let behind = step.min(start);
    let shifted = if ahead > 0 { start + ahead..end + ahead } else { start - behind..end - behind };
    let mut wrong = bytes_at(&honest.read.path, shifted).unwrap_or_else(|| honest.body.to_vec());
    if ahead == 0 && behind == 0 {
        wrong.rotate_left(1);
    }
    differing(wrong, &honest.body, seed)
}

/// Returns the same range of another file of the directory, or inverted bytes if no file is that
/// long.
pub(super) fn of_other_object(honest: &Honest, seed: u64) -> Bytes {
    let neighbours = honest.read.path.parent().and_then(|directory| directory.read_dir().ok());
    let other = neighbours.into_iter().flatten().flatten().find_map(|entry| {
        let path = entry.path();
        (path != honest.read.path).then(|| bytes_at(&path, honest.read.range.clone())).flatten()
    });
    let wrong = other.unwrap_or_else(|| honest.body.iter().map(|byte| !byte).collect());
    differing(wrong, &honest.body, seed)
}

/// Changes every sixteenth byte, like an earlier version of the object.
pub(super) fn stale(body: &Bytes) -> Bytes {
    body.iter()
        .enumerate()
        .map(|(at, byte)| if at % 16 == 0 { byte.wrapping_add(1) } else { *byte })
        .collect()
}

/// Returns `range` of a file, if the file has those bytes.
pub(super) fn bytes_at(path: &Path, range: Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    File::open(path).ok()?.read_exact_at(&mut bytes, range.start).ok()?;
    Some(bytes)
}

/// Returns `wrong`, changed where it happens to equal the right bytes.
fn differing(wrong: Vec<u8>, right: &Bytes, seed: u64) -> Bytes {
    if wrong == *right { bit_flipped(right, seed) } else { wrong.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrupted_bytes_differ_and_keep_their_length() {
        let bodies =
            [vec![0; 1], vec![0; 9000], vec![7; 2], (0..=255).cycle().take(70_001).collect()];
        for (body, seed) in bodies.into_iter().map(Bytes::from).zip(0..) {
            for wrong in [
                bit_flipped(&body, seed),
                tail_zeroed(&body, seed),
                pieces_swapped(&body, seed),
                piece_repeated(&body, seed),
                stale(&body),
            ] {
                assert_eq!(wrong.len(), body.len());
                assert_ne!(wrong, body);
            }
        }
    }
}
