//! Frames by which the processes of one user share a private node over its unix socket, and by which
//! a process of a host finds the control address of any node behind its socket.

use larder_base::{Ticket, head, limits};

use super::{Kind, WireError, codec, header};

/// ADMIT: adds a prefix that may be read, too. Answered by ADMITTED or ERROR: only a node that was
/// started to take prefixes from its owner accepts one.
///
/// ```text
/// offset width
///      0     -  address of the prefix, utf-8, at most 4096 bytes; empty: only asks for the node's
///               address
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admit {
    /// The prefix: `s3://bucket/data`. Empty to ask only for the node's address.
    pub prefix: String,
}

impl Admit {
    /// Appends the frame. Cuts an address that is too long, so the caller must check it.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let prefix = head(&self.prefix, Kind::Admit.body_bytes_max());
        header::frame(Kind::Admit, request, 0, out, |body| {
            body.extend_from_slice(prefix.as_bytes());
        });
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::Admit, body);
        Ok(Self { prefix: fields.text()? })
    }
}

/// ADMITTED: the prefix is accepted, and this is the node's address.
///
/// ```text
/// offset width
///      0    16  ticket: to be shown with every control call
///     16     8  memory for shards in bytes
///     24     4  process id of the node, as it sees itself
///     28     4  memory_percent
///     32     4  uptime in seconds
///     36     4  linger in seconds
///     40     -  control address, utf-8: `http://host:port`, at most 272 bytes
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The right to make control calls.
    pub ticket: Ticket,
    /// Memory the node may use for shards.
    pub memory_bytes: u64,
    /// The node's process id as it sees itself.
    pub pid: u32,
    /// The share of the available memory that it was started with. 0 if it was a number of bytes.
    pub memory_percent: u32,
    /// How long it has run.
    pub uptime_seconds: u32,
    /// How long it stays without users.
    pub linger_seconds: u32,
    /// The address of its control plane.
    pub control: String,
}

const FIXED_BYTES: u32 = 16 + 8 + 4 + 4 + 4 + 4;
const _: () =
    assert!(FIXED_BYTES + limits::CONTROL_ADDRESS_BYTES_MAX == Kind::Admitted.body_bytes_max());

impl Admitted {
    /// Appends the frame.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let control = head(&self.control, limits::CONTROL_ADDRESS_BYTES_MAX);
        header::frame(Kind::Admitted, request, 0, out, |body| {
            body.extend_from_slice(self.ticket.as_bytes());
            body.extend_from_slice(&self.memory_bytes.to_le_bytes());
            let numbers = [self.pid, self.memory_percent, self.uptime_seconds, self.linger_seconds];
            codec::put_u32s(body, &numbers);
            body.extend_from_slice(control.as_bytes());
        });
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::Admitted, body);
        let ticket = Ticket::from_bytes(fields.array()?);
        Ok(Self {
            ticket,
            memory_bytes: fields.u64()?,
            pid: fields.u32()?,
            memory_percent: fields.u32()?,
            uptime_seconds: fields.u32()?,
            linger_seconds: fields.u32()?,
            control: fields.text()?,
        })
    }
}
