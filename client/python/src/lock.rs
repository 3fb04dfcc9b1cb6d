//! A lock that is held only where nothing of Python runs.
//!
//! Who waits for one waits with the interpreter at hand. With a GIL nobody else has that then;
//! without one, whoever collects garbage or forks waits until all threads come to a stop. So a
//! holder that needed the interpreter itself, be it to raise, would wait for ever. What is done
//! under the lock therefore has to be [`Send`], which nothing is that belongs to the interpreter,
//! and takes microseconds.
//!
//! A fork happens with all threads of the interpreter stopped, none of which has the lock then: the
//! child finds it free.

use std::sync::{Mutex, PoisonError};

/// A value that several threads may change.
pub(crate) struct Lock<T> {
    value: Mutex<T>,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value: Mutex::new(value) }
    }

    /// What `work` makes of the value. What that lets go of should be returned, to be dropped
    /// without the lock.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R + Send) -> R {
        work(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
