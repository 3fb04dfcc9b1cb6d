//! A stranger at a node's ports sends bytes of its own making, from an address of its own.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// The stranger's address. Friends use 127.0.0.1.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How long a stranger writes at most: a node may take nothing.
const PATIENCE: Duration = Duration::from_millis(300);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The types of HTTP/2 frames.
pub mod frame {
    /// A piece of a body.
    pub const DATA: u8 = 0;
    /// The head of a request.
    pub const HEADERS: u8 = 1;
    /// The end of a stream.
    pub const RST_STREAM: u8 = 3;
    /// Settings.
    pub const SETTINGS: u8 = 4;
    /// More room for answers.
    pub const WINDOW_UPDATE: u8 = 8;
    /// More of the head of a request.
    pub const CONTINUATION: u8 = 9;
}

/// The flags of HTTP/2 frames.
pub mod flag {
    /// The request ends here; of SETTINGS, an answer.
    pub const END_STREAM: u8 = 1;
    /// The head ends here.
    pub const END_HEADERS: u8 = 4;
}

/// Connects from an address of this host.
///
/// # Errors
/// The system's.
pub fn connect(from: Ipv4Addr, to: &str) -> io::Result<TcpStream> {
    let to: SocketAddr = to.parse().map_err(io::Error::other)?;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), Duration::from_secs(5))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket.into())
}

/// A connection of HTTP/2 that reads nothing.
pub struct Http2(TcpStream);

impl Http2 {
    /// Connects, and allows the node to send as much as it likes.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(to: &str) -> io::Result<Self> {
        let mut this = Self(connect(ADDRESS, to)?);
        this.0.write_all(PREFACE)?;
        // INITIAL_WINDOW_SIZE, and the same for the connection.
        this.send(frame::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff])?;
        this.send(frame::WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes())?;
        this.send(frame::SETTINGS, flag::END_STREAM, 0, &[])?;
        Ok(this)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The system's, such as that the node closed the connection or takes nothing.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(body);
        self.0.write_all(&frame)
    }

    /// Sends bytes that need be no frame.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Sends the head of a call, without its end.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn begin(&mut self, stream: u32, path: &str) -> io::Result<()> {
        self.send(frame::HEADERS, flag::END_HEADERS, stream, &head(path))
    }

    /// Sends a call and its message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn call(&mut self, stream: u32, path: &str, message: &[u8]) -> io::Result<()> {
        self.begin(stream, path)?;
        let length = u32::try_from(message.len()).map_err(io::Error::other)?.to_be_bytes();
        let body = [&[0][..], &length, message].concat();
        self.send(frame::DATA, flag::END_STREAM, stream, &body)
    }
}

/// The head of a call, in the simplest code.
#[must_use]
pub fn head(path: &str) -> Vec<u8> {
    // POST and http stand in the table of the standard.
    let mut head = vec![0x83, 0x86];
    for (name, value) in [
        (":path", path),
        (":authority", "127.0.0.1"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        head.push(0);
        for text in [name, value] {
            head.push(u8::try_from(text.len()).expect("short names and values"));
            head.extend(text.bytes());
        }
    }
    head
}
