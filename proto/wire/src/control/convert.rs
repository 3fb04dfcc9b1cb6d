//! Converts between messages, with ids of any bytes, and types that hold only valid values.

use larder_base::{
    BootId, Error, ErrorKind, Member, Ring, Scheme, ShardId, SnapshotId, Ticket, limits,
};

use super::{Member as MemberMessage, Ring as RingMessage};

/// Entries of a page if the caller names no number.
const PAGE_ENTRIES_DEFAULT: u32 = 1_000;

impl From<&Ring> for RingMessage {
    fn from(ring: &Ring) -> Self {
        let members = ring.members().iter().cloned().map(MemberMessage::from).collect();
        let Scheme { unit, replicas } = ring.scheme();
        Self { version: ring.version(), members, weight_unit: unit, replicas: replicas.into() }
    }
}

impl TryFrom<RingMessage> for Ring {
    type Error = Error;

    fn try_from(message: RingMessage) -> Result<Self, Error> {
        let RingMessage { version, members, weight_unit, replicas } = message;
        let members = members.into_iter().map(Member::from).collect();
        // A number that does not fit a byte exceeds the limit of a ring anyway.
        let replicas = u8::try_from(replicas.max(1)).unwrap_or(u8::MAX);
        match weight_unit {
            0 => Self::new(version, members)?.with_replicas(replicas),
            unit => Self::with_scheme(version, members, Scheme { unit, replicas }),
        }
    }
}

impl From<Member> for MemberMessage {
    fn from(Member { id, weight, control, host, zone }: Member) -> Self {
        Self { id, weight, control, host, zone }
    }
}

impl From<MemberMessage> for Member {
    fn from(MemberMessage { id, weight, control, host, zone }: MemberMessage) -> Self {
        Self { id, weight, control, host, zone }
    }
}

/// Returns the snapshot id in a field.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if it is not 32 bytes.
pub fn snapshot_id(field: &[u8]) -> Result<SnapshotId, Error> {
    exactly("snapshot", field).map(SnapshotId::from_bytes)
}

/// Returns the shard id in a field.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if it is not 16 bytes.
pub fn shard_id(field: &[u8]) -> Result<ShardId, Error> {
    exactly("shard_id", field).map(ShardId::from_bytes)
}

/// Returns the boot id in a field.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if it is not 16 bytes.
pub fn boot_id(field: &[u8]) -> Result<BootId, Error> {
    exactly("boot_id", field).map(BootId::from_bytes)
}

/// Returns the ticket in a field.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if it is not 16 bytes.
pub fn ticket(field: &[u8]) -> Result<Ticket, Error> {
    exactly("ticket", field).map(Ticket::from_bytes)
}

/// Returns the number of entries a page may have, for a requested number (0: the default).
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] above [`limits::PAGE_ENTRIES_MAX`].
pub fn page_size(asked: u32) -> Result<usize, Error> {
    match asked {
        0 => Ok(PAGE_ENTRIES_DEFAULT as usize),
        1..=limits::PAGE_ENTRIES_MAX => Ok(asked as usize),
        _ => {
            let max = limits::PAGE_ENTRIES_MAX;
            let message = format!("page_size {asked} is above the limit of {max}; ask for pages");
            Err(Error::new(ErrorKind::InvalidArgument, message))
        }
    }
}

fn exactly<const BYTES: usize>(name: &str, field: &[u8]) -> Result<[u8; BYTES], Error> {
    field.try_into().map_err(|_| {
        let message = format!("{name} has {} bytes, expected {BYTES}", field.len());
        Error::new(ErrorKind::InvalidArgument, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, port: u16) -> Member {
        Member {
            id: id.to_owned(),
            weight: 3,
            control: format!("http://127.0.0.1:{port}"),
            host: "here".to_owned(),
            zone: "west".to_owned(),
        }
    }

    #[test]
    fn a_ring_survives_the_control_plane() {
        for replicas in [1, 2] {
            let ring = Ring::new(7, vec![member("b", 1), member("a", 2)]).unwrap();
            let ring = ring.with_replicas(replicas).unwrap();
            let back = Ring::try_from(RingMessage::from(&ring)).unwrap();
            assert_eq!(back.version(), 7);
            assert_eq!(back.members(), ring.members());
            assert_eq!((back.scheme(), back.digest()), (ring.scheme(), ring.digest()));
        }
    }

    #[test]
    fn ring_defaults_to_one_copy_and_refuses_too_many() {
        let ring = Ring::new(7, vec![member("a", 1)]).unwrap();
        let told = |replicas| Ring::try_from(RingMessage { replicas, ..RingMessage::from(&ring) });
        assert_eq!(told(0).unwrap().replicas(), 1);
        for replicas in [9, 256, 258, u32::MAX] {
            assert_eq!(
                told(replicas).unwrap_err().kind(),
                ErrorKind::InvalidArgument,
                "{replicas}"
            );
        }
    }

    #[test]
    fn a_ring_that_breaks_the_rules_is_refused() {
        let error = Ring::try_from(RingMessage::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn an_id_of_another_length_is_refused() {
        for length in [0, 16, 31, 33, 4096] {
            assert!(snapshot_id(&vec![1; length]).is_err());
        }
        assert!(shard_id(&[1; 32]).is_err());
        assert_eq!(snapshot_id(&[5; 32]).unwrap(), SnapshotId::from_bytes([5; 32]));
    }

    #[test]
    fn a_page_is_never_above_its_limit() {
        assert_eq!(page_size(0).unwrap(), 1_000);
        assert_eq!(page_size(4_096).unwrap(), 4_096);
        assert!(page_size(4_097).is_err());
    }
}
