//! Parses operators' commands into the agent's commands.

use std::time::Duration;

use larder_base::{Bytes, Error, ErrorKind, limits};
use larder_membership::{
    Record,
    agent::{Command, Steer},
};
use larder_wire::control::{
    AbortChange, DrainNode, PauseChange, RemoveNodes, ResumeChange, SetRate, UndrainNode,
    command_request::Command as Asked,
};

/// Returns the command, and its words for the audit log.
pub(super) fn read(asked: Option<Asked>) -> Result<(Command, String), Error> {
    let asked = asked.ok_or_else(|| {
        invalid("the request holds no command that this node knows; upgrade the node")
    })?;
    Ok(match asked {
        Asked::Pause(PauseChange { change }) => steered(Steer::Pause, change),
        Asked::Resume(ResumeChange { change }) => steered(Steer::Resume, change),
        Asked::Abort(AbortChange { change }) => steered(Steer::Abort, change),
        Asked::Rate(SetRate { rate, change }) => steered(Steer::Rate(rate), change),
        Asked::Drain(DrainNode { node_id, deadline_ms }) => {
            let id = name(node_id)?;
            let deadline = deadline_ms.map(Duration::from_millis);
            let words = match deadline {
                Some(deadline) => format!("drain {id} within {deadline:?}"),
                None => format!("drain {id}"),
            };
            (Command::Drain { id, deadline }, words)
        }
        Asked::Undrain(UndrainNode { node_id }) => {
            let id = name(node_id)?;
            let words = format!("let {id} stay");
            (Command::Undrain(id), words)
        }
        Asked::Remove(RemoveNodes { node_ids }) => {
            if node_ids.is_empty() || node_ids.len() > limits::RING_MEMBERS_MAX {
                return Err(invalid(format!(
                    "{} nodes to remove; name at least one",
                    node_ids.len()
                )));
            }
            let ids = node_ids.into_iter().map(name).collect::<Result<Vec<_>, _>>()?;
            let words = format!("remove {}", ids.join(", "));
            (Command::Remove(ids), words)
        }
    })
}

/// Creates a command for a change: the named one, or the one in flight.
fn steered(steer: Steer, change: Option<u64>) -> (Command, String) {
    let which = change.map_or("the change".to_owned(), |change| format!("change {change}"));
    let words = match steer {
        Steer::Pause => format!("pause {which}"),
        Steer::Resume => format!("resume {which}"),
        Steer::Abort => format!("abort {which}"),
        Steer::Rate(None) => format!("no limit to the rate of {which}"),
        Steer::Rate(Some(rate)) => format!("move at most {}/s for {which}", Bytes(rate)),
    };
    (Command::Steer { steer, change }, words)
}

/// Returns the error for an unknown node.
pub(super) fn unknown(record: &Record, id: &str) -> Error {
    let known: Vec<&str> = record.members.iter().map(|entry| entry.member.id.as_str()).collect();
    let message = format!("no node of the cluster is named '{id}'; it has: {}", known.join(", "));
    Error::new(ErrorKind::NotFound, message)
}

/// Checks a node's name, which appears in answers and in the log.
pub(super) fn name(id: String) -> Result<String, Error> {
    let max = limits::MEMBER_ID_BYTES_MAX as usize;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=max).contains(&id.len()) && id.bytes().all(allowed) {
        return Ok(id);
    }
    Err(invalid(format!("a node's name is 1 to {max} letters, digits, '-', '_' or '.'")))
}

/// Returns the error for a malformed request.
pub(super) fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_decoded_with_their_description() {
        let (command, words) = read(Some(Asked::Pause(PauseChange { change: None }))).unwrap();
        assert_eq!((command, words.as_str()), (Steer::Pause.any(), "pause the change"));
        let rate = SetRate { rate: None, change: Some(7) };
        let (command, words) = read(Some(Asked::Rate(rate))).unwrap();
        assert_eq!(command, Command::Steer { steer: Steer::Rate(None), change: Some(7) });
        assert_eq!(words, "no limit to the rate of change 7");
        let drain = DrainNode { node_id: "c".to_owned(), deadline_ms: Some(90_000) };
        let (command, words) = read(Some(Asked::Drain(drain))).unwrap();
        let deadline = Some(Duration::from_secs(90));
        assert_eq!(command, Command::Drain { id: "c".to_owned(), deadline });
        assert_eq!(words, "drain c within 90s");
    }

    #[test]
    fn invalid_node_name_is_refused() {
        assert!(read(None).is_err());
        assert!(read(Some(Asked::Remove(RemoveNodes::default()))).is_err());
        for odd in ["", "a b", "x\n", &"x".repeat(65)] {
            let node_id = odd.to_owned();
            assert!(read(Some(Asked::Undrain(UndrainNode { node_id }))).is_err(), "{odd:?}");
        }
    }
}
