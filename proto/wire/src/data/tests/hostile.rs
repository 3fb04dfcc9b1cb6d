//! Frames cut short, damaged on the way, or made by an attacker.

use std::io::{self, Read};

use proptest::prelude::*;

use super::*;

#[test]
fn changed_bit_anywhere_is_detected() {
    for frame in one_of_each() {
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // A shorter or longer body may also look unfinished; then no frame is seen either.
            assert!(!matches!(split_frame(&bad), Ok(Some(_))), "bit {bit} of {frame:?}");
        }
    }
}

#[test]
fn length_above_the_limit_is_refused_before_allocation() {
    for frame in one_of_each() {
        let kind = split_frame(&frame).unwrap().unwrap().header.kind();
        let mut header: [u8; FRAME_HEADER_BYTES] = *frame.first_chunk().unwrap();
        header[24..28].copy_from_slice(&(kind.body_bytes_max() + 1).to_le_bytes());
        let error = FrameHeader::parse(&header).unwrap_err();
        assert!(matches!(error, WireError::TooLarge { what: "a body", .. }), "{error}");

        let mut header: [u8; FRAME_HEADER_BYTES] = *frame.first_chunk().unwrap();
        header[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        let error = FrameHeader::parse(&header).unwrap_err();
        assert!(matches!(error, WireError::TooLarge { what: "a payload", .. }), "{error}");
    }
}

#[test]
fn incomplete_frame_waits_for_the_rest() {
    for frame in one_of_each() {
        for end in 0..frame.len() {
            assert!(split_frame(&frame[..end]).unwrap().is_none());
        }
    }
}

/// Gives its bytes one at a time, then fails in a given way.
struct Trickle<'a>(&'a [u8], Option<io::ErrorKind>);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (Some((first, rest)), false) = (self.0.split_first(), into.is_empty()) else {
            return self.1.map_or(Ok(0), |kind| Err(kind.into()));
        };
        (into[0], self.0) = (*first, rest);
        Ok(1)
    }
}

#[test]
fn clean_end_idle_socket_and_broken_frame_are_distinguished() {
    let mut frame = Vec::new();
    Ping.encode(1, &mut frame);
    assert_eq!(read_header(&mut Trickle(&frame, None)).unwrap().kind(), Kind::Ping);
    let read = |bytes, failure| read_header(&mut Trickle(bytes, failure)).unwrap_err();
    let timeout = Some(io::ErrorKind::WouldBlock);
    assert!(matches!(read(&[], None), WireError::Closed));
    assert!(matches!(read(&[], timeout), WireError::Idle));
    assert!(matches!(read(&frame[..5], None), WireError::Broken(_)));
    assert!(matches!(read(&frame[..5], timeout), WireError::Broken(_)));
    assert!(matches!(read(&[], Some(io::ErrorKind::ConnectionReset)), WireError::Broken(_)));
}

#[test]
fn another_protocol_is_detected() {
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let error = read_header(&mut &request[..]).unwrap_err();
    assert!(matches!(error, WireError::NotAFrame { .. }));
    assert_eq!(Error::from(error).kind(), ErrorKind::VersionMismatch);
}

/// Makes a header that passes its checks with this body, as only an attacker would send it.
fn sealed(kind: Kind, body: &[u8], payload_bytes: u64) -> FrameHeader {
    FrameHeader::parse(&FrameHeader::seal(kind, 1, payload_bytes, body)).unwrap()
}

proptest! {
    #[test]
    fn any_bytes_as_a_frame_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = split_frame(&bytes);
        let _ = read_header(&mut &bytes[..]);
    }

    #[test]
    fn any_bytes_as_a_body_never_panic(
        kind in prop::sample::select(Kind::ALL),
        body in prop::collection::vec(any::<u8>(), 0..512),
        payload_bytes in 0..=limits::ROW_BYTES_MAX,
    ) {
        let body = &body[..body.len().min(kind.body_bytes_max() as usize)];
        let header = sealed(kind, body, if kind == Kind::Data { payload_bytes } else { 0 });
        let _ = decode_any(&header, body);
    }

    #[test]
    fn hostile_body_never_panics_and_allocates_only_its_size(
        which in 0..Kind::ALL.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        payload_bytes in 0..=limits::ROW_BYTES_MAX,
    ) {
        let frame = &one_of_each()[which];
        let split = split_frame(frame).unwrap().unwrap();
        let kind = split.header.kind();
        let mut body = split.body.to_vec();
        for (place, value) in edits {
            if !body.is_empty() {
                let place = place.index(body.len());
                body[place] = value;
            }
        }
        if payload_bytes % 2 == 0 {
            body.truncate(cut.index(body.len() + 1));
        }
        let header = sealed(kind, &body, if kind == Kind::Data { payload_bytes } else { 0 });
        let _ = decode_any(&header, &body);
        if let Ok(gather) = Gather::decode(&body) {
            prop_assert!(2 * gather.tensors.len() + 8 * gather.rows.len() <= body.len());
        }
        let mut data = Data::default();
        if data.decode_into(&header, &body).is_ok() {
            prop_assert!(4 * data.crcs().len() <= body.len());
            let sum: u64 = (0..data.crcs().len()).map(|index| data.row_bytes(index)).sum();
            prop_assert_eq!(sum, data.payload_bytes());
        }
    }

    #[test]
    fn announced_body_allocates_at_most_its_limit(
        which in 0..Kind::ALL.len(),
        body_bytes in any::<u32>(),
    ) {
        let mut header: [u8; FRAME_HEADER_BYTES] = *one_of_each()[which].first_chunk().unwrap();
        header[24..28].copy_from_slice(&body_bytes.to_le_bytes());
        let mut body = Vec::new();
        if let Ok(header) = FrameHeader::parse(&header) {
            let _ = read_body(&mut io::empty(), &header, &mut body);
            prop_assert!(body.capacity() <= header.kind().body_bytes_max() as usize);
        } else {
            prop_assert!(body_bytes > Kind::ALL[which].body_bytes_max());
        }
    }

    #[test]
    fn any_gather_survives_the_wire(
        snapshot in any::<[u8; 32]>(),
        tensors in prop::collection::vec(any::<u16>(), 1..20),
        rows in prop::collection::vec((any::<u32>(), any::<u32>()), 1..200),
        (ring_version, verify) in any::<(u64, bool)>(),
    ) {
        let rows = rows.into_iter().map(|(shard, row)| RowRef { shard, row }).collect();
        let snapshot = SnapshotId::from_bytes(snapshot);
        let gather = Gather { snapshot, ring_version, tensors, rows, verify };
        let (_, body) = sent(|request, out| gather.encode(request, out));
        prop_assert_eq!(Gather::decode(&body).unwrap(), gather);
    }
}
