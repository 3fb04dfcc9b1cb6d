//! Larder against garage, an S3 server that shares no code with the one of the other tests.
//!
//! `make test-full` builds garage and requires this test. Otherwise the test runs only where garage
//! is found.

use larder_tests::{Garage, NodeOptions, NodeProcess, garage, node::binary, words};
use object_store::{ObjectStoreExt, path::Path};
use serde_json::Value;
use std::process::{Command, Output};

/// A running garage, if it is installed; required only by `make test-full`.
fn start(folder: &std::path::Path) -> Option<Garage> {
    match garage::find() {
        Err(why) if std::env::var_os("LARDER_TEST_FULL").is_none() => {
            println!("not tested: {why}");
            None
        }
        _ => Some(Garage::start(folder, &[]).expect("garage starts")),
    }
}

/// Puts the files of a folder under the prefix `words`.
fn upload(server: &Garage, folder: &std::path::Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let s3 = server.client().expect("settings");
    let put_all = async {
        for file in std::fs::read_dir(folder).expect("the data") {
            let file = file.expect("an entry");
            let key = Path::from(format!("words/{}", file.file_name().display()));
            let bytes = std::fs::read(file.path()).expect("a file");
            s3.put(&key, bytes.into()).await.expect("garage takes it");
        }
    };
    runtime.expect("a runtime").block_on(put_all);
}

fn larder(args: &[&str], env: &[(String, String)]) -> Output {
    let mut command = Command::new(binary("larder"));
    command.args(args).args(["-o", "json"]).envs(env.iter().cloned());
    command.output().expect("larder starts")
}

fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn dataset_on_garage_is_indexed_verified_and_seen_to_change() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let Some(server) = start(dir.path()) else { return };
    let files = dir.path().join("files");
    words::write(&files, 2, 256, 4096);
    upload(&server, &files);
    let mut options = NodeOptions::new("a", "s3://data");
    options.env = server.env();
    let node = NodeProcess::start(&options);
    let env = [server.env(), vec![("LARDER_CLUSTER".to_owned(), node.address())]].concat();
    let index = |more: &[&str]| {
        json(&larder(&[&["dataset", "index", "s3://data/words"], more].concat(), &env))
    };
    let verify = || larder(&["dataset", "verify", "s3://data/words", "--against-source"], &env);

    let first = index(&["--shard-bytes", "1MiB", "--checksum"]);
    assert_eq!(first["samples"], 512);
    assert_eq!(index(&["--shard-bytes", "1MiB", "--checksum"])["snapshot"], first["snapshot"]);
    assert_eq!(json(&verify())["samples"], 512);

    // An existing tag is moved. Garage ignores the condition of that request.
    words::write(&files, 3, 256, 4096);
    upload(&server, &files);
    let second = index(&["--tag", "v2"]);
    assert_eq!(second["samples"], 768);
    assert_eq!(index(&[])["snapshot"], second["snapshot"]);
    assert_eq!(json(&verify())["samples"], 768);
    let tags = json(&larder(&["dataset", "ls", "s3://data/words"], &env));
    assert!(tags.to_string().contains("v2"), "{tags}");

    // Same size, other bytes: the node holds the indexed version, the origin has another one.
    words::write(&files, 3, 256, 4096);
    let file = files.join("part-00001.safetensors");
    let mut bytes = std::fs::read(&file).expect("a file");
    *bytes.last_mut().expect("not empty") ^= 1;
    std::fs::write(&file, bytes).expect("a file");
    upload(&server, &files);
    let changed = verify();
    let said = String::from_utf8_lossy(&changed.stderr).into_owned();
    assert_eq!(changed.status.code(), Some(6), "{said}");
    assert!(said.contains("changed since it was indexed"), "{said}");
}
