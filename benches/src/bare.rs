//! The baseline of every remote figure: a bare TCP row server in its own process.
//!
//! It has one matrix of equal rows in memory. A request is `count: u32` and `count` row ids (u32).
//! The answer is those rows back to back, with no header, no checksum and no lookup. Large rows go
//! out by vectored writes without a copy. Rows under 8 KiB are first copied into one piece, which
//! was faster. So this is close to the best that plain sockets can do for the same bytes.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::matrix::Matrix;

/// Rows up to this size are copied together before they are sent.
const STAGED_ROW_BYTES_MAX: usize = 8 << 10;
/// Slices in one vectored write: the kernel's own limit is 1,024.
const SLICES_PER_WRITE: usize = 512;
/// The most rows of a request in any benchmark.
const ROWS_PER_REQUEST_MAX: usize = 1 << 16;

/// Serves a matrix, with a thread for each client. Prints its address first. Ends the process when
/// standard input closes.
pub(crate) fn serve(matrix: &Matrix) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    crate::net::use_loss_based_congestion(&listener);
    println!("{}", listener.local_addr()?);
    io::stdout().flush()?;
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            let stream = stream?;
            scope.spawn(|| serve_one(stream, matrix));
        }
        Ok(())
    })
}

fn serve_one(stream: TcpStream, matrix: &Matrix) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut requests = BufReader::with_capacity(1 << 18, stream.try_clone()?);
    let mut stream = stream;
    let mut ids = Vec::new();
    let mut staging = Vec::new();
    while let Some(count) = read_count(&mut requests)? {
        ids.resize(count * 4, 0);
        requests.read_exact(&mut ids)?;
        let wanted: Vec<&[u8]> =
            ids.as_chunks::<4>().0.iter().map(|id| matrix.row(u32::from_le_bytes(*id))).collect();
        if matrix.row_bytes() < STAGED_ROW_BYTES_MAX {
            send_staged(&mut stream, &wanted, &mut staging)?;
        } else {
            send_in_place(&mut stream, &wanted)?;
        }
    }
    Ok(())
}

fn read_count(requests: &mut impl Read) -> io::Result<Option<usize>> {
    let mut count = [0; 4];
    match requests.read_exact(&mut count) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let count = u32::from_le_bytes(count) as usize;
    if count > ROWS_PER_REQUEST_MAX {
        return Err(io::Error::other(format!("{count} rows in one request")));
    }
    Ok(Some(count))
}

fn send_staged(stream: &mut TcpStream, rows: &[&[u8]], staging: &mut Vec<u8>) -> io::Result<()> {
    const PIECE_BYTES: usize = 256 << 10;
    for row in rows {
        staging.extend_from_slice(row);
        if staging.len() >= PIECE_BYTES {
            stream.write_all(staging)?;
            staging.clear();
        }
    }
    stream.write_all(staging)?;
    staging.clear();
    Ok(())
}

fn send_in_place(stream: &mut TcpStream, rows: &[&[u8]]) -> io::Result<()> {
    for rows in rows.chunks(SLICES_PER_WRITE) {
        let mut slices: Vec<IoSlice<'_>> = rows.iter().map(|row| IoSlice::new(row)).collect();
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            let sent = stream.write_vectored(rest)?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, sent);
        }
    }
    Ok(())
}

/// The client's end.
pub(crate) struct BareClient {
    stream: TcpStream,
    request: Vec<u8>,
}

impl BareClient {
    /// Connects to a server that printed `address`.
    pub(crate) fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: Vec::new() })
    }

    /// Sends a request. Two requests may be outstanding.
    pub(crate) fn ask(&mut self, ids: &[u32]) -> io::Result<()> {
        self.request.clear();
        let count = u32::try_from(ids.len()).map_err(io::Error::other)?;
        self.request.extend_from_slice(&count.to_le_bytes());
        self.request.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
        self.stream.write_all(&self.request)
    }

    /// Receives the rows of the oldest request into `out`.
    pub(crate) fn receive(&mut self, out: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(out)
    }
}
