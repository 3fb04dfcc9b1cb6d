//! Bugs planted one at a time, to check that the tests find them.
//!
//! A test names a bug in an environment variable, which only builds with the feature `testing`
//! read.
//!
//! Thread rule: the variable is read once a process. Released builds contain no such bug.

use std::{mem, sync::Arc};

use super::{CopySource, Transfer};

/// The consumer's stream does not wait for the batch.
pub(super) const NO_CONSUMER_WAIT: &str = "no consumer wait";
/// A block is written to before its last user is done.
pub(super) const BLOCK_REUSED_EARLY: &str = "block reused early";
/// Copies hold no memory.
pub(super) const HOLD_NOTHING: &str = "buffer rewritten early";
/// The lease of an extent ends once its copies are queued.
pub(super) const LEASE_ENDED: &str = "lease ended at queueing";
/// A registration ends once its copies are queued.
pub(super) const UNREGISTERED: &str = "unregistered early";
/// A lost device is polled forever.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "the other driver loses no device"))]
pub(super) const IS_COMPLETE_POLLED: &str = "is_complete polled";

/// Whether this process has this bug.
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

/// The part of a transfer that stays held under a planted bug.
pub(super) fn let_go(transfer: Arc<Transfer>) -> Arc<Transfer> {
    let (lease_ended, unregistered) = (is(LEASE_ENDED), is(UNREGISTERED));
    if !lease_ended && !unregistered {
        return transfer;
    }
    for source in &transfer.sources {
        let CopySource::Extent { registration, extent } = source else { continue };
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
