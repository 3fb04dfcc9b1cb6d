//! The page-locked buffers of one loader: a fixed number, each reused when its copy is done.
//!
//! Page-locking memory takes tens of milliseconds, so the loader keeps each buffer for its
//! lifetime. The number of buffers bounds the page-locked memory. A thread that wants one more
//! waits for a copy to end.
//!
//! Thread rule: threads that fetch take buffers, and any thread drops them. The lock is held
//! briefly. Non-goals: tracking the copies that read a buffer. The [`Lot`] holds it until they are
//! done.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Driver, PageLocked, lot::Lot};
use crate::{Error, deadline::CancelToken};

/// How often a thread that waits for a buffer checks whether a copy has ended.
const LOOK: Duration = Duration::from_micros(500);

pub(super) struct Staging {
    driver: Arc<dyn Driver>,
    lot: Arc<Lot>,
    /// The most buffers.
    buffers_max: usize,
    buffers: Mutex<Buffers>,
    returned: Condvar,
}

#[derive(Default)]
struct Buffers {
    idle: Vec<Box<dyn PageLocked>>,
    /// In use, or being allocated.
    used: usize,
}

/// A page-locked buffer in use. Its drop returns it.
pub(crate) struct Staged {
    memory: Option<Box<dyn PageLocked>>,
    bytes: usize,
    home: Arc<Staging>,
}

/// The next step of a thread that wants a buffer.
enum BufferTurn {
    Idle(Box<dyn PageLocked>),
    /// It may allocate a buffer, after freeing this one.
    Make(Option<Box<dyn PageLocked>>),
    Wait,
}

impl Staging {
    pub(super) fn new(driver: Arc<dyn Driver>, lot: Arc<Lot>, buffers_max: usize) -> Arc<Self> {
        let (buffers, returned) = (Mutex::default(), Condvar::new());
        Arc::new(Self { driver, lot, buffers_max, buffers, returned })
    }

    /// Takes a buffer of `bytes` bytes. Waits while all buffers are in use, until `cancel` is
    /// cancelled.
    ///
    /// # Errors
    /// Errors of the driver. A lost device is noticed within [`LOOK`].
    pub(super) fn take(
        self: &Arc<Self>,
        bytes: usize,
        cancel: &CancelToken,
    ) -> Result<Staged, Error> {
        loop {
            self.driver.check()?;
            self.lot.sweep();
            match self.turn(bytes) {
                BufferTurn::Idle(memory) => return Ok(self.staged(memory, bytes)),
                BufferTurn::Make(too_small) => {
                    drop(too_small);
                    let made = self.driver.page_locked(bytes);
                    let memory = made.inspect_err(|_| self.put_back(None))?;
                    return Ok(self.staged(memory, bytes));
                }
                BufferTurn::Wait => {
                    cancel.check()?;
                    let waited = self.returned.wait_timeout(self.lock(), LOOK);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
    }

    fn turn(&self, bytes: usize) -> BufferTurn {
        let mut buffers = self.lock();
        let turn = match buffers.idle.iter().rposition(|memory| memory.bytes().len() >= bytes) {
            Some(index) => BufferTurn::Idle(buffers.idle.swap_remove(index)),
            None if buffers.used + buffers.idle.len() < self.buffers_max => BufferTurn::Make(None),
            None => {
                buffers.idle.pop().map_or(BufferTurn::Wait, |small| BufferTurn::Make(Some(small)))
            }
        };
        if !matches!(turn, BufferTurn::Wait) {
            buffers.used += 1;
        }
        turn
    }

    fn staged(self: &Arc<Self>, memory: Box<dyn PageLocked>, bytes: usize) -> Staged {
        Staged { memory: Some(memory), bytes, home: Arc::clone(self) }
    }

    fn put_back(&self, memory: Option<Box<dyn PageLocked>>) {
        let mut buffers = self.lock();
        buffers.used -= 1;
        buffers.idle.extend(memory);
        drop(buffers);
        self.returned.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Staged {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.as_ref().expect("taken only when dropped").bytes()[..self.bytes]
    }
}

impl DerefMut for Staged {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut().expect("taken only when dropped").bytes_mut()[..self.bytes]
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let memory = self.memory.take();
        // In a forked child, a thread that the child lacks may hold the lock forever.
        if self.home.lot.is_of_this_process() {
            self.home.put_back(memory);
        } else {
            std::mem::forget(memory);
        }
    }
}
