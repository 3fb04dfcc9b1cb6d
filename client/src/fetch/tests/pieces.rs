//! Rows that a node sends in pieces.

use std::io::Write;

use larder_extent::crc::crc32c;
use larder_wire::data::{DataPiece, Gather};

use super::*;

const PIECE_BYTES: usize = 700;

/// Sends the rows of a gather in pieces. For the first row with enough pieces, swaps piece `turned`
/// and the next.
pub(super) fn send(
    stream: &mut impl Write,
    request: u64,
    gather: &Gather,
    fixture: &Fixture,
    mut turned: Option<usize>,
) -> Option<()> {
    for (tensor_slot, &tensor) in (0..).zip(&gather.tensors) {
        for (row, &wanted) in (0..).zip(&gather.rows) {
            let bytes = fixture.row(wanted, tensor.into());
            let pieces = (0..).step_by(PIECE_BYTES).zip(bytes.chunks(PIECE_BYTES));
            let mut pieces: Vec<(u32, &[u8])> = pieces.collect();
            if let Some(index) = turned.take_if(|index| *index + 1 < pieces.len()) {
                pieces.swap(index, index + 1);
            }
            for (offset, piece) in pieces {
                let (crc, payload_bytes) = (crc32c(piece), piece.len() as u64);
                let mut out = Vec::new();
                let announced = DataPiece { tensor_slot, row, offset, crc, payload_bytes };
                announced.encode(request, &mut out);
                out.extend_from_slice(piece);
                stream.write_all(&out).ok()?;
            }
        }
    }
    Some(())
}

#[test]
fn rows_sent_in_pieces_are_joined() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, false);
    let fetcher = fetcher(&fixture, &address, true);
    for node in &nodes {
        node.plan([Act::Pieces { turned: None }]);
    }
    let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!((sources.rows_remote, sources.rows_origin), (SAMPLES, 0));
    assert_eq!(sources.copies.delivered_bytes(), sources.bytes);
    for node in &nodes {
        assert!(node.asked().len() <= 1, "what came was asked for again");
    }
}

#[test]
fn row_with_pieces_out_of_order_is_read_from_the_next_node() {
    let fixture = Fixture::new();
    for turned in [0, 1, 7] {
        let (nodes, address) = cluster(&fixture, 2, false);
        let fetcher = fetcher(&fixture, &address, true);
        let wrong = busiest(&fixture, &nodes, &fetcher);
        nodes[wrong].plan([Act::Pieces { turned: Some(turned) }]);
        let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
        assert_eq!((sources.rows_remote, sources.rows_origin), (SAMPLES, 0));
        assert_eq!(nodes[wrong].asked().len(), 1, "who breaks the protocol is passed over");
    }
}
