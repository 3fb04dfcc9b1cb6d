//! Which users of this host may call a node over loopback.
//!
//! Every user of a host can connect to its loopback ports. The kernel knows the user behind each
//! end of such a connection, so callers need to show nothing: the node asks for the other end by
//! its addresses (`sock_diag(7)`). Callers from other hosts have no user here.

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use larder_base::{Error, ErrorKind};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use nix::unistd::{Gid, Group, Uid, User, geteuid, getgrouplist};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::catalog::Requester;
use crate::config::Config;
use crate::serve::address;

/// Lookups of groups and names at one time. Each takes a thread for as long as the system likes.
const LOOKUPS_MAX: usize = 4;

/// The users that a node answers over loopback: its own, root, and the members of a group; or all.
#[derive(Debug, Clone)]
pub(super) struct Users {
    own: Uid,
    group: Option<String>,
    all: bool,
    lookups: Arc<Semaphore>,
}

impl Users {
    /// `None` if the node knows its callers by their tickets.
    pub(super) fn of(config: &Config) -> Option<Self> {
        (!config.private).then(|| Self {
            own: geteuid(),
            group: config.socket.group.clone(),
            all: config.any_local_user,
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        })
    }

    /// Waits for permission to [identify](Self::identify) a caller.
    pub(super) async fn turn(&self) -> OwnedSemaphorePermit {
        let turn = Arc::clone(&self.lookups).acquire_owned().await;
        turn.expect("the semaphore is never closed")
    }

    /// Recognizes a caller from another host, or of a user that is always answered. Never blocks.
    pub(super) fn recognize(&self, from: SocketAddr, to: SocketAddr) -> Option<Requester> {
        if !from.ip().to_canonical().is_loopback() {
            return Some(Requester::Address(address::group(from.ip())));
        }
        let user = user_behind(from, to).ok()?;
        self.is_always_answered(user).then(|| Requester::User(user.as_raw()))
    }

    /// Identifies the caller of a connection from `from` to `to`, this node. May block while the
    /// system looks a group up.
    ///
    /// # Errors
    /// `PermissionDenied` for a user that may not call, with the reason and the remedy.
    pub(super) fn identify(&self, from: SocketAddr, to: SocketAddr) -> Result<Requester, Error> {
        if let Some(known) = self.recognize(from, to) {
            return Ok(known);
        }
        let user = match user_behind(from, to) {
            Err(_) if self.all => return Ok(Requester::Address(address::group(from.ip()))),
            found => found.map_err(|why| unknown(&why))?,
        };
        if self.is_always_answered(user) || self.has_member(user) {
            return Ok(Requester::User(user.as_raw()));
        }
        let own = named(self.own);
        let group =
            self.group.as_ref().map_or(String::new(), |group| format!(" and group {group}"));
        let message = format!("this node answers {own}{group}, and {} calls", named(user));
        Err(refusal(
            &message,
            "run as that user; or its operator may add --socket-group GROUP, or --any-local-user for all users \
             of the host",
        ))
    }

    fn is_always_answered(&self, user: Uid) -> bool {
        self.all || user == self.own || user.is_root()
    }

    fn has_member(&self, user: Uid) -> bool {
        let group = self.group.as_deref().and_then(|name| Group::from_name(name).ok().flatten());
        group.is_some_and(|group| groups(user).contains(&group.gid))
    }
}

fn unknown(why: &io::Error) -> Error {
    let why = larder_base::root_cause(why);
    let message = format!("the system does not say which user of this host calls: {why}");
    refusal(&message, "its operator may add --any-local-user, for all users of the host")
}

fn refusal(message: &str, hint: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, message).with_hint(hint.to_owned())
}

fn named(user: Uid) -> String {
    match User::from_uid(user) {
        Ok(Some(known)) => format!("user {} ({user})", larder_base::printable(&known.name)),
        _ => format!("user {user}"),
    }
}

/// The groups of a user. Empty for a user that the system does not know.
fn groups(user: Uid) -> Vec<Gid> {
    let Ok(Some(known)) = User::from_uid(user) else { return Vec::new() };
    let name = CString::new(known.name).unwrap_or_default();
    getgrouplist(&name, known.gid).unwrap_or_default()
}

/// Netlink's message for one socket: a header of 16 bytes, then a request of 56.
const REQUEST_BYTES: u32 = 16 + 56;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
/// The answer: a header of 16 bytes, then a description of 72. The places of what is read here.
const ANSWER_BYTES: usize = 16 + 72;
const STATE_AT: usize = 16 + 1;
const USER_AT: usize = 16 + 64;
const INODE_AT: usize = 16 + 68;
const TCP: u8 = 6;
const TCP_ESTABLISHED: u8 = 1;

/// Returns the user that made the end `from` of a connection on this host. `to` is the other end.
///
/// # Errors
/// The end has been closed, or the system does not answer.
fn user_behind(from: SocketAddr, to: SocketAddr) -> io::Result<Uid> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (netlink, raw) = (AddressFamily::Netlink, SockType::Raw);
    let diag = socket(netlink, raw, flags, SockProtocol::NetlinkSockDiag)?;
    send(diag.as_raw_fd(), &request(from, to), MsgFlags::empty())?;
    let mut answer = [0; 512];
    // The kernel answers before `send` returns.
    let length = recv(diag.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
    let answer = &answer[..length];
    if kind(answer) != Some(SOCK_DIAG_BY_FAMILY) || length < ANSWER_BYTES {
        let errno = number(answer, 16).map_or(0, |code| code.cast_signed().saturating_neg());
        return Err(Errno::from_raw(errno).into());
    }
    // A socket that its process closed belongs to root, whoever made it, and has no inode.
    let is_open = number(answer, INODE_AT) != Some(0) && answer[STATE_AT] == TCP_ESTABLISHED;
    match number(answer, USER_AT) {
        Some(user) if is_open => Ok(Uid::from_raw(user)),
        _ => Err(Errno::ENOTCONN.into()),
    }
}

fn kind(answer: &[u8]) -> Option<u16> {
    answer.get(4..6)?.try_into().ok().map(u16::from_ne_bytes)
}

fn number(answer: &[u8], at: usize) -> Option<u32> {
    answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Asks for the socket of `from`: `struct nlmsghdr`, then `struct inet_diag_req_v2`.
fn request(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (source, target) = (from.ip().to_canonical(), to.ip().to_canonical());
    let family = if source.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let mut bytes = Vec::with_capacity(REQUEST_BYTES as usize);
    bytes.extend(REQUEST_BYTES.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family as u8, TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(sixteen(source));
    bytes.extend(sixteen(target));
    // Any interface, any cookie.
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([0xff; 8]);
    bytes
}

fn sixteen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connected(at: &str) -> (TcpStream, TcpStream, SocketAddr) {
        let listener = TcpListener::bind((at, 0)).unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, from) = listener.accept().unwrap();
        (caller, served, from)
    }

    #[test]
    fn kernel_tells_the_user_behind_a_connection() {
        for at in ["127.0.0.1", "127.0.0.2", "::1"] {
            let (_caller, served, from) = connected(at);
            let user = user_behind(from, served.local_addr().unwrap()).unwrap();
            assert_eq!(user, geteuid(), "{at}");
        }
    }

    #[test]
    fn nobody_is_behind_a_closed_connection() {
        let (caller, served, from) = connected("127.0.0.1");
        drop(caller);
        user_behind(from, served.local_addr().unwrap()).unwrap_err();
        let unknown = SocketAddr::new(from.ip(), 1);
        user_behind(unknown, served.local_addr().unwrap()).unwrap_err();
    }

    #[test]
    fn own_user_and_other_hosts_are_answered() {
        let users = |own: Uid| {
            let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
            Users { own, group: None, all: false, lookups }
        };
        let (_caller, served, from) = connected("127.0.0.1");
        let (to, user) = (served.local_addr().unwrap(), geteuid());
        let found = users(user).identify(from, to).unwrap();
        assert_eq!(found, Requester::User(user.as_raw()));
        let far: SocketAddr = "10.0.0.1:7".parse().unwrap();
        let found = users(Uid::from_raw(7)).identify(far, far).unwrap();
        assert_eq!(found, Requester::Address(far.ip()));
    }
}
