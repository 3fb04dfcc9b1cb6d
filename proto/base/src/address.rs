//! Computes the address of a node's data plane.

use std::net::SocketAddr;

/// Returns the address of a node's data plane. `announced` is the address the node names, and
/// `control` (`http://host:port`) the address its control plane was reached at. A node that listens
/// on all interfaces gets the host of `control`.
pub fn data_address(announced: &str, control: &str) -> String {
    let unspecified =
        announced.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified());
    let port = announced.rsplit(':').next();
    let host = control.split("://").nth(1).and_then(|rest| rest.rsplit_once(':'));
    match (unspecified, host, port) {
        (true, Some((host, _)), Some(port)) => format!("{host}:{port}"),
        _ => announced.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_listener_is_reached_at_its_control_host() {
        assert_eq!(data_address("0.0.0.0:7071", "http://host-a:7070"), "host-a:7071");
        assert_eq!(data_address("[::]:7071", "http://[fe80::1]:7070"), "[fe80::1]:7071");
        assert_eq!(data_address("10.0.0.1:7071", "http://host-a:7070"), "10.0.0.1:7071");
        assert_eq!(data_address("host-b:7071", "http://host-a:7070"), "host-b:7071");
    }
}
