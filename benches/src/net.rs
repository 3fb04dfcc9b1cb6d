//! Socket settings that both sides of a comparison must share.

use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};

/// Sets cubic, else reno, if the host's default is BBR, because BBR paces loopback. Any other
/// default stays. A node does the same with its data sockets.
pub(crate) fn use_loss_based_congestion(socket: &impl AsFd) {
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    if default.is_ok_and(|name| !name.starts_with("bbr")) {
        return;
    }
    let set = |name: &str| setsockopt(socket, TcpCongestion, &name.into());
    if let Err(error) = set("cubic").or_else(|_| set("reno")) {
        eprintln!("congestion control of the baseline stays the host's default: {error}");
    }
}
