//! Ports for programs that are told before they start where they listen, and that come back to the
//! same ports.

use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Below the ports that Linux assigns by default. So no other program gets a port while its program
/// is down.
const PORTS: Range<u16> = 20_000..30_000;

/// Each process begins at another port: processes left behind by a killed test may still look for
/// their peers.
const STEP: u32 = 37;

/// Keeps the ports of this process from other tests.
static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Ports that are free, and stay so for as long as this process lives and its programs leave them
/// free.
///
/// # Panics
/// When there are not so many.
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ports = Vec::new();
    let span = u32::from(PORTS.end - PORTS.start);
    let begin = PORTS.start
        + u16::try_from(std::process::id() * STEP % span).expect("it is within the range");
    for port in (begin..PORTS.end).chain(PORTS.start..begin) {
        if ports.len() == count {
            break;
        }
        if let Some(claim) = claim(port) {
            taken.push(claim);
            ports.push(port);
        }
    }
    assert_eq!(ports.len(), count, "no free ports among {PORTS:?}");
    ports
}

/// Takes a name in the kernel that only one process can have, if the port is unused.
fn claim(port: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("larder-test-port-{port}")).ok()?;
    let claim = UnixListener::bind_addr(&name).ok()?;
    TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_handed_out_once() {
        let mut ports = [free_ports(3), free_ports(2)].concat();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 5);
        assert!(ports.iter().all(|port| PORTS.contains(port) && claim(*port).is_none()));
    }
}
