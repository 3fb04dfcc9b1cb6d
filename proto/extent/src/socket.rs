//! Unix sockets: descriptors that travel over them, and the process at the other end.
//!
//! Descriptors travel with the first byte of a message and arrive with the read that takes that
//! byte.
//!
//! A client may be gone while its connection stays open, because a child it forked holds the
//! connection. A pidfd tells. `poll(2)` waits on it like on any descriptor: it becomes readable
//! when the process ends.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::sys::socket::{ControlMessage, MsgFlags, getsockopt, sendmsg};

use crate::sys;

/// The most descriptors of one message. An attach needs one; the rest leaves room for batches.
pub const FDS_MAX: usize = sys::FDS_MAX as usize;

/// Sends all of `bytes`, and `fds` with the first of them.
///
/// # Errors
/// If there are more than [`FDS_MAX`] descriptors, or descriptors without a byte to carry them.
/// Otherwise the kernel's; some of the bytes may have been sent then.
pub fn send_with_fds(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.len() > FDS_MAX || (bytes.is_empty() && !fds.is_empty()) {
        let message = format!(
            "{} descriptors with {} bytes: at most {FDS_MAX}, with at least one byte",
            fds.len(),
            bytes.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let raw: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let mut control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let mut rest = bytes;
    while !rest.is_empty() {
        let part = [IoSlice::new(rest)];
        match sendmsg::<()>(socket.as_raw_fd(), &part, control, MsgFlags::MSG_NOSIGNAL, None) {
            Ok(sent) => {
                rest = &rest[sent..];
                control = &[];
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Receives up to `bytes.len()` bytes and the descriptors that came with them, close-on-exec.
/// Returns 0 bytes if the peer closed its end.
///
/// # Errors
/// If more than [`FDS_MAX`] descriptors came, or this process has no descriptors left for all of
/// them; those that arrived are closed. Otherwise the kernel's.
pub fn recv_with_fds(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    loop {
        match sys::receive(socket.as_fd(), bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

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
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the peer's effective group id.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the peer's process id as seen from here; 0 if its PID namespace is not visible here.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns a handle to wait on for the peer's end, where the kernel gives one (Linux 6.5).
    /// Otherwise the peer must send its own: [`own_pidfd`].
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }
}

/// Returns whether the process behind `pidfd` has ended. Does not wait.
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
