//! Encodes and decodes frames. Damaged and hostile ones are in `hostile`.

use std::io::Cursor;

use larder_base::{BootId, Error, ErrorKind, RowRef, SnapshotId, Ticket, limits};

use super::*;

mod hostile;

const SNAPSHOT: SnapshotId = SnapshotId::from_bytes(*b"0123456789abcdef0123456789abcdef");

/// Encodes a message and reads its frame back as a receiver does.
fn sent(encode: impl FnOnce(u64, &mut Vec<u8>)) -> (FrameHeader, Vec<u8>) {
    let mut out = b"earlier frame".to_vec();
    let start = out.len();
    encode(42, &mut out);
    let mut reader = Cursor::new(&out[start..]);
    let header = read_header(&mut reader).unwrap();
    let mut body = vec![9; 3];
    read_body(&mut reader, &header, &mut body).unwrap();
    assert_eq!(header.request(), 42);
    assert_eq!(reader.position(), (out.len() - start) as u64, "nothing is left");
    let split = split_frame(&out[start..]).unwrap().unwrap();
    assert_eq!((split.header, split.body, split.rest.len()), (header, &body[..], 0));
    (header, body)
}

fn hello() -> Hello {
    Hello::new(Ticket::from_bytes([7; 16]), 1234, "job 3, rank 5")
}

fn admit() -> Admit {
    Admit { prefix: "s3://bucket/data".to_owned(), variables: b"A=1\0".to_vec() }
}

fn admitted() -> Admitted {
    let control = "http://127.0.0.1:7070".to_owned();
    Admitted {
        ticket: Ticket::from_bytes([9; 16]),
        memory_bytes: 8 << 30,
        pid: 4321,
        memory_percent: 50,
        uptime_seconds: 720,
        linger_seconds: 60,
        identity: 3,
        control,
    }
}

const PART_BYTES: u32 = 1_234;

fn read_part() -> ReadPart {
    ReadPart { snapshot: SNAPSHOT, shard: 3, tensor: 1, offset: 1 << 40, bytes: PART_BYTES }
}

fn gather(rows: usize) -> Gather {
    let row = |row: u32| RowRef { shard: row.wrapping_mul(2_654_435_761), row };
    let rows = (0..u32::try_from(rows).unwrap()).map(row).collect();
    let tensors = vec![3, 0, 65_535];
    Gather { snapshot: SNAPSHOT, ring_version: 7, tensors, rows, verify: false }
}

fn one_of_each() -> Vec<Vec<u8>> {
    let (snapshot, shard) = (SNAPSHOT, 77);
    let attach = Attach { snapshot, shard };
    let manifest = AttachManifest { snapshot, leaf: None };
    let pending = Pending { state: PendingState::Queued };
    let release = Release { snapshot, shard };
    let recall = Recall { snapshot, shard };
    let end = GatherEnd { rows_memory: 5, rows_origin: 6, ring_version: 7, origin_bytes: 8 };
    let error = ErrorReply::from(Error::new(ErrorKind::NotFound, "no such shard"));
    let ok = HelloOk::answer(&hello(), BootId::from_bytes([8; 16]), "node-a").unwrap();
    let ragged = DataRun {
        tensor_slot: 1,
        first: 2,
        crcs: &[1, 2, 3],
        lengths: Some(&[10, 0, 5]),
        payload_bytes: 15,
    };
    type Encode<'a> = Box<dyn Fn(&mut Vec<u8>) + 'a>;
    let encoders: [Encode<'_>; 19] = [
        Box::new(|out| hello().encode(1, out)),
        Box::new(|out| ok.encode(1, out)),
        Box::new(|out| error.encode(2, out)),
        Box::new(|out| Ping.encode(3, out)),
        Box::new(|out| Pong.encode(3, out)),
        Box::new(|out| gather(20).encode(4, out)),
        Box::new(|out| ragged.encode(4, out)),
        Box::new(|out| end.encode(4, out)),
        Box::new(|out| attach.encode(5, out)),
        Box::new(|out| manifest.encode(6, out)),
        Box::new(|out| Attached { extent: [1; 16] }.encode(6, out)),
        Box::new(|out| pending.encode(5, out)),
        Box::new(|out| NotKept.encode(5, out)),
        Box::new(|out| release.encode(0, out)),
        Box::new(|out| recall.encode(0, out)),
        Box::new(|out| admit().encode(7, out)),
        Box::new(|out| admitted().encode(7, out)),
        Box::new(|out| read_part().encode(8, out)),
        Box::new(|out| Part { digest: 1, crc32c: 2, rests: 3 }.encode(8, PART_BYTES.into(), out)),
    ];
    let frame = |encode: &Encode<'_>| {
        let mut out = Vec::new();
        encode(&mut out);
        out
    };
    encoders.iter().map(frame).collect()
}

/// Decodes a body by its kind and discards the message.
fn decode_any(header: &FrameHeader, body: &[u8]) -> Result<(), WireError> {
    match header.kind() {
        Kind::Hello => Hello::decode(body).map(drop),
        Kind::HelloOk => HelloOk::decode(body).map(drop),
        Kind::Error => ErrorReply::decode(body).map(drop),
        Kind::Ping => Ping::decode(body).map(drop),
        Kind::Pong => Pong::decode(body).map(drop),
        Kind::Gather => Gather::decode(body).map(drop),
        Kind::Data => Data::default().decode_into(header, body),
        Kind::GatherEnd => GatherEnd::decode(body).map(drop),
        Kind::Attach => Attach::decode(body).map(drop),
        Kind::AttachManifest => AttachManifest::decode(body).map(drop),
        Kind::Attached => Attached::decode(body).map(drop),
        Kind::Pending => Pending::decode(body).map(drop),
        Kind::NotKept => NotKept::decode(body).map(drop),
        Kind::Release => Release::decode(body).map(drop),
        Kind::Recall => Recall::decode(body).map(drop),
        Kind::Admit => Admit::decode(body).map(drop),
        Kind::Admitted => Admitted::decode(body).map(drop),
        Kind::ReadPart => ReadPart::decode(body).map(drop),
        Kind::Part => Part::decode(header, body, PART_BYTES).map(drop),
    }
}

#[test]
fn every_frame_kind_has_a_sample_that_decodes() {
    let kinds: Vec<Kind> = one_of_each()
        .iter()
        .map(|frame| {
            let split = split_frame(frame).unwrap().unwrap();
            decode_any(&split.header, split.body).unwrap();
            split.header.kind()
        })
        .collect();
    assert_eq!(kinds, Kind::ALL);
}

#[test]
fn hello_and_its_answer_survive_the_wire() {
    let (_, body) = sent(|request, out| hello().encode(request, out));
    assert_eq!(Hello::decode(&body).unwrap(), hello());
    let ok = HelloOk::answer(&hello(), BootId::from_bytes([1; 16]), "node-a").unwrap();
    let (_, body) = sent(|request, out| ok.encode(request, out));
    let back = HelloOk::decode(&body).unwrap();
    assert_eq!(back, ok);
    back.check(&hello()).unwrap();
}

#[test]
fn version_mismatch_error_has_both_ranges() {
    let stranger = Hello { versions: 7..=9, ..hello() };
    let error = HelloOk::answer(&stranger, BootId::from_bytes([0; 16]), "a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::VersionMismatch);
    assert!(error.message().contains("7 to 9") && error.message().contains("3 to 3"), "{error}");
    let newer = Hello { versions: 1..=9, ..hello() };
    let ok = HelloOk::answer(&newer, BootId::from_bytes([0; 16]), "a").unwrap();
    assert_eq!(ok.version, 3);
}

#[test]
fn answer_beyond_the_offer_is_refused() {
    let mut ok = HelloOk::answer(&hello(), BootId::from_bytes([0; 16]), "a").unwrap();
    ok.limits.gather_rows_max += 1;
    assert!(ok.check(&hello()).is_err());
    ok.limits.gather_rows_max -= 1;
    ok.version = 4;
    assert!(ok.check(&hello()).is_err());
}

#[test]
fn both_sides_use_the_smaller_limits() {
    let mut small = hello();
    small.limits.gather_rows_max = 10;
    let ok = HelloOk::answer(&small, BootId::from_bytes([0; 16]), "a").unwrap();
    assert_eq!(ok.limits.gather_rows_max, 10);
    assert_eq!(ok.limits.payload_bytes_max, limits::DATA_PAYLOAD_BYTES_MAX);
}

#[test]
fn ticket_is_not_in_the_debug_text() {
    assert!(!format!("{:?}", hello()).contains("7, 7"));
}

#[test]
fn admit_and_admitted_survive_the_wire() {
    let (_, body) = sent(|request, out| admit().encode(request, out));
    assert_eq!(Admit::decode(&body).unwrap(), admit());
    assert!(!format!("{:?}", admit()).contains("65, 61"), "its variables are never shown");
    let (_, body) = sent(|request, out| admitted().encode(request, out));
    assert_eq!(Admitted::decode(&body).unwrap(), admitted());
    assert!(!format!("{:?}", admitted()).contains("9, 9"), "its ticket is never shown");
}

#[test]
fn part_request_keeps_its_limit_and_answer_has_its_length() {
    let (_, body) = sent(|request, out| read_part().encode(request, out));
    assert_eq!(ReadPart::decode(&body).unwrap(), read_part());
    for bytes in [0, (8 << 20) + 1] {
        let (_, body) = sent(|request, out| ReadPart { bytes, ..read_part() }.encode(request, out));
        ReadPart::decode(&body).unwrap_err();
    }
    let part = Part { digest: 7, crc32c: 8, rests: 9 };
    let (header, body) = sent(|request, out| part.encode(request, PART_BYTES.into(), out));
    assert_eq!(Part::decode(&header, &body, PART_BYTES).unwrap(), part);
    Part::decode(&header, &body, PART_BYTES + 1).unwrap_err();
}

#[test]
fn hello_fits_the_limit_before_authentication() {
    let longest = Hello { client_name: "é".repeat(1_000), ..hello() };
    let mut out = Vec::new();
    longest.encode(1, &mut out);
    assert!(out.len() <= limits::PRE_AUTH_BYTES_MAX as usize);
    let split = split_frame(&out).unwrap().unwrap();
    let name = Hello::decode(split.body).unwrap().client_name;
    assert_eq!(name, "é".repeat(128), "cut between characters");
}

#[test]
fn refuses_first_frame_other_than_hello_before_its_body() {
    let mut frame = Vec::new();
    hello().encode(3, &mut frame);
    assert_eq!(read_hello(&mut &frame[..]).unwrap(), (3, hello()));
    frame.clear();
    gather(65_536).encode(3, &mut frame);
    let mut reader = Cursor::new(&frame);
    let error = read_hello(&mut reader).unwrap_err();
    assert!(matches!(error, WireError::Unexpected { found: Kind::Gather, .. }));
    assert_eq!(reader.position(), FRAME_HEADER_BYTES as u64);
}

#[test]
fn body_of_a_fixed_size_kind_has_that_size() {
    use Kind::{Admit, Admitted, Data, Error, Gather, Hello, HelloOk};
    for frame in one_of_each() {
        let header = split_frame(&frame).unwrap().unwrap().header;
        let varies =
            matches!(header.kind(), Hello | HelloOk | Error | Gather | Data | Admit | Admitted);
        assert!(varies || header.body_len() == header.kind().body_bytes_max() as usize);
    }
}

#[test]
fn the_largest_run_survives_the_wire() {
    let ones = vec![1; 65_536];
    let largest = DataRun {
        tensor_slot: 0,
        first: 0,
        crcs: &ones,
        lengths: Some(&ones),
        payload_bytes: 65_536,
    };
    let (header, body) = sent(|request, out| largest.encode(request, out));
    assert_eq!(header.body_len(), Kind::Data.body_bytes_max() as usize);
    Data::default().decode_into(&header, &body).unwrap();
}

#[test]
fn the_largest_gather_survives_the_wire() {
    let largest = Gather { tensors: (0..4_096).collect(), ..gather(65_536) };
    let (header, body) = sent(|request, out| largest.encode(request, out));
    assert_eq!(header.body_len(), Kind::Gather.body_bytes_max() as usize);
    assert_eq!(Gather::decode(&body).unwrap(), largest);
}

#[test]
#[should_panic(expected = "within its limits")]
fn a_gather_above_its_limit_is_not_sent() {
    gather(65_537).encode(1, &mut Vec::new());
}

#[test]
fn a_run_survives_the_wire_and_its_lists_are_reused() {
    let crcs: Vec<u32> = (0..1_000).map(|index| index * 77).collect();
    let run =
        DataRun { tensor_slot: 4, first: 9, crcs: &crcs, lengths: None, payload_bytes: 8_000 };
    let (header, body) = sent(|request, out| run.encode(request, out));
    let mut data = Data::default();
    data.decode_into(&header, &body).unwrap();
    assert_eq!((data.tensor_slot(), data.rows(), data.crcs()), (4, 9..1_009, &crcs[..]));
    assert_eq!((data.row_bytes(999), data.payload_bytes(), data.is_ragged()), (8, 8_000, false));

    let place = data.crcs().as_ptr();
    let ragged = DataRun { crcs: &crcs[..2], lengths: Some(&[3, 4]), payload_bytes: 7, ..run };
    let (header, body) = sent(|request, out| ragged.encode(request, out));
    data.decode_into(&header, &body).unwrap();
    assert_eq!((data.crcs().as_ptr(), data.rows(), data.is_ragged()), (place, 9..11, true));
    assert_eq!((data.row_bytes(0), data.row_bytes(1)), (3, 4));
}

#[test]
fn piece_survives_the_wire_and_must_be_short_and_of_one_row() {
    let piece = DataPiece { tensor_slot: 4, row: 9, offset: 1 << 31, crc: 77, payload_bytes: 30 };
    let (header, body) = sent(|request, out| piece.encode(request, out));
    let mut data = Data::default();
    data.decode_into(&header, &body).unwrap();
    assert_eq!((data.tensor_slot(), data.rows(), data.crcs()), (4, 9..10, &[77][..]));
    assert_eq!((data.piece(), data.payload_bytes(), data.is_ragged()), (Some(1 << 31), 30, false));
    for (at, wrong) in [(2, 3), (8, 2)] {
        let mut body = body.clone();
        body[at] = wrong;
        data.decode_into(&header, &body).unwrap_err();
    }
    let run = DataRun { tensor_slot: 4, first: 9, crcs: &[1], lengths: None, payload_bytes: 30 };
    let (header, body) = sent(|request, out| run.encode(request, out));
    data.decode_into(&header, &body).unwrap();
    assert_eq!(data.piece(), None, "a run after it is whole");
    for payload_bytes in [0, u64::from(limits::DATA_PAYLOAD_BYTES_MAX) + 1] {
        let piece = DataPiece { payload_bytes, ..piece };
        let (header, body) = sent(|request, out| piece.encode(request, out));
        data.decode_into(&header, &body).unwrap_err();
    }
}

#[test]
fn a_run_whose_lengths_and_payload_disagree_is_refused() {
    let limit = u64::from(limits::DATA_PAYLOAD_BYTES_MAX);
    let refused = |crcs: &[u32], lengths: Option<&[u32]>, first, payload_bytes| {
        let run = DataRun { tensor_slot: 0, first, crcs, lengths, payload_bytes };
        let (header, body) = sent(|request, out| run.encode(request, out));
        Data::default().decode_into(&header, &body).is_err()
    };
    assert!(refused(&[1, 2], None, 0, 3), "not whole rows");
    assert!(refused(&[1, 2], Some(&[1, 1]), 0, 3), "lengths add up to less");
    assert!(refused(&[1, 2], Some(&[u32::MAX, u32::MAX]), 0, 3), "lengths add up to more");
    assert!(refused(&[1, 2], None, 0, limit + 2), "several rows above the limit");
    assert!(!refused(&[1], None, 0, limit + 2), "one large row");
    assert!(refused(&[1], None, 65_536, 0), "beyond any request");
    assert!(refused(&[1], None, u32::MAX, 0), "beyond any number");
    assert!(!refused(&[1, 2], None, 0, 0), "empty rows");
}

#[test]
fn an_error_keeps_its_kind_and_a_long_message_is_cut() {
    for &kind in ErrorKind::ALL {
        let reply = ErrorReply::from(Error::new(kind, "ü".repeat(2_000)));
        let (_, body) = sent(|request, out| reply.encode(request, out));
        let error = ErrorReply::decode(&body).unwrap().error;
        assert_eq!((error.kind(), error.message().len()), (kind, 2_048));
    }
    let unknown = ErrorReply::decode(&[0xff, 0xff, 0, 0, b'?']).unwrap().error;
    assert_eq!((unknown.kind(), unknown.message()), (ErrorKind::Internal, "?"));
}
