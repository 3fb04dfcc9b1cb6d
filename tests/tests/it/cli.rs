//! The admin tool as a user or a script runs it, against a real S3 server and real nodes.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};

use larder_origin::{Options, S3Server};
use larder_tests::{NodeOptions, NodeProcess, PythonDataset, node::binary, python};
use serde_json::Value;

fn larder(args: &[&str], env: &[(String, String)]) -> Output {
    let mut command = Command::new(binary("larder"));
    command.args(args).envs(env.iter().cloned());
    command.output().expect("larder starts")
}

/// Returns the output of a successful run with `-o json`.
fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn demo_verifies_3_epochs_and_only_the_first_reads_origin() {
    let demo = json(&larder(&["demo", "-o", "json"], &[]));
    assert_eq!(demo["verified"], true);
    let epochs = demo["epochs"].as_array().expect("epochs");
    assert_eq!(epochs.len(), 3);
    for (index, epoch) in epochs.iter().enumerate() {
        let number = |key: &str| epoch[key].as_u64().unwrap_or_else(|| panic!("{key} in {epoch}"));
        assert_eq!(number("epoch"), u64::try_from(index).expect("three") + 1);
        let rows = number("rows_local") + number("rows_remote") + number("rows_origin");
        assert_eq!(rows, number("samples"));
        assert!(epoch["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
        let asked = (number("origin_requests"), number("origin_bytes"));
        assert_eq!(asked == (0, 0), index > 0, "epoch {} asked the origin: {asked:?}", index + 1);
    }
}

#[test]
fn sample_written_by_the_tool_reads_back_in_python() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
    let folder = server.create_bucket("data").expect("a bucket").join("images");
    let images = PythonDataset::images(&folder, 2, 24, &[16, 16, 3]);
    let mut options = NodeOptions::new("a", "s3://data");
    options.env = server.env();
    let node = NodeProcess::start(&options);
    let mut env = server.env();
    env.push(("LARDER_CLUSTER".to_owned(), node.address()));
    let index = json(&larder(&["dataset", "index", "s3://data/images", "-o", "json"], &env));
    assert_eq!(index["samples"], images.samples());
    assert!(index["snapshot"].as_str().is_some_and(|id| id.len() == 64));
    assert_eq!(index["tensors"].as_array().map(Vec::len), Some(2));
    let file = dir.path().join("sample.npy");
    let (file, folder) = (file.to_str().expect("UTF-8"), folder.to_str().expect("UTF-8"));
    for (sample, tensor) in [("0", "image"), ("23", "label"), ("24", "image"), ("47", "image")] {
        let args =
            ["dataset", "sample", "s3://data/images", sample, "--tensor", tensor, "--out", file];
        let output = larder(&args, &env);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(python::run("check_sample.py", &[folder, tensor, sample, file]).trim(), "equal");
    }
}

/// Rows by number and by key, stacked in one file, are those of the files of single rows.
#[test]
fn several_samples_are_stacked_in_one_file() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let folder = dir.path().join("products");
    fs::create_dir(&folder).expect("a folder");
    let ids: Vec<u8> = (0..100_u64).flat_map(|row| (row * 7 + 3).to_le_bytes()).collect();
    let header = br#"{"id":{"dtype":"U64","shape":[100],"data_offsets":[0,800]}}"#;
    let length = (header.len() as u64).to_le_bytes();
    fs::write(folder.join("all.safetensors"), [&length[..], header, &ids].concat()).expect("data");
    let uri = &format!("file://{}", folder.display());
    let index = larder(&["dataset", "index", uri, "--key", "id"], &[]);
    assert!(String::from_utf8_lossy(&index.stdout).contains("key"), "{index:?}");
    let listed = json(&larder(&["dataset", "ls", uri, "-o", "json"], &[]));
    assert_eq!(listed["tags"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["snapshots"].as_array().map(Vec::len), Some(1), "{listed}");
    let file = dir.path().join("rows.npy");
    let write = |chosen: &[&str]| {
        let args = ["dataset", "sample", uri, "--out", file.to_str().expect("UTF-8")];
        larder(&[&args, chosen].concat(), &[("LARDER_CLUSTER".to_owned(), "none".to_owned())])
    };
    for chosen in [&["3,17,5"][..], &["--key", "24,122,38"]] {
        let output = write(chosen);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("3 samples of tensor 'id'"));
        let bytes = fs::read(&file).expect("the file");
        assert!(String::from_utf8_lossy(&bytes[..128]).contains("'shape': (3,)"));
        assert!(bytes.ends_with(&[24_u64, 122, 38].map(u64::to_le_bytes).concat()));
    }
    for (chosen, code, words) in [
        (&["3,100"][..], 3, "there is no sample 100"),
        (&["--key", "24,25,26"], 3, "no sample whose 'id' is 25, nor for 1 more of 3 keys"),
        (&["--key", "cat"], 2, "'cat' is no key: the values of 'id' are integers"),
        (&[], 2, "required"),
    ] {
        let output = write(chosen);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn dry_run_tells_how_much_an_index_reads_and_writes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for (name, rows, bytes, percent) in
        [("small", 40, 100_000, 99..=100), ("large", 4, 2_000_000, 0..=4)]
    {
        let folder = dir.path().join(name);
        let _ = PythonDataset::tars(&folder, 3, rows, bytes, bytes);
        let uri = &format!("file://{}", folder.display());
        let planned = json(&larder(&["dataset", "index", uri, "--dry-run", "-o", "json"], &[]));
        let number =
            |key: &str| planned[key].as_u64().unwrap_or_else(|| panic!("{key} in {planned}"));
        assert_eq!(number("files"), 3);
        let read = number("read_bytes") * 100 / number("file_bytes");
        assert!(percent.contains(&read), "{planned}");
        assert!(!folder.join(".larder").exists(), "{planned}");
        let index = larder(&["dataset", "index", uri], &[]);
        let said = String::from_utf8_lossy(&index.stderr).into_owned();
        assert!(index.status.success() && said.contains("reads about"), "{said}");
    }
}

#[test]
fn failures_print_reason_and_hint_and_set_an_exit_code() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let uri = format!("file://{}", dir.path().join("nothing").display());
    let output = larder(&["dataset", "show", &uri], &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.starts_with("error: ") && said.contains("hint: "), "{said}");
    assert_eq!(larder(&["dataset", "show", "ftp://x/y"], &[]).status.code(), Some(2));
}

#[test]
fn objects_added_after_the_index_are_counted() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let folder = dir.path().join("images");
    let images = PythonDataset::images(&folder, 2, 8, &[4, 4, 3]);
    let uri = format!("file://{}", folder.display());
    let run = |args: &[&str]| {
        let env = [("LARDER_CLUSTER".to_owned(), "none".to_owned())];
        let output = larder(args, &env);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        let page =
            |bytes| String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ");
        (page(&output.stdout), page(&output.stderr))
    };
    let (page, _) = run(&["dataset", "index", &uri]);
    assert!(page.contains("from 2 files of 8 rows each"), "{page}");
    let commands: [&[&str]; 3] =
        [&["dataset", "show", &uri], &["dataset", "verify", &uri], &["doctor", &uri]];
    let added = format!(
        "3 objects were added under {uri} after it was indexed; to include new objects: \
         larder dataset index {uri}"
    );
    for args in commands {
        let (out, err) = run(args);
        assert!(
            !out.contains("were added") && !err.contains("were added"),
            "{args:?}: {out} {err}"
        );
    }
    let model = fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path());
    let model = model.filter(|path| path.is_file()).min().expect("a file");
    let kind = model.extension().and_then(|kind| kind.to_str()).expect("a kind").to_owned();
    for name in ["new-0", "new-1", "new-2"] {
        fs::copy(&model, folder.join(format!("{name}.{kind}"))).expect("a copy");
    }
    fs::write(folder.join("notes.txt"), "no samples").expect("a file");
    for args in commands {
        let (out, err) = run(args);
        assert!(format!("{out} {err}").contains(&added), "{args:?}: {out} {err}");
    }
    assert_eq!(images.samples(), 16);
}

#[test]
fn prefix_indexed_into_the_user_cache_is_listed() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let folder = dir.path().join("images");
    assert_eq!(PythonDataset::images(&folder, 1, 8, &[4, 4, 3]).samples(), 8);
    // A file in the place of the folder refuses every user, root too.
    fs::write(folder.join(".larder"), "").expect("a file");
    let uri = format!("file://{}", folder.display());
    let cache = dir.path().join("cache").display().to_string();
    let env = [("XDG_CACHE_HOME".to_owned(), cache)];
    let missing = larder(&["dataset", "ls", &uri], &env);
    assert_eq!(missing.status.code(), Some(3));
    let index = json(&larder(&["dataset", "index", &uri, "--tag", "v1", "-o", "json"], &env));
    let listed = json(&larder(&["dataset", "ls", &uri, "-o", "json"], &env));
    let (tag, snapshot) = (&listed["tags"][0], &listed["snapshots"][0]);
    assert_eq!((&tag["tag"], &tag["lies"]), (&"v1".into(), &"cache".into()));
    assert_eq!((&snapshot["snapshot"], &snapshot["lies"]), (&index["snapshot"], &"cache".into()));
    let page = larder(&["dataset", "ls", &uri], &env);
    assert!(String::from_utf8_lossy(&page.stdout).contains("in this user's cache"));
}

#[test]
fn index_without_a_cache_folder_uses_that_of_the_run_and_warns() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let folder = dir.path().join("images");
    assert_eq!(PythonDataset::images(&folder, 1, 8, &[4, 4, 3]).samples(), 8);
    fs::write(folder.join(".larder"), "").expect("a file that refuses every user");
    let uri = format!("file://{}", folder.display());
    let run = dir.path().display().to_string();
    let env = [("HOME", "/dev/null"), ("XDG_CACHE_HOME", ""), ("XDG_RUNTIME_DIR", &run)];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let shown = larder(&["dataset", "index", &uri], &env);
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(shown.status.success(), "{said}");
    assert!(said.contains("XDG_CACHE_HOME") && said.contains("s3:PutObject"), "{said}");
    let listed = json(&larder(&["dataset", "ls", &uri, "-o", "json"], &env));
    assert_eq!(listed["tags"][0]["lies"], "cache");
    assert!(dir.path().join("larder/manifests-of-run").is_dir());
    // A folder that others may write is not trusted.
    fs::set_permissions(dir.path().join("larder"), Permissions::from_mode(0o777)).expect("chmod");
    assert_eq!(larder(&["dataset", "ls", &uri], &env).status.code(), Some(3));
    let refused = larder(&["dataset", "index", &uri, "--tag", "b"], &env);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("XDG_CACHE_HOME"), "{said}");
}

#[test]
fn demo_with_a_cluster_option_is_refused() {
    let refused = larder(&["demo", "--cluster", "http://127.0.0.1:7070"], &[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("takes no address") && said.contains("larder bench"), "{said}");
}
