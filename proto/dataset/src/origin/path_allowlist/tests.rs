use std::{fs, os::unix::fs::symlink, path::Path};

use bytes::Bytes;
use larder_base::RowRef;
use tempfile::TempDir;

use super::*;
use crate::{DatasetError, DatasetRef, index, open_with};

/// A folder `inside` that may be read, and a folder `outside` that may not.
struct TwoFolders {
    home: TempDir,
}

impl TwoFolders {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("inside/deep")).unwrap();
        fs::create_dir_all(home.path().join("outside")).unwrap();
        fs::write(home.path().join("inside/deep/a"), "mine").unwrap();
        fs::write(home.path().join("outside/a"), "secret").unwrap();
        Self { home }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.home.path().join(relative)
    }

    fn link(&self, at: &str, to: impl AsRef<Path>) {
        symlink(to, self.path(at)).unwrap();
    }

    fn uri(&self, relative: &str) -> OriginUri {
        OriginUri::parse(&format!("file://{}", self.path(relative).display())).unwrap()
    }

    /// Connects with a fence around `prefix`.
    async fn origin(&self, prefix: &str) -> Origin {
        let prefix = self.uri(prefix);
        Origin::connect(&prefix).await.unwrap().within(Some(PathAllowlist::new(&[prefix])))
    }
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, OriginError>) {
    match outcome {
        Err(error @ OriginError::Denied { .. }) => {
            assert!(error.hint().is_some_and(|hint| hint.contains("--origin")), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn reads_links_that_stay_inside_but_not_those_leading_out() {
    let place = TwoFolders::new();
    place.link("inside/file", place.path("outside/a"));
    place.link("inside/folder", "../outside");
    place.link("inside/near", "deep/a");
    place.link("inside/far", place.path("inside/deep"));
    let origin = place.origin("inside").await;
    for out in ["inside/file", "inside/folder/a"] {
        refused(origin.get(&place.uri(out), 100).await);
        refused(origin.head(&place.uri(out)).await);
    }
    for inside in ["inside/near", "inside/far/a", "inside/deep/a"] {
        let (bytes, _) = origin.get(&place.uri(inside), 100).await.unwrap();
        assert_eq!(bytes, "mine", "{inside}");
    }
    let missing = origin.get(&place.uri("inside/none"), 100).await;
    assert!(matches!(missing, Err(OriginError::NotFound { .. })), "{missing:?}");
}

#[tokio::test]
async fn allows_a_folder_that_is_itself_reached_through_a_link() {
    let place = TwoFolders::new();
    place.link("named", "inside");
    let origin = place.origin("named").await;
    assert_eq!(origin.get(&place.uri("named/deep/a"), 100).await.unwrap().0, "mine");
    refused(origin.get(&place.uri("outside/a"), 100).await);
}

#[tokio::test]
async fn refuses_writes_through_a_link_leading_out() {
    let place = TwoFolders::new();
    place.link("inside/.larder", place.path("outside"));
    let origin = place.origin("inside").await;
    let bytes = Bytes::from_static(b"manifest");
    for object in ["inside/.larder/x", "inside/.larder/tags/x"] {
        refused(origin.put_if_absent(&place.uri(object), bytes.clone()).await);
    }
    assert_eq!(fs::read_dir(place.path("outside")).unwrap().count(), 1);
    let object = place.uri("inside/deep/new/tags/x");
    assert!(origin.put_if_absent(&object, bytes.clone()).await.unwrap());
    assert!(!origin.put_if_absent(&object, bytes.clone()).await.unwrap());
    assert_eq!(fs::read(place.path("inside/deep/new/tags/x")).unwrap(), bytes);
}

#[tokio::test]
async fn refuses_to_list_through_a_link_leading_out() {
    let place = TwoFolders::new();
    place.link("inside/near", "deep");
    let origin = place.origin("inside").await;
    let listed = origin.list(&place.uri("inside")).await.unwrap();
    let keys: Vec<_> = listed.into_iter().map(|object| object.key).collect();
    assert_eq!(keys, ["deep/a", "near/a"]);
    place.link("inside/deep/out", place.path("outside/a"));
    refused(origin.list(&place.uri("inside")).await);
    fs::remove_file(place.path("inside/deep/out")).unwrap();
    place.link("inside/z", "../outside");
    refused(origin.list(&place.uri("inside")).await);
}

#[tokio::test]
async fn reads_no_part_of_a_dataset_through_a_link_leading_out() {
    let place = TwoFolders::new();
    let npy = b"\x93NUMPY\x01\x00\x36\x00{'descr':'<u4','fortran_order':False,'shape':(4,)}   \n";
    fs::write(place.path("outside/x.npy"), [npy.as_slice(), &[7; 16]].concat()).unwrap();
    place.link("inside/x.npy", place.path("outside/x.npy"));
    fs::remove_file(place.path("inside/deep/a")).unwrap();
    let uri = place.uri("inside");
    let free = Origin::connect(&uri).await.unwrap();
    index(&free, &uri, &crate::IndexOptions::default(), &|_| {}).await.unwrap();
    let dataset = DatasetRef::parse(&uri.to_string()).unwrap();
    let origin = place.origin("inside").await;
    let manifest = open_with(&origin, &dataset, None).await.unwrap().manifest;
    let files = crate::LeafFiles::find(&origin, &manifest, None).await.unwrap();
    let leaf = files.load(&manifest, 0).await.unwrap();
    let row = RowRef { shard: 0, row: 1 };
    assert_eq!(free.read_row(&manifest, &leaf, row, 0).await.unwrap(), [7; 4]);
    let outcome = origin.read_row(&manifest, &leaf, row, 0).await;
    let says = outcome.unwrap_err().to_string();
    assert!(says.contains("through a link"), "{says}");
    fs::remove_dir_all(place.path("inside/.larder")).unwrap();
    let outcome = open_with(&origin, &dataset, None).await;
    assert!(
        matches!(outcome, Err(DatasetError::Origin(OriginError::Denied { .. }))),
        "{outcome:?}"
    );
}
