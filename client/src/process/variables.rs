//! The variables of this process that concern stores, as they were when it last looked.
//!
//! A program may set new keys while it runs. Only a thread on which no other sets variables may
//! look, as the system does not lock them. So opens look, and [`renew_credentials`] does.
//!
//! [`renew_credentials`]: crate::renew_credentials

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use arc_swap::ArcSwap;
use larder_base::{ErrorKind, limits};
use larder_dataset::Variables;

use crate::Error;

/// How often [`look_again`] looks.
const LOOK_EACH_MILLIS: u64 = 2_000;

static LATEST: LazyLock<ArcSwap<Variables>> =
    LazyLock::new(|| ArcSwap::from_pointee(Variables::of_process()));

/// Returns them as they were.
pub(crate) fn latest() -> Arc<Variables> {
    LATEST.load_full()
}

/// Looks now.
pub(crate) fn look() -> Arc<Variables> {
    let (known, now) = (LATEST.load(), Variables::of_process());
    if **known != now {
        LATEST.store(Arc::new(now));
    }
    LATEST.load_full()
}

/// Looks, unless it did a moment ago. Returns whether they have changed.
pub(crate) fn look_again() -> bool {
    static LOOKED_AT: AtomicU64 = AtomicU64::new(0);
    let (now, before) = (super::uptime_millis(), LOOKED_AT.load(Relaxed));
    if now < before + LOOK_EACH_MILLIS {
        return false;
    }
    LOOKED_AT.store(now, Relaxed);
    let known = latest();
    look() != known
}

/// Returns a block for a node.
///
/// # Errors
/// `InvalidArgument` if they are too large.
pub(crate) fn block(variables: &Variables) -> Result<Vec<u8>, Error> {
    let (block, most) = (variables.to_block(), limits::VARIABLES_BYTES_MAX);
    if block.len() > most as usize {
        let longest = variables.iter().max_by_key(|(_, value)| value.len());
        let longest = longest.map(|(name, _)| name.to_string_lossy()).unwrap_or_default();
        let what = format!(
            "the variables for stores have {} bytes, and a node takes {most}: {longest} has most",
            block.len()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, what)
            .hint(format!("unset {longest}, or name a file instead")));
    }
    Ok(block)
}
