//! A shard that is here, and what is known of it. It leaves the books together with the shard.

use std::sync::Arc;

use larder_extent::Sealed;

/// What the books have of a shard that is here.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) sealed: Arc<Sealed>,
    /// It is known to be what the origin has: some snapshot pins its digest, or it was read twice alike.
    pub(super) proven: bool,
    /// It was to be discarded while somebody maps it: not handed out any more, evicted with its last lease.
    pub(super) condemned: bool,
}

/// Whether a shard is for those who pin a checksum, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// It is.
    Right,
    /// It is what the origin has, and not what they pin.
    Wrong,
    /// It is not what they pin, and may not be what the origin has either.
    Unknown,
}

impl Kept {
    pub(super) fn new(sealed: Arc<Sealed>, proven: bool) -> Self {
        Self { sealed, proven, condemned: false }
    }

    /// Whether it is for those who pin `pinned`.
    pub(super) fn fit(&self, pinned: Option<u64>) -> Fit {
        fit(&self.sealed, self.proven, pinned)
    }
}

/// As [`Kept::fit`], of a shard that was just filled.
pub(super) fn fit(sealed: &Sealed, proven: bool, pinned: Option<u64>) -> Fit {
    match pinned {
        Some(pinned) if pinned != sealed.digest() && proven => Fit::Wrong,
        Some(pinned) if pinned != sealed.digest() => Fit::Unknown,
        _ => Fit::Right,
    }
}
