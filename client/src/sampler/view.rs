//! Which samples of a snapshot an epoch declares.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_128;

use super::Error;

/// Which samples of a dataset are used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// Every sample.
    All,
    /// A contiguous range of samples.
    Range(Range<u64>),
}

/// A snapshot with a selection: the declared set of samples, each of which an epoch brings once.
///
/// The selection is held in its canonical form, so that two ways to say the same set give the same
/// digest: a range over the whole dataset is [`Selection::All`], an empty one is `0..0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    snapshot: [u8; 16],
    samples: u64,
    selection: Selection,
}

impl View {
    /// The view of `selection` over snapshot `snapshot`, which holds `samples` samples.
    ///
    /// # Errors
    /// [`Error::Selection`] if the selection reaches outside the dataset or runs backwards.
    pub fn new(snapshot: [u8; 16], samples: u64, selection: Selection) -> Result<Self, Error> {
        let selection = match selection {
            Selection::Range(range) if range.start > range.end || range.end > samples => {
                return Err(Error::Selection { range, samples });
            }
            Selection::Range(range) if range == (0..samples) => Selection::All,
            Selection::Range(range) if range.is_empty() => Selection::Range(0..0),
            canonical => canonical,
        };
        Ok(Self { snapshot, samples, selection })
    }

    /// The view of all `samples` samples of snapshot `snapshot`.
    #[must_use]
    pub fn all(snapshot: [u8; 16], samples: u64) -> Self {
        Self { snapshot, samples, selection: Selection::All }
    }

    /// Number of samples declared: the positions of an epoch.
    #[must_use]
    pub fn len(&self) -> u64 {
        let range = self.range();
        range.end - range.start
    }

    /// Whether no sample is declared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The snapshot's id.
    #[must_use]
    pub fn snapshot(&self) -> [u8; 16] {
        self.snapshot
    }

    /// The selection in its canonical form.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Number of samples of the whole snapshot.
    #[must_use]
    pub fn snapshot_samples(&self) -> u64 {
        self.samples
    }

    /// The declared samples, in sample order.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        match &self.selection {
            Selection::All => 0..self.samples,
            Selection::Range(range) => range.clone(),
        }
    }

    /// The name of the declared set: a 128-bit hash of the following bytes, little-endian.
    ///
    /// ```text
    /// offset  bytes  field
    ///      0     16  "larder view v1", zero-padded
    ///     16     16  snapshot id
    ///     32      1  selection: 0 all, 1 range (numbers are never reused)
    ///     33      -  range: first u64, end u64
    /// ```
    #[must_use]
    pub fn digest(&self) -> [u8; 16] {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(b"larder view v1\0\0");
        bytes.extend_from_slice(&self.snapshot);
        match &self.selection {
            Selection::All => bytes.push(0),
            Selection::Range(range) => {
                bytes.push(1);
                bytes.extend_from_slice(&range.start.to_le_bytes());
                bytes.extend_from_slice(&range.end.to_le_bytes());
            }
        }
        xxh3_128(&bytes).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(range: Range<u64>) -> Result<View, Error> {
        View::new([7; 16], 100, Selection::Range(range))
    }

    #[test]
    fn the_same_declared_set_has_one_digest_however_it_is_said() {
        let all = View::all([7; 16], 100);
        assert_eq!(view(0..100).unwrap(), all);
        assert_eq!(view(50..50).unwrap().digest(), view(9..9).unwrap().digest());
        assert_eq!(
            View::new([7; 16], 0, Selection::Range(0..0)).unwrap().selection(),
            &Selection::All
        );
    }

    #[test]
    fn another_snapshot_or_another_selection_has_another_digest() {
        let digests = [
            View::all([7; 16], 100).digest(),
            View::all([8; 16], 100).digest(),
            view(0..99).unwrap().digest(),
            view(1..100).unwrap().digest(),
        ];
        for (i, digest) in digests.iter().enumerate() {
            assert!(!digests[..i].contains(digest));
        }
    }

    #[test]
    fn a_selection_outside_the_dataset_is_refused() {
        for range in [0..101, 101..101, Range { start: 5, end: 4 }] {
            assert_eq!(view(range.clone()), Err(Error::Selection { range, samples: 100 }));
        }
    }
}
