//! Copies many rows at once: the bytes equal those of single copies, and every damaged row is
//! found.

use std::fs::File;
use std::io::Read;

use larder_extent::{
    Attached, ExtentLayout, ExtentView, Filling, PagePreference, PartSpec, Region, RegionRows,
    RowCopy, Sealed, copy_rows, copy_rows_verified,
};
use proptest::prelude::*;

use crate::hostile::attach_whole;
use crate::support::{ID, handed_out};

/// A row length that is copied past the cache in a batch of 8 MiB and more.
const LONG_ROW_BYTES: u64 = 40_007;

const REGIONS: [Region; 7] = [
    Region::Rows { rows: 300, row_bytes: 512, stride_bytes: 512 },
    Region::Rows { rows: 90, row_bytes: 100, stride_bytes: 160 },
    Region::Rows { rows: 120, row_bytes: 256, stride_bytes: 64 },
    Region::Rows { rows: 3000, row_bytes: 5, stride_bytes: 5 },
    Region::Rows { rows: 500, row_bytes: 7, stride_bytes: 12 },
    Region::Rows { rows: 4, row_bytes: 0, stride_bytes: 0 },
    Region::Blocks { bytes: 5 * 4096 + 77 },
];

/// Seals an extent of patterned bytes; `salt` makes it differ from others.
fn extent(regions: &[Region], salt: usize) -> Sealed {
    let layout = ExtentLayout::new(regions).unwrap();
    let part = |region| PartSpec { region, range: 0..layout.region_bytes(region) };
    let parts: Vec<_> = (0..regions.len()).map(part).collect();
    let filling = Filling::create(ID, layout, parts, PagePreference::Auto).unwrap();
    for index in 0..regions.len() {
        let mut part = filling.take_part(index).unwrap();
        let byte = |at: usize| (at * 7 + at / 251 + index * 13 + salt).to_le_bytes()[0];
        let range = part.spec().range.clone();
        let bytes: Vec<u8> = (0..).zip(range).map(|(at, _)| byte(at)).collect();
        part.write(&bytes).unwrap();
        part.finish().unwrap();
    }
    filling.seal().unwrap()
}

/// Attaches the extent as a reader does, with bits flipped in these bytes of these regions.
fn damaged(sealed: &Sealed, flips: impl IntoIterator<Item = (usize, usize)>) -> Attached {
    let mut bytes = Vec::new();
    File::from(handed_out(sealed)).read_to_end(&mut bytes).unwrap();
    for (region, at) in flips {
        assert!(at < sealed.region(region).len());
        bytes[usize::try_from(sealed.file_offset(region)).unwrap() + at] ^= 0x41;
    }
    attach_whole(&bytes).unwrap()
}

/// Lists rows of some sources one after the other, each with a gap of `gap` bytes after it, and the
/// end of the last gap.
fn wanted<'a>(
    sources: &'a [RegionRows<'a>],
    rows: &[(usize, u64)],
    gap: usize,
) -> (Vec<RowCopy<'a>>, usize) {
    let mut at = 0;
    let place = |&(source, row): &(usize, u64)| {
        let copy = RowCopy { source: &sources[source], row, at };
        at += sources[source].bytes(row).len() + gap;
        copy
    };
    let copies = rows.iter().map(place).collect();
    (copies, at)
}

/// Copies rows of one region of some views in bulk, and one at a time. Bytes, gaps and reports must
/// be the same. Returns the damaged rows, as they were requested.
fn copied_as_single_rows(
    views: &[&ExtentView],
    region: usize,
    rows: &[(usize, u64)],
    gap: usize,
) -> Vec<(usize, u64)> {
    let sources: Vec<_> = views.iter().map(|view| view.rows(region)).collect();
    let (copies, out) = wanted(&sources, rows, gap);
    let (mut bulk, mut plain, mut single) = (vec![0xee; out], vec![0xee; out], vec![0xee; out]);
    let (mut reported, mut expected) = (Vec::new(), Vec::new());
    copy_rows_verified(copies.iter().copied(), &mut bulk, |copy| reported.push(copy.at));
    copy_rows(copies.iter().copied(), &mut plain);
    let mut damaged = Vec::new();
    for (&(view, row), copy) in rows.iter().zip(&copies) {
        let target = &mut single[copy.at..][..copy.source.bytes(row).len()];
        if views[view].copy_row_verified(region, row, target).is_err() {
            damaged.push((view, row));
            expected.push(copy.at);
        }
    }
    reported.sort_unstable();
    assert_eq!(reported, expected);
    assert!(bulk == single, "bytes of a checked copy");
    assert!(plain == single, "bytes of a plain copy");
    damaged
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn rows_copied_together_equal_rows_copied_singly(
        region in 0..REGIONS.len(),
        picks in proptest::collection::vec((0_usize..2, any::<proptest::sample::Index>()), 0..80),
        flips in proptest::collection::vec((0_usize..2, any::<proptest::sample::Index>()), 0..3),
        gap in 0_usize..3,
    ) {
        let sealed = [extent(&REGIONS, 1), extent(&REGIONS, 2)];
        let bytes = sealed[0].region(region).len();
        let flips = flips.iter().filter(|_| bytes > 0);
        let flips: Vec<_> = flips.map(|(view, at)| (*view, (region, at.index(bytes)))).collect();
        let of = |view| flips.iter().filter(move |flip| flip.0 == view).map(|flip| flip.1);
        let attached = [damaged(&sealed[0], of(0)), damaged(&sealed[1], of(1))];
        let views = attached.each_ref().map(|view| &**view);
        let count = usize::try_from(REGIONS[region].rows()).unwrap();
        let rows: Vec<_> =
            picks.iter().map(|(view, row)| (*view, row.index(count) as u64)).collect();
        let damaged = copied_as_single_rows(&views, region, &rows, gap);
        let intact = |&(view, row): &(usize, u64)| views[view].verify_row(region, row);
        prop_assert!(!damaged.iter().any(intact));
        prop_assert_eq!(damaged.len(), rows.iter().filter(|&row| !intact(row)).count());
    }
}

#[test]
fn finds_damaged_byte_anywhere_in_long_row_of_large_batch() {
    let long = [Region::Rows { rows: 30, row_bytes: LONG_ROW_BYTES, stride_bytes: 40_960 }];
    let sealed = [extent(&long, 3), extent(&long, 4)];
    let row_bytes = usize::try_from(LONG_ROW_BYTES).unwrap();
    // The last lies between two rows, in no row's bytes.
    let flips = [(2, 0), (5, row_bytes - 1), (9, 4095), (11, 4096), (20, 20_000), (15, row_bytes)];
    let flips = flips.map(|(row, byte)| (0, row * 40_960 + byte));
    let attached = [damaged(&sealed[0], []), damaged(&sealed[1], flips)];
    let views = attached.each_ref().map(|view| &**view);
    let rows: Vec<_> = (0..240).map(|at| (at % 2, (at as u64 * 7) % 30)).collect();
    let mut damaged = copied_as_single_rows(&views, 0, &rows, 1);
    damaged.sort_unstable();
    damaged.dedup();
    assert_eq!(damaged, [(1, 5), (1, 9), (1, 11)], "odd rows of the second extent");
}

#[test]
fn empty_requests_copy_nothing() {
    let sealed = extent(&REGIONS, 5);
    let mut out = [0xee; 4];
    let never = |copy: RowCopy<'_>| panic!("{copy:?} was not wanted");
    copy_rows_verified(std::iter::empty(), &mut out, never);
    let empty = RowCopy { source: &sealed.rows(5), row: 3, at: 4 };
    copy_rows_verified([empty; 20].into_iter(), &mut out, never);
    assert_eq!(out, [0xee; 4]);
}

#[test]
fn copying_stops_at_the_first_end_of_an_iterator() {
    let sealed = extent(&REGIONS, 7);
    let source = sealed.rows(0);
    let row_bytes = source.bytes(0).len();
    for end in [3, 16, 17] {
        let mut out = vec![0xee; 40 * row_bytes];
        let copy = |row: usize| {
            (row != end).then(|| RowCopy { source: &source, row: row as u64, at: row * row_bytes })
        };
        copy_rows((0..40).map_while(copy), &mut out);
        assert!(out[..end * row_bytes].iter().any(|&byte| byte != 0xee));
        assert!(out[end * row_bytes..].iter().all(|&byte| byte == 0xee), "rows after row {end}");
    }
}

#[test]
#[should_panic(expected = "row 300 of a region of 300 rows")]
fn copying_a_row_out_of_range_panics() {
    let sealed = extent(&REGIONS, 6);
    let copy = RowCopy { source: &sealed.rows(0), row: 300, at: 0 };
    copy_rows(std::iter::once(copy), &mut [0; 512]);
}
