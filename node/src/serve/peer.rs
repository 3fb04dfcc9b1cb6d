//! One connection's socket: blocking, with timeouts short enough to notice that the peer is gone.
//!
//! A peer may stop reading for a while, so a timeout alone ends nothing. At each timeout the socket
//! checks whether the process at the other end still runs. The rate at which it receives has a
//! [limit](SlowReaderGuard) as well.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use larder_base::limits;
use larder_extent::socket;
use nix::errno::Errno;
use nix::sys::sendfile::sendfile64;
use socket2::{SockRef, TcpKeepalive};

use crate::clock;

/// How often the kernel probes the other host of a silent data connection. It ends the connection
/// after three probes without an answer: a dead host holds no shards.
const DATA_PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// Approximate bytes of a data connection that wait in the kernel until the peer has room for them.
/// A stopped reader leaves no more behind, where it could be 4 MiB. Bytes on the link do not count,
/// so long paths are still filled; on loopback 128 KiB is as fast as no limit.
const SEND_WAITING_BYTES: u32 = 128 << 10;

/// The same for a connection to the unix socket, which carries short frames: half of the usual
/// size.
const SOCKET_SEND_BYTES: usize = 64 << 10;

/// Least rate of a peer that is sent to, in bytes a second. A slower peer is soon treated like one
/// that takes nothing; otherwise it could hold memory that others wait for. Below the rate of any
/// link usable for training: a frame of 4 MiB takes 16 seconds.
const SEND_BYTES_PER_SECOND_MIN: u64 = 256 << 10;

/// Unanswered probes before a silent connection is closed.
const PROBES_MAX: u32 = 3;

/// The socket of a connection.
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
    /// The process at the other end, if the kernel gives a handle on it or the client sent one.
    process: OnceLock<OwnedFd>,
    /// The user that connected, on the unix socket.
    user: Option<u32>,
    closed: AtomicBool,
    slow_reader: Mutex<SlowReaderGuard>,
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
                    .with_time(DATA_PROBE_INTERVAL)
                    .with_interval(DATA_PROBE_INTERVAL)
                    .with_retries(PROBES_MAX);
                SockRef::from(tcp).set_tcp_keepalive(&probes)?;
                SockRef::from(tcp).set_tcp_notsent_lowat(SEND_WAITING_BYTES)?;
                tcp.set_read_timeout(tick)?;
                tcp.set_write_timeout(tick)?;
            }
            Socket::Unix(unix) => {
                SockRef::from(unix).set_send_buffer_size(SOCKET_SEND_BYTES)?;
                unix.set_read_timeout(tick)?;
                unix.set_write_timeout(tick)?;
                let connected = socket::PeerProcess::of(unix)?;
                user = Some(connected.uid());
                if let Some(pidfd) = connected.pidfd() {
                    let _ = process.set(pidfd.try_clone_to_owned()?);
                }
            }
        }
        let (closed, slow_reader) =
            (AtomicBool::new(false), Mutex::new(SlowReaderGuard::default()));
        Ok(Self { socket, process, user, closed, slow_reader })
    }

    /// Sets another limit, for tests.
    #[cfg(test)]
    pub(super) fn with_slow_reader_guard(self, slow_reader: SlowReaderGuard) -> Self {
        Self { slow_reader: Mutex::new(slow_reader), ..self }
    }

    /// Returns the effective user id of the connected process, as the kernel reports it on the unix
    /// socket.
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

    /// Returns a handle on the process at the other end. It is readable once the process has ended.
    pub(super) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.process.get().map(AsFd::as_fd)
    }

    /// Returns true if the process at the other end has ended. A child of it may keep the
    /// connection open.
    pub(super) fn has_exited(&self) -> bool {
        self.process().is_some_and(socket::has_exited)
    }

    /// Shuts the connection down while other threads may use it.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let _ = match &self.socket {
            Socket::Tcp(tcp) => tcp.shutdown(Shutdown::Both),
            Socket::Unix(unix) => unix.shutdown(Shutdown::Both),
        };
    }

    /// Checks that the peer is still there.
    ///
    /// # Errors
    /// The peer's process has ended, or the connection was closed from this side.
    pub(super) fn check_alive(&self) -> io::Result<()> {
        if self.closed.load(Ordering::Relaxed) || self.has_exited() {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Closes a connection that receives too slowly, and drops its unsent data in the kernel.
    fn give_up(&self) -> io::Error {
        let who = match &self.socket {
            Socket::Tcp(tcp) => {
                let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
                tcp.peer_addr().map_or_else(|why| why.to_string(), |from| from.to_string())
            }
            Socket::Unix(_) => "a process of this host".to_owned(),
        };
        let least = SEND_BYTES_PER_SECOND_MIN >> 10;
        tracing::warn!(
            "{who} receives less than {least} KiB/s of its data: its connection is closed"
        );
        ErrorKind::TimedOut.into()
    }

    /// Sends all bytes.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_both(bytes, &[])
    }

    /// Sends two pieces, one right after the other.
    pub(super) fn send_both(&self, mut first: &[u8], mut second: &[u8]) -> io::Result<()> {
        let mut watch = SpeedWatch::new(self);
        while !(first.is_empty() && second.is_empty()) {
            let pieces = [IoSlice::new(first), IoSlice::new(second)];
            let sent = match &self.socket {
                Socket::Tcp(tcp) => (&*tcp).write_vectored(&pieces),
                Socket::Unix(unix) => (&*unix).write_vectored(&pieces),
            };
            let sent = watch.judge(sent)?;
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
        let mut watch = SpeedWatch::new(self);
        while left > 0 {
            let sent = sendfile64(self.fd(), file, Some(&mut offset), left);
            left -= watch.judge(sent.map_err(io::Error::from))?;
        }
        Ok(())
    }

    /// Sends a frame with a descriptor, over the unix socket. The frame is so short that the kernel
    /// takes it all or not at all.
    pub(super) fn send_with_fd(&self, frame: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
        let Socket::Unix(unix) = &self.socket else {
            return Err(ErrorKind::Unsupported.into());
        };
        let mut watch = SpeedWatch::new(self);
        let mut sent = 0;
        while sent == 0 {
            let taken = socket::send_with_fds(unix, frame, &[fd]).map(|()| frame.len());
            sent = watch.judge(taken)?;
        }
        Ok(())
    }

    /// Holds back partial packets until it is called with false.
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

    /// Reads the first frame. Takes the handle on the client's process with it, if the client sends
    /// one because its kernel does not report the process (before Linux 6.5).
    pub(super) fn first_reader(&self, deadline: Instant) -> PeerReader<'_> {
        let takes_process = !self.is_tcp() && self.process.get().is_none();
        PeerReader { peer: self, deadline, takes_process }
    }
}

/// Watches how fast a peer receives.
struct SpeedWatch<'a> {
    peer: &'a Peer,
    since: Instant,
}

impl<'a> SpeedWatch<'a> {
    fn new(peer: &'a Peer) -> Self {
        Self { peer, since: clock::now() }
    }

    /// Judges the result of a send. Returns the bytes sent, or an error that ends the connection.
    fn judge(&mut self, sent: io::Result<usize>) -> io::Result<usize> {
        let sent = match sent {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) if is_tick(&error) => {
                self.peer.check_alive()?;
                0
            }
            Err(error) => return Err(error),
        };
        let now = clock::now();
        let waited = now - std::mem::replace(&mut self.since, now);
        let mut guard = self.peer.slow_reader.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.lasts_after(waited, sent) { Ok(sent) } else { Err(self.peer.give_up()) }
    }
}

/// Reads from a peer until a deadline, while the peer lives.
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

/// Returns true if the socket's short timeout passed.
fn is_tick(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        && error.raw_os_error().is_none_or(|code| Errno::from_raw(code) == Errno::EAGAIN)
}

/// Limits how slowly a client may receive: the debt of one client, and its limit.
///
/// Unsent data holds memory that other connections wait for. So the time spent sending counts as a
/// debt, which the client pays with the bytes it receives. A fast client owes nothing, and can't
/// save up credit. A client that receives nothing, or too little, owes more and more.
#[derive(Debug)]
pub(super) struct SlowReaderGuard {
    owed: Duration,
    owed_max: Duration,
    bytes_per_second: u64,
}

impl Default for SlowReaderGuard {
    fn default() -> Self {
        Self::new(limits::SEND_STALL_TIMEOUT, SEND_BYTES_PER_SECOND_MIN)
    }
}

impl SlowReaderGuard {
    /// Creates a limit. A client that receives nothing reaches it after `owed_max`, and one at this
    /// rate never.
    pub(super) fn new(owed_max: Duration, bytes_per_second: u64) -> Self {
        Self { owed: Duration::ZERO, owed_max, bytes_per_second }
    }

    /// Adds a wait and the bytes received in it. Returns false once the debt is over the limit.
    pub(super) fn lasts_after(&mut self, waited: Duration, taken: usize) -> bool {
        let nanos = (taken as u64).saturating_mul(1_000_000_000) / self.bytes_per_second;
        self.owed = (self.owed + waited).saturating_sub(Duration::from_nanos(nanos));
        self.owed <= self.owed_max
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pair() -> (Peer, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Peer::new(Socket::Tcp(listener.accept().unwrap().0)).unwrap(), client)
    }

    #[test]
    fn client_that_receives_too_slowly_is_disconnected() {
        let (peer, client) = pair();
        // Every rate is too slow for this limit, from the start.
        let peer = peer.with_slow_reader_guard(SlowReaderGuard::new(Duration::ZERO, u64::MAX));
        thread::scope(|scope| {
            let slow = || while (&client).read(&mut [0]).is_ok_and(|got| got > 0) {};
            scope.spawn(slow);
            let sent = peer.send(&vec![0; 64 << 20]);
            assert_eq!(sent.unwrap_err().kind(), ErrorKind::TimedOut);
            drop(peer);
        });
    }

    #[test]
    fn client_that_reads_nothing_is_disconnected() {
        let (peer, mut client) = pair();
        let peer = peer.with_slow_reader_guard(SlowReaderGuard::new(Duration::ZERO, 1 << 40));
        assert_eq!(peer.send(&vec![0; 64 << 20]).unwrap_err().kind(), ErrorKind::TimedOut);
        drop(peer);
        let ended = loop {
            match client.read(&mut [0; 4096]) {
                Ok(0) => break None,
                Ok(_) => {}
                Err(error) => break Some(error.kind()),
            }
        };
        assert_eq!(ended, Some(ErrorKind::ConnectionReset));
    }

    #[test]
    fn client_that_keeps_reading_gets_everything() {
        let (peer, mut client) = pair();
        let peer = peer.with_slow_reader_guard(SlowReaderGuard::new(3600 * SECOND, 1));
        thread::scope(|scope| {
            let reading = scope.spawn(move || {
                let mut bytes = vec![0; 64 << 20];
                client.read_exact(&mut bytes).map(|()| bytes)
            });
            peer.send(&vec![7; 64 << 20]).unwrap();
            assert!(reading.join().unwrap().unwrap().iter().all(|&byte| byte == 7));
        });
    }

    #[test]
    fn kernel_buffers_little_for_a_stopped_reader() {
        let (peer, _client) = pair();
        let peer = peer.with_slow_reader_guard(SlowReaderGuard::new(Duration::ZERO, 1 << 40));
        let Socket::Tcp(tcp) = &peer.socket else { unreachable!("it is TCP") };
        assert_eq!(SockRef::from(tcp).tcp_notsent_lowat().unwrap(), SEND_WAITING_BYTES);
        let (near, _far) = UnixStream::pair().unwrap();
        let before = SockRef::from(&near).send_buffer_size().unwrap();
        let peer = Peer::new(Socket::Unix(near)).unwrap();
        let Socket::Unix(unix) = &peer.socket else { unreachable!("it is a unix socket") };
        assert!(SockRef::from(unix).send_buffer_size().unwrap() < before);
    }

    /// Returns the seconds until the limit for a client that receives so many bytes in each.
    fn seconds_with(taken: usize) -> Option<usize> {
        let mut slow_reader = SlowReaderGuard::new(10 * SECOND, 1000);
        (1..1000).find(|_| !slow_reader.lasts_after(SECOND, taken))
    }

    #[test]
    fn occasional_bytes_hardly_extend_the_limit() {
        assert_eq!(seconds_with(0), Some(11));
        assert_eq!(seconds_with(1), Some(11));
        assert_eq!(seconds_with(500), Some(21));
        assert_eq!(seconds_with(1000), None);
    }

    #[test]
    fn fast_client_saves_no_credit() {
        let mut slow_reader = SlowReaderGuard::new(10 * SECOND, 1000);
        assert!(slow_reader.lasts_after(SECOND, usize::MAX));
        assert!(slow_reader.lasts_after(10 * SECOND, 0));
        assert!(!slow_reader.lasts_after(SECOND, 0));
    }

    #[test]
    fn slow_client_can_catch_up() {
        let mut slow_reader = SlowReaderGuard::new(10 * SECOND, 1000);
        assert!(slow_reader.lasts_after(9 * SECOND, 0));
        assert!(slow_reader.lasts_after(SECOND, 10_000));
        assert!(slow_reader.lasts_after(10 * SECOND, 0));
    }
}
