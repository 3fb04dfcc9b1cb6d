//! The names of passes and localities. Errors carry them.

use std::fmt;

use super::Shuffle;

/// The version of the sample order this build computes. It changes when any pass would give another
/// order than before, which is a decision: running jobs could no longer resume in mid-epoch.
pub const ORDER_VERSION: u16 = 1;

/// Bytes of a pass id in its canonical form.
pub const PASS_ID_BYTES: usize = 40;

/// The name of one pass: equal ids, equal order, in every process of every job.
///
/// Beside view, seed, epoch and order version it carries the shuffle *as resolved*: `auto` depends
/// on the cluster's memory, and a job that resumes, or a rank that starts later, must not come to
/// another order in silence.
///
/// Its text is `VIEW/SEED/EPOCH/SHUFFLE/ORDER-VERSION`, for example
/// `00112233445566778899aabbccddeeff/7/3/window:64/1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PassId {
    pub(super) view: [u8; 16],
    pub(super) seed: u64,
    pub(super) epoch: u64,
    pub(super) shuffle: Shuffle,
    pub(super) order_version: u16,
}

impl PassId {
    /// The pass over what `view` names.
    pub(super) fn of(view: [u8; 16], seed: u64, epoch: u64, shuffle: Shuffle) -> Self {
        Self { view, seed, epoch, shuffle, order_version: ORDER_VERSION }
    }

    /// The next pass, otherwise alike.
    #[must_use]
    pub fn next_epoch(self) -> Self {
        self.at_epoch(self.epoch.wrapping_add(1))
    }

    /// Another pass, otherwise alike.
    pub(super) fn at_epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }

    /// Digest of the [`View`](super::View) or [`Mixture`](super::Mixture) of the pass.
    pub fn view(&self) -> [u8; 16] {
        self.view
    }

    /// The job's seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Which pass over the view this is, from 0.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How far samples are shuffled.
    pub fn shuffle(&self) -> Shuffle {
        self.shuffle
    }

    /// Version of the order; see [`ORDER_VERSION`].
    pub fn order_version(&self) -> u16 {
        self.order_version
    }

    /// The canonical form, little-endian.
    ///
    /// ```text
    /// offset  bytes  field
    ///      0     16  view digest
    ///     16      8  seed
    ///     24      8  epoch
    ///     32      4  shards of a window, else 0
    ///     36      2  order version
    ///     38      1  shuffle: 0 none, 1 window, 2 global
    ///     39      1  0
    /// ```
    pub fn to_bytes(&self) -> [u8; PASS_ID_BYTES] {
        const { assert!(PASS_ID_BYTES == 16 + 8 + 8 + 4 + 2 + 1 + 1) };
        let (kind, shards) = match self.shuffle {
            Shuffle::None => (0, 0),
            Shuffle::Window { shards } => (1, shards.get()),
            Shuffle::Global => (2, 0),
        };
        let mut bytes = [0; PASS_ID_BYTES];
        bytes[0..16].copy_from_slice(&self.view);
        bytes[16..24].copy_from_slice(&self.seed.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[32..36].copy_from_slice(&shards.to_le_bytes());
        bytes[36..38].copy_from_slice(&self.order_version.to_le_bytes());
        bytes[38] = kind;
        bytes
    }
}

impl fmt::Display for PassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { view, seed, epoch, shuffle, order_version } = self;
        let view = u128::from_be_bytes(*view);
        write!(f, "{view:032x}/{seed}/{epoch}/{shuffle}/{order_version}")
    }
}

/// The name of a `Locality` of the client: equal for two exactly when they divide batches alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalityId(u128);

impl LocalityId {
    /// The name with this hash.
    pub fn from_u128(hash: u128) -> Self {
        Self(hash)
    }

    /// The hash it is made of.
    #[must_use]
    pub fn to_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for LocalityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
