//! Sends and receives descriptors over a blocking unix socket.
//!
//! Descriptors travel with the first byte of a message and arrive with the read that takes that
//! byte.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

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
