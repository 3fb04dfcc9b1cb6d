//! Memory that all connections of a node share. It is reserved before use, and returned on drop.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The bytes that are left to reserve.
#[derive(Debug)]
pub(crate) struct BytePool {
    left: Mutex<usize>,
    returned: Condvar,
}

/// A reserved part of an allowance.
#[derive(Debug)]
pub(super) struct Held {
    from: Arc<BytePool>,
    bytes: usize,
}

impl BytePool {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(bytes), returned: Condvar::new() })
    }

    /// Reserves `bytes`. Waits at most `timeout` for other connections to return theirs.
    pub(super) fn take(self: &Arc<Self>, bytes: usize, timeout: Duration) -> Option<Held> {
        let short = |left: &mut usize| *left < bytes;
        let waited = self.returned.wait_timeout_while(self.lock(), timeout, short);
        let (mut left, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *left = left.checked_sub(bytes)?;
        Some(Held { from: Arc::clone(self), bytes })
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Returns all but `bytes`.
    pub(super) fn keep(&mut self, bytes: usize) {
        let returned = self.bytes.saturating_sub(bytes);
        self.bytes -= returned;
        *self.from.lock() += returned;
        self.from.returned.notify_all();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keep(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_bytes_can_be_reserved_again_within_the_limit() {
        let pool = BytePool::new(100);
        let held = pool.take(60, Duration::ZERO).expect("there is enough");
        assert!(pool.take(41, Duration::ZERO).is_none());
        drop(held);
        let mut held = pool.take(100, Duration::ZERO).unwrap();
        held.keep(30);
        assert!(pool.take(71, Duration::ZERO).is_none());
        assert!(pool.take(70, Duration::ZERO).is_some());
        drop(held);
        assert!(pool.take(100, Duration::ZERO).is_some());
        assert!(pool.take(101, Duration::ZERO).is_none());
    }
}
