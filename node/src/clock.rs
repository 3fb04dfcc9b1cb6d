//! The one place where the node reads the clock; what needs the time is handed it.

use std::time::Instant;

/// Now, by the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the shell's one reading of the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
