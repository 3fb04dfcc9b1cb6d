//! Socket settings that both sides of a comparison must share.

use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};

/// Uses `name` for connections of this socket, or leaves the host's default when that is refused.
pub fn set_congestion(socket: &impl AsFd, name: &str) {
    if let Err(error) = setsockopt(socket, TcpCongestion, &name.into()) {
        eprintln!("congestion control {name} refused ({error}): the host's default stays");
    }
}
