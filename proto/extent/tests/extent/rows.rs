//! Copying many rows at once: the same bytes as one at a time, and no damaged row unnoticed.

#![expect(unsafe_code, reason = "bytes are damaged through a private mapping")]

use larder_extent::{
    Attached, ExtentView, Filling, Layout, PagePreference, PartSpec, Region, RowCopy, Sealed,
    copy_rows, copy_rows_verified,
};
use proptest::prelude::*;

use crate::support::{ID, handed_out};

/// Rows larger than this, in a batch of 8 MiB and more, are copied past the cache.
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

/// A sealed extent of patterned bytes, `salt` making it differ from others.
fn extent(regions: &[Region], salt: usize) -> Sealed {
    let layout = Layout::new(regions).unwrap();
    let part = |region| PartSpec { region, range: 0..layout.region_bytes(region) };
    let parts: Vec<_> = (0..regions.len()).map(part).collect();
    let filling = Filling::create(ID, layout, parts, PagePreference::Auto).unwrap();
    for index in 0..regions.len() {
        let mut part = filling.take_part(index).unwrap();
        for (at, byte) in part.iter_mut().enumerate() {
            *byte = (at * 7 + at / 251 + index * 13 + salt).to_le_bytes()[0];
        }
        part.finish();
    }
    filling.seal().unwrap()
}

fn private(sealed: &Sealed) -> Attached {
    Attached::private(handed_out(sealed), ID).unwrap()
}

/// Flips bits of a byte of a region in this process's own copy.
fn damage(view: &ExtentView, region: usize, at: usize) {
    assert!(at < view.region(region).len());
    let offset = usize::try_from(view.file_offset(region)).unwrap() + at;
    // SAFETY: the mapping is private and writable, the byte lies in it, and no slice of it is held.
    unsafe {
        let byte = view.base().add(offset);
        byte.write_volatile(byte.read_volatile() ^ 0x41);
    }
}

/// What is wanted of one region of several extents, each row with a gap of `gap` bytes after it.
fn wanted(
    views: &[&ExtentView],
    region: usize,
    rows: &[(usize, u64)],
    gap: usize,
) -> (Vec<RowCopy>, usize) {
    let mut at = 0;
    let place = |&(source, row): &(usize, u64)| {
        let copy = RowCopy { source, row, at };
        at += views[source].row(region, row).len() + gap;
        copy
    };
    let copies = rows.iter().map(place).collect();
    (copies, at)
}

/// Copies in bulk and compares everything with single rows: bytes, reports, and what lies between.
fn check_against_single_rows(views: &[&ExtentView], region: usize, copies: &[RowCopy], out: usize) {
    let sources: Vec<_> = views.iter().map(|view| view.rows(region)).collect();
    let (mut bulk, mut plain, mut single) = (vec![0xee; out], vec![0xee; out], vec![0xee; out]);
    let (mut damaged, mut expected) = (Vec::new(), Vec::new());
    copy_rows_verified(&sources, copies.iter().copied(), &mut bulk, |copy| damaged.push(copy));
    copy_rows(&sources, copies.iter().copied(), &mut plain);
    for &copy in copies {
        let bytes = views[copy.source].row(region, copy.row).len();
        let target = &mut single[copy.at..][..bytes];
        if views[copy.source].copy_row_verified(region, copy.row, target).is_err() {
            expected.push(copy);
        }
    }
    assert_eq!(damaged, expected);
    assert!(bulk == single, "bytes of a checked copy");
    assert!(plain == single, "bytes of a plain copy");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn many_rows_at_once_are_what_single_rows_are(
        region in 0..REGIONS.len(),
        picks in proptest::collection::vec((0_usize..2, any::<proptest::sample::Index>()), 0..80),
        flips in proptest::collection::vec((0_usize..2, any::<proptest::sample::Index>()), 0..3),
        gap in 0_usize..3,
    ) {
        let sealed = [extent(&REGIONS, 1), extent(&REGIONS, 2)];
        let attached = sealed.each_ref().map(private);
        for (view, at) in flips {
            let bytes = attached[view].region(region).len();
            if bytes > 0 {
                damage(&attached[view], region, at.index(bytes));
            }
        }
        let views = attached.each_ref().map(|view| &**view);
        let count = usize::try_from(REGIONS[region].rows()).unwrap();
        let rows: Vec<_> =
            picks.iter().map(|(view, row)| (*view, row.index(count) as u64)).collect();
        let (copies, out) = wanted(&views, region, &rows, gap);
        check_against_single_rows(&views, region, &copies, out);
    }
}

#[test]
fn a_damaged_byte_anywhere_in_a_long_row_of_a_large_batch_is_noticed() {
    let long = [Region::Rows { rows: 30, row_bytes: LONG_ROW_BYTES, stride_bytes: 40_960 }];
    let sealed = [extent(&long, 3), extent(&long, 4)];
    let attached = sealed.each_ref().map(private);
    let row_bytes = usize::try_from(LONG_ROW_BYTES).unwrap();
    for (row, byte) in [(2, 0), (5, row_bytes - 1), (9, 4095), (11, 4096), (20, 20_000)] {
        damage(&attached[1], 0, row * 40_960 + byte);
    }
    // Between two rows: nobody's byte.
    damage(&attached[1], 0, 15 * 40_960 + row_bytes);
    let views = attached.each_ref().map(|view| &**view);
    let rows: Vec<_> = (0..240).map(|at| (at % 2, (at as u64 * 7) % 30)).collect();
    let (copies, out) = wanted(&views, 0, &rows, 1);
    assert!(out >= 9 << 20, "a large batch has {out} bytes");
    check_against_single_rows(&views, 0, &copies, out);
    let mut damaged = Vec::new();
    let sources = views.map(|view| view.rows(0));
    copy_rows_verified(&sources, copies.into_iter(), &mut vec![0; out], |copy| {
        damaged.push((copy.source, copy.row));
    });
    damaged.sort_unstable();
    damaged.dedup();
    assert_eq!(damaged, [(1, 5), (1, 9), (1, 11)], "odd rows of the second extent");
}

#[test]
fn nothing_wanted_is_nothing_copied() {
    let sealed = extent(&REGIONS, 5);
    let mut out = [0xee; 4];
    let never = |copy| panic!("{copy:?} was not wanted");
    copy_rows_verified(&[], std::iter::empty(), &mut out, never);
    let empty = RowCopy { source: 0, row: 3, at: 4 };
    copy_rows_verified(&[sealed.rows(5)], [empty; 20].into_iter(), &mut out, never);
    assert_eq!(out, [0xee; 4]);
}

#[test]
#[should_panic(expected = "row 300 of a region of 300 rows")]
fn a_row_that_is_not_there_is_a_mistake_of_the_caller() {
    let sealed = extent(&REGIONS, 6);
    let copy = RowCopy { source: 0, row: 300, at: 0 };
    copy_rows(&[sealed.rows(0)], std::iter::once(copy), &mut [0; 512]);
}
