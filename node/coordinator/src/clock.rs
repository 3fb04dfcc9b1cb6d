//! The clock, which only this file reads, and the waits between attempts.

use std::time::{Duration, Instant};

/// Now, by the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the shell's one reading of the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns a random time from half of `wait` to all of it.
pub(crate) fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + fastrand::f64() / 2.0)
}
