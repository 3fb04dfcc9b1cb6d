//! One data connection to a peer: HELLO, then one part after the other.

use std::io;
use std::time::Duration;

use larder_base::{Error, ErrorKind, Ticket, limits};
use larder_extent::crc::Crc32c;
use larder_wire::data::{
    ErrorReply, FRAME_HEADER_BYTES, FrameHeader, Hello, HelloOk, Kind, Part, ReadPart, WireError,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time;

use crate::fill::ByteSink;

/// Payload received at a time. It is hashed and handed on while it is in the second-level cache.
const PIECE_BYTES: usize = 256 << 10;

/// Why a peer did not give the requested bytes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Missed {
    /// It does not have the shard.
    #[error("it does not have the shard")]
    NotThere,
    /// It does not know this node any more: it was restarted.
    #[error("it does not know this node any more")]
    Stranger,
    /// It says nothing: it hangs, or messages to it get lost.
    #[error("it is silent")]
    Silent,
    /// It can't be reached, or its answer is malformed.
    #[error("it can't be asked: {0}")]
    Away(String),
    /// Its bytes failed a check.
    #[error("it gave wrong bytes: {0}")]
    Wrong(String),
}

impl From<io::Error> for Missed {
    fn from(why: io::Error) -> Self {
        Self::Away(why.to_string())
    }
}

impl From<WireError> for Missed {
    fn from(why: WireError) -> Self {
        Self::Away(why.to_string())
    }
}

impl From<Error> for Missed {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::NotThere,
            ErrorKind::Unauthenticated => Self::Stranger,
            _ => Self::Away(error.to_string()),
        }
    }
}

/// A socket after its HELLO.
#[derive(Debug)]
pub(super) struct PeerConnection {
    stream: TcpStream,
    /// How long the peer may stay silent before it answers. It gives only shards in its memory.
    pub(super) patience: Duration,
    request: u64,
    frame: Vec<u8>,
    body: Vec<u8>,
    /// Payload on its way to a target.
    piece: Vec<u8>,
}

impl PeerConnection {
    /// Connects to `address` as node `own_id`. Returns the answer of the node there as well.
    pub(super) async fn open(
        address: &str,
        ticket: Ticket,
        own_id: &str,
        patience: Duration,
    ) -> Result<(Self, HelloOk), Missed> {
        let connecting = TcpStream::connect(address);
        let stream = time::timeout(limits::CONNECT_TIMEOUT, connecting).await;
        let stream = stream.map_err(|_| Missed::Silent)??;
        stream.set_nodelay(true)?;
        let (frame, body, piece) = (Vec::new(), Vec::new(), Vec::new());
        let mut connection = Self { stream, patience, request: 0, frame, body, piece };
        let hello = Hello::new(ticket, std::process::id(), format!("node {own_id}"));
        hello.encode(connection.request, &mut connection.frame);
        connection.send().await?;
        let header = connection.header().await?;
        match header.kind() {
            Kind::HelloOk => {
                let ok = HelloOk::decode(&connection.body)?;
                ok.check(&hello).map_err(|why| Missed::Away(why.to_string()))?;
                Ok((connection, ok))
            }
            _ => Err(connection.refusal(&header, "HELLO_OK")),
        }
    }

    /// Asks for a part and fills `target` with it. After an error other than [`Missed::NotThere`]
    /// the connection is in the middle of an answer and can't be used again.
    pub(super) async fn read(
        &mut self,
        wanted: &ReadPart,
        target: &mut impl ByteSink,
    ) -> Result<Part, Missed> {
        self.request += 1;
        wanted.encode(self.request, &mut self.frame);
        self.send().await?;
        let header = self.header().await?;
        if header.kind() != Kind::Part {
            return Err(self.refusal(&header, "PART"));
        }
        let part = Part::decode(&header, &self.body, wanted.bytes)?;
        let found = self.receive(wanted.bytes, target).await?;
        if found == part.crc32c {
            return Ok(part);
        }
        let why = format!("its bytes have checksum {found:08x}, not {:08x}", part.crc32c);
        Err(Missed::Wrong(why))
    }

    /// Passes payload on piece by piece. Returns its checksum.
    async fn receive(&mut self, bytes: u32, target: &mut impl ByteSink) -> Result<u32, Missed> {
        target.begin();
        let (mut left, mut crc) = (bytes as usize, Crc32c::new());
        while left > 0 {
            self.piece.resize(left.min(PIECE_BYTES), 0);
            self.stream.read_exact(&mut self.piece).await?;
            crc.update(&self.piece);
            target.put(&self.piece)?;
            left -= self.piece.len();
        }
        Ok(crc.finish())
    }

    async fn send(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.frame).await;
        self.frame.clear();
        sent
    }

    /// Reads the header of the next frame, and its body into `self.body`.
    async fn header(&mut self) -> Result<FrameHeader, Missed> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        let first = self.stream.read_exact(&mut bytes);
        time::timeout(self.patience, first).await.map_err(|_| Missed::Silent)??;
        let header = FrameHeader::parse(&bytes)?;
        self.body.clear();
        self.body.resize(header.body_len(), 0);
        self.stream.read_exact(&mut self.body).await?;
        header.check(&self.body)?;
        Ok(header)
    }

    fn refusal(&self, header: &FrameHeader, expected: &'static str) -> Missed {
        if header.kind() != Kind::Error {
            return WireError::Unexpected { found: header.kind(), expected }.into();
        }
        match ErrorReply::decode(&self.body) {
            Ok(reply) => Missed::from(reply.error),
            Err(error) => error.into(),
        }
    }
}
