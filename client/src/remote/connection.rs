//! A data connection: HELLO, then one gather after the other.

use std::{
    io::{BufReader, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    process,
    time::Duration,
};

use larder_base::{RowRef, Ticket, limits};
use larder_wire::data::{
    Data, ErrorReply, GatherEnd, GatherParts, Hello, HelloOk, Kind, WireError, read_body,
    read_header,
};

use super::{
    Failure, Job, Progress, Wanted,
    placed::Lengths,
    receive::{Run, receive, receive_row},
    stream::Stream,
};
use crate::{CopyStats, deadline::CancelToken};

/// Bytes read ahead of a frame. One system call then gets the header and most tables, and little
/// payload is copied twice.
const READ_AHEAD_BYTES: usize = 8 << 10;

/// A socket after its HELLO.
pub(crate) struct Connection {
    reader: BufReader<Stream>,
    /// The current or last request.
    request: u64,
    /// A request was answered on it. If a fresh connection fails, the node is at fault. A used
    /// connection may only have outlived its node.
    used: bool,
    /// An answer is outstanding. If it is not read, the place in the stream is lost.
    busy: bool,
    frame: Vec<u8>,
    body: Vec<u8>,
    data: Data,
    staging: Vec<u8>,
}

/// The contents of a frame.
#[derive(Debug)]
pub(crate) enum Received {
    /// A sign of life.
    Alive,
    /// Rows, now in the batch.
    Rows,
    /// The request is complete.
    End(GatherEnd),
}

impl Connection {
    /// Connects to one of `addresses` and shows the ticket.
    pub(crate) fn open(
        addresses: &[SocketAddr],
        ticket: Ticket,
        cancel: &CancelToken,
    ) -> Result<(Self, HelloOk), Failure> {
        let stream = Stream::new(connect(addresses)?, cancel);
        let stream = stream.map_err(|error| Failure::from_io(&error))?;
        let mut connection = Self {
            reader: BufReader::with_capacity(READ_AHEAD_BYTES, stream),
            request: 0,
            used: false,
            busy: false,
            frame: Vec::new(),
            body: Vec::new(),
            data: Data::default(),
            staging: Vec::new(),
        };
        let ok = connection.hello(&Hello::new(ticket, process::id(), client_name()))?;
        Ok((connection, ok))
    }

    fn hello(&mut self, hello: &Hello) -> Result<HelloOk, Failure> {
        hello.encode(self.request, &mut self.frame);
        self.send()?;
        let header = read_header(&mut self.reader)?;
        read_body(&mut self.reader, &header, &mut self.body)?;
        match header.kind() {
            Kind::HelloOk => {
                let ok = HelloOk::decode(&self.body)?;
                ok.check(hello)?;
                Ok(ok)
            }
            Kind::Error => Err(ErrorReply::decode(&self.body)?.error.into()),
            found => Err(WireError::Unexpected { found, expected: "HELLO_OK" }.into()),
        }
    }

    /// Requests the rows of a job. The wait for an answer ends if the call is cancelled, or if no
    /// rows arrive for `longest`.
    pub(crate) fn ask(
        &mut self,
        wanted: &Wanted<'_, '_>,
        job: &Job,
        cancel: &CancelToken,
        longest: Duration,
    ) -> Result<(), Failure> {
        self.request += 1;
        self.busy = true;
        self.reader.get_mut().serve(cancel, longest);
        let rows: Vec<RowRef> = job.at.iter().map(|&at| wanted.rows[at as usize]).collect();
        let gather = GatherParts {
            snapshot: wanted.snapshot,
            ring_version: wanted.ring_version,
            tensors: &wanted.tensors[job.slots.clone()],
            rows: &rows,
            verify: job.verify,
        };
        gather.encode(self.request, &mut self.frame);
        self.send()
    }

    fn send(&mut self) -> Result<(), Failure> {
        let sent = self.reader.get_mut().write_all(&self.frame);
        self.frame.clear();
        sent.map_err(|error| Failure::from_io(&error))
    }

    /// Receives one frame of the answer. `progress` counts the received rows, even those before a
    /// damaged one.
    pub(crate) fn receive(
        &mut self,
        job: &Job,
        progress: &mut Progress,
        wanted: &mut Wanted<'_, '_>,
    ) -> Result<Received, Failure> {
        let header = read_header(&mut self.reader)?;
        read_body(&mut self.reader, &header, &mut self.body)?;
        if header.kind() == Kind::Pong {
            return Ok(Received::Alive);
        }
        if header.request() != self.request {
            let why = format!("an answer to request {} came to {}", header.request(), self.request);
            return Err(Failure::Protocol(why));
        }
        match header.kind() {
            Kind::Data => {
                self.data.decode_into(&header, &self.body)?;
                let received = self.receive_rows(job, progress, wanted);
                received.map_err(|failure| match failure {
                    // The rows before it count as received.
                    Failure::Corrupt { .. } => {
                        let slot = job.slots.start + progress.slots;
                        Failure::Corrupt { slot, row: progress.rows }
                    }
                    other => other,
                })?;
                self.reader.get_mut().progress();
                Ok(Received::Rows)
            }
            Kind::GatherEnd if job.is_complete(*progress) => {
                let end = GatherEnd::decode(&self.body)?;
                (self.used, self.busy) = (true, false);
                Ok(Received::End(end))
            }
            Kind::GatherEnd => {
                Err(Failure::Protocol("it ends before all rows were sent".to_owned()))
            }
            Kind::Error => {
                let reply = ErrorReply::decode(&self.body)?;
                (self.used, self.busy) = (true, false);
                Err(reply.error.into())
            }
            found => Err(WireError::Unexpected { found, expected: "DATA or GATHER_END" }.into()),
        }
    }

    fn receive_rows(
        &mut self,
        job: &Job,
        progress: &mut Progress,
        wanted: &mut Wanted<'_, '_>,
    ) -> Result<(), Failure> {
        self.is_in_turn(job, *progress)?;
        if let Some(offset) = self.data.piece() {
            return self.receive_piece(job, progress, wanted, offset as usize);
        }
        let batch = &mut wanted.batch;
        self.is_whole(job, *progress, batch.lengths)?;
        let slot = job.slots.start + progress.slots;
        let (at, crcs) = (&job.at[self.data.rows()], self.data.crcs());
        let (out, lengths) = (&mut *batch.out[slot], batch.lengths[slot]);
        let (run, mut done) = (Run { at, crcs, lengths }, 0);
        let received = receive(&mut self.reader, &run, out, &mut self.staging, &mut done);
        job.advance(progress, done);
        wanted.copies += CopyStats::remote(lengths.sum(&at[..done]) as u64, run.copies());
        received
    }

    /// Receives the next bytes of a row sent in pieces.
    fn receive_piece(
        &mut self,
        job: &Job,
        progress: &mut Progress,
        wanted: &mut Wanted<'_, '_>,
        offset: usize,
    ) -> Result<(), Failure> {
        let (slot, row) = (job.slots.start + progress.slots, progress.rows);
        let place = wanted.batch.lengths[slot].range(job.at[row]);
        let bytes = usize::try_from(self.data.payload_bytes()).unwrap_or(usize::MAX);
        let due = &mut wanted.batch.out[slot][place.clone()][progress.bytes..];
        if offset != progress.bytes || bytes > due.len() {
            let (row_bytes, due) = (place.len(), progress.bytes);
            let why = format!(
                "{bytes} bytes from byte {offset} on of a row of {row_bytes} came where byte {due} was due"
            );
            return Err(Failure::Protocol(why));
        }
        receive_row(&mut self.reader, &mut due[..bytes], self.data.crcs()[0])?;
        job.advance_within(progress, bytes, place.len());
        wanted.copies += CopyStats::remote(bytes as u64, 1);
        Ok(())
    }

    /// Checks that the announced run is the next one of the job.
    fn is_in_turn(&self, job: &Job, progress: Progress) -> Result<(), Failure> {
        let (slot, rows) = (usize::from(self.data.tensor_slot()), self.data.rows());
        let in_turn = !job.is_complete(progress)
            && slot == progress.slots
            && rows.start == progress.rows
            && rows.end <= job.at.len();
        if in_turn {
            return Ok(());
        }
        let why = format!(
            "rows {}..{} of slot {slot} came where row {} of slot {} was due",
            rows.start, rows.end, progress.rows, progress.slots
        );
        Err(Failure::Protocol(why))
    }

    /// Checks that the bytes of a run fit its rows, and that no piece of them was received.
    fn is_whole(
        &self,
        job: &Job,
        progress: Progress,
        lengths: &[Lengths<'_>],
    ) -> Result<(), Failure> {
        let rows = self.data.rows();
        let lengths = lengths[job.slots.start + progress.slots];
        let expected = lengths.sum(&job.at[rows.clone()]) as u64;
        let in_length = match lengths {
            Lengths::Even(_) => !self.data.is_ragged(),
            Lengths::Ragged(_) => {
                let bytes = job.at[rows.clone()].iter().map(|&at| lengths.range(at).len() as u64);
                self.data.is_ragged()
                    && bytes.enumerate().all(|(row, bytes)| self.data.row_bytes(row) == bytes)
            }
        };
        let is_begun = progress.bytes > 0;
        if is_begun || !in_length || self.data.payload_bytes() != expected {
            let (rows, bytes) = (rows.len(), self.data.payload_bytes());
            let why = format!("{rows} rows came as {bytes} bytes, they are {expected}, row by row");
            return Err(Failure::Protocol(why));
        }
        Ok(())
    }

    /// Whether received bytes wait to be read as a frame. Polling the socket would miss them.
    pub(crate) fn has_buffered(&self) -> bool {
        !self.reader.buffer().is_empty()
    }

    pub(crate) fn is_used(&self) -> bool {
        self.used
    }

    /// The connection without its call, for the next one. `None` if an answer is outstanding.
    pub(crate) fn idle(mut self) -> Option<Self> {
        self.reader.get_mut().rest();
        (!self.busy).then_some(self)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}

fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, Failure> {
    let mut failure = Failure::Broken("the node has no data address".to_owned());
    for address in addresses {
        match TcpStream::connect_timeout(address, limits::CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = Failure::Unreachable(format!("{address}: {error}")),
        }
    }
    Err(failure)
}

/// The name of this process for nodes. Used only in listings.
pub(crate) fn client_name() -> String {
    let program = std::env::current_exe().ok();
    let name =
        program.as_deref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy());
    format!("{}:{}", name.as_deref().unwrap_or("client"), process::id())
}
