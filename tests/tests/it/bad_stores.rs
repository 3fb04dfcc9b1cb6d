//! Stores, and proxies before them, that answer wrongly to requests other than reads: no listing is
//! short, no wait is endless, and settings that can't work are refused by their name.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use larder_client::Dataset;
use larder_origin::{Fault, FaultPlan, Options, RequestKind, S3Server};
use larder_tests::{NodeOptions, NodeProcess, node::binary, repeats, words};
use serde_json::Value;
use tempfile::TempDir;

/// More files than a page of a listing has keys.
const FILES: usize = 1_203;

/// A bucket `data` with many small files under `many`.
struct Bucket {
    server: S3Server,
    dir: TempDir,
}

impl Bucket {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
        let folder = server.create_bucket("data").expect("a bucket").join("many");
        std::fs::create_dir(&folder).expect("a folder");
        for file in 0..FILES {
            larder_tests::dataset::write_npy(&folder.join(format!("f{file:05}.npy")), 1);
        }
        Self { server, dir }
    }

    fn larder(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = Command::new(binary("larder"));
        command.args(args).envs(self.server.env()).envs(env.iter().copied());
        command.output().expect("larder starts")
    }

    /// Lists the bucket. Returns the objects that came.
    fn list(&self) -> Result<u64, String> {
        let output = self.larder(&["doctor", "s3://data/many", "-o", "json"], &[]);
        let text = String::from_utf8_lossy(&output.stdout);
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        let checks = answer["checks"].as_array().expect("a list of checks");
        let listed = checks.iter().find(|check| check["name"] == "origin list").expect("listed");
        let found = listed["found"].as_str().expect("a text");
        match listed["state"].as_str() {
            Some("ok") => {
                let digits = found.split(' ').next().unwrap_or_default().replace(',', "");
                Ok(digits.parse().unwrap_or_else(|_| panic!("{found}")))
            }
            _ => Err(found.to_owned()),
        }
    }

    /// Returns the manifests in the bucket.
    fn published(&self) -> usize {
        let home = self.dir.path().join("data/many/.larder");
        std::fs::read_dir(home).map_or(0, Iterator::count)
    }
}

#[test]
fn page_that_is_no_listing_is_asked_for_again() {
    let bucket = Bucket::new();
    for &fault in Fault::OF_LISTINGS {
        // The second page only, or the first one too.
        let parts = ["continuation-token", "list-type"];
        for part in &parts[..repeats(1, 2)] {
            let plan = FaultPlan::once(fault).on(&[RequestKind::List]).keys_containing(part);
            bucket.server.set_faults(plan);
            assert_eq!(bucket.list(), Ok(FILES as u64), "{} at {part}", fault.name());
        }
    }
    let met = bucket.server.counts().faults_injected();
    assert_eq!(met, (repeats(1, 2) * Fault::OF_LISTINGS.len()) as u64, "each was met");
}

#[test]
fn wrong_listing_is_an_error_and_nothing_is_published() {
    let bucket = Bucket::new();
    for (fault, why) in [
        (Fault::OkHtmlPage, "is a web page: look for a proxy"),
        (Fault::OkErrorDocument, "is an error document (InternalError"),
        (Fault::BodyCutHalf, "is no listing, or not a whole one"),
        (Fault::ChunkedShort, "is no listing, or not a whole one"),
        (Fault::PageWithoutToken, "says that more keys follow, and not where"),
        (Fault::PageRepeated, "the listing does not advance"),
    ] {
        let plan = FaultPlan::always(fault).on(&[RequestKind::List]);
        bucket.server.set_faults(plan.keys_containing("continuation-token"));
        let output = bucket.larder(&["dataset", "index", "s3://data/many"], &[]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(why), "{}: {text}", fault.name());
        assert_eq!(bucket.published(), 0, "{}", fault.name());
    }
}

#[test]
fn index_is_whole_under_faults_of_every_kind_of_request() {
    let bucket = Bucket::new();
    let kinds = [
        (RequestKind::List, Fault::OF_LISTINGS),
        (RequestKind::Head, Fault::OF_ANY_REQUEST),
        (RequestKind::Put, Fault::OF_ANY_REQUEST),
        (RequestKind::Get, Fault::OF_ANY_REQUEST),
    ];
    for round in 0..repeats(1, 20) {
        for (kind, faults) in kinds {
            let seed = round as u64;
            bucket.server.set_faults(FaultPlan::seeded(seed).with_any_of(faults, 0.3).on(&[kind]));
            let _ = std::fs::remove_dir_all(bucket.dir.path().join("data/many/.larder"));
            let output = bucket.larder(&["dataset", "index", "s3://data/many", "-o", "json"], &[]);
            let text = String::from_utf8_lossy(&output.stdout);
            let why = String::from_utf8_lossy(&output.stderr);
            let answer: Value =
                serde_json::from_str(&text).unwrap_or_else(|_| panic!("{kind:?}: {why}"));
            assert_eq!(answer["samples"], FILES, "{kind:?} {round}: {text} {why}");
        }
    }
}

#[test]
fn setting_that_cannot_work_is_refused_by_its_name() {
    let bucket = Bucket::new();
    let index = |env: &[(&str, &str)]| {
        let output = bucket.larder(&["dataset", "show", "s3://data/many"], env);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(bucket.larder(&["dataset", "index", "s3://data/many"], &[]).status.success());
    let broken = bucket.dir.path().join("token");
    std::fs::write(&broken, "a\nb").expect("a file");
    let broken = broken.to_str().expect("UTF-8");
    let no_keys = [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")];
    let pod = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/c");
    let pod_token = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
    for (env, named) in [
        (vec![("AWS_ACCESS_KEY_ID", "a\nb")], "AWS_ACCESS_KEY_ID"),
        (vec![("AWS_ENDPOINT_URL", "localhost:9000")], "AWS_ENDPOINT_URL"),
        (vec![("AWS_REGION", "eu central")], "AWS_REGION"),
        (vec![("AWS_SKIP_SIGNATURE", "perhaps")], "AWS_SKIP_SIGNATURE"),
        (vec![("AWS_TIMEOUT", "soon")], "AWS_TIMEOUT"),
        (vec![("AWS_CA_BUNDLE", "/no/such")], "AWS_CA_BUNDLE"),
        (vec![("AWS_SECRET_ACCESS_KEY", "")], "AWS_SECRET_ACCESS_KEY"),
        ([&no_keys[..], &[("AWS_ROLE_ARN", "arn:x")]].concat(), "AWS_WEB_IDENTITY_TOKEN_FILE"),
        ([&no_keys[..], &[pod]].concat(), pod_token),
        ([&no_keys[..], &[pod, (pod_token, broken)]].concat(), pod_token),
    ] {
        let (code, text) = index(&env);
        assert!(code.is_some_and(|code| code != 0 && code != 101), "{env:?}: {code:?} {text}");
        assert!(text.contains(named) && !text.contains("panicked"), "{env:?}: {text}");
    }
    let trimmed = [
        ("AWS_ACCESS_KEY_ID", format!(" {}\n", larder_origin::ACCESS_KEY)),
        ("AWS_ENDPOINT_URL", format!("{}\n", bucket.server.endpoint())),
        ("AWS_REGION", "us-east-1\r\n".to_owned()),
        ("AWS_SESSION_TOKEN", String::new()),
        ("AWS_ENDPOINT_URL_S3", String::new()),
    ];
    let trimmed: Vec<_> = trimmed.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (code, text) = index(&trimmed);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn each_request_has_the_right_answer_in_spite_of_faults() {
    let bucket = Bucket::new();
    let bytes = std::fs::metadata(bucket.dir.path().join("data/many/f00000.npy")).expect("a file");
    let count = repeats(200, 50_000);
    for (kind, name, faults) in [
        (RequestKind::Head, "head", Fault::OF_ANY_REQUEST),
        (RequestKind::Get, "get", Fault::OF_ANY_REQUEST),
        // Each takes two pages.
        (RequestKind::List, "list", Fault::OF_LISTINGS),
        (RequestKind::Put, "put", Fault::OF_ANY_REQUEST),
    ] {
        let plan = FaultPlan::seeded(7).with_any_of(faults, 0.05).on(&[kind]);
        bucket.server.set_faults(plan);
        let count = if name == "list" { count / 2 } else { count };
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder-test-requests"));
        command.args([name, "s3://data/many"]).envs(bucket.server.env());
        let output = command.args([count as u64, FILES as u64, bytes.len()].map(|n| n.to_string()));
        let output = output.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), count.to_string(), "{said}");
    }
    let met = bucket.server.counts().faults_injected();
    assert!(met > count as u64 / 10, "{met} faults");
}

#[test]
fn tool_that_waits_for_a_store_says_why() {
    let bucket = Bucket::new();
    for (fault, why) in [
        (Fault::StallBeforeHeaders, "it has not answered a request"),
        (Fault::SlowDown, "it answers 503"),
    ] {
        let plan = FaultPlan::always(fault).on(&[RequestKind::List]);
        bucket.server.set_faults(plan.stall(Duration::from_secs(600)));
        let mut command = Command::new(binary("larder"));
        command.args(["dataset", "index", "s3://data/many"]).envs(bucket.server.env());
        let mut tool = command.stderr(Stdio::piped()).spawn().expect("larder starts");
        let said = BufReader::new(tool.stderr.take().expect("piped"));
        let told = said.lines().map_while(Result::ok).find(|line| line.contains(why));
        tool.kill().and_then(|()| tool.wait()).expect("our own child");
        let told = told.unwrap_or_else(|| panic!("{}: never told", fault.name()));
        assert!(told.starts_with("warning: 127.0.0.1:"), "{told}");
    }
}

#[test]
fn reader_that_waits_for_rows_learns_which_node_brings_them() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
    words::write(&server.create_bucket("data").expect("a bucket").join("words"), 1, 8, 64);
    let mut options = NodeOptions::new("a", "s3://data");
    options.env = server.env();
    let node = NodeProcess::start(&options);
    let dataset = Dataset::options().cluster(node.address()).local(false).open("s3://data/words");
    let dataset = dataset.expect("opens");
    let plan = FaultPlan::always(Fault::StallBeforeHeaders).keys_containing(".safetensors");
    server.set_faults(plan.stall(Duration::from_secs(600)));
    let (tell, told) = sync_channel(8);
    larder_client::take_warnings(move |_, text| drop(tell.try_send(text)));
    // The test does not wait for its end.
    thread::spawn(move || dataset.read(0, words::TENSOR));
    let text = told.recv().expect("a warning");
    assert!(text.contains("node a is still bringing them"), "{text}");
}
