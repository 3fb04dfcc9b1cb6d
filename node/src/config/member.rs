//! `--member NAME=http://host:port[*WEIGHT]`: the ring as a static list.

use std::net::SocketAddr;

use larder_base::ring::Member;

use super::ConfigError;

/// Parses all members; refuses a list that leaves this node out.
pub(super) fn parse_all(
    typed: &[String],
    node_id: &str,
    listen: SocketAddr,
) -> Result<Vec<Member>, ConfigError> {
    let members = typed.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
    if !members.is_empty() && !members.iter().any(|member| member.id == node_id) {
        let names: Vec<&str> = members.iter().map(|member| member.id.as_str()).collect();
        return Err(ConfigError::new(
            "--member",
            format!(
                "the members {names:?} leave out this node: set --node-id to one of them, or add {node_id}=http://{listen}"
            ),
        ));
    }
    Ok(members)
}

fn parse(text: &str) -> Result<Member, ConfigError> {
    let wrong = |why: &str| {
        ConfigError::new("--member", format!("{text:?} {why}: use NAME=http://host:port[*WEIGHT]"))
    };
    let (id, rest) = text.split_once('=').ok_or_else(|| wrong("has no '='"))?;
    let (control, weight) = match rest.split_once('*') {
        Some((control, weight)) => {
            (control, weight.parse().map_err(|_| wrong("has a weight that is no whole number"))?)
        }
        None => (rest, 1),
    };
    let address = control.strip_prefix("http://").ok_or_else(|| wrong("has no http:// address"))?;
    let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("has no port"))?;
    if id.is_empty() || host.is_empty() || port.parse::<u16>().is_err() || weight == 0 {
        return Err(wrong("has an empty name, host, port or weight"));
    }
    Ok(Member {
        id: id.to_owned(),
        weight,
        control: control.to_owned(),
        host: host.to_owned(),
        zone: String::new(),
    })
}
