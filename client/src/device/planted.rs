//! Mistakes that are planted, one at a time, to see that the tests find them.
//!
//! A test names a mistake in the environment. Only builds with the feature `testing` look there.
//!
//! Thread rule: read once. Non-goals: products, which have none of these.

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
pub(super) const IS_COMPLETE_POLLED: &str = "is_complete polled";

/// Whether this mistake is planted in this process.
#[cfg(feature = "testing")]
pub(super) fn is(mistake: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("LARDER_PLANTED_MISTAKE").ok());
    planted.as_deref() == Some(mistake)
}

/// What is held of a transfer, if a mistake about that is planted.
#[cfg(feature = "testing")]
pub(super) fn let_go(transfer: std::sync::Arc<super::Transfer>) -> std::sync::Arc<super::Transfer> {
    use super::Source;

    let (lease_ended, unregistered) = (is(LEASE_ENDED), is(UNREGISTERED));
    for source in &transfer.sources {
        if let Source::Extent { registration, extent } = source {
            if unregistered {
                extent.accompany(None);
            }
            if lease_ended {
                std::mem::forget(std::sync::Arc::clone(registration));
            }
        }
    }
    if !lease_ended && !unregistered {
        return transfer;
    }
    let extents = transfer.sources.iter().filter_map(|source| match source {
        Source::Extent { extent, .. } if unregistered => Some(std::sync::Arc::clone(extent)),
        _ => None,
    });
    std::mem::forget(extents.collect::<Vec<_>>());
    drop(transfer);
    std::sync::Arc::new(super::Transfer { sources: Vec::new(), runs: Vec::new() })
}

#[cfg(not(feature = "testing"))]
pub(super) const fn is(_mistake: &str) -> bool {
    false
}
