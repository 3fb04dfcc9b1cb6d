//! Which objects are data: leftovers of other programs, tables, models, partitions, odd names.

use std::os::unix::ffi::OsStringExt;

use super::*;
use crate::verdicts;

/// A folder with files of these names. Those of safetensors are whole.
struct Place {
    folder: tempfile::TempDir,
    uri: OriginUri,
    origin: Origin,
}

impl Place {
    async fn of(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder_uri(folder.path());
        let origin = Origin::connect(&uri).await.unwrap();
        let place = Self { folder, uri, origin };
        names.iter().for_each(|name| place.write(name, &safetensors(GOOD, 32)));
        place
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    async fn index(&self, include: &[&str]) -> Result<Indexed, DatasetError> {
        let include = include.iter().map(ToString::to_string).collect();
        let options = IndexOptions { include, ..IndexOptions::default() };
        index(&self.origin, &self.uri, &options, &|_| {}).await
    }

    async fn refusal(&self) -> String {
        self.index(&[]).await.unwrap_err().to_string()
    }
}

fn reasons(indexed: &Indexed) -> Vec<String> {
    left_out_by_reason(&indexed.left_out).iter().map(ToString::to_string).collect()
}

/// The index is as `wds2idx` of DALI writes it.
#[tokio::test]
async fn index_of_other_readers_beside_tars_is_named_and_not_needed() {
    let place = Place::of(&[]).await;
    place.write("a.tar", &[0; 1024]);
    place.write("a.idx", b"v1.2 1\njpg 512 34321 0.jpg cls 35328 1 0.cls\n");
    let verdicts = verdicts(&place.origin, &place.uri, &IndexOptions::default()).await.unwrap();
    let [index, tar] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert!(tar.taken && !index.taken);
    assert_eq!(index.why, "is an index of tars for other readers, which Larder does not need");
}

#[tokio::test]
async fn leftovers_are_left_out_and_brought_back_by_name() {
    let place = Place::of(&[
        "a.safetensors",
        "._a.safetensors",
        "__MACOSX/._a.safetensors",
        "_temporary/0/b.safetensors",
        ".spark-staging-1/b.safetensors",
        ".ipynb_checkpoints/a.safetensors",
        "_old/a.safetensors",
        "_year=1/b.safetensors",
    ])
    .await;
    place.write("Thumbs.db", b"x");
    let indexed = place.index(&[]).await.unwrap();
    assert_eq!(indexed.snapshot.manifest.samples(), 8);
    assert_eq!(
        reasons(&indexed),
        [
            "2 objects, first .spark-staging-1/b.safetensors: is a leftover of a Spark job",
            "2 objects, first ._a.safetensors: is a sidecar file of macOS",
            ".ipynb_checkpoints/a.safetensors is hidden: a name in its path begins with a dot",
            "_old/a.safetensors is hidden: a name in its path begins with an underscore",
            "Thumbs.db is not of a kind that can be indexed",
        ]
    );
    assert_eq!(count_added(&place.origin, &indexed.snapshot.manifest, None).await.unwrap(), 0);
    let all = place.index(&["**/*.safetensors"]).await.unwrap();
    assert_eq!(all.snapshot.manifest.samples(), 8, "a pattern that spells no mark");
    let old = place.index(&["_old/*.safetensors"]).await.unwrap();
    assert_eq!(old.snapshot.manifest.samples(), 4);
    let two = place.index(&["_old/a.safetensors", "{a,._a}.safetensors"]).await.unwrap();
    assert_eq!(two.snapshot.manifest.samples(), 12);
    let noted = r#"{"include":["_old/a.safetensors","{a,._a}.safetensors"]}"#;
    assert_eq!(two.snapshot.manifest.metadata(), noted);
}

#[tokio::test]
async fn verdicts_name_every_object() {
    let place = Place::of(&["a.safetensors", "b/._c.safetensors"]).await;
    place.write("x.npy", b"no array");
    let options = IndexOptions::default();
    let said = verdicts(&place.origin, &place.uri, &options).await.unwrap();
    let said: Vec<_> = said.iter().map(|one| (&*one.object, one.taken, &*one.why)).collect();
    assert_eq!(
        said,
        [
            ("a.safetensors", true, "tensors"),
            ("b/._c.safetensors", false, "is a sidecar file of macOS"),
            ("x.npy", false, "lies beside safetensors files, which are the dataset"),
        ]
    );
}

#[tokio::test]
async fn files_that_are_named_must_be_there() {
    let place = Place::of(&["a-0.safetensors", "a-2.safetensors"]).await;
    let error = place.index(&["a-{0..2}.safetensors"]).await.unwrap_err().to_string();
    assert!(error.ends_with("there is no object 'a-1.safetensors', which is named"), "{error}");
    let error = place.index(&["b-*.safetensors"]).await.unwrap_err().to_string();
    assert!(error.ends_with("none of 2 objects matches 'b-*.safetensors'"), "{error}");
}

#[tokio::test]
async fn tables_with_a_log_and_weights_of_a_model_are_refused() {
    for (log, kind) in [
        ("t/_delta_log/0.json", "Delta Lake"),
        ("t/.hoodie/hoodie.properties", "Hudi"),
        ("t/metadata/v1.metadata.json", "Iceberg"),
    ] {
        let place = Place::of(&[]).await;
        place.write(log, b"{}");
        place.write("t/data/x.parquet", b"PAR1");
        let why = place.refusal().await;
        assert!(why.contains(&format!("'t/' is a {kind} table")), "{why}");
        assert!(why.contains("export a snapshot"), "{why}");
    }
    for names in [
        ["model-1-of-2.safetensors", "model.safetensors.index.json"],
        ["model.safetensors", "config.json"],
    ] {
        let place = Place::of(&names[..1]).await;
        place.write(names[1], b"{}");
        let why = place.refusal().await;
        assert!(why.contains("weights of a model, which are not samples"), "{why}");
        assert_eq!(place.index(&["*.safetensors"]).await.unwrap().snapshot.manifest.samples(), 4);
    }
}

#[tokio::test]
async fn names_that_no_request_can_have_are_left_out() {
    let place = Place::of(&["a.safetensors", "b/c.safetensors"]).await;
    place.write("b/line\nfeed.safetensors", b"x");
    let name = std::ffi::OsString::from_vec(b"caf\xe9.safetensors".to_vec());
    std::fs::write(place.folder.path().join(name), b"x").unwrap();
    let indexed = place.index(&[]).await.unwrap();
    assert_eq!(indexed.snapshot.manifest.samples(), 8);
    let left_out: Vec<&str> = indexed.left_out.iter().map(|left| &*left.object).collect();
    assert_eq!(left_out, ["b/line\nfeed.safetensors", "caf\u{fffd}.safetensors"]);
}

#[tokio::test]
async fn missing_parts_are_a_warning() {
    let place = Place::of(&["a-0-of-3.safetensors", "a-2-of-3.safetensors"]).await;
    let indexed = place.index(&[]).await.unwrap();
    let warnings = index_warnings(&indexed.snapshot);
    assert_eq!(warnings, ["2 of the 3 files a-*-of-3 are here; missing: 1"]);
    let named = place.index(&["a-0-of-3.safetensors"]).await.unwrap();
    assert!(index_warnings(&named.snapshot).is_empty());
}
