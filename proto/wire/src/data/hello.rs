//! The first frames of a connection: identity, version, features and limits.

use std::ops::RangeInclusive;

use larder_base::{BootId, Error, ErrorKind, Ticket, head, limits};

use super::{Kind, WireError, codec, header};

/// Gathers outstanding on one connection. Two gain 23 % over one, more gain only latency; four
/// leave room for a prefetcher that overlaps batches.
const GATHERS_OUTSTANDING_MAX: u32 = 4;

/// The protocol versions of this build.
pub const PROTOCOL_VERSIONS: RangeInclusive<u16> = 3..=3;

/// Optional parts of the protocol, a bit each. A connection uses those that both sides have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u64);

impl Features {
    /// A PART may state a pause for its receiver.
    pub const RESTS: Self = Self(1);

    /// A row may come in pieces.
    pub const PIECES: Self = Self(2);

    /// The features of this build.
    pub const OWN: Self = Self(Self::RESTS.0 | Self::PIECES.0);

    /// Returns whether all of the other's features are among these.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the features that both have.
    #[must_use]
    pub const fn shared_with(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The most that a side accepts, within the limits of the protocol.
///
/// ```text
/// offset width
///      0     4  payload bytes of a DATA frame of several rows
///      4     4  rows of a gather
///      8     4  gathers outstanding on this connection
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerLimits {
    /// Most payload of a DATA frame of more than one row.
    pub payload_bytes_max: u32,
    /// Most rows of a gather.
    pub gather_rows_max: u32,
    /// Most gathers outstanding on this connection.
    pub gathers_outstanding_max: u32,
}

impl PeerLimits {
    /// The limits of this build.
    pub const OWN: Self = Self {
        payload_bytes_max: limits::DATA_PAYLOAD_BYTES_MAX,
        gather_rows_max: limits::GATHER_ROWS_MAX,
        gathers_outstanding_max: GATHERS_OUTSTANDING_MAX,
    };

    /// Returns the limits that satisfy both.
    #[must_use]
    pub fn shared_with(self, other: Self) -> Self {
        Self {
            payload_bytes_max: self.payload_bytes_max.min(other.payload_bytes_max),
            gather_rows_max: self.gather_rows_max.min(other.gather_rows_max),
            gathers_outstanding_max: self
                .gathers_outstanding_max
                .min(other.gathers_outstanding_max),
        }
    }

    fn put(self, out: &mut Vec<u8>) {
        let values = [self.payload_bytes_max, self.gather_rows_max, self.gathers_outstanding_max];
        codec::put_u32s(out, &values);
    }

    fn take(fields: &mut codec::Fields<'_>) -> Result<Self, WireError> {
        let limits = Self {
            payload_bytes_max: fields.u32()?,
            gather_rows_max: fields.u32()?,
            gathers_outstanding_max: fields.u32()?,
        };
        if limits.payload_bytes_max == 0
            || limits.gather_rows_max == 0
            || limits.gathers_outstanding_max == 0
        {
            return Err(fields.malformed("a limit of zero leaves nothing to say"));
        }
        Ok(limits)
    }
}

/// HELLO: the client's first frame.
///
/// ```text
/// offset width
///      0     2  lowest version spoken
///      2     2  highest version spoken
///      4     2  flags: bit 0 TLS wanted, the others 0
///      6     2  reserved, 0
///      8     8  features
///     16    16  ticket
///     32    12  limits
///     44     4  process id of the client, as it sees itself; 0 if unknown
///     48     -  name of the client, utf-8, at most 256 bytes: for listings only
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The versions spoken.
    pub versions: RangeInclusive<u16>,
    /// Whether the client wants TLS after HELLO_OK. No build offers it yet: a node refuses it
    /// rather than ignore it.
    pub tls: bool,
    /// The optional parts the client has.
    pub features: Features,
    /// The right to read.
    pub ticket: Ticket,
    /// The client's limits.
    pub limits: PeerLimits,
    /// The client's process id as it sees itself, 0 if unknown.
    pub client_pid: u32,
    /// The client's name for listings: job, rank, host.
    pub client_name: String,
}

const TLS: u16 = 1;

impl Hello {
    /// Makes the HELLO of this build.
    pub fn new(ticket: Ticket, client_pid: u32, client_name: impl Into<String>) -> Self {
        Self {
            versions: PROTOCOL_VERSIONS,
            tls: false,
            features: Features::OWN,
            ticket,
            limits: PeerLimits::OWN,
            client_pid,
            client_name: client_name.into(),
        }
    }

    /// Appends the frame. A longer name is cut.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let name = head(&self.client_name, limits::CLIENT_NAME_BYTES_MAX);
        header::frame(Kind::Hello, request, 0, out, |body| {
            body.extend_from_slice(&self.versions.start().to_le_bytes());
            body.extend_from_slice(&self.versions.end().to_le_bytes());
            body.extend_from_slice(&(if self.tls { TLS } else { 0 }).to_le_bytes());
            body.extend_from_slice(&[0; 2]);
            body.extend_from_slice(&self.features.0.to_le_bytes());
            body.extend_from_slice(self.ticket.as_bytes());
            self.limits.put(body);
            body.extend_from_slice(&self.client_pid.to_le_bytes());
            body.extend_from_slice(name.as_bytes());
        });
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::Hello, body);
        let versions = fields.u16()?..=fields.u16()?;
        if versions.is_empty() {
            return Err(fields.malformed("its range of versions is empty"));
        }
        let tls = match fields.u16()? {
            0 => false,
            TLS => true,
            _ => return Err(fields.malformed("reserved bits are set")),
        };
        fields.zero_u16()?;
        Ok(Self {
            versions,
            tls,
            features: Features(fields.u64()?),
            ticket: Ticket::from_bytes(fields.array()?),
            limits: PeerLimits::take(&mut fields)?,
            client_pid: fields.u32()?,
            client_name: fields.text()?,
        })
    }
}

/// HELLO_OK: the version, limits and features for both sides.
///
/// ```text
/// offset width
///      0     2  version
///      2     2  reserved, 0
///      4    12  limits
///     16     8  features
///     24    16  boot id of the node
///     40     8  reserved, 0
///     48     -  node id, utf-8, at most 64 bytes
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelloOk {
    /// The version spoken.
    pub version: u16,
    /// The limits of both.
    pub limits: PeerLimits,
    /// The features of both.
    pub features: Features,
    /// Identifies this start of the node.
    pub boot_id: BootId,
    /// The node's name in the ring.
    pub node_id: String,
}

impl HelloOk {
    /// Makes the node's answer: the highest version, the features and the limits that both have.
    ///
    /// # Errors
    /// [`ErrorKind::VersionMismatch`] if there is no common version, or the client wants TLS, which
    /// this version does not have.
    pub fn answer(hello: &Hello, boot_id: BootId, node_id: &str) -> Result<Self, Error> {
        let (theirs, ours) = (&hello.versions, PROTOCOL_VERSIONS);
        let version = *theirs.end().min(ours.end());
        if !theirs.contains(&version) || !ours.contains(&version) {
            let message = format!(
                "client speaks protocol versions {} to {}, this node {} to {}; update the older side",
                theirs.start(),
                theirs.end(),
                ours.start(),
                ours.end(),
            );
            return Err(Error::new(ErrorKind::VersionMismatch, message));
        }
        if hello.tls {
            let message = "client wants tls on the data plane, which this node does not have";
            return Err(Error::new(ErrorKind::VersionMismatch, message));
        }
        Ok(Self {
            version,
            limits: PeerLimits::OWN.shared_with(hello.limits),
            features: Features::OWN.shared_with(hello.features),
            boot_id,
            node_id: head(node_id, limits::MEMBER_ID_BYTES_MAX).to_owned(),
        })
    }

    /// Appends the frame.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let node_id = head(&self.node_id, limits::MEMBER_ID_BYTES_MAX);
        header::frame(Kind::HelloOk, request, 0, out, |body| {
            body.extend_from_slice(&self.version.to_le_bytes());
            body.extend_from_slice(&[0; 2]);
            self.limits.put(body);
            body.extend_from_slice(&self.features.0.to_le_bytes());
            body.extend_from_slice(self.boot_id.as_bytes());
            body.extend_from_slice(&[0; 8]);
            body.extend_from_slice(node_id.as_bytes());
        });
    }

    /// Decodes a body. The client must check next that version, features and limits are within its
    /// offer: [`HelloOk::check`].
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::HelloOk, body);
        let version = fields.u16()?;
        fields.zero_u16()?;
        let limits = PeerLimits::take(&mut fields)?;
        let features = Features(fields.u64()?);
        let boot_id = BootId::from_bytes(fields.array()?);
        fields.zero_u32()?;
        fields.zero_u32()?;
        Ok(Self { version, limits, features, boot_id, node_id: fields.text()? })
    }

    /// Checks that this answers `hello` with nothing beyond its offer.
    ///
    /// # Errors
    /// [`ErrorKind::VersionMismatch`].
    pub fn check(&self, hello: &Hello) -> Result<(), Error> {
        let kept = hello.versions.contains(&self.version)
            && self.features.shared_with(hello.features) == self.features
            && self.limits.shared_with(hello.limits) == self.limits;
        if kept {
            return Ok(());
        }
        let message = format!(
            "node {} answers with protocol version {}, features or limits that were not offered",
            self.node_id, self.version,
        );
        Err(Error::new(ErrorKind::VersionMismatch, message))
    }
}
