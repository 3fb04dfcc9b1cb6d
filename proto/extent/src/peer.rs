//! Who is at the other end of a unix socket, and whether it still lives.
//!
//! A closed connection is not enough to know that a client is gone: a child it forked keeps the
//! connection open. A pidfd tells, and `poll(2)` waits on it like on any descriptor (readable once
//! the process has ended).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};

use crate::sys;

/// The process that connected a unix socket (not: every process that holds it since).
#[derive(Debug)]
pub struct PeerProcess {
    uid: u32,
    gid: u32,
    pid: i32,
    pidfd: Option<OwnedFd>,
}

impl PeerProcess {
    /// Asks the kernel who connected `socket`.
    ///
    /// # Errors
    /// The kernel's, if it does not know the peer's credentials.
    pub fn of(socket: &UnixStream) -> io::Result<Self> {
        let credentials = getsockopt(socket, PeerCredentials)?;
        Ok(Self {
            uid: credentials.uid(),
            gid: credentials.gid(),
            pid: credentials.pid(),
            // Linux 6.5; refused too if the peer is gone already, which its connection shows.
            pidfd: getsockopt(socket, PeerPidfd).ok(),
        })
    }

    /// The peer's effective user id.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The peer's effective group id.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The peer's process id as seen from here; 0 if it lies in a PID namespace not visible here.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// A handle on the peer to wait on, where the kernel gives one (Linux 6.5). Else the peer has
    /// to send its own: [`own_pidfd`].
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }
}

/// Whether the process behind `pidfd` has ended. Does not wait.
#[must_use]
pub fn has_exited(pidfd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(pidfd, PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// A handle on this process, to be sent to a peer whose kernel gives it none.
///
/// # Errors
/// The kernel's, typically that this process has no descriptors left.
pub fn own_pidfd() -> io::Result<OwnedFd> {
    sys::own_pidfd()
}
