//! The one place where the node reads the clock. Other code receives `now` as an argument.

use std::time::Instant;

/// Returns the current time of the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the shell's one reading of the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
