//! Several sequences interleaved as evenly as integers allow, computed and not stored.
//!
//! Two sequences of `a` and `b` elements are merged like a line on a grid: of the first `x`
//! elements of the whole, `floor((x * a + p) / (a + b))` are of the first sequence, `p` any number
//! below `a + b` (a balanced word; M. Morse and G. Hedlund, *Symbolic Dynamics II: Sturmian
//! Trajectories*, 1940). More sequences are merged in pairs, as a binary tree. So every stretch of
//! the whole holds each sequence in its share, to within one element for each level of the tree,
//! where lots drawn for each element would stray by the square root of the stretch's length.

use std::ops::Range;

/// The interleaving of some sequences; 16 bytes each.
#[derive(Debug, Clone)]
pub(super) struct Interleaving {
    /// Sums of the lengths of the sequences before each; one more entry holds the whole length.
    sums: Box<[u64]>,
    /// The `p` of the node that parts the sequences at this index.
    starts: Box<[u64]>,
}

/// A node of the tree: sequences `left` are merged with those from its end on.
struct MergedPair {
    middle: usize,
    left: u64,
    right: u64,
    start: u64,
}

impl MergedPair {
    fn total(&self) -> u128 {
        u128::from(self.left) + u128::from(self.right)
    }

    /// How many of the first `x` elements go to the left.
    fn left_of(&self, x: u64) -> u64 {
        let line = u128::from(x) * u128::from(self.left) + u128::from(self.start);
        narrow(line / self.total())
    }
}

impl Interleaving {
    /// Of sequences of these lengths, none of them 0, together below 2^64. `start` is asked once
    /// for each pair that is merged, and may answer anything.
    pub(super) fn new(lengths: &[u64], mut start: impl FnMut(usize) -> u64) -> Self {
        let sums = lengths.iter().scan(0, |sum, length| {
            *sum += length;
            Some(*sum)
        });
        let sums = std::iter::once(0).chain(sums).collect();
        let starts = (0..lengths.len()).map(&mut start).collect();
        Self { sums, starts }
    }

    fn sequences(&self) -> Range<usize> {
        0..self.sums.len() - 1
    }

    fn node(&self, sequences: &Range<usize>) -> MergedPair {
        let middle = usize::midpoint(sequences.start, sequences.end);
        let left = self.sums[middle] - self.sums[sequences.start];
        let right = self.sums[sequences.end] - self.sums[middle];
        MergedPair { middle, left, right, start: self.starts[middle] % (left + right) }
    }

    /// Which sequence element `x` of the whole is of, and which of its elements.
    pub(super) fn at(&self, mut x: u64) -> (usize, u64) {
        let mut sequences = self.sequences();
        while sequences.len() > 1 {
            let node = self.node(&sequences);
            let before = node.left_of(x);
            if node.left_of(x + 1) > before {
                (x, sequences.end) = (before, node.middle);
            } else {
                (x, sequences.start) = (x - before, node.middle);
            }
        }
        (sequences.start, x)
    }

    /// How many of the first `x` elements of the whole are of each sequence.
    pub(super) fn counts_before(&self, x: u64) -> Vec<u64> {
        let mut counts = Vec::with_capacity(self.sums.len() - 1);
        self.count_within(self.sequences(), x, &mut counts);
        counts
    }

    fn count_within(&self, sequences: Range<usize>, x: u64, counts: &mut Vec<u64>) {
        if sequences.len() == 1 {
            counts.push(x);
            return;
        }
        let node = self.node(&sequences);
        let left = node.left_of(x);
        self.count_within(sequences.start..node.middle, left, counts);
        self.count_within(node.middle..sequences.end, x - left, counts);
    }
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).expect("no more than elements of the whole")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn len(merged: &Interleaving) -> u64 {
        *merged.sums.last().unwrap()
    }

    fn interleaving(lengths: &[u64], seed: u64) -> Interleaving {
        let mut random = fastrand::Rng::with_seed(seed);
        Interleaving::new(lengths, |_| random.u64(..))
    }

    proptest! {
        #[test]
        fn interleaving_keeps_the_order_of_each_sequence(
            lengths in vec(1..60_u64, 1..9),
            seed in any::<u64>(),
        ) {
            let merged = interleaving(&lengths, seed);
            let mut next = vec![0; lengths.len()];
            for x in 0..len(&merged) {
                prop_assert_eq!(&merged.counts_before(x), &next);
                let (sequence, element) = merged.at(x);
                prop_assert_eq!(element, next[sequence]);
                next[sequence] += 1;
            }
            prop_assert_eq!(next, lengths);
        }

        #[test]
        fn every_stretch_holds_each_sequence_in_its_share(
            lengths in vec(1..1_000_000_000_u64, 2..9),
            seed in any::<u64>(),
            from in any::<u64>(),
            stretch in 0..100_000_u64,
        ) {
            let merged = interleaving(&lengths, seed);
            let from = from % len(&merged);
            let to = len(&merged).min(from + stretch);
            let levels = (lengths.len() as f64).log2().ceil();
            let (before, after) = (merged.counts_before(from), merged.counts_before(to));
            for (sequence, &length) in lengths.iter().enumerate() {
                let count = (after[sequence] - before[sequence]) as f64;
                let share = length as f64 / len(&merged) as f64;
                let due = (to - from) as f64 * share;
                prop_assert!((count - due).abs() <= levels + 1e-3, "{} where {} are due", count, due);
            }
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let merged = interleaving(&[u64::MAX / 2, u64::MAX / 3, 1, u64::MAX / 8], 1);
        for x in [0, 1, len(&merged) / 2, len(&merged) - 1] {
            let (sequence, element) = merged.at(x);
            assert_eq!(merged.counts_before(x)[sequence], element);
        }
    }

    #[test]
    fn equal_halves_alternate_and_a_quarter_is_every_fourth() {
        let pattern = |lengths: &[u64]| -> String {
            let merged = Interleaving::new(lengths, |_| 0);
            (0..len(&merged)).map(|x| ['a', 'b', 'c'][merged.at(x).0]).collect()
        };
        assert_eq!(pattern(&[4, 4]), "babababa");
        assert_eq!(pattern(&[6, 2]), "baaabaaa");
        assert_eq!(pattern(&[4, 2, 2]), "cabacaba");
    }
}
