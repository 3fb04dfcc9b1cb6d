//! A process without free file descriptors. The limit holds for all threads, so the test runs in a
//! child process.

use std::{env, fs::File, process::Command, time::Duration};

use larder_client::{Cluster, Dataset, Error, ErrorKind};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use safetensors::{Dtype, tensor::TensorView};

/// Tells a process of this program that it is the child.
const CHILD: &str = "LARDER_TEST_WITHOUT_FILES";

#[test]
fn reads_fail_at_once_without_file_descriptors() {
    if env::var_os(CHILD).is_none() {
        return in_a_child("files::reads_fail_at_once_without_file_descriptors");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let labels = [1, 2, 3];
    let tensor = TensorView::new(Dtype::U8, vec![3], &labels).expect("a tensor");
    let bytes = safetensors::serialize([("label", tensor)], None).expect("a valid file");
    std::fs::write(folder.path().join("a.safetensors"), bytes).expect("a writable folder");
    let uri = format!("file://{}", folder.path().display());
    let patient = || Dataset::options().patience(Duration::from_secs(86_400)).open(&uri);

    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, 128, most).expect("a lower limit");
    // The first call of a process, which would start its threads.
    let held = hold_all();
    says_so(&Cluster::connect("http://127.0.0.1:1").map(drop).unwrap_err());
    drop(held);
    let dataset = patient().unwrap();

    let held = hold_all();
    says_so(&patient().map(drop).unwrap_err());
    says_so(&dataset.read(1, "label").unwrap_err());
    drop(held);
    assert_eq!(dataset.read(1, "label").unwrap(), [2]);
}

/// Runs a test of this program in its own process.
fn in_a_child(test: &str) {
    let mut child = Command::new(env::current_exe().expect("this program"));
    child.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    let ended = child.output().expect("a child process");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{ended:?}");
}

fn hold_all() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

fn says_so(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
    assert_eq!(error.what(), "this process has no file descriptors left");
    assert!(error.advice_text().is_some_and(|hint| hint.contains("ulimit -n")), "{error:?}");
}
