//! Values that belong to one process and must not be shared with a forked child. Also the clock,
//! and a check of the free file descriptors.
//!
//! A fork copies sockets, locks and memory, but no threads. So every value with a socket, a lock or
//! a thread is kept in a [`PerProcess`] cell. The first use in a child makes a new value and leaves
//! the parent's alone. A thread that the child lacks may have held the parent's locks during the
//! fork.

pub(crate) mod runtime;
pub(crate) mod variables;

use std::{
    convert::Infallible,
    fs::File,
    io, mem,
    ops::Deref,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use larder_extent::fork_count;
use nix::errno::Errno;

use crate::{Error, ErrorKind};

/// File descriptors that must be free in a process that opens a dataset. The runtime takes about
/// six, each node two or three, and a read of the origin one.
const FILES_LEFT_MIN: usize = 16;

/// A century. No call waits that long.
const FAR_OFF: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The current time. The client reads a clock only here.
#[expect(clippy::disallowed_methods, reason = "the edge at which time enters")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The moment after `time`. A far-off moment if the clock can't represent it.
pub(crate) fn after(time: Duration) -> Instant {
    let now = now();
    now.checked_add(time).unwrap_or_else(|| now + FAR_OFF)
}

/// Time since the first use of this library. Small numbers that fit atomics.
pub(crate) fn uptime() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let now = now();
    now.saturating_duration_since(*START.get_or_init(|| now))
}

/// [`uptime`] in milliseconds.
pub(crate) fn uptime_millis() -> u64 {
    u64::try_from(uptime().as_millis()).unwrap_or(u64::MAX)
}

/// Checks that this process has enough descriptors left to open a dataset, or for the first call of
/// a forked child. A socket needs a descriptor too: without one, every node and the origin seem to
/// be down, and a call would wait for them in vain.
///
/// # Errors
/// `ResourceExhausted` if it has too few.
pub(crate) fn check_files() -> Result<(), Error> {
    if can_open_files(FILES_LEFT_MIN) { Ok(()) } else { Err(no_files_left()) }
}

/// The error of a process without descriptors.
pub(crate) fn no_files_left() -> Error {
    Error::new(ErrorKind::ResourceExhausted, "this process has no file descriptors left")
        .hint("raise its limit (ulimit -n 65536), or close files that it does not need")
}

/// Whether `count` files can be opened; they are closed again.
pub(crate) fn can_open_files(count: usize) -> bool {
    let opened: io::Result<Vec<File>> = (0..count).map(|_| File::open("/dev/null")).collect();
    !opened.is_err_and(|error| error.raw_os_error() == Some(Errno::EMFILE as i32))
}

/// A cell with a separate value for each process.
pub(crate) struct PerProcess<T> {
    slot: ArcSwapOption<Owned<T>>,
}

/// A value and the process that made it. Its drop does nothing in any other process.
pub struct Owned<T> {
    /// The [`fork_count`] of that process.
    process: u32,
    value: Option<T>,
}

impl<T> PerProcess<T> {
    /// Creates an empty cell.
    pub(crate) const fn new() -> Self {
        Self { slot: ArcSwapOption::const_empty() }
    }

    /// Returns this process's value, and makes it at the first use. Several threads may run `make`
    /// at once, and one result is kept. At the first use after a fork, `make` gets the parent's
    /// value.
    pub(crate) fn get(&self, make: impl FnOnce(Option<&T>) -> T) -> Arc<Owned<T>> {
        let Ok(owned) = self.try_get(|parents| Ok::<T, Infallible>(make(parents)));
        owned
    }

    /// As [`get`](Self::get), if `make` can fail. The next use then tries again.
    pub(crate) fn try_get<E>(
        &self,
        make: impl FnOnce(Option<&T>) -> Result<T, E>,
    ) -> Result<Arc<Owned<T>>, E> {
        let process = fork_count();
        let current = self.slot.load();
        let current = match &*current {
            Some(owned) if owned.process == process => return Ok(Arc::clone(owned)),
            other => other.clone(),
        };
        let value = Some(make(current.as_deref().map(Deref::deref))?);
        let made = Arc::new(Owned { process, value });
        let before = self.slot.compare_and_swap(&current, Some(Arc::clone(&made)));
        Ok(match &*before {
            Some(winner) if winner.process == process => Arc::clone(winner),
            _ => made,
        })
    }
}

impl<T> Owned<T> {
    /// Creates a value of this process.
    pub fn new(value: T) -> Self {
        Self { process: fork_count(), value: Some(value) }
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("taken only when dropped")
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process != fork_count() {
            mem::forget(self.value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn value_is_created_once_and_then_shared() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let cell = PerProcess::new();
        let make = |_: Option<&usize>| MADE.fetch_add(1, Ordering::Relaxed);
        assert_eq!(**cell.get(make), 0);
        assert_eq!(**cell.get(make), 0);
    }

    #[test]
    fn failed_creation_is_retried_at_the_next_use() {
        let cell = PerProcess::new();
        assert_eq!(cell.try_get(|_| Err::<u8, _>("not now")).err(), Some("not now"));
        assert_eq!(cell.try_get(|_| Ok::<u8, &str>(7)).map(|value| **value), Ok(7));
    }

    #[test]
    fn value_of_the_parent_is_passed_on_and_never_dropped() {
        struct Loud;
        impl Drop for Loud {
            fn drop(&mut self) {
                panic!("dropped in a process that does not own it");
            }
        }
        let cell = PerProcess::new();
        let parents = Owned { process: fork_count() + 1, value: Some(Some(Loud)) };
        cell.slot.store(Some(Arc::new(parents)));
        let own = cell.get(|parents| {
            assert!(parents.is_some_and(Option::is_some));
            None
        });
        assert!(own.is_none());
    }
}
