//! How far samples are shuffled.

use std::fmt;
use std::num::NonZeroU32;

/// Shards of a window unless memory is too small for it: 4 GiB in play at the default shard size.
///
/// A sample meets the samples of 63 other shards drawn from the whole dataset, which for data
/// written in no particular order is as good as a global shuffle and for data sorted by class mixes
/// at least that many runs; more shards mix better and need more memory at once.
pub const WINDOW_SHARDS_DEFAULT: NonZeroU32 = NonZeroU32::new(64).expect("64 is not 0");

/// How far samples are shuffled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// Samples in their own order.
    None,
    /// Shards in random order, and rows in random order within each `shards` consecutive ones. Each
    /// shard is used in one stretch of the epoch. Loaders tell the nodes this order. So of
    /// a dataset larger than memory, an epoch reads the part that does not fit once, in whole
    /// shards.
    Window {
        /// Shards of a window.
        shards: NonZeroU32,
    },
    /// All samples in random order. Every batch touches shards everywhere: for datasets that fit
    /// into the cluster. Otherwise each row of a shard that is not in memory is a request.
    Global,
}

impl Shuffle {
    /// What `auto` means: [`Shuffle::Global`] when the dataset fits the cluster, else a window.
    ///
    /// `dataset_bytes` are the bytes of all shards, `cluster_bytes` the sum of the nodes' memory
    /// budgets, `shard_bytes` those of a typical shard. It *fits* with a quarter to spare, because
    /// a ring fills its fullest node to about 1.24 times the mean. A window takes
    /// [`WINDOW_SHARDS_DEFAULT`] shards, or as many as fill an eighth of the cluster if that is
    /// less (at least one). The window in use and the next one then take a quarter, and no node of
    /// many has too little room for its part of them.
    ///
    /// All processes of a job must come to the same answer: let one decide, or compare the
    /// [`PassId`](super::PassId), which carries it.
    pub fn auto(dataset_bytes: u64, cluster_bytes: u64, shard_bytes: u64) -> Self {
        if dataset_bytes.saturating_add(dataset_bytes / 4) <= cluster_bytes {
            return Self::Global;
        }
        let affordable = u32::try_from(cluster_bytes / 8 / shard_bytes.max(1)).unwrap_or(u32::MAX);
        let shards = NonZeroU32::new(affordable).unwrap_or(NonZeroU32::MIN);
        Self::Window { shards: shards.min(WINDOW_SHARDS_DEFAULT) }
    }
}

impl fmt::Display for Shuffle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Window { shards } => write!(f, "window:{shards}"),
            Self::Global => f.write_str("global"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    fn window(shards: u32) -> Shuffle {
        Shuffle::Window { shards: NonZeroU32::new(shards).unwrap() }
    }

    #[test]
    fn auto_is_global_only_if_the_dataset_fits_with_reserve() {
        assert_eq!(Shuffle::auto(8 * GIB, 10 * GIB, 64 * MIB), Shuffle::Global);
        assert_eq!(Shuffle::auto(9 * GIB, 10 * GIB, 64 * MIB), window(20));
        assert_eq!(Shuffle::auto(u64::MAX, u64::MAX, 64 * MIB), Shuffle::Global);
        assert_eq!(Shuffle::auto(0, 0, 0), Shuffle::Global);
    }

    #[test]
    fn auto_window_fits_twice_into_a_quarter_of_the_cluster() {
        assert_eq!(Shuffle::auto(1 << 50, 1 << 40, 64 * MIB), window(64));
        assert_eq!(Shuffle::auto(1 << 50, GIB, 64 * MIB), window(2));
        assert_eq!(Shuffle::auto(1 << 50, 0, 64 * MIB), window(1));
        assert_eq!(Shuffle::auto(1 << 50, 1 << 40, 0), window(64));
    }

    #[test]
    fn shuffle_is_parsed_from_its_text() {
        for shuffle in [Shuffle::None, window(1), window(u32::MAX), Shuffle::Global] {
            assert_eq!(shuffle.to_string().parse(), Ok(shuffle));
        }
        assert_eq!("window".parse(), Ok(window(64)));
        for wrong in ["", "auto", "window:", "window:0", "window:+1", "window:01", "Global"] {
            assert!(wrong.parse::<Shuffle>().is_err(), "{wrong}");
        }
    }
}
