use super::{
    EXTENT_BYTES_MAX, ExtentLayout, FIXED_BYTES, FixedHeader, PAGE_BYTES, REGIONS_MAX, Region,
};
use crate::{ExtentError, ExtentId};
use proptest::prelude::*;

fn rows(rows: u64, row_bytes: u64, stride_bytes: u64) -> Region {
    Region::Rows { rows, row_bytes, stride_bytes }
}

#[test]
fn regions_lie_on_pages_behind_the_tables() {
    let layout = ExtentLayout::new(&[rows(10, 100, 100), Region::Blocks { bytes: 9000 }]).unwrap();
    assert_eq!(layout.region_bytes(0), 1000);
    assert_eq!(layout.region_offset(0), 4096);
    assert_eq!(layout.region_offset(1), 8192);
    assert_eq!(layout.total_bytes(), 8192 + 12288);
    assert_eq!(layout.tables(), 64 + 2 * 64..64 + 2 * 64 + (10 + 3) * 4);
}

#[test]
fn short_rows_share_a_checksum_and_long_rows_have_their_own() {
    let layout = ExtentLayout::new(&[rows(1000, 8, 8), rows(3, 64, 32), rows(7, 63, 63)]).unwrap();
    let [short, windows, odd] = layout.placed() else { panic!("three regions") };
    assert_eq!((short.rows_per_unit(), short.units), (512, 2));
    assert_eq!(short.unit_range(1), 4096..8000);
    assert_eq!(windows.units, 3);
    assert_eq!(windows.unit_range(1), 32..96);
    assert_eq!((odd.rows_per_unit(), odd.units), (65, 1));
    assert_eq!(odd.unit_range(0), 0..441);
}

#[test]
fn the_units_within_a_range_are_those_wholly_in_it() {
    let layout = ExtentLayout::new(&[rows(10, 100, 50)]).unwrap();
    let region = &layout.placed()[0];
    assert_eq!(region.units_within(&(0..550)), 0..10);
    assert_eq!(region.units_within(&(50..200)), 1..3);
    assert_eq!(region.units_within(&(51..149)), 2..2);
}

#[test]
fn regions_of_empty_rows_or_no_rows_have_no_bytes() {
    let layout =
        ExtentLayout::new(&[rows(5, 0, 0), rows(0, 8, 8), Region::Blocks { bytes: 0 }]).unwrap();
    assert_eq!(layout.total_bytes(), PAGE_BYTES);
    assert_eq!(layout.placed()[0].row_range(4), 0..0);
    assert!(layout.tables().is_empty());
}

#[test]
fn refuses_impossible_layouts() {
    let refused = |regions: &[Region]| ExtentLayout::new(regions).unwrap_err();
    assert!(matches!(refused(&[rows(2, 8, 0)]), ExtentError::BadRegion { region: 0, .. }));
    assert!(matches!(refused(&[rows(3, 8, u64::MAX)]), ExtentError::BadRegion { .. }));
    let full = Region::Blocks { bytes: EXTENT_BYTES_MAX };
    assert!(matches!(refused(&[full]), ExtentError::TooLarge { region: 0, .. }));
    let many = vec![Region::Blocks { bytes: 1 }; REGIONS_MAX + 1];
    assert!(matches!(refused(&many), ExtentError::TooManyRegions { count: 4097, .. }));
    let overlapping = rows(1 << 25, 1 << 25, 1);
    assert!(matches!(refused(&[overlapping]), ExtentError::TooMuchHashing { .. }));
}

fn any_region() -> impl Strategy<Value = Region> {
    let number = || prop_oneof![0..5000_u64, any::<u64>(), (0..64_u32).prop_map(|bit| 1 << bit)];
    prop_oneof![
        (number(), number(), number()).prop_map(|(n, row, stride)| rows(n, row, stride)),
        number().prop_map(|bytes| Region::Blocks { bytes }),
    ]
}

proptest! {
    #[test]
    fn a_layout_accepts_or_refuses_any_numbers_and_never_overlaps(
        regions in prop::collection::vec(any_region(), 0..6)
    ) {
        let Ok(layout) = ExtentLayout::new(&regions) else { return Ok(()) };
        prop_assert!(layout.total_bytes() <= EXTENT_BYTES_MAX);
        prop_assert_eq!(layout.total_bytes() % PAGE_BYTES, 0);
        let mut end = layout.tables().end;
        let mut crc_end = layout.tables().start;
        for placed in layout.placed() {
            prop_assert!(placed.offset >= end && placed.offset % PAGE_BYTES == 0);
            end = placed.offset + placed.bytes;
            prop_assert_eq!(placed.crc_offset, crc_end);
            crc_end += placed.units * 4;
            if placed.units > 0 {
                prop_assert_eq!(placed.unit_range(0).start, 0);
                prop_assert_eq!(placed.unit_range(placed.units - 1).end, placed.bytes);
                prop_assert_eq!(placed.row_range(placed.region.rows() - 1).end, placed.bytes);
            }
        }
        prop_assert!(end <= layout.total_bytes());
        prop_assert_eq!(crc_end, layout.tables().end);
    }

    #[test]
    fn header_reads_back_and_any_changed_byte_is_refused(
        regions in prop::collection::vec(any_region(), 0..6),
        position in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let Ok(layout) = ExtentLayout::new(&regions) else { return Ok(()) };
        let id = ExtentId::from_bytes([7; 16]);
        let mut header = super::encode(id, &layout);
        let read = |header: &[u8]| {
            let fixed = FixedHeader::decode(header.first_chunk::<FIXED_BYTES>().unwrap())?;
            if fixed.header_bytes() != header.len() {
                return Err(ExtentError::NotAnExtent { reason: "another length" });
            }
            super::decode(&fixed, header)
        };
        prop_assert_eq!(read(&header).unwrap(), layout);
        let at = position.index(header.len());
        header[at] ^= flip;
        prop_assert!(read(&header).is_err());
    }
}
