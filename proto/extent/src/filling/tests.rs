use super::{CopyOutcome, Filling, PartSpec};
use crate::crc::crc32c;
use crate::{ExtentError, ExtentId, ExtentLayout, PagePreference, Region};
use std::sync::Arc;

const ID: ExtentId = ExtentId([9; 16]);

fn part(region: usize, start: u64, end: u64) -> PartSpec {
    PartSpec { region, range: start..end }
}

fn filling(regions: &[Region], parts: Vec<PartSpec>) -> Result<Arc<Filling>, ExtentError> {
    Filling::create(ID, ExtentLayout::new(regions).unwrap(), parts, PagePreference::Auto)
}

fn rows(rows: u64, row_bytes: u64, stride_bytes: u64) -> Region {
    Region::Rows { rows, row_bytes, stride_bytes }
}

#[test]
fn part_has_one_writer_and_can_be_retried() {
    let filling = filling(&[rows(4, 100, 100)], vec![part(0, 0, 400)]).unwrap();
    let first = filling.take_part(0).unwrap();
    assert!(filling.take_part(0).is_none());
    drop(first);
    let second = filling.take_part(0).unwrap();
    second.finish().unwrap();
    assert!(filling.take_part(0).is_none());
    assert!(filling.take_part(1).is_none());
    assert_eq!(filling.parts_missing(), 0);
}

#[test]
fn only_finished_parts_are_copied_out() {
    let filling = filling(&[rows(4, 100, 100)], vec![part(0, 200, 400), part(0, 0, 200)]).unwrap();
    let mut target = [0; 100];
    assert_eq!(filling.copy(0, 0..100, &mut target).unwrap(), CopyOutcome::NotYet);
    let mut low = filling.take_part(1).unwrap();
    low.write(&[7; 200]).unwrap();
    low.finish().unwrap();
    assert_eq!(filling.copy(0, 100..200, &mut target).unwrap(), CopyOutcome::Copied);
    assert_eq!(target, [7; 100]);
    assert_eq!(filling.copy(0, 150..250, &mut target).unwrap(), CopyOutcome::NotYet);
    assert!(filling.is_ready(0, 0..200) && !filling.is_ready(0, 199..201));
    assert!(matches!(filling.seal(), Err(ExtentError::PartsMissing { missing: 1 })));
    filling.take_part(0).unwrap().finish().unwrap();
    let sealed = filling.seal().unwrap();
    assert_eq!(filling.copy(0, 0..100, &mut target).unwrap(), CopyOutcome::Sealed);
    assert!(matches!(filling.seal(), Err(ExtentError::AlreadySealed)));
    assert_eq!(sealed.row(0, 1), [7; 100]);
}

#[test]
fn every_row_has_its_checksum_wherever_the_parts_were_cut() {
    let regions = [rows(50, 100, 60), rows(2000, 5, 5), Region::Blocks { bytes: 9001 }];
    let layout = ExtentLayout::new(&regions).unwrap();
    let mut parts = Vec::new();
    for region in 0..3 {
        let bytes = layout.region_bytes(region);
        let step = 777;
        parts.extend((0..bytes).step_by(step).map(|at| part(region, at, bytes.min(at + 777))));
    }
    let filling = filling(&regions, parts).unwrap();
    for index in (0..filling.parts().len()).rev() {
        let mut part = filling.take_part(index).unwrap();
        let byte = |at: u64| at.to_le_bytes()[0].wrapping_mul(31) ^ at.to_le_bytes()[1];
        let bytes: Vec<u8> = part.spec().range.clone().map(byte).collect();
        part.write(&bytes[..bytes.len() / 3]).unwrap();
        if index % 2 == 0 {
            part.restart();
        }
        let begun = if index % 2 == 0 { 0 } else { bytes.len() / 3 };
        for chunk in bytes[begun..].chunks(1 + index * 13) {
            part.write(chunk).unwrap();
        }
        part.finish().unwrap();
    }
    let sealed = filling.seal().unwrap();
    sealed.verify().unwrap();
    assert_eq!(sealed.unit_crcs().count(), 50 + 3 + 3);
    assert_eq!(sealed.unit_crcs().next(), Some(crc32c(sealed.row(0, 0))));
    assert_eq!(sealed.unit_crcs().nth(50), Some(crc32c(&sealed.region(1)[..819 * 5])));
    assert_eq!(sealed.unit_crcs().nth(55), Some(crc32c(&sealed.region(2)[8192..])));
    for (region, shape) in regions.iter().enumerate() {
        for row in 0..shape.rows() {
            assert_eq!(sealed.row_crc(region, row), crc32c(sealed.row(region, row)));
            let mut target = vec![0; sealed.row(region, row).len()];
            sealed.copy_row_verified(region, row, &mut target).unwrap();
            assert_eq!(target, sealed.row(region, row));
        }
    }
}

#[test]
fn a_row_that_spans_many_parts_has_its_checksum() {
    const ROW: u64 = 1_000_003;
    let regions = [rows(2, ROW, ROW)];
    let parts = (0..2 * ROW).step_by(300_000).map(|at| part(0, at, (2 * ROW).min(at + 300_000)));
    let filling = filling(&regions, parts.collect()).unwrap();
    let bytes: Vec<u8> = (0..2 * ROW).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[2]).collect();
    for index in 0..filling.parts().len() {
        let mut part = filling.take_part(index).unwrap();
        let [begin, end] = [part.spec().range.start, part.spec().range.end];
        part.write(&bytes[usize::try_from(begin).unwrap()..usize::try_from(end).unwrap()]).unwrap();
        part.finish().unwrap();
    }
    let sealed = filling.seal().unwrap();
    for (row, bytes) in bytes.chunks(1_000_003).enumerate() {
        assert_eq!(sealed.row_crc(0, row as u64), crc32c(bytes));
    }
    sealed.verify().unwrap();
}

#[test]
fn parts_that_do_not_tile_the_regions_are_refused() {
    let regions = [rows(4, 100, 100), rows(1, 10, 10)];
    let refused = |parts| filling(&regions, parts).unwrap_err();
    let gap = refused(vec![part(0, 0, 100), part(0, 101, 400), part(1, 0, 10)]);
    assert!(matches!(gap, ExtentError::PartsDoNotTile { region: 0, at: 100 }));
    let overlap = refused(vec![part(0, 0, 200), part(0, 100, 400), part(1, 0, 10)]);
    assert!(matches!(overlap, ExtentError::PartsDoNotTile { region: 0, at: 200 }));
    let short = refused(vec![part(0, 0, 400)]);
    assert!(matches!(short, ExtentError::PartsDoNotTile { region: 1, at: 0 }));
    let long = refused(vec![part(0, 0, 401), part(1, 0, 10)]);
    assert!(matches!(long, ExtentError::PartsDoNotTile { region: 0, at: 401 }));
    let foreign = refused(vec![part(0, 0, 400), part(1, 0, 10), part(2, 0, 1)]);
    assert!(matches!(foreign, ExtentError::BadRegion { region: 2, .. }));
}

#[test]
fn an_extent_without_bytes_seals() {
    let sealed = filling(&[rows(3, 0, 0)], vec![]).unwrap().seal().unwrap();
    assert_eq!(sealed.row(0, 2), []);
    assert_eq!(sealed.row_crc(0, 2), crc32c(&[]));
    assert!(sealed.verify_row(0, 2));
    sealed.copy_row_verified(0, 2, &mut []).unwrap();
}

#[test]
fn threads_fill_while_others_copy_and_no_byte_is_seen_early() {
    const PARTS: u64 = 64;
    const PART: u64 = 10_000;
    let bytes = [0xaa; 10_000];
    let parts = (0..PARTS).map(|at| part(0, at * PART, (at + 1) * PART)).collect();
    let filling = filling(&[rows(PARTS * 10, 1000, 1000)], parts).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for index in 0..filling.parts().len() {
                    if let Some(mut part) = filling.take_part(index) {
                        part.write(&bytes).unwrap();
                        // Every third is given up once and taken again by this writer.
                        if index % 3 == 0 {
                            drop(part);
                            let Some(again) = filling.take_part(index) else {
                                continue;
                            };
                            part = again;
                            part.write(&bytes).unwrap();
                        }
                        part.finish().unwrap();
                    }
                }
            });
            scope.spawn(|| {
                let mut row = [0; 1000];
                let mut copied = 0;
                while copied < PARTS * 10 {
                    let range = copied * 1000..copied * 1000 + 1000;
                    match filling.copy(0, range, &mut row).unwrap() {
                        CopyOutcome::Copied => {
                            assert_eq!(row, [0xaa; 1000]);
                            copied += 1;
                        }
                        CopyOutcome::NotYet => std::thread::yield_now(),
                        CopyOutcome::Sealed => break,
                    }
                }
            });
        }
        scope.spawn(|| {
            while filling.parts_missing() > 0 {
                std::thread::yield_now();
            }
            filling.seal().unwrap().verify().unwrap();
        });
    });
}
