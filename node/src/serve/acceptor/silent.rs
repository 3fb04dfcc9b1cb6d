//! Connections that have not sent their HELLO. One thread watches them all. So they hold a socket
//! each, and delay no other client.
//!
//! The kernel keeps what they send. A connection leaves when its HELLO is complete, when it takes
//! too long, or when another address needs its place. Thread rule: belongs to the accepting thread.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use larder_base::limits;
use larder_wire::data::{FRAME_HEADER_BYTES, FrameHeader, Kind};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{MsgFlags, recv};

use super::descriptors::{Descriptors, lowered};
use crate::clock;
use crate::serve::address::group;

/// The most events of one look.
const EVENTS_MAX: usize = 64;

/// The numbers of descriptors that are no connections.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// The connections of a listener that have not sent their HELLO.
pub(super) struct Silent {
    epoll: Epoll,
    most: usize,
    descriptors: Descriptors,
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
}

struct Waiting {
    socket: TcpStream,
    address: IpAddr,
    since: Instant,
}

/// What a look found.
#[derive(Default)]
pub(super) struct Look {
    pub(super) stops: bool,
    pub(super) can_accept: bool,
    /// Connections whose first frame is complete, or can't become a HELLO.
    pub(super) ready: Vec<TcpStream>,
}

impl Silent {
    /// Watches a listener and a stop event beside at most so many connections.
    pub(super) fn new(
        most: usize,
        descriptors: Descriptors,
        listener: impl AsFd,
        stop: impl AsFd,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        epoll.add(stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        Ok(Self { epoll, most, descriptors, waiting: BTreeMap::new(), next: 0 })
    }

    /// Watches a connection. If there are too many, or descriptors are short, the address with the
    /// most loses its oldest.
    pub(super) fn add(&mut self, mut socket: TcpStream, from: IpAddr) -> io::Result<()> {
        if self.waiting.len() >= self.most || self.descriptors.are_short(&socket) {
            let number = self.oldest_of_the_fullest();
            self.waiting.remove(&number);
            socket = lowered(socket);
        }
        let number = self.next;
        self.next += 1;
        // One event for what comes, so that half a HELLO is not looked at again and again.
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.epoll.add(&socket, EpollEvent::new(flags, number))?;
        let (address, since) = (group(from), clock::now());
        self.waiting.insert(number, Waiting { socket, address, since });
        Ok(())
    }

    fn oldest_of_the_fullest(&self) -> u64 {
        let mut by_address: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for (&number, waiting) in &self.waiting {
            // Numbers rise, so the first is the oldest.
            by_address.entry(waiting.address).or_insert((0, number)).0 += 1;
        }
        by_address.into_values().max_by_key(|(count, _)| *count).map_or(0, |(_, number)| number)
    }

    /// Waits until something happens. Drops connections that are gone or take too long.
    pub(super) fn look(&mut self) -> io::Result<Look> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let timeout =
            EpollTimeout::try_from(limits::KEEPALIVE_INTERVAL).unwrap_or(EpollTimeout::NONE);
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut seen = Look::default();
        for event in &events[..count] {
            match event.data() {
                LISTENER => seen.can_accept = true,
                STOP => seen.stops = true,
                number => seen.ready.extend(self.hear(number)),
            }
        }
        let now = clock::now();
        let is_late = |waiting: &Waiting| now - waiting.since >= limits::HANDSHAKE_TIMEOUT;
        while self.waiting.first_key_value().is_some_and(|(_, waiting)| is_late(waiting)) {
            self.waiting.pop_first();
        }
        Ok(seen)
    }

    /// Returns a connection whose first frame is complete. Drops one that is gone.
    fn hear(&mut self, number: u64) -> Option<TcpStream> {
        let waiting = self.waiting.get(&number)?;
        let mut bytes = [0; limits::PRE_AUTH_BYTES_MAX as usize];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let is_complete = match recv(waiting.socket.as_raw_fd(), &mut bytes, flags) {
            Ok(0) => None,
            Ok(count) => Some(is_complete(&bytes[..count])),
            Err(Errno::EAGAIN | Errno::EINTR) => Some(false),
            Err(_) => None,
        };
        match is_complete {
            Some(false) => None,
            // Its descriptor leaves the watch: it will be another connection's.
            Some(true) => {
                let socket = self.waiting.remove(&number)?.socket;
                self.epoll.delete(&socket).ok()?;
                Some(socket)
            }
            None => {
                self.waiting.remove(&number);
                None
            }
        }
    }
}

/// Whether these bytes are a whole frame, or can't become a HELLO.
fn is_complete(bytes: &[u8]) -> bool {
    let Some((header, body)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else {
        return false;
    };
    match FrameHeader::parse(header) {
        Ok(header) => header.kind() != Kind::Hello || body.len() >= header.body_len(),
        Err(_) => true,
    }
}
