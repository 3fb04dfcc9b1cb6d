//! The mappings of a reader: their cost, and rows to be written to.

#![expect(unsafe_code, reason = "the tests write to private views")]

use std::ops::Range;
use std::sync::Arc;

use larder_extent::{
    Attached, ExtentLayout, Filling, PagePreference, PageSize, PartSpec, PrivateView, Region, pages,
};

use crate::support::{ID, handed_out, in_child, no_other_forks, sealed, smaps_kib};

fn attached() -> Arc<Attached> {
    Arc::new(Attached::with_private_views(handed_out(&sealed()), ID).unwrap())
}

fn read(view: &PrivateView) -> Vec<u8> {
    // SAFETY: the bytes are in a view of the test, which does not write meanwhile.
    unsafe { std::slice::from_raw_parts(view.base().as_ptr(), view.len()) }.to_vec()
}

fn fill(view: &PrivateView, byte: u8) {
    // SAFETY: the bytes are in a view of the test, which holds no slice of them.
    unsafe { view.base().write_bytes(byte, view.len()) };
}

/// Returns the KiB of the pages of a view of which the process has its own copies.
fn copied_kib(view: &PrivateView) -> u64 {
    let start = view.base().addr().get();
    smaps_kib(&(start..start + view.len()), "Anonymous")
}

fn rows(extent: &Attached, region: usize, rows: Range<u64>) -> Vec<u8> {
    rows.flat_map(|row| extent.row(region, row).to_vec()).collect()
}

#[test]
fn shared_mapping_is_populated_without_copies() {
    let sealed = sealed();
    let shared = Attached::shared(handed_out(&sealed), ID).unwrap();
    shared.verify().unwrap();
    let at = shared.addresses();
    assert_eq!(smaps_kib(&at, "Anonymous"), 0);
    assert_eq!(smaps_kib(&at, "Rss") * 1024, shared.total_bytes());
}

#[test]
fn views_any_byte_range_of_a_region_without_rows() {
    let extent = attached();
    for bytes in [0..0, 0..1, 4095..4097, 100..100_000, 4096..8192] {
        let [start, end] = [bytes.start, bytes.end].map(|at| usize::try_from(at).unwrap());
        let seen = extent.bytes_verified(2, &bytes).unwrap();
        assert_eq!(seen, &extent.region(2)[start..end]);
        match extent.private_view_bytes(2, &bytes) {
            Some(view) => assert_eq!(read(&view), seen),
            None => assert!(bytes.is_empty(), "{bytes:?}"),
        }
    }
    let held = extent.private_view_bytes(2, &(10..20)).unwrap();
    assert!(extent.private_view_bytes(2, &(19..30)).is_none(), "it is in a view already");
    drop(held);
    assert!(extent.private_view_bytes(2, &(19..30)).is_some());
}

#[test]
#[should_panic(expected = "region 0 has rows")]
fn refuses_to_read_a_row_region_as_blocks() {
    let _ = attached().bytes_of_blocks(0, &(0..1));
}

#[test]
fn private_view_shows_the_rows_without_copies() {
    let extent = attached();
    for region in [0, 1] {
        let view = extent.private_view(region, 3..50).unwrap();
        assert_eq!(read(&view), rows(&extent, region, 3..50));
        assert_eq!(copied_kib(&view), 0);
    }
    let blocks = extent.private_view(2, 0..768).unwrap();
    assert_eq!(read(&blocks), extent.region(2));
    assert_eq!(copied_kib(&blocks), 0);
}

#[test]
fn writes_of_a_holder_are_invisible_to_other_readers() {
    let sealed = sealed();
    let extent = Arc::new(Attached::with_private_views(handed_out(&sealed), ID).unwrap());
    let other = Attached::shared(handed_out(&sealed), ID).unwrap();
    let view = extent.private_view(2, 10..11).unwrap();
    fill(&view, 0xff);
    assert_eq!(read(&view), [0xff; 4096]);
    assert_eq!(copied_kib(&view), 4);
    for reader in [&**extent, &*other, &*sealed] {
        reader.verify().unwrap();
    }
    assert_eq!(read(&extent.private_view(2, 9..10).unwrap()), extent.row(2, 9), "its neighbour");
}

#[test]
fn rows_have_one_private_view_at_a_time() {
    let extent = attached();
    let view = extent.private_view(0, 10..20).unwrap();
    for taken in [10..11, 19..20, 5..11, 19..30, 0..100, 12..15] {
        assert!(extent.private_view(0, taken.clone()).is_none(), "{taken:?}");
    }
    let around = [extent.private_view(0, 0..10).unwrap(), extent.private_view(0, 20..100).unwrap()];
    drop(view);
    assert!(extent.private_view(0, 10..20).is_some());
    drop(around);
}

#[test]
fn written_pages_are_viewed_again_only_after_a_reset() {
    let extent = attached();
    let elsewhere = extent.private_view(2, 0..1).unwrap();
    let view = extent.private_view(2, 5..6).unwrap();
    fill(&view, 1);
    drop(view);
    assert!(
        extent.private_view(2, 5..6).is_none(),
        "another view keeps the mapping from being reset"
    );
    assert!(extent.private_view(2, 6..7).is_some(), "other pages are as good as ever");
    fill(&elsewhere, 2);
    assert_eq!(read(&elsewhere), [2; 4096]);
    drop(elsewhere);
    let again = extent.private_view(2, 5..6).unwrap();
    assert_eq!(read(&again), extent.row(2, 5));
    assert_eq!(copied_kib(&again), 0);
}

#[test]
fn writes_to_every_view_do_not_fill_memory() {
    let extent = attached();
    let held = extent.private_view(2, 767..768).unwrap();
    for block in (0..767).cycle().take(5000) {
        if let Some(view) = extent.private_view(2, block..block + 1) {
            fill(&view, 3);
        }
    }
    let start = held.base().addr().get() & !0xfff;
    let copied = smaps_kib(&(start..start + 1), "Anonymous");
    assert!(copied <= 3 << 10, "{copied} KiB");
    drop(held);
    let view = extent.private_view(2, 0..768).unwrap();
    assert_eq!(copied_kib(&view), 0);
    extent.verify().unwrap();
}

/// Makes an extent of one region of `bytes` zeros, attached for private views.
fn lending_zeros(bytes: u64) -> Arc<Attached> {
    let layout = ExtentLayout::new(&[Region::Blocks { bytes }]).unwrap();
    let parts = vec![PartSpec { region: 0, range: 0..bytes }];
    let filling = Filling::create(ID, layout, parts, PagePreference::Small).unwrap();
    filling.take_part(0).unwrap().finish().unwrap();
    Arc::new(Attached::with_private_views(handed_out(&filling.seal().unwrap()), ID).unwrap())
}

#[test]
fn single_written_byte_is_reset_before_the_next_view() {
    for byte in [0, 4096, 8191, 50 * 4096 + 7, 400_000 - 1] {
        let extent = lending_zeros(1 << 20);
        let view = extent.private_view_bytes(0, &(0..400_000)).unwrap();
        // SAFETY: the byte is in a view of the test.
        unsafe { view.base().add(byte).write(1) };
        drop(view);
        let again = extent.private_view_bytes(0, &(4096..400_000)).unwrap();
        assert!(read(&again).iter().all(|&byte| byte == 0), "after byte {byte} was written");
    }
}

#[test]
fn returned_rows_can_be_viewed_again_but_held_ones_cannot() {
    let extent = attached();
    let held = extent.private_view(2, 0..10).unwrap();
    drop(extent.private_view(2, 10..20).unwrap());
    extent.settle_views();
    assert!(extent.private_view(2, 5..15).is_none());
    assert!(extent.private_view(2, 10..20).is_some());
    drop(held);
    assert!(extent.private_view(2, 0..20).is_some());
}

#[test]
fn returned_view_does_not_block_the_reset_of_pages() {
    let extent = attached();
    let written = extent.private_view(2, 5..6).unwrap();
    fill(&written, 1);
    let only_read = extent.private_view(2, 100..200).unwrap();
    drop(written);
    drop(only_read);
    let again = extent.private_view(2, 5..6).expect("nothing is held");
    assert_eq!(read(&again), extent.row(2, 5));
    assert_eq!(copied_kib(&again), 0);
}

#[test]
fn working_in_place_leaves_no_page_copies() {
    let extent = lending_zeros(20 << 20);
    let view = extent.private_view_bytes(0, &(0..20 << 20)).unwrap();
    let start = view.base().addr().get() & !0xfff;
    let copied_kib = || smaps_kib(&(start..start + 1), "Anonymous");
    fill(&view, 9);
    assert_eq!(copied_kib(), 20 << 10);
    drop(view);
    assert_eq!(copied_kib(), 0);
}

#[test]
fn page_copies_are_freed_with_the_last_view() {
    let extent = lending_zeros(20 << 20);
    let written = extent.private_view_bytes(0, &(0..1 << 20)).unwrap();
    let only_read = extent.private_view_bytes(0, &(2 << 20..20 << 20)).unwrap();
    let start = written.base().addr().get() & !0xfff;
    let copied_kib = || smaps_kib(&(start..start + 1), "Anonymous");
    fill(&written, 9);
    drop(written);
    assert_eq!(copied_kib(), 1 << 10, "it can't be turned back yet");
    drop(only_read);
    assert_eq!(copied_kib(), 0);
}

#[test]
fn writing_all_but_row_starts_leaves_no_page_copies() {
    const ROW_BYTES: usize = 5 * 65_536;
    let extent = lending_zeros(64 * ROW_BYTES as u64);
    let view = extent.private_view_bytes(0, &(0..64 * ROW_BYTES as u64)).unwrap();
    for row in 0..64 {
        // SAFETY: the bytes are in a view of the test, which holds no slice of them.
        unsafe { view.base().add(row * ROW_BYTES + 65_536).write_bytes(9, ROW_BYTES - 65_536) };
    }
    let start = view.base().addr().get() & !0xfff;
    drop(view);
    assert_eq!(smaps_kib(&(start..start + 1), "Anonymous"), 0);
}

#[test]
fn overlapping_rows_are_viewed_one_at_a_time() {
    let layout =
        ExtentLayout::new(&[Region::Rows { rows: 9, row_bytes: 200, stride_bytes: 100 }]).unwrap();
    let parts = vec![PartSpec { region: 0, range: 0..1000 }];
    let filling = Filling::create(ID, layout, parts, PagePreference::Small).unwrap();
    filling.take_part(0).unwrap().finish().unwrap();
    let sealed = filling.seal().unwrap();
    let extent = Arc::new(Attached::with_private_views(handed_out(&sealed), ID).unwrap());
    assert!(extent.private_view(0, 0..2).is_none());
    assert!(extent.rows_verified(0, 0..2).unwrap().is_none());
    let one = extent.private_view(0, 0..1).unwrap();
    assert!(extent.private_view(0, 1..2).is_none(), "its second half is in a view");
    assert_eq!(one.len(), extent.rows_verified(0, 8..9).unwrap().unwrap().len());
}

#[test]
fn forked_child_keeps_its_views_and_gets_no_new_ones() {
    let _alone = no_other_forks();
    let extent = attached();
    let view = extent.private_view(0, 0..10).unwrap();
    fill(&view, 7);
    let after = extent.private_view(2, 0..1).unwrap();
    in_child(|| {
        assert_eq!(read(&view), [7; 10_000]);
        fill(&view, 8);
        fill(&after, 8);
        assert!(extent.private_view(2, 1..2).is_none());
        drop((view, after));
    });
    let extent = attached();
    let view = extent.private_view(0, 0..10).unwrap();
    in_child(|| fill(&view, 8));
    assert_eq!(read(&view), rows(&extent, 0, 0..10), "a child's writes are its own");
}

#[test]
fn every_mapping_gets_the_page_size_of_the_host() {
    let bytes = 16 << 20;
    let fill = |preference| {
        let layout = ExtentLayout::new(&[Region::Blocks { bytes }]).unwrap();
        let parts = vec![PartSpec { region: 0, range: 0..bytes }];
        let filling = Filling::create(ID, layout, parts, preference).unwrap();
        filling.take_part(0).unwrap().finish().unwrap();
        filling.seal().unwrap()
    };
    let best = pages::probe().unwrap().page_size;
    for (preference, expected) in
        [(PagePreference::Auto, best), (PagePreference::Small, PageSize::Small)]
    {
        let sealed = fill(preference);
        assert_eq!(sealed.page_size(), expected);
        let shared = Attached::shared(handed_out(&sealed), ID).unwrap();
        assert_eq!(shared.page_size(), expected);
    }
}
