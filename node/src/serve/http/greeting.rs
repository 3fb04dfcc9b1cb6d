//! Bounds the time of a control connection's first bytes.
//!
//! HTTP/1 has a limit on the time of a request's header, but HTTP/2 has none on its handshake. A
//! client that sends half of the preface, or all of it without SETTINGS, could hold a connection
//! for nothing. So the socket itself watches incoming bytes until the handshake is complete. HTTP
//! bounds what follows.
//!
//! Thread rule: one task reads. Non-goal: understanding HTTP beyond its first frame.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::allowance::Share;

/// The first bytes of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length (24 bits), type, flags and stream of an HTTP/2 frame.
const FRAME_HEADER_BYTES: usize = 9;

/// How much of its handshake a client has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    /// So many bytes of the preface.
    Preface(usize),
    /// So many bytes of the first frame's header, and the length read so far.
    FrameHeader(usize, usize),
    /// So many bytes of that frame are missing.
    Frame(usize),
    /// Complete, or the client speaks HTTP/1.
    Complete,
}

impl Greeting {
    /// Advances by the received bytes.
    fn take(mut self, mut bytes: &[u8]) -> Self {
        while let (false, Some(&byte)) = (self == Self::Complete, bytes.first()) {
            let passed = if let Self::Frame(left) = self { left.min(bytes.len()) } else { 1 };
            self = self.after(byte, passed);
            bytes = &bytes[passed..];
        }
        self
    }

    /// Advances by `byte`, or by `passed` bytes of the frame.
    fn after(self, byte: u8, passed: usize) -> Self {
        match self {
            Self::Preface(count) if byte != PREFACE[count] => Self::Complete,
            Self::Preface(count) if count + 1 == PREFACE.len() => Self::FrameHeader(0, 0),
            Self::Preface(count) => Self::Preface(count + 1),
            Self::FrameHeader(count, length) => {
                let length = if count < 3 { length << 8 | usize::from(byte) } else { length };
                match count + 1 {
                    FRAME_HEADER_BYTES => Self::Frame(length).or_complete(),
                    count => Self::FrameHeader(count, length),
                }
            }
            Self::Frame(left) => Self::Frame(left - passed).or_complete(),
            Self::Complete => self,
        }
    }

    fn or_complete(self) -> Self {
        if self == Self::Frame(0) { Self::Complete } else { self }
    }
}

/// A socket that requires a handshake in time, and charges for what comes in.
#[derive(Debug)]
pub(super) struct Greeted {
    stream: TcpStream,
    share: Arc<Share>,
    greeting: Greeting,
    deadline: Pin<Box<Sleep>>,
}

impl Greeted {
    /// Creates the socket. Reading fails if the handshake is not complete `within` this time.
    pub(super) fn new(stream: TcpStream, share: Arc<Share>, within: Duration) -> Self {
        let deadline = Box::pin(tokio::time::sleep(within));
        Self { stream, share, greeting: Greeting::Preface(0), deadline }
    }
}

impl AsyncRead for Greeted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let received = buffer.filled().len() - before;
        if received > 0 && self.share.received(received).is_err() {
            let why = "there is no room for what the client sends";
            return Poll::Ready(Err(io::Error::new(ErrorKind::OutOfMemory, why)));
        }
        if self.greeting == Greeting::Complete {
            return read;
        }
        self.greeting = self.greeting.take(&buffer.filled()[before..]);
        let waits = self.greeting != Greeting::Complete;
        if waits && self.deadline.as_mut().poll(context).is_ready() {
            let why = "the client did not complete its greeting in time";
            return Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, why)));
        }
        read
    }
}

impl AsyncWrite for Greeted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a preface and a SETTINGS frame of two settings.
    fn http2() -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        bytes.extend([0, 0, 12, 4, 0, 0, 0, 0, 0]);
        bytes.extend([0; 12]);
        bytes
    }

    #[test]
    fn http2_greeting_ends_with_the_last_byte_of_the_first_frame() {
        let bytes = http2();
        for cut in 0..bytes.len() {
            let begun = Greeting::Preface(0).take(&bytes[..cut]);
            assert_ne!(begun, Greeting::Complete, "after {cut} bytes");
            assert_eq!(begun.take(&bytes[cut..]), Greeting::Complete);
        }
        let one_by_one = bytes.iter().fold(Greeting::Preface(0), |greeting, &byte| {
            assert_ne!(greeting, Greeting::Complete);
            greeting.take(&[byte])
        });
        assert_eq!(one_by_one, Greeting::Complete);
        assert_eq!(Greeting::Preface(0).take(&[PREFACE, &[0; 9]].concat()), Greeting::Complete);
    }

    #[test]
    fn other_first_bytes_are_passed_to_http1() {
        assert_eq!(Greeting::Preface(0).take(b"GET / HTTP/1.1\r\n"), Greeting::Complete);
        assert_eq!(Greeting::Preface(0).take(b"PRI * HTTP/1"), Greeting::Complete);
        assert_eq!(Greeting::Preface(0).take(b"PRI * HTTP/"), Greeting::Preface(11));
    }
}
