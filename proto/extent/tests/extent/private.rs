//! The private mapping: reads share the pages, a stray write harms nobody else.

#![expect(unsafe_code, reason = "a stray write is what is tested")]

use larder_extent::{Attached, Filling, Layout, PagePreference, PageSize, PartSpec, Region, pages};

use crate::support::{ID, addresses, handed_out, sealed, smaps_kib};

#[test]
fn a_private_map_copies_nothing_by_attaching_and_reading() {
    let sealed = sealed();
    let private = Attached::private(handed_out(&sealed), ID).unwrap();
    private.verify().unwrap();
    assert_eq!(private.region(2), sealed.region(2));
    let at = addresses(&private);
    assert_eq!(smaps_kib(&at, "Anonymous"), 0);
    assert_eq!(smaps_kib(&at, "Rss") * 1024, private.total_bytes(), "it is faulted in");
}

#[test]
fn a_shared_map_is_faulted_in_and_copies_nothing() {
    let sealed = sealed();
    let shared = Attached::shared(handed_out(&sealed), ID).unwrap();
    shared.verify().unwrap();
    let at = addresses(&shared);
    assert_eq!(smaps_kib(&at, "Anonymous"), 0);
    assert_eq!(smaps_kib(&at, "Rss") * 1024, shared.total_bytes());
}

#[test]
fn a_stray_write_changes_one_page_of_the_writer_and_nothing_else() {
    let sealed = sealed();
    let writer = Attached::private(handed_out(&sealed), ID).unwrap();
    let reader = Attached::private(handed_out(&sealed), ID).unwrap();
    let offset = usize::try_from(writer.file_offset(0)).unwrap();
    let was = writer.row(0, 0)[0];
    // SAFETY: the mapping is private and writable, the byte lies in it, and no slice of it is held.
    unsafe { writer.base().add(offset).write_volatile(!was) };
    assert_eq!(writer.row(0, 0)[0], !was);
    assert!(!writer.verify_row(0, 0), "the writer's own copy shows its damage");
    assert_eq!(smaps_kib(&addresses(&writer), "Anonymous"), 4);
    reader.verify().unwrap();
    sealed.verify().unwrap();
    Attached::shared(handed_out(&sealed), ID).unwrap().verify().unwrap();
}

#[test]
fn every_mapping_of_an_extent_gets_the_pages_that_the_host_gives() {
    let bytes = 16 << 20;
    let fill = |preference| {
        let layout = Layout::new(&[Region::Blocks { bytes }]).unwrap();
        let parts = vec![PartSpec { region: 0, range: 0..bytes }];
        let filling = Filling::create(ID, layout, parts, preference).unwrap();
        filling.take_part(0).unwrap().finish();
        (filling.page_size(), filling.seal().unwrap())
    };
    let best = pages::probe().unwrap().page_size;
    for (preference, expected) in
        [(PagePreference::Auto, best), (PagePreference::Small, PageSize::Small)]
    {
        let (filled, sealed) = fill(preference);
        assert_eq!((filled, sealed.page_size()), (expected, expected));
        let shared = Attached::shared(handed_out(&sealed), ID).unwrap();
        let private = Attached::private(handed_out(&sealed), ID).unwrap();
        assert_eq!((shared.page_size(), private.page_size()), (expected, expected));
        private.verify().unwrap();
        assert_eq!(smaps_kib(&addresses(&private), "Anonymous"), 0);
    }
}
