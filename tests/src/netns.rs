//! Networks of a test's own: each node in a network namespace, joined by a bridge in another, so
//! that any of them can be cut off. Needs root and `ip`.
//!
//! Thread rule: [`Network::new`] moves the calling thread into the namespace of the bridge; what
//! that thread starts, threads and processes, is there too.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// The bridge, and a namespace for each host. Gone when dropped.
pub struct Network {
    hosts: Vec<String>,
}

/// The first three bytes of all addresses.
const SUBNET: &str = "10.77.0";

impl Network {
    /// A network without hosts but the caller's, at `.254`.
    ///
    /// # Panics
    /// When this user may make no namespaces.
    #[must_use]
    pub fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may make network namespaces");
        ip("link set lo up");
        ip("link add br0 type bridge");
        ip(&format!("addr add {SUBNET}.254/24 dev br0"));
        ip("link set br0 up");
        Self { hosts: Vec::new() }
    }

    /// Where the caller is reached.
    #[must_use]
    pub fn own_address() -> String {
        format!("{SUBNET}.254")
    }

    /// Adds a host; returns its address, and what to run a program under to have it there.
    ///
    /// # Panics
    /// When `ip` refuses.
    pub fn add_host(&mut self) -> (String, Vec<String>) {
        let number = self.hosts.len() + 1;
        let host = format!("larder-{}-{number}", std::process::id());
        let address = format!("{SUBNET}.{number}");
        ip(&format!("netns add {host}"));
        self.hosts.push(host.clone());
        ip(&format!("link add veth{number} type veth peer name eth0 netns {host}"));
        ip(&format!("link set veth{number} master br0 up"));
        ip(&format!("-n {host} addr add {address}/24 dev eth0"));
        ip(&format!("-n {host} link set eth0 up"));
        ip(&format!("-n {host} link set lo up"));
        let wrapper = ["ip", "netns", "exec", &host].map(str::to_owned);
        (address, wrapper.to_vec())
    }

    /// Cuts a host off from all others, or joins it to them again. Counted from 0, in the order
    /// they were added.
    ///
    /// # Panics
    /// When `ip` refuses.
    pub fn set_cut(&self, host: usize, cut: bool) {
        ip(&format!("link set veth{} {}", host + 1, if cut { "down" } else { "up" }));
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.hosts {
            // The rest of the namespace ends with its last process.
            let _ = Command::new("ip").args(["netns", "del", host]).status();
        }
    }
}

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status().expect("iproute2 is installed");
    assert!(done.success(), "ip {words}: {done}");
}
