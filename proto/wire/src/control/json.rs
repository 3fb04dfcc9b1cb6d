//! The JSON of messages that the admin tool prints. `tests/tests/it/schema.rs` names the messages
//! and their fields, and scripts rely on the result.

use bytes::Bytes;
use larder_base::ErrorKind;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use super::ChangeEdit;

/// Bytes as hex digits.
pub(super) fn hex<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{bytes:x}"))
}

/// A digest as 16 hex digits: many readers of JSON round whole numbers of 64 bits.
pub(super) fn digest<S: Serializer>(digest: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{digest:016x}"))
}

/// Milliseconds as seconds.
pub(super) fn seconds<S: Serializer>(ms: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(*ms as f64 / 1e3)
}

/// The number of an error's kind as its name.
pub(super) fn kind<S: Serializer>(number: &u32, to: S) -> Result<S::Ok, S::Error> {
    let kind = u16::try_from(*number).ok().and_then(ErrorKind::from_number);
    to.serialize_str(kind.map_or("unknown", ErrorKind::name))
}

/// A weight is absent where the node is not in the ring.
impl Serialize for ChangeEdit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let what = match (self.weight_before, self.weight) {
            (0, _) => "add",
            (_, 0) => "leave",
            _ => "reweight",
        };
        let mut edit = to.serialize_struct("ChangeEdit", 4)?;
        edit.serialize_field("node", &self.node_id)?;
        edit.serialize_field("what", what)?;
        for (name, weight) in [("weight", self.weight), ("weight_before", self.weight_before)] {
            match weight {
                0 => edit.skip_field(name)?,
                weight => edit.serialize_field(name, &weight)?,
            }
        }
        edit.end()
    }
}
