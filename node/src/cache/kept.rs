//! A shard that is here, and what is known of it. It leaves the books together with the shard.

use std::sync::Arc;
use std::time::Instant;

use larder_base::limits;
use larder_extent::Sealed;

use crate::pin::Proof;

/// What the books have of a shard that is here.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) sealed: Arc<Sealed>,
    /// Why it is believed to be what the origin has.
    proof: Proof,
    /// When it came in.
    since: Instant,
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
    /// It is not what they pin. It was read twice alike, so long ago that it may be read again.
    Doubtful,
    /// It is not what they pin, and may not be what the origin has either.
    Unknown,
}

impl Kept {
    pub(super) fn new(sealed: Arc<Sealed>, proof: Proof, now: Instant) -> Self {
        Self { sealed, proof, since: now, condemned: false }
    }

    /// Notes that some snapshot pins its digest.
    pub(super) fn prove(&mut self) {
        self.proof = Proof::Pinned;
    }

    /// Whether it is for those who pin `pinned`.
    pub(super) fn fit(&self, pinned: Option<u64>, now: Instant) -> Fit {
        // What was read twice alike is believed for a while only: damage on the way can come twice, and be mended.
        let age = now.saturating_duration_since(self.since);
        match fit(&self.sealed, self.proof != Proof::None, pinned) {
            Fit::Wrong if self.proof == Proof::ReadTwice && age >= limits::READ_TWICE_HOLD => {
                Fit::Doubtful
            }
            fit => fit,
        }
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
