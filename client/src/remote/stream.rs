//! The socket of a data connection. A reader that waits on it checks regularly for cancellation.

use std::{
    io::{self, IoSliceMut, Read, Write},
    net::{Shutdown, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use larder_base::limits;
use larder_extent::fork_count;

use crate::{
    deadline::{CancelToken, Deadline},
    process,
};

/// A socket with limits on waiting: [`limits::OWNER_SILENT_TIMEOUT`] for a silent peer, and a
/// longer time for a peer that sends no rows. Cancelling the call also ends the wait.
pub(super) struct Stream {
    socket: TcpStream,
    /// The deadline of the current call.
    deadline: Deadline,
    /// How long that call may go without progress.
    longest: Duration,
    /// The [`fork_count`] of the process that created it.
    forks: u32,
}

impl Stream {
    /// Prepares the socket for a HELLO.
    pub(super) fn new(socket: TcpStream, cancel: &CancelToken) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(limits::CANCEL_CHECK_INTERVAL))?;
        socket.set_write_timeout(Some(limits::CANCEL_CHECK_INTERVAL))?;
        let longest = limits::HANDSHAKE_TIMEOUT;
        let deadline = Deadline::new(longest, cancel);
        Ok(Self { socket, deadline, longest, forks: fork_count() })
    }

    /// Serves another call, which may go without progress for `longest`.
    pub(super) fn serve(&mut self, cancel: &CancelToken, longest: Duration) {
        self.deadline = Deadline::new(longest, cancel);
        self.longest = longest;
    }

    /// Forgets the call's token. What it watches may own this connection.
    pub(super) fn rest(&mut self) {
        self.serve(&CancelToken::never(), self.longest);
    }

    /// Notes progress of the call, which extends its deadline.
    pub(super) fn progress(&mut self) {
        self.deadline = Deadline::new(self.longest, self.deadline.cancel());
    }

    /// Retries a step after a timeout. A step that times out has moved no byte.
    fn patiently<T>(
        &mut self,
        mut step: impl FnMut(&mut TcpStream) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut silent_at = None;
        loop {
            if self.deadline.cancel().is_cancelled() {
                return Err(io::Error::other("the call was cancelled"));
            }
            if self.deadline.left().is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let error = match step(&mut self.socket) {
                Err(error) if is_timeout(&error) => error,
                done => return done,
            };
            let (now, rest) =
                (process::now(), limits::OWNER_SILENT_TIMEOUT - limits::CANCEL_CHECK_INTERVAL);
            if now >= *silent_at.get_or_insert(now + rest) {
                return Err(error);
            }
        }
    }
}

/// Shuts the connection down, because forked children hold copies of the descriptor: a plain close
/// would tell the peer nothing until the last copy is closed. A child that drops its own copy
/// leaves the parent's connection alone.
impl Drop for Stream {
    fn drop(&mut self) {
        if self.forks == fork_count() {
            // Fails if the peer was faster. The connection is over either way.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.patiently(|socket| socket.read(into))
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.patiently(|socket| socket.read_vectored(into))
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.patiently(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Both ends of a connection without traffic.
    fn silent(cancel: &CancelToken) -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Stream::new(near, cancel).unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn silent_peer_times_out_after_the_silence_limit() {
        let (mut stream, _peer) = silent(&CancelToken::never());
        let before = process::now();
        let error = stream.read(&mut [0; 8]).unwrap_err();
        assert!(is_timeout(&error), "{error}");
        assert!(process::now() - before >= limits::OWNER_SILENT_TIMEOUT);
    }

    #[test]
    fn drop_closes_connection_while_a_child_holds_the_descriptor() {
        let (stream, mut peer) = silent(&CancelToken::never());
        let _of_a_child = stream.socket.try_clone().unwrap();
        drop(stream);
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn cancelled_read_fails_but_not_as_a_timeout() {
        let cancel = CancelToken::new();
        let (mut stream, mut peer) = silent(&CancelToken::never());
        stream.serve(&cancel, HOUR);
        peer.write_all(b"1").unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 1);
        thread::scope(|scope| {
            let reading = scope.spawn(move || stream.read(&mut [0; 8]).unwrap_err().kind());
            cancel.cancel();
            assert_eq!(reading.join().unwrap(), io::ErrorKind::Other);
        });
    }

    #[test]
    fn stalled_or_cancelled_call_ends_while_bytes_still_arrive() {
        let cancel = CancelToken::new();
        let (mut stream, mut peer) = silent(&CancelToken::never());
        peer.write_all(b"123").unwrap();
        let read = |stream: &mut Stream| stream.read(&mut [0]).map_err(|error| error.kind());
        stream.serve(&cancel, HOUR);
        assert_eq!(read(&mut stream), Ok(1));
        stream.deadline = Deadline::new(Duration::ZERO, &cancel);
        assert_eq!(read(&mut stream), Err(io::ErrorKind::TimedOut));
        stream.progress();
        assert_eq!(read(&mut stream), Ok(1));
        cancel.cancel();
        assert_eq!(read(&mut stream), Err(io::ErrorKind::Other));
    }
}
