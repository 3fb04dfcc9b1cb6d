//! Opening datasets in folders.

use larder_base::ErrorKind;
use larder_dataset::{DatasetRef, OriginUri};

use super::*;
use crate::testing::{CacheFixture, Folder};

fn reference(text: &str) -> WantedDataset {
    WantedDataset::by_node(DatasetRef::parse(text).unwrap(), None)
}

/// Creates a folder of four shards, and a cache with room for manifests only.
fn pantry() -> (Folder, CacheFixture) {
    let folder = Folder::new(64, 64, 4096, false);
    let fixture = CacheFixture::unmanned(&folder, 0);
    (folder, fixture)
}

#[test]
fn dataset_is_open_once_under_all_its_names() {
    let (folder, fixture) = pantry();
    let snapshot = fixture.dataset.snapshot();
    for text in [folder.uri().to_string(), format!("{}@{snapshot}", folder.uri())] {
        let opened = fixture.runtime.block_on(fixture.catalog.open(&reference(&text)));
        let opened = opened.unwrap();
        assert!(Arc::ptr_eq(&opened.dataset, &fixture.dataset), "{text}");
        assert!(!opened.indexed_now);
    }
    assert_eq!(fixture.catalog.list().len(), 1);
    assert!(fixture.catalog.get(snapshot).is_some());
}

#[test]
fn mapped_manifest_equals_the_published_one() {
    let (_folder, fixture) = pantry();
    let mapped = Manifest::parse(fixture.dataset.manifest_extent().region(0).to_vec().into());
    assert_eq!(mapped.unwrap().snapshot(), fixture.dataset.snapshot());
    assert_eq!(fixture.cache.usage().resident.shards, 2, "the manifest and its leaf");
}

#[test]
fn dataset_outside_the_prefixes_is_refused_naming_them() {
    let (folder, fixture) = pantry();
    let (inside, elsewhere) = (folder.uri(), Folder::new(64, 64, 4096, false));
    let outside = [
        (elsewhere.uri().to_string(), None),
        (format!("{inside}x"), None),
        ("s3://bucket/data".to_owned(), None),
        (inside.to_string(), Some(elsewhere.uri())),
    ];
    for (uri, manifest) in outside {
        let wanted = WantedDataset { manifest, ..reference(&uri) };
        let opened = fixture.catalog.open(&wanted);
        let refused = fixture.runtime.block_on(opened).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{uri}");
        assert!(refused.message().contains(&inside.to_string()), "{refused}");
    }
}

#[test]
fn manifest_of_data_at_another_address_is_refused() {
    let (folder, fixture) = pantry();
    let elsewhere = Folder::new(64, 64, 4096, false);
    // The allowed folder gets the other folder's manifest and tag.
    let (from, to) = (elsewhere.uri().path().to_owned(), folder.uri().path().to_owned());
    let (from, to) = (format!("/{from}/.larder"), format!("/{to}/.larder"));
    std::fs::remove_dir_all(&to).unwrap();
    std::fs::rename(from, to).unwrap();
    let wanted = reference(&folder.uri().to_string());
    let refused = fixture.runtime.block_on(fixture.catalog.open(&wanted)).unwrap_err();
    assert_ne!(refused.kind(), ErrorKind::Internal, "{refused}");
    assert_eq!(fixture.catalog.list().len(), 1);
}

#[test]
fn dataset_is_not_opened_without_room_for_its_manifest() {
    let (folder, fixture) = pantry();
    let wanted = reference(&folder.uri().to_string());
    let bytes = fixture.dataset.manifest_extent().total_bytes();
    fixture.cache.drop_manifest(fixture.dataset.snapshot());
    let catalog = Catalog::new(vec![folder.uri()], crate::testing::cache(bytes - 1));
    let refused = fixture.runtime.block_on(catalog.open(&wanted)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
    assert!(catalog.list().is_empty());
}

#[test]
fn full_node_evicts_a_shard_for_another_manifest() {
    let folder = Folder::new(8, 1024, 4096, false);
    let fixture = CacheFixture::new(&folder, CacheFixture::extent_bytes(&folder, 4));
    let mut in_use = crate::cache::InUse::new(&fixture.cache);
    in_use.note(&fixture.dataset);
    drop(fixture.get(0).unwrap());
    fixture.cache.keep_manifest(SnapshotId::from_bytes([3; 32]), &[7; 100]).unwrap();
    assert_eq!(fixture.counters.evictions.get(), 1);
}

#[test]
fn links_lead_out_of_the_prefixes_only_on_a_private_node() {
    let (folder, fixture) = pantry();
    let elsewhere = tempfile::tempdir().unwrap();
    let (inner, path) =
        (format!("{}/inner", folder.uri()), format!("/{}/inner", folder.uri().path()));
    std::fs::copy(folder.file(), elsewhere.path().join("rows.npy")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), path).unwrap();
    let catalog = || Catalog::new(vec![folder.uri()], crate::testing::cache(1 << 20));
    let open = |catalog: &Catalog| fixture.runtime.block_on(catalog.open(&reference(&inner)));
    let refused = open(&catalog()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(refused.message().contains("through a link"), "{refused}");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 1, "nothing was written");
    assert!(open(&catalog().following_links()).unwrap().indexed_now);
}

#[test]
fn large_manifest_reserves_budget_while_it_is_read() {
    let cache = crate::testing::cache(1 << 20);
    let budget = NodeOpenBudget::new(&cache);
    let taken =
        |room: &NodeOpenBudget, bytes| larder_dataset::OpenBudget::for_manifest(room, bytes);
    let small = taken(&budget, limits::MANIFEST_BYTES_FREE).unwrap();
    let full = 1 << 20;
    let large = taken(&budget, full).unwrap();
    let refused = taken(&budget, full).unwrap_err();
    assert!(refused.contains("can't be kept"), "{refused}");
    drop(large);
    drop(taken(&budget, full).unwrap());
    drop(small);
    assert_eq!(cache.usage().resident.shards, 0);
}

#[test]
fn unindexed_folder_is_indexed_and_reported() {
    let (folder, fixture) = pantry();
    let inner = format!("{}/inner", folder.uri());
    let path = format!("/{}/inner", folder.uri().path());
    std::fs::create_dir(&path).unwrap();
    std::fs::copy(folder.file(), format!("{path}/rows.npy")).unwrap();
    std::fs::write(format!("{path}/notes.txt"), b"of mine").unwrap();
    let catalog = Catalog::new(vec![folder.uri()], crate::testing::cache(1 << 20));
    let open = || fixture.runtime.block_on(catalog.open(&reference(&inner))).unwrap();
    let first = open();
    let left_out = [first.left_out[0].to_string()];
    assert!(first.indexed_now);
    assert_eq!(left_out, ["notes.txt is not of a kind that can be indexed"]);
    let again = open();
    assert!(!again.indexed_now && again.left_out.is_empty());
    assert_eq!(open().dataset.uri(), &OriginUri::parse(&inner).unwrap());
}

#[test]
fn manifest_of_an_open_snapshot_is_not_reread() {
    let (folder, fixture) = pantry();
    let snapshot = fixture.dataset.snapshot();
    let home = format!("/{}/.larder", folder.uri().path());
    std::fs::remove_file(format!("{home}/{snapshot}.manifest")).unwrap();
    let wanted = reference(&folder.uri().to_string());
    let opened = fixture.runtime.block_on(fixture.catalog.open(&wanted)).unwrap();
    assert!(Arc::ptr_eq(&opened.dataset, &fixture.dataset));
}

#[test]
fn progress_of_an_opening_is_known_until_it_ends() {
    use larder_dataset::OpenBudget;
    let (folder, fixture) = pantry();
    let (catalog, wanted) = (&fixture.catalog, reference(&folder.uri().to_string()));
    let progress = || catalog.open_progress(&wanted.dataset, None).map_err(|why| why.kind());
    assert_eq!(progress(), Err(ErrorKind::NotFound));
    let queued = fixture.runtime.block_on(catalog.queue(&wanted)).unwrap();
    let Queued::Turn(turn) = queued else { panic!("nothing else opens it") };
    assert_eq!(progress(), Ok((None, None)));
    let request = OpenRequest::new(catalog, None, None, turn.queue());
    let step = IndexProgress::Headers { done: 1, total: 3 };
    request.indexes(step);
    assert_eq!(progress(), Ok((Some(step), None)));
    drop(request);
    assert_eq!(progress(), Ok((None, None)));
    drop(turn);
    assert_eq!(progress(), Err(ErrorKind::NotFound));
}

#[test]
fn old_meaning_of_a_tag_is_dropped_once_it_names_another() {
    use larder_dataset::OpenBudget;
    let (_folder, fixture) = pantry();
    let request = OpenRequest::new(&fixture.catalog, None, None, Arc::default());
    assert!(!request.is_answered() && !request.names_another_than(&fixture.dataset));
    let kept = request.kept(fixture.dataset.snapshot()).unwrap();
    assert_eq!(kept.snapshot(), fixture.dataset.snapshot());
    assert!(request.is_answered() && !request.names_another_than(&fixture.dataset));
    let request = OpenRequest::new(&fixture.catalog, None, None, Arc::default());
    assert!(request.kept(SnapshotId::from_bytes([7; 32])).is_none());
    drop(request.for_manifest(1).unwrap());
    assert!(request.names_another_than(&fixture.dataset));
}

#[test]
fn a_prefix_waits_for_permission_to_be_indexed() {
    let (folder, fixture) = pantry();
    let path = format!("/{}/inner", folder.uri().path());
    std::fs::create_dir(&path).unwrap();
    std::fs::copy(folder.file(), format!("{path}/rows.npy")).unwrap();
    let unindexed = reference(&format!("{}/inner", folder.uri()));
    let known = reference(&folder.uri().to_string());
    let catalog = Catalog::new(vec![folder.uri()], crate::testing::cache(1 << 20));
    fixture.runtime.block_on(async {
        let taken = [catalog.budget.turn_to_index().await, catalog.budget.turn_to_index().await];
        let queued = catalog.queue(&unindexed).await.unwrap();
        let Queued::Turn(turn) = queued else { panic!("{queued:?}") };
        let outcome = catalog.attempt(turn, &unindexed, None).await.unwrap();
        let Attempt::MustIndex(turn) = outcome else { panic!("no turn is free: {outcome:?}") };
        assert!(!catalog.open(&known).await.unwrap().indexed_now);
        let attempt = |turn, may_index| catalog.attempt(turn, &unindexed, may_index);
        let mut opening = Box::pin(catalog.open_in_turn(turn, attempt));
        assert!(futures_util::poll!(&mut opening).is_pending());
        drop(taken);
        assert!(opening.await.unwrap().indexed_now);
    });
}

#[test]
fn second_resolve_answers_all_waiting_callers() {
    let (folder, fixture) = pantry();
    let wanted = reference(&folder.uri().to_string());
    let catalog = &fixture.catalog;
    fixture.runtime.block_on(async {
        let queue = async || catalog.queue(&wanted).await;
        let Ok(Queued::Turn(first)) = queue().await else { panic!("nobody is before it") };
        let [mut second, mut third, mut fourth] = [(); 3].map(|()| Box::pin(queue()));
        for waiting in [&mut second, &mut third] {
            assert!(futures_util::poll!(waiting).is_pending());
        }
        first.end(Ok(Arc::clone(&fixture.dataset)));
        let Ok(Queued::Turn(turn)) = second.await else { panic!("the first began before it") };
        assert!(futures_util::poll!(&mut fourth).is_pending());
        turn.end(Err(Error::new(ErrorKind::NotFound, "gone")));
        assert_eq!(third.await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(matches!(fourth.await, Ok(Queued::Turn(_))), "the second began before it");
    });
}

#[test]
fn manifest_of_an_unnamed_folder_is_refused() {
    let (folder, fixture) = pantry();
    let uri = folder.uri();
    let (data, uploads) = (uri.join("data").unwrap(), uri.join("uploads").unwrap());
    let path = |uri: &OriginUri| format!("/{}", uri.path());
    std::fs::create_dir(path(&data)).unwrap();
    std::fs::copy(folder.file(), format!("{}/rows.npy", path(&data))).unwrap();
    std::fs::create_dir(path(&uploads)).unwrap();
    let opened = |catalog: &Catalog, manifest: Option<OriginUri>| {
        let wanted = WantedDataset { manifest, ..reference(&data.to_string()) };
        fixture.runtime.block_on(catalog.open(&wanted))
    };
    let catalog = |prefixes| Catalog::new(prefixes, crate::testing::cache(1 << 20));
    let careful = catalog(vec![uri.clone()]);
    let beside = opened(&careful, None).unwrap().dataset.manifest_uri().clone();
    opened(&careful, Some(beside.clone())).unwrap();
    std::fs::rename(path(&data.join(".larder").unwrap()), path(&uploads.join("m").unwrap()))
        .unwrap();
    let moved = OriginUri::parse(&beside.to_string().replace("data/.larder", "uploads/m")).unwrap();
    for manifest in [uploads.join("m").unwrap(), moved.clone()] {
        let refused = opened(&careful, Some(manifest)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert!(refused.hint().unwrap().contains(&format!("--origin {uploads}/m ")), "{refused:?}");
    }
    let named = catalog(vec![uri.clone(), uploads.join("m").unwrap()]);
    opened(&named, Some(moved.clone())).unwrap();
    opened(&catalog(vec![uri]).following_links(), Some(moved)).unwrap();
}

#[test]
fn refusal_of_a_full_share_is_no_answer_to_others() {
    let (folder, fixture) = pantry();
    let catalog = Catalog::new(vec![folder.uri()], crate::testing::cache(1 << 20));
    let of = |user| WantedDataset {
        requester: Requester::User(user),
        ..reference(&folder.uri().to_string())
    };
    let [greedy, friend] = [of(7), of(8)];
    for number in 0..=u8::MAX {
        catalog.lock().shares.note(SnapshotId::from_bytes([number; 32]), greedy.requester);
    }
    fixture.runtime.block_on(async {
        let Ok(Queued::Turn(first)) = catalog.queue(&friend).await else { panic!("it is first") };
        // Both wait for one turn, which the greedy one gets.
        let [mut next, mut waiting] = [&greedy, &friend].map(|one| Box::pin(catalog.queue(one)));
        for one in [&mut next, &mut waiting] {
            assert!(futures_util::poll!(one).is_pending());
        }
        first.end(Err(Error::new(ErrorKind::NotFound, "gone")));
        let Ok(Queued::Turn(turn)) = next.await else { panic!("it came after the first began") };
        let refused = catalog.attempt(turn, &greedy, None).await.unwrap_err();
        assert!(refused.message().contains("for user 7"), "{refused}");
        let Ok(Queued::Turn(turn)) = waiting.await else { panic!("refused with the other") };
        catalog.attempt(turn, &friend, None).await.unwrap();
    });
}
