//! The one place where this crate reads the clock. Callers hand the time on.

use std::time::Instant;

/// Now, by the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the shell's one reading of the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
