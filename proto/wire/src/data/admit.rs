//! Frames by which the processes of one user share a private node over its unix socket. By the same
//! frames a process finds the control address of any node of its host.

use std::fmt;

use larder_base::{Ticket, head, limits};

use super::{Kind, WireError, codec, header};

/// ADMIT: adds a prefix that may be read, too. Answered by ADMITTED or ERROR: only a node that was
/// started to take prefixes from its owner accepts one.
///
/// ```text
/// offset width
///      0     4  length of the address
///      4     -  address of the prefix, utf-8, at most 4096 bytes; empty: only asks for the node's
///               address
///      -     -  the program's variables that concern stores, each `NAME=VALUE` and a zero byte, at
///               most 64 KiB; empty: the node keeps to its own
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Admit {
    /// The prefix: `s3://bucket/data`. Empty to ask only for the node's address.
    pub prefix: String,
    /// The program's variables, as a block. They may have secrets.
    pub variables: Vec<u8>,
}

impl fmt::Debug for Admit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admit").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Admit {
    /// Appends the frame. Cuts an address that is too long, so the caller must check it.
    ///
    /// # Panics
    /// If there are more variables than an ADMIT has room for.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let room = Kind::Admit.body_bytes_max() - limits::VARIABLES_BYTES_MAX - 4;
        let prefix = head(&self.prefix, room);
        assert!(self.variables.len() <= limits::VARIABLES_BYTES_MAX as usize, "checked by callers");
        header::frame(Kind::Admit, request, 0, out, |body| {
            codec::put_u32s(body, &[u32::try_from(prefix.len()).expect("at most 4 KiB")]);
            body.extend_from_slice(prefix.as_bytes());
            body.extend_from_slice(&self.variables);
        });
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::Admit, body);
        let length = fields.u32()? as usize;
        let prefix = fields.bytes(length)?;
        let prefix = str::from_utf8(prefix).map_err(|_| fields.malformed("text is not utf-8"))?;
        let variables = fields.rest();
        if length > limits::URI_BYTES_MAX {
            return Err(fields.malformed("its address is too long"));
        }
        if variables.len() > limits::VARIABLES_BYTES_MAX as usize {
            return Err(fields.malformed("it has too many variables"));
        }
        Ok(Self { prefix: prefix.to_owned(), variables: variables.to_vec() })
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
///     40     4  the identity of these variables, for OPEN_DATASET
///     44     -  control address, utf-8: `http://host:port`, at most 272 bytes
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
    /// The number that the node gave to the variables.
    pub identity: u32,
    /// The address of its control plane.
    pub control: String,
}

const FIXED_BYTES: u32 = 16 + 8 + 5 * 4;
const _: () =
    assert!(FIXED_BYTES + limits::CONTROL_ADDRESS_BYTES_MAX == Kind::Admitted.body_bytes_max());

impl Admitted {
    /// Appends the frame.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let control = head(&self.control, limits::CONTROL_ADDRESS_BYTES_MAX);
        header::frame(Kind::Admitted, request, 0, out, |body| {
            body.extend_from_slice(self.ticket.as_bytes());
            body.extend_from_slice(&self.memory_bytes.to_le_bytes());
            let spans = [self.uptime_seconds, self.linger_seconds];
            codec::put_u32s(body, &[self.pid, self.memory_percent, spans[0], spans[1]]);
            codec::put_u32s(body, &[self.identity]);
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
            identity: fields.u32()?,
            control: fields.text()?,
        })
    }
}
