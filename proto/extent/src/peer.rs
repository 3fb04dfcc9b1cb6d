//! The process at the other end of a unix socket, and whether it still lives.
//!
//! A client may be gone while its connection stays open, because a child it forked holds the
//! connection. A pidfd tells. `poll(2)` waits on it like on any descriptor: it becomes readable
//! when the process ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};

use crate::sys;

/// The process that connected a unix socket (not every process that holds the socket since).
#[derive(Debug)]
pub struct PeerProcess {
    uid: u32,
    gid: u32,
    pid: i32,
    pidfd: Option<OwnedFd>,
}

impl PeerProcess {
    /// Asks the kernel which process connected `socket`.
    ///
    /// # Errors
    /// The kernel's, if it does not know the peer's credentials.
    pub fn of(socket: &UnixStream) -> io::Result<Self> {
        let credentials = getsockopt(socket, PeerCredentials)?;
        Ok(Self {
            uid: credentials.uid(),
            gid: credentials.gid(),
            pid: credentials.pid(),
            // Linux 6.5. Refused too if the peer is gone already, which its connection shows.
            pidfd: getsockopt(socket, PeerPidfd).ok(),
        })
    }

    /// Returns the peer's effective user id.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the peer's effective group id.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the peer's process id as seen from here; 0 if its PID namespace is not visible here.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns a handle to wait on for the peer's end, where the kernel gives one (Linux 6.5).
    /// Otherwise the peer must send its own: [`own_pidfd`].
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }
}

/// Returns whether the process behind `pidfd` has ended. Does not wait.
#[must_use]
pub fn has_exited(pidfd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(pidfd, PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Opens a handle on this process, for peers that cannot get one from their kernel.
///
/// # Errors
/// The kernel's, typically that this process has no descriptors left.
pub fn own_pidfd() -> io::Result<OwnedFd> {
    sys::own_pidfd()
}
