//! Mistakes that are planted, one at a time, to see that the tests find them.
//!
//! A test names a mistake in the environment. Only builds with the feature `testing` look there.
//!
//! Thread rule: read once. Non-goals: products, which have none of these.

use std::{mem, sync::Arc};

use super::{Source, Transfer};

/// The consumer's stream does not wait for the batch.
pub(super) const NO_CONSUMER_WAIT: &str = "no consumer wait";
/// A block is written to although its last user is not done.
pub(super) const BLOCK_REUSED_EARLY: &str = "block reused early";
/// Nothing is held until its copies are done.
pub(super) const HOLD_NOTHING: &str = "buffer rewritten early";
/// The lease of an extent ends when its copies are queued.
pub(super) const LEASE_ENDED: &str = "lease ended at queueing";
/// A registration ends when its copies are queued.
pub(super) const UNREGISTERED: &str = "unregistered early";
/// A lost device is polled for ever.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "the other driver loses no device"))]
pub(super) const IS_COMPLETE_POLLED: &str = "is_complete polled";

/// Whether this mistake is planted in this process.
#[cfg(feature = "testing")]
pub(super) fn is(mistake: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("LARDER_PLANTED_MISTAKE").ok());
    planted.as_deref() == Some(mistake)
}

#[cfg(not(feature = "testing"))]
pub(super) const fn is(_mistake: &str) -> bool {
    false
}

/// The part of a transfer that is held, if a mistake about that is planted.
pub(super) fn let_go(transfer: Arc<Transfer>) -> Arc<Transfer> {
    let (lease_ended, unregistered) = (is(LEASE_ENDED), is(UNREGISTERED));
    if !lease_ended && !unregistered {
        return transfer;
    }
    for source in &transfer.sources {
        let Source::Extent { registration, extent } = source else { continue };
        if unregistered {
            extent.accompany(None);
            mem::forget(Arc::clone(extent));
        } else {
            mem::forget(Arc::clone(registration));
        }
    }
    drop(transfer);
    Arc::new(Transfer { sources: Vec::new(), runs: Vec::new() })
}
