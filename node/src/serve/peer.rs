//! One connection's socket: blocking, with timeouts short enough to notice that a peer is gone.
//!
//! A peer may stop reading for a while, so a timeout alone ends nothing: it is the moment to look
//! whether the process at the other end still lives, and how long it has taken nothing.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use larder_extent::{peer, socket};
use larder_wire::limits;
use nix::errno::Errno;
use nix::sys::sendfile::sendfile64;
use socket2::{SockRef, TcpKeepalive};

use crate::clock;

/// Signs of life asked for in vain before a silent connection is ended.
const PROBES_MAX: u32 = 3;

/// What the bytes go through.
#[derive(Debug)]
pub(super) enum Socket {
    /// To another host.
    Tcp(TcpStream),
    /// On this host; descriptors can ride along.
    Unix(UnixStream),
}

/// The other end of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    socket: Socket,
    /// The process at the other end, where the kernel gives a handle on it or it sent one itself.
    process: OnceLock<OwnedFd>,
    /// The user who connected, on the unix socket.
    user: Option<u32>,
    closed: AtomicBool,
}

impl Peer {
    /// Prepares a socket that was just accepted.
    pub(super) fn new(socket: Socket) -> io::Result<Self> {
        let tick = Some(limits::KEEPALIVE_INTERVAL);
        let (process, mut user) = (OnceLock::new(), None);
        match &socket {
            Socket::Tcp(tcp) => {
                tcp.set_nodelay(true)?;
                let probes = TcpKeepalive::new()
                    .with_time(limits::DATA_PROBE_INTERVAL)
                    .with_interval(limits::DATA_PROBE_INTERVAL)
                    .with_retries(PROBES_MAX);
                SockRef::from(tcp).set_tcp_keepalive(&probes)?;
                tcp.set_read_timeout(tick)?;
                tcp.set_write_timeout(tick)?;
            }
            Socket::Unix(unix) => {
                unix.set_read_timeout(tick)?;
                unix.set_write_timeout(tick)?;
                let connected = peer::PeerProcess::of(unix)?;
                user = Some(connected.uid());
                if let Some(pidfd) = connected.pidfd() {
                    let _ = process.set(pidfd.try_clone_to_owned()?);
                }
            }
        }
        Ok(Self { socket, process, user, closed: AtomicBool::new(false) })
    }

    /// The effective user id of who connected, as the kernel knows it on the unix socket.
    pub(super) fn user(&self) -> Option<u32> {
        self.user
    }

    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.socket, Socket::Tcp(_))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(tcp) => tcp.as_fd(),
            Socket::Unix(unix) => unix.as_fd(),
        }
    }

    /// A handle on the process at the other end: readable once it has ended.
    pub(super) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.process.get().map(AsFd::as_fd)
    }

    /// The process at the other end has ended, though a child of it may keep the connection open.
    pub(super) fn has_exited(&self) -> bool {
        self.process().is_some_and(peer::has_exited)
    }

    /// Ends the connection under whoever uses it.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let _ = match &self.socket {
            Socket::Tcp(tcp) => tcp.shutdown(Shutdown::Both),
            Socket::Unix(unix) => unix.shutdown(Shutdown::Both),
        };
    }

    /// Whether there is any use in waiting for the peer.
    ///
    /// # Errors
    /// If it has ended, or the connection was closed from this side.
    pub(super) fn check_alive(&self) -> io::Result<()> {
        if self.closed.load(Ordering::Relaxed) || self.has_exited() {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Sends all bytes.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_both(bytes, &[])
    }

    /// Sends two pieces, one right after the other.
    pub(super) fn send_both(&self, mut first: &[u8], mut second: &[u8]) -> io::Result<()> {
        let mut stall = Stall::new(self);
        while !(first.is_empty() && second.is_empty()) {
            let pieces = [IoSlice::new(first), IoSlice::new(second)];
            let sent = match &self.socket {
                Socket::Tcp(tcp) => (&*tcp).write_vectored(&pieces),
                Socket::Unix(unix) => (&*unix).write_vectored(&pieces),
            };
            let sent = stall.judge(sent)?;
            let of_first = sent.min(first.len());
            first = &first[of_first..];
            second = &second[sent - of_first..];
        }
        Ok(())
    }

    /// Sends a range of a file, over TCP.
    pub(super) fn send_file(&self, file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<()> {
        let out_of_range = |_| io::Error::from(ErrorKind::InvalidInput);
        let mut offset = i64::try_from(range.start).map_err(out_of_range)?;
        let mut left = usize::try_from(range.end - range.start).map_err(out_of_range)?;
        let mut stall = Stall::new(self);
        while left > 0 {
            let sent = sendfile64(self.fd(), file, Some(&mut offset), left);
            left -= stall.judge(sent.map_err(io::Error::from))?;
        }
        Ok(())
    }

    /// Sends a frame with a descriptor, over the unix socket. The frame is short enough to be taken
    /// by the kernel in one piece or not at all.
    pub(super) fn send_with_fd(&self, frame: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
        let Socket::Unix(unix) = &self.socket else {
            return Err(ErrorKind::Unsupported.into());
        };
        let mut stall = Stall::new(self);
        let mut sent = 0;
        while sent == 0 {
            let taken = socket::send_with_fds(unix, frame, &[fd]).map(|()| frame.len());
            sent = stall.judge(taken)?;
        }
        Ok(())
    }

    /// Holds back what does not fill a packet until it is let go again.
    pub(super) fn cork(&self, held: bool) {
        if let Socket::Tcp(tcp) = &self.socket {
            // Without it the same bytes leave in more packets.
            let _ = SockRef::from(tcp).set_tcp_cork(held);
        }
    }

    /// Reads frames that must be complete before `deadline`.
    pub(super) fn reader(&self, deadline: Instant) -> PeerReader<'_> {
        PeerReader { peer: self, deadline, takes_process: false }
    }

    /// Reads the first frame, and with it a handle on the client's process if the client sends one
    /// because its kernel does not tell us (before Linux 6.5).
    pub(super) fn first_reader(&self, deadline: Instant) -> PeerReader<'_> {
        let takes_process = !self.is_tcp() && self.process.get().is_none();
        PeerReader { peer: self, deadline, takes_process }
    }
}

/// Counts the ticks in which a peer took nothing.
struct Stall<'a> {
    peer: &'a Peer,
    since: Option<Instant>,
}

impl<'a> Stall<'a> {
    fn new(peer: &'a Peer) -> Self {
        Self { peer, since: None }
    }

    /// What a try to send came to: bytes sent, none yet, or an error that ends it.
    fn judge(&mut self, sent: io::Result<usize>) -> io::Result<usize> {
        match sent {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(sent) => {
                self.since = None;
                Ok(sent)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) if is_tick(&error) => {
                self.peer.check_alive()?;
                let now = clock::now();
                if now - *self.since.get_or_insert(now) >= limits::SEND_STALL_TIMEOUT {
                    return Err(ErrorKind::TimedOut.into());
                }
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads from a peer until a deadline, for as long as it lives.
pub(super) struct PeerReader<'a> {
    peer: &'a Peer,
    deadline: Instant,
    takes_process: bool,
}

impl PeerReader<'_> {
    fn read_once(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.peer.socket {
            Socket::Tcp(tcp) => (&*tcp).read(bytes),
            Socket::Unix(unix) if self.takes_process => {
                let (got, fds) = socket::recv_with_fds(unix, bytes)?;
                if let Some(pidfd) = fds.into_iter().next() {
                    let _ = self.peer.process.set(pidfd);
                }
                Ok(got)
            }
            Socket::Unix(unix) => (&*unix).read(bytes),
        }
    }
}

impl Read for PeerReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if clock::now() >= self.deadline {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.read_once(bytes) {
                Err(error) if is_tick(&error) => self.peer.check_alive()?,
                read => return read,
            }
        }
    }
}

/// The socket's short timeout passed.
fn is_tick(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        && error.raw_os_error().is_none_or(|code| Errno::from_raw(code) == Errno::EAGAIN)
}
