//! Stops every thread of the servers, including those that wait in poll(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// A stop event that is given once: a descriptor that becomes readable and is never read.
#[derive(Debug)]
pub(crate) struct Stop {
    event: EventFd,
    given: AtomicBool,
}

impl Stop {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { event: event()?, given: AtomicBool::new(false) })
    }

    pub(super) fn give(&self) {
        self.given.store(true, Ordering::Relaxed);
        // Refused only when the counter is full, and then it is readable already.
        let _ = self.event.write(1);
    }

    pub(crate) fn is_given(&self) -> bool {
        self.given.load(Ordering::Relaxed)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Creates a descriptor that wakes another thread out of poll(2).
pub(super) fn event() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}

/// Waits until one of `fds` is readable or has ended, or `timeout` has passed. Returns which are.
pub(super) fn wait_any<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    timeout: Duration,
) -> io::Result<[bool; N]> {
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    let mut polled: Vec<_> =
        fds.iter().flatten().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    match poll(&mut polled, timeout) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut ready = polled.iter().map(|fd| fd.any().unwrap_or(false));
    Ok(fds.map(|fd| fd.is_some() && ready.next().unwrap_or(false)))
}
