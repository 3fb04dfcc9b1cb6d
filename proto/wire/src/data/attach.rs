//! Frames about extents on the unix socket, and the frames without a body.

use larder_base::SnapshotId;

use super::{Kind, WireError, codec, header};

macro_rules! shard_message {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// ```text
        /// offset width
        ///      0    32  snapshot id
        ///     32     4  shard: index in the manifest
        ///     36     4  reserved, 0
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            /// The snapshot.
            pub snapshot: SnapshotId,
            /// Index of the shard in the manifest.
            pub shard: u32,
        }

        impl $name {
            /// Appends the frame.
            pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
                header::frame(Kind::$name, request, 0, out, |body| {
                    body.extend_from_slice(self.snapshot.as_bytes());
                    body.extend_from_slice(&self.shard.to_le_bytes());
                    body.extend_from_slice(&[0; 4]);
                });
            }

            /// Decodes a body.
            ///
            /// # Errors
            /// [`WireError::Malformed`].
            pub fn decode(body: &[u8]) -> Result<Self, WireError> {
                let mut fields = codec::Fields::new(Kind::$name, body);
                let snapshot = SnapshotId::from_bytes(fields.array()?);
                let shard = fields.u32()?;
                fields.zero_u32()?;
                fields.end()?;
                Ok(Self { snapshot, shard })
            }
        }
    };
}

shard_message! {
    /// ATTACH: requests the extent of this shard. Answered by ATTACHED, PENDING, NOT_KEPT or ERROR.
    Attach
}

shard_message! {
    /// RELEASE: the client dropped its map of this shard. Not answered; the request number is 0.
    Release
}

shard_message! {
    /// RECALL, from the node, unasked: the client drops its map of this shard if nothing uses it,
    /// and sends RELEASE. The request number is 0.
    Recall
}

macro_rules! empty_message {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name;

        impl $name {
            /// Appends the frame.
            pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
                header::frame(Kind::$name, request, 0, out, |_| ());
            }

            /// Decodes a body, which is empty.
            ///
            /// # Errors
            /// [`WireError::Malformed`].
            pub fn decode(body: &[u8]) -> Result<Self, WireError> {
                codec::Fields::new(Kind::$name, body).end().map(|()| Self)
            }
        }
    };
}

empty_message! {
    /// NOT_KEPT: this node neither has the shard nor will keep it; the client gathers its rows. No
    /// body.
    NotKept
}

empty_message! {
    /// PING: asks for a sign of life. Answered by PONG of the same request number. No body.
    Ping
}

empty_message! {
    /// PONG: answers a PING. No body.
    Pong
}

/// ATTACH_MANIFEST: requests the extent that holds the manifest of this snapshot, or a leaf of it.
/// Answered by ATTACHED or ERROR.
///
/// ```text
/// offset width
///      0    32  snapshot id
///     32     4  leaf: its number and 1, or 0 for the manifest's root
///     36     4  reserved, 0
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachManifest {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The number of a leaf. `None` is the root.
    pub leaf: Option<u32>,
}

impl AttachManifest {
    /// Appends the frame.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let leaf = self.leaf.map_or(0, |leaf| leaf.saturating_add(1));
        header::frame(Kind::AttachManifest, request, 0, out, |body| {
            body.extend_from_slice(self.snapshot.as_bytes());
            body.extend_from_slice(&leaf.to_le_bytes());
            body.extend_from_slice(&[0; 4]);
        });
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::AttachManifest, body);
        let snapshot = SnapshotId::from_bytes(fields.array()?);
        let leaf = fields.u32()?.checked_sub(1);
        fields.zero_u32()?;
        fields.end()?;
        Ok(Self { snapshot, leaf })
    }
}

/// ATTACHED: the extent's read-only descriptor comes with this frame's first byte. Each answer has
/// a descriptor, even for a shard that is attached already.
///
/// ```text
/// offset width
///      0    16  extent id: the shard's id, or the first 16 bytes of the SHA-256 of a manifest's
///               root or leaf
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// The id that the extent's own header must have.
    pub extent: [u8; 16],
}

impl Attached {
    /// Appends the frame.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        header::frame(Kind::Attached, request, 0, out, |body| {
            body.extend_from_slice(&self.extent);
        });
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::Attached, body);
        let extent = fields.array()?;
        fields.end()?;
        Ok(Self { extent })
    }
}

/// The progress of a shard that is not complete yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PendingState {
    /// Its parts are arriving; complete ones can be gathered.
    Filling,
    /// It waits for its turn.
    Queued,
}

/// PENDING: the shard will be kept here but is not sealed yet. Ends the exchange: the client
/// gathers the rows and attaches at a later need.
///
/// ```text
/// offset width
///      0     2  state: 1 filling, 2 queued
///      2     6  reserved, 0
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Its progress.
    pub state: PendingState,
}

impl Pending {
    /// Appends the frame.
    pub fn encode(&self, request: u64, out: &mut Vec<u8>) {
        let state: u16 = match self.state {
            PendingState::Filling => 1,
            PendingState::Queued => 2,
        };
        header::frame(Kind::Pending, request, 0, out, |body| {
            body.extend_from_slice(&state.to_le_bytes());
            body.extend_from_slice(&[0; 6]);
        });
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut fields = codec::Fields::new(Kind::Pending, body);
        let state = match fields.u16()? {
            1 => PendingState::Filling,
            2 => PendingState::Queued,
            _ => return Err(fields.malformed("unknown state")),
        };
        fields.zero_u16()?;
        fields.zero_u32()?;
        fields.end()?;
        Ok(Self { state })
    }
}
