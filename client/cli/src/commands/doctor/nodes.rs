//! The nodes: tests whether they answer, agree, and let this user attach to their memory.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{TcpStream, ToSocketAddrs},
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    thread,
};

use larder_client::{
    admin::{CONNECT_TIMEOUT, MemberAnswer, NodeDescription, data_address},
    host,
};

use super::Check;
use crate::{context::Nodes, error::Failure, output::units};

const SOCKET: &str = "socket";
const SOCKET_WHY: &str = "clients on a node's host map its memory through this socket; without it rows \
                          come over TCP, which is several times slower";
const CLUSTER: &str = "cluster";
const CLUSTER_WHY: &str =
    "rows of a node that is away are read from the next one, at last from the origin";

const DATA: &str = "data ports";
const DATA_WHY: &str = "rows come through a node's data port; without it they come from the origin";
/// Data ports that are tried side by side.
const TRIED_AT_ONCE: usize = 64;

const HINT: &str = "check the address and that larder-node runs";

pub(super) fn checks(nodes: Result<Option<Nodes>, Failure>, socket: Option<&Path>) -> Vec<Check> {
    let connected = nodes.and_then(|nodes| nodes.map_or(Ok(None), |nodes| nodes.connect()));
    let cluster = match connected {
        Ok(Some(cluster)) => cluster,
        Ok(None) => {
            let found =
                "none named, and no node of this host runs: --cluster or LARDER_CLUSTER names one";
            let unnamed = Check::ok(CLUSTER, found, CLUSTER_WHY);
            let usual = host::daemon_sockets();
            return vec![unnamed, try_socket(socket.unwrap_or(&usual[0]), socket.is_some())];
        }
        Err(Failure { what, why, hint, .. }) => {
            let found = why.map_or(what.clone(), |why| format!("{what}: {why}"));
            let hint = hint.unwrap_or_else(|| HINT.to_owned());
            return vec![Check::fail(CLUSTER, found, CLUSTER_WHY, hint)];
        }
    };
    let answers = cluster.describe();
    let mut checks = vec![members(&answers)];
    checks.extend(data_ports(&answers));
    let here = hostname();
    let mut sockets: Vec<PathBuf> = answers
        .iter()
        .filter_map(|answer| answer.answer.as_ref().ok())
        .filter(|node| node.host == here && !node.socket_path.is_empty())
        .map(|node| PathBuf::from(&node.socket_path))
        .collect();
    if let Some(socket) = socket {
        sockets = vec![socket.to_owned()];
    }
    if sockets.is_empty() {
        let found = "no node of the cluster runs on this host: rows come over TCP";
        checks.push(Check::ok(SOCKET, found, SOCKET_WHY));
    }
    checks.extend(sockets.iter().map(|path| try_socket(path, true)));
    checks
}

/// Whether all members answer, run one version and place shards alike.
fn members(answers: &[MemberAnswer<NodeDescription>]) -> Check {
    let nodes: Vec<_> = answers.iter().filter_map(|answer| answer.answer.as_ref().ok()).collect();
    let members = units::counted(answers.len() as u64, "node");
    let silent: Vec<_> = answers
        .iter()
        .filter(|answer| answer.answer.is_err())
        .map(|answer| format!("{} ({})", answer.member.id, answer.member.control))
        .collect();
    if !silent.is_empty() {
        let found = format!("{} of {members} do not answer: {}", silent.len(), silent.join(", "));
        return Check::fail(
            CLUSTER,
            found,
            CLUSTER_WHY,
            "start larder-node there, or take it off --member",
        );
    }
    let placements = nodes.iter().map(|node| (node.ring_version, node.ring_digest));
    let alike = placements.collect::<std::collections::BTreeSet<_>>().len() <= 1;
    if !alike {
        return Check::fail(
            CLUSTER,
            format!("{members} that were told different members"),
            CLUSTER_WHY,
            "start all nodes with the same --member list",
        );
    }
    if let Some(draining) = nodes.iter().find(|node| node.draining) {
        let found = format!("{members}, {} is draining", draining.node_id);
        return Check::warn(CLUSTER, found, CLUSTER_WHY, "wait until it is back");
    }
    Check::ok(CLUSTER, format!("{members}, all up and of one mind"), CLUSTER_WHY)
}

/// Whether the data ports of the nodes that answer can be reached from this host.
fn data_ports(answers: &[MemberAnswer<NodeDescription>]) -> Option<Check> {
    let well = answers.iter().filter_map(|one| Some((&one.member, one.answer.as_ref().ok()?)));
    let ports: Vec<_> = well
        .map(|(member, node)| (&member.id, data_address(&node.data_address, &member.control)))
        .collect();
    let mut blocked = Vec::new();
    for some in ports.chunks(TRIED_AT_ONCE) {
        let tried = thread::scope(|scope| {
            let tries: Vec<_> =
                some.iter().map(|(_, address)| scope.spawn(|| reach(address))).collect();
            tries.into_iter().map(|one| one.join().expect("it does not panic")).collect::<Vec<_>>()
        });
        let named = some.iter().zip(tried);
        blocked.extend(named.filter_map(|((id, address), reached)| {
            Some(format!("{id} at {address} ({})", reached.err()?))
        }));
    }
    let count = units::counted(ports.len() as u64, "data port");
    match (ports.len(), blocked.len()) {
        (0, _) => None,
        (_, 0) => Some(Check::ok(DATA, format!("{count}, reached from here"), DATA_WHY)),
        (_, some) => Some(Check::fail(
            DATA,
            format!("{some} of {count} can't be reached from here: {}", blocked.join(", ")),
            DATA_WHY,
            "let this host connect to that port, or correct the node's --data-advertise",
        )),
    }
}

fn reach(address: &str) -> io::Result<()> {
    let mut last = io::Error::other("it is no address");
    for one in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&one, CONNECT_TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn try_socket(path: &Path, expected: bool) -> Check {
    let shown = path.display();
    let fail = |found: String, hint: String| Check::fail(SOCKET, found, SOCKET_WHY, hint);
    let facts = match fs::metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == ErrorKind::NotFound && !expected => {
            return Check::ok(SOCKET, format!("no node here: {shown} does not exist"), SOCKET_WHY);
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let hint =
                "start larder-node on this host, or mount its socket's folder into this container";
            return fail(format!("{shown} does not exist"), hint.to_owned());
        }
        Err(error) => {
            let hint = "start larder-node with --socket-group GROUP and join that group";
            return fail(format!("{shown}: {error}"), hint.to_owned());
        }
    };
    if !facts.file_type().is_socket() {
        return fail(format!("{shown} is no socket"), "remove it and start larder-node".to_owned());
    }
    let owner =
        format!("mode {:o}, uid {}, gid {}", facts.mode() & 0o777, facts.uid(), facts.gid());
    match UnixStream::connect(path) {
        Ok(_) => Check::ok(SOCKET, format!("{shown} connects ({owner})"), SOCKET_WHY),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let hint = "start larder-node with --socket-group GROUP and join that group";
            fail(format!("{shown} may not be opened ({owner})"), hint.to_owned())
        }
        Err(error) => {
            fail(format!("{shown}: {error}"), "start larder-node again: nobody answers".to_owned())
        }
    }
}

fn hostname() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn dead_sockets_and_files_that_are_not_sockets_fail() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("larder.sock");
        assert_eq!(try_socket(&path, false).state, State::Ok);
        assert_eq!(try_socket(&path, true).state, State::Fail);
        fs::write(&path, b"").unwrap();
        assert!(try_socket(&path, true).found.ends_with("is no socket"));
        fs::remove_file(&path).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(try_socket(&path, true).state, State::Ok);
        drop(listener);
        assert_eq!(try_socket(&path, true).state, State::Fail);
    }
}
