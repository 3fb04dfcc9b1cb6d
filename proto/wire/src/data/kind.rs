//! The kinds of frames, and the limits of each.

use larder_base::limits;

/// Defines [`Kind`] with each kind's number and body limit in one table.
macro_rules! frame_kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $limit:expr;)*) => {
        /// The kind of a frame. Numbers are part of the wire and are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $kind = $number,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Returns the number of this kind in a header.
            pub const fn number(self) -> u8 {
                match self { $(Self::$kind => $number,)* }
            }

            /// Returns the kind with this number.
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$kind),)* _ => None }
            }

            /// Returns the most bytes of this kind's body.
            pub const fn body_bytes_max(self) -> u32 {
                match self { $(Self::$kind => $limit,)* }
            }
        }
    };
}

frame_kinds! {
    /// Client: its name, versions and limits. First frame of a connection.
    Hello = 1, 48 + limits::CLIENT_NAME_BYTES_MAX;
    /// Node: the version, features and limits for both sides.
    HelloOk = 2, 48 + limits::MEMBER_ID_BYTES_MAX;
    /// Node: this request failed.
    Error = 3, 4 + limits::ERROR_MESSAGE_BYTES_MAX;
    /// Either: asks for a sign of life.
    Ping = 4, 0;
    /// Either: answers a PING.
    Pong = 5, 0;
    /// Client: requests many rows of many shards.
    Gather = 16, 48 + 2 * limits::GATHER_TENSORS_MAX + 8 * limits::GATHER_ROWS_MAX;
    /// Node: a run of rows of one tensor, which follow as payload.
    Data = 17, 16 + 8 * limits::GATHER_ROWS_MAX;
    /// Node: the end of a gather.
    GatherEnd = 18, 32;
    /// Client: requests this shard's extent.
    Attach = 32, 40;
    /// Client: requests this snapshot's manifest.
    AttachManifest = 33, 40;
    /// Node: the extent; its descriptor comes with this frame.
    Attached = 34, 16;
    /// Node: the shard is being filled.
    Pending = 35, 8;
    /// Node: the shard is not here and will not be kept.
    NotKept = 36, 0;
    /// Client: its map of this shard is dropped.
    Release = 37, 40;
    /// Node: asks for this shard's map to be dropped if nothing uses it.
    Recall = 38, 40;
    /// Client: asks the node to admit one more prefix, and hands over its variables.
    Admit = 39, limits::ADMIT_BYTES_MAX;
    /// Node: the prefix is accepted; carries the node's address.
    Admitted = 40, 44 + limits::CONTROL_ADDRESS_BYTES_MAX;
    /// Node to node: requests bytes of an extent.
    ReadPart = 48, 56;
    /// Node: the bytes, as payload.
    Part = 49, 16;
}

impl Kind {
    /// Returns the most bytes that follow the body.
    pub const fn payload_bytes_max(self) -> u64 {
        match self {
            Self::Data => limits::ROW_BYTES_MAX,
            Self::Part => limits::FILL_PART_BYTES,
            _ => 0,
        }
    }
}
