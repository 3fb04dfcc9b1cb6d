//! A lock that is never held while Python runs.
//!
//! A thread that waits for this lock stays attached to the interpreter. With a GIL no other thread
//! is attached then. Without a GIL, a thread that collects garbage or forks waits until all other
//! threads stop. So a holder that needed the interpreter, even to raise, would wait for ever. Work
//! under the lock must therefore be [`Send`], which objects of the interpreter are not, and must
//! take microseconds.
//!
//! A fork happens while all threads of the interpreter are stopped. A stopped thread does not hold
//! the lock, so the child finds it free.

use std::sync::{Mutex, PoisonError};

/// A value that several threads may change.
pub(crate) struct Lock<T> {
    value: Mutex<T>,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value: Mutex::new(value) }
    }

    /// Runs `work` on the value. It should return the values that it takes out, so that they are
    /// dropped without the lock.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R + Send) -> R {
        work(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
