//! The budget of descriptors: the last ones are kept for operators.
//!
//! The system gives a new descriptor the lowest free number. So a number tells at no cost how many
//! descriptors are taken at least.

use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use larder_base::limits;
use nix::sys::resource::{Resource, getrlimit};

/// Descriptors that data connections leave free, for control connections and the node's own files.
/// A quarter of all, if that is less.
const DESCRIPTORS_KEPT_MAX: u64 = limits::CONTROL_CONNECTIONS_MAX as u64 + 128;

/// The number from which on descriptors are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptors(RawFd);

impl Descriptors {
    /// Keeps at most a quarter of what this process may open.
    pub(super) fn of_process() -> Self {
        let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(most, _)| most);
        let kept = DESCRIPTORS_KEPT_MAX.min(most / 4);
        Self(RawFd::try_from(most - kept).unwrap_or(RawFd::MAX))
    }

    /// Returns whether this new descriptor is one of those that are kept.
    pub(super) fn are_short(self, new: impl AsFd) -> bool {
        new.as_fd().as_raw_fd() >= self.0
    }
}

/// Moves a connection to the lowest free descriptor, if there is one.
pub(super) fn lowered(socket: TcpStream) -> TcpStream {
    socket.try_clone().unwrap_or(socket)
}
