//! Frames and descriptors on a node's unix socket, after HELLO.

use std::{
    collections::VecDeque,
    io::Write,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process,
};

use larder_base::{Ticket, limits};
use larder_extent::socket::recv_with_fds;
use larder_wire::data::{
    Admit, Admitted, ErrorReply, FRAME_HEADER_BYTES, Hello, HelloOk, Kind, WireError, split_frame,
};
use nix::poll::{PollFd, PollFlags, poll};

use super::listener;
use crate::remote::{self, Failure};

/// The most received descriptors that wait to be taken. A node has no reason to send more.
const FDS_WAITING_MAX: usize = 64;

/// How long a node that was killed takes to close its connections.
const ENDING_TIMEOUT_MILLIS: u16 = 300;

/// Bytes received at a time. The frames of this socket have about 50.
const RECEIVE_BYTES: usize = 4 << 10;

/// The connection to a node's unix socket.
pub(super) struct Session {
    stream: UnixStream,
    /// Received bytes without a complete frame.
    buffer: Vec<u8>,
    /// Descriptors, in the order of their frames.
    fds: VecDeque<OwnedFd>,
}

/// A received frame.
pub(super) struct Incoming {
    pub(super) kind: Kind,
    pub(super) request: u64,
    pub(super) body: Vec<u8>,
}

/// The reason why there is no session.
#[derive(Debug)]
pub(super) enum NoSession {
    /// Another node listens there, such as one of another host with the same path.
    OtherNode(String),
    /// No usable answer.
    Failed(Failure),
}

impl From<Failure> for NoSession {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Session {
    /// Connects to the node with this id.
    pub(super) fn connect(path: &Path, node_id: &str) -> Result<Self, NoSession> {
        let (session, node) = Self::connect_any(path)?;
        if node.node_id == node_id { Ok(session) } else { Err(NoSession::OtherNode(node.node_id)) }
    }

    /// Connects, says HELLO, and learns the node's id. Shows no ticket, because the kernel tells
    /// both sides the other's user.
    pub(super) fn connect_any(path: &Path) -> Result<(Self, HelloOk), Failure> {
        let stream = UnixStream::connect(path).map_err(|error| Failure::from_io(&error))?;
        listener::check(&stream, path).map_err(Failure::Broken)?;
        let mut session = Self { stream, buffer: Vec::new(), fds: VecDeque::new() };
        let hello = Hello::new(Ticket::from_bytes([0; 16]), process::id(), remote::client_name());
        let ok = session.hello(&hello)?;
        Ok((session, ok))
    }

    fn hello(&mut self, hello: &Hello) -> Result<HelloOk, Failure> {
        let timeout = Some(limits::OWNER_SILENT_TIMEOUT);
        let set = self.stream.set_read_timeout(timeout).and(self.stream.set_write_timeout(timeout));
        set.map_err(|error| Failure::from_io(&error))?;
        let mut frame = Vec::new();
        hello.encode(0, &mut frame);
        let ok = HelloOk::decode(&self.call(0, &frame, Kind::HelloOk, "HELLO_OK")?)?;
        ok.check(hello)?;
        Ok(ok)
    }

    /// Sends the frame of a request, and returns the body of the answer. The answer must be of kind
    /// `wanted`, named `name`.
    pub(super) fn call(
        &mut self,
        request: u64,
        frame: &[u8],
        wanted: Kind,
        name: &'static str,
    ) -> Result<Vec<u8>, Failure> {
        self.stream.write_all(frame).map_err(|error| Failure::from_io(&error))?;
        let mut incoming = self.next()?;
        // An earlier request may be answered after its caller gave up.
        while incoming.request != 0 && incoming.request != request {
            incoming = self.next()?;
        }
        let Incoming { kind, body, .. } = incoming;
        match kind {
            _ if kind == wanted => Ok(body),
            Kind::Error => Err(ErrorReply::decode(&body)?.error.into()),
            found => Err(WireError::Unexpected { found, expected: name }.into()),
        }
    }

    /// The socket, for writing.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Reads the next frame. [`Failure::Silent`] if none arrives within the socket's read timeout.
    /// No data is lost then.
    pub(super) fn next(&mut self) -> Result<Incoming, Failure> {
        loop {
            if let Some(split) = split_frame(&self.buffer)? {
                let incoming = Incoming {
                    kind: split.header.kind(),
                    request: split.header.request(),
                    body: split.body.to_vec(),
                };
                if split.header.payload_bytes() > 0 {
                    return Err(Failure::Protocol("payload came on the unix socket".to_owned()));
                }
                self.buffer.drain(..FRAME_HEADER_BYTES + incoming.body.len());
                return Ok(incoming);
            }
            self.fill()?;
        }
    }

    /// The descriptor sent with the last frame.
    pub(super) fn take_fd(&mut self) -> Result<OwnedFd, Failure> {
        let missing = || Failure::Protocol("no descriptor came with ATTACHED".to_owned());
        self.fds.pop_front().ok_or_else(missing)
    }

    fn fill(&mut self) -> Result<(), Failure> {
        let mut bytes = [0; RECEIVE_BYTES];
        let (got, fds) =
            recv_with_fds(&self.stream, &mut bytes).map_err(|error| Failure::from_io(&error))?;
        if got == 0 {
            return Err(WireError::Closed.into());
        }
        if self.fds.len() + fds.len() > FDS_WAITING_MAX {
            return Err(Failure::Protocol("descriptors came without a request".to_owned()));
        }
        self.buffer.extend_from_slice(&bytes[..got]);
        self.fds.extend(fds);
        Ok(())
    }
}

/// A connection that tells a node that this process uses it. The use ends when it is dropped or the
/// process ends, even if forked children live on.
pub(crate) struct Lease {
    session: Session,
    /// The number of requests.
    asked: u64,
}

impl Lease {
    /// Connects to the node that listens at `path`.
    pub(crate) fn take(path: &Path) -> Result<Self, Failure> {
        Ok(Self { session: Session::connect_any(path)?.0, asked: 0 })
    }

    /// Whether the node closes it. Waits a moment: a killed node closes one connection after the
    /// other.
    pub(crate) fn is_over(&self) -> bool {
        // Without flags, poll waits for the end alone.
        let mut polled = [PollFd::new(self.session.stream.as_fd(), PollFlags::empty())];
        matches!(poll(&mut polled, ENDING_TIMEOUT_MILLIS), Ok(1..))
    }

    /// Lets the node read `prefix`, with the identity of this block of variables, and learns its
    /// addresses. With an empty prefix it only learns these.
    fn admit(&mut self, prefix: &str, variables: &[u8]) -> Result<Admitted, Failure> {
        self.asked += 1;
        let mut frame = Vec::new();
        let (prefix, variables) = (prefix.to_owned(), variables.to_vec());
        Admit { prefix, variables }.encode(self.asked, &mut frame);
        let answer = self.session.call(self.asked, &frame, Kind::Admitted, "ADMITTED")?;
        Ok(Admitted::decode(&answer)?)
    }

    /// Lets the node read each of these prefixes, as [`admit`](Self::admit).
    pub(crate) fn admit_all(
        &mut self,
        prefixes: &[&str],
        variables: &[u8],
    ) -> Result<Admitted, Failure> {
        let mut admitted = self.admit(prefixes.first().unwrap_or(&""), variables)?;
        for prefix in prefixes.iter().skip(1) {
            admitted = self.admit(prefix, variables)?;
        }
        Ok(admitted)
    }
}
