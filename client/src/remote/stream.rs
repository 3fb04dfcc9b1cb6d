//! The socket of a data connection: whoever waits on it looks up now and then whether the answer is
//! still needed.

use std::{
    io::{self, IoSliceMut, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
};

use larder_wire::limits;

use crate::{patience::CancelToken, process};

/// A socket on which a peer may be silent for [`limits::OWNER_SILENT_TIMEOUT`], unless the call that
/// uses it is cancelled before.
pub(super) struct Stream {
    socket: TcpStream,
    /// Of the call that uses it now, or that did last.
    cancel: CancelToken,
}

impl Stream {
    pub(super) fn new(socket: TcpStream, cancel: CancelToken) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(limits::CANCEL_CHECK_INTERVAL))?;
        socket.set_write_timeout(Some(limits::CANCEL_CHECK_INTERVAL))?;
        Ok(Self { socket, cancel })
    }

    /// From now on it serves another call.
    pub(super) fn serve(&mut self, cancel: &CancelToken) {
        self.cancel.clone_from(cancel);
    }

    /// Goes on with what times out, which has moved no byte then.
    fn patiently<T>(
        &mut self,
        mut step: impl FnMut(&mut TcpStream) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut silent_at = None;
        loop {
            let error = match step(&mut self.socket) {
                Err(error) if is_timeout(&error) => error,
                done => return done,
            };
            if self.cancel.is_cancelled() {
                return Err(io::Error::other("nobody needs the answer any more"));
            }
            // The clock is read only where there was time for it.
            let (now, rest) =
                (process::now(), limits::OWNER_SILENT_TIMEOUT - limits::CANCEL_CHECK_INTERVAL);
            if now >= *silent_at.get_or_insert(now + rest) {
                return Err(error);
            }
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

    /// Both ends of a connection, over which nothing is sent.
    fn silent(cancel: CancelToken) -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Stream::new(near, cancel).unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn a_peer_may_be_silent_for_a_while_and_no_longer() {
        let (mut stream, _peer) = silent(CancelToken::never());
        let before = process::now();
        let error = stream.read(&mut [0; 8]).unwrap_err();
        assert!(is_timeout(&error), "{error}");
        assert!(process::now() - before >= limits::OWNER_SILENT_TIMEOUT);
    }

    #[test]
    fn a_wait_ends_when_it_is_cancelled_as_something_else_than_silence() {
        let cancel = CancelToken::new();
        let (mut stream, mut peer) = silent(CancelToken::never());
        stream.serve(&cancel);
        thread::scope(|scope| {
            let reading = scope.spawn(move || {
                let first = stream.read(&mut [0; 8]).map_err(|error| error.kind());
                (first, stream.read(&mut [0; 8]).map_err(|error| error.kind()))
            });
            peer.write_all(b"1").unwrap();
            cancel.cancel();
            assert_eq!(reading.join().unwrap(), (Ok(1), Err(io::ErrorKind::Other)));
        });
    }
}
