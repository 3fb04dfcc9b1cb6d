//! A member of the ring, its addresses, and the check of a list of members.

use std::collections::HashSet;
use std::net::SocketAddr;

use http::Uri;

use crate::{Error, ErrorKind, limits};

/// Most bytes of a host name, as in the domain name system.
const HOST_BYTES_MAX: usize = 255;

/// Most bytes of a zone's name: the longest of the large clouds have about 30.
const ZONE_BYTES_MAX: usize = 64;

/// A node in the ring. Checked when it becomes part of a [`crate::Ring`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Member {
    /// The stable name that decides which shards the node owns: letters, digits, `-`, `_` and `.`.
    /// Never an address: a node that moves keeps its shards.
    pub id: String,
    /// Share of the shards relative to the other members, at least 1.
    pub weight: u32,
    /// The address of its control plane: `http://host:port`.
    pub control: String,
    /// The host it runs on: members and clients of one host can share memory, and fail together.
    pub host: String,
    /// The larger unit that fails together: a rack, a power feed, an availability zone. Empty if
    /// unknown; all such members count as one zone.
    pub zone: String,
}

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

/// Checks that these members make a ring.
pub(super) fn check(members: &[Member]) -> Result<(), Error> {
    if members.is_empty() {
        return Err(invalid("a ring needs at least one member; name one with --member"));
    }
    if members.len() > limits::RING_MEMBERS_MAX {
        let (count, max) = (members.len(), limits::RING_MEMBERS_MAX);
        return Err(invalid(format!("a ring of {count} members; the limit is {max}")));
    }
    let (mut ids, mut addresses) = (HashSet::new(), HashSet::new());
    for member in members {
        check_one(member)?;
        let Member { id, control, .. } = member;
        if !ids.insert(id.as_str()) {
            return Err(invalid(format!("two members are named '{id}'; names must differ")));
        }
        if !addresses.insert(control.as_str()) {
            return Err(invalid(format!("two members, one of them '{id}', share {control}")));
        }
    }
    Ok(())
}

fn check_one(member: &Member) -> Result<(), Error> {
    let Member { id, weight, control, host, zone } = member;
    let id_max = limits::MEMBER_ID_BYTES_MAX as usize;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if id.is_empty() || id.len() > id_max || !id.bytes().all(allowed) {
        return Err(invalid(format!(
            "member id {id:?} is not 1 to {id_max} letters, digits, '-', '_' or '.'"
        )));
    }
    let weight_max = limits::RING_WEIGHT_MAX;
    if !(1..=weight_max).contains(weight) {
        return Err(invalid(format!("member '{id}' has weight {weight}, not 1 to {weight_max}")));
    }
    if !is_control_address(control) {
        return Err(invalid(format!("member '{id}' has {control:?}, not http://host:port")));
    }
    if host.is_empty() || host.len() > HOST_BYTES_MAX || host.contains(char::is_whitespace) {
        return Err(invalid(format!("member '{id}' has no usable host name: {host:?}")));
    }
    if zone.len() > ZONE_BYTES_MAX || zone.contains(char::is_whitespace) {
        let max = ZONE_BYTES_MAX;
        return Err(invalid(format!(
            "member '{id}' has zone {zone:?}, not up to {max} bytes without blanks"
        )));
    }
    Ok(())
}

/// Returns whether `text` is `http://host:port` or `https://host:port`, and nothing after it.
fn is_control_address(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else {
        return false;
    };
    text.len() <= limits::URI_BYTES_MAX
        && matches!(uri.scheme_str(), Some("http" | "https"))
        && uri.host().is_some_and(|host| !host.is_empty())
        && uri.port_u16().is_some_and(|port| port != 0)
        && uri.path_and_query().is_none_or(|rest| rest.as_str() == "/")
        && !text.contains('@')
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
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
