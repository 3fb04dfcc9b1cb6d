//! The reads of a scan: few requests, and no values of large bodies.

use larder_formats::Rows;

use super::{
    File,
    craft::{Batch, Craft, int32, large_text},
};

/// Returns the schema and a batch of one column `n`, with a body of this size that is not written.
fn large(body_bytes: u64) -> (Vec<u8>, Vec<u8>) {
    let craft = Craft::of(vec![int32("n")]);
    let bytes = i64::try_from(body_bytes).unwrap();
    let batch = Batch {
        rows: 3,
        nodes: vec![(3, 0)],
        buffers: vec![(0, 0), (0, bytes)],
        body_length: Some(bytes),
        ..Batch::default()
    };
    (craft.stream(), batch.message(4))
}

/// Returns a stream of batches, each with a body of this size.
fn stream<'a>(schema: &'a [u8], batch: &'a [u8], count: u64, body_bytes: u64) -> File<'a> {
    let mut pieces = vec![(0, schema)];
    let mut end = schema.len() as u64;
    for _ in 0..count {
        pieces.push((end, batch));
        end += batch.len() as u64 + body_bytes;
    }
    File { pieces, bytes: end, reads: Vec::new() }
}

#[test]
fn large_bodies_are_hopped_over() {
    let (schema, batch) = large(16 << 20);
    let mut file = stream(&schema, &batch, 20, 16 << 20);
    let table = file.scan(&mut fastrand::Rng::with_seed(8)).unwrap();
    assert_eq!(table.rows, 60);
    assert_eq!(file.reads.len(), 20, "one read a batch: {:?}", file.reads);
    assert!(file.bytes_read() <= 20 << 16);
}

#[test]
fn small_bodies_are_read_through() {
    let (schema, batch) = large(20 << 10);
    let mut file = stream(&schema, &batch, 1000, 20 << 10);
    assert_eq!(file.scan(&mut fastrand::Rng::with_seed(9)).unwrap().rows, 3000);
    assert!(file.reads.len() <= 10, "{:?}", file.reads);
    assert!(file.reads.iter().all(|range| range.end - range.start <= 8 << 20));
}

#[test]
fn offsets_are_read_in_pieces_and_values_not() {
    let rows: u32 = 2_500_000;
    let offsets: Vec<u8> = (0..=u64::from(rows)).flat_map(|n| (1000 + n).to_le_bytes()).collect();
    let (offset_bytes, value_bytes) = (i64::try_from(offsets.len()).unwrap(), 1 << 30);
    let batch = Batch {
        rows: rows.into(),
        nodes: vec![(rows.into(), 0)],
        buffers: vec![(0, 0), (value_bytes, offset_bytes), (0, value_bytes)],
        body_length: Some(value_bytes + offset_bytes),
        ..Batch::default()
    };
    let (schema, batch) = (Craft::of(vec![large_text("t")]).stream(), batch.message(4));
    let body = (schema.len() + batch.len()) as u64;
    let pieces = vec![(0, &*schema), (schema.len() as u64, &*batch), (body + (1 << 30), &*offsets)];
    let bytes = body + (1 << 30) + offsets.len() as u64;
    let mut file = File { pieces, bytes, reads: Vec::new() };
    let table = file.scan(&mut fastrand::Rng::with_seed(10)).unwrap();
    let Rows::Spans(spans) = &table.columns[0].rows else { panic!("rows differ in length") };
    assert_eq!(spans.len(), rows as usize);
    assert!(spans.iter().zip(0..).all(|(r, n)| r == (body + 1000 + n..body + 1001 + n)));
    assert_eq!(file.reads.len(), 4, "{:?}", file.reads);
    assert!(file.reads.iter().all(|range| range.end - range.start <= 8 << 20));
}
