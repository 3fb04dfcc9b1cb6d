//! Credentials in `~/.aws`: the node of a host and its clients read and renew them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use larder_origin::Credentials;
use larder_tests::{until, words};

use crate::host_node::{Host, Node, WORDS, finish, node_of, temporary};

/// Samples too large for the node's memory, so that it reads the origin all the time.
const LARGE: &str = "s3://data/large";

/// A program that makes keys which last for four seconds.
const PROGRAM: &str = r#"
until=$(date -u -d @$(($(date +%s) + 4)) +%Y-%m-%dT%H:%M:%SZ)
sed "s/UNTIL/$until/" "$1"
"#;

/// Variables without those that sign, and the home of a user with these files.
fn env_of(host: &Host, home: &Path) -> Vec<(String, String)> {
    let signs = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
    let env = host.env("60s").into_iter().filter(|(name, _)| !signs.contains(&name.as_str()));
    env.chain([("HOME".to_owned(), home.display().to_string())]).collect()
}

fn profile(home: &Path, file: &str, text: &str) {
    fs::create_dir_all(home.join(".aws")).expect("a folder");
    fs::write(home.join(".aws/draft"), text).expect("a file");
    fs::rename(home.join(".aws/draft"), home.join(".aws").join(file)).expect("a file");
}

/// A host with [`LARGE`] in its store.
fn host_with_large() -> Host {
    let host = Host::new();
    let folder = host.server.create_bucket("data").expect("a bucket").join("large");
    words::write(&folder, 4, 64, 32 << 10);
    host.index(LARGE);
    host
}

fn key(serial: u32) -> Credentials {
    temporary(&format!("KEY{serial}"), serial)
}

#[test]
fn job_outlives_the_keys_of_its_credential_process() {
    let host = host_with_large();
    let home = tempfile::tempdir().expect("a folder");
    let (program, answer) = (home.path().join("program"), home.path().join(".aws/answer"));
    fs::write(&program, PROGRAM).expect("a file");
    let line = format!("credential_process = sh {} {}", program.display(), answer.display());
    profile(home.path(), "config", &format!("[default]\n{line}\n"));
    let make = |serial: u32| {
        let Credentials { access_key, secret_key, session_token } = key(serial);
        let token = session_token.expect("temporary");
        let text = format!(
            r#"{{"Version": 1, "AccessKeyId": "{access_key}", "SecretAccessKey": "{secret_key}",
                 "SessionToken": "{token}", "Expiration": "UNTIL"}}"#
        );
        profile(home.path(), "answer", &text);
    };
    make(0);
    host.server.set_credentials(key(0));
    let over = home.path().join("over");
    let memory = ("LARDER_MEMORY".to_owned(), "16MiB".to_owned());
    let env = env_of(&host, home.path()).into_iter().chain([memory]).collect();
    let args = ["--until", over.to_str().expect("UTF-8")];
    let mut job = Host::start(LARGE, u64::MAX, env, &args, &[]);
    let node = node_of(&mut job);
    for serial in 1..=2 {
        make(serial);
        host.server.accept(vec![key(serial - 1), key(serial)]);
        let newest = Some(key(serial).access_key);
        until("requests are signed by the new keys", || host.server.last_key() == newest);
        // The node and the client renew for themselves, each within four seconds.
        std::thread::park_timeout(Duration::from_secs(8));
        host.server.set_credentials(key(serial));
    }
    fs::write(&over, "").expect("a file");
    finish(&mut job);
    assert_eq!(host.nodes(), [node.pid], "one node served the whole job");
}

/// Writes profiles with these keys, by name.
fn profiles(home: &Path, keys: &[(&str, u32)]) {
    let section = |&(name, serial): &(&str, u32)| {
        let Credentials { access_key, secret_key, session_token } = key(serial);
        let token = session_token.expect("temporary");
        format!(
            "[{name}]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret_key}\n\
             aws_session_token = {token}\n"
        )
    };
    profile(home, "credentials", &keys.iter().map(section).collect::<String>());
}

#[test]
fn two_profiles_share_a_node_and_each_opens_with_its_own_keys() {
    let host = Host::new();
    let home = tempfile::tempdir().expect("a folder");
    profiles(home.path(), &[("default", 1), ("other", 2), ("refused", 3)]);
    host.server.accept(vec![key(1), key(2)]);
    let start = |name: Option<&str>| {
        let profile = name.map(|name| ("AWS_PROFILE".to_owned(), name.to_owned()));
        let env = env_of(&host, home.path()).into_iter().chain(profile).collect();
        Host::start(WORDS, 1, env, &[], &[])
    };
    let run = |name| {
        let mut job = start(name);
        let node = node_of(&mut job);
        finish(&mut job);
        node
    };
    let own = run(None);
    assert_eq!(host.server.last_key().as_deref(), Some("KEY1"));
    assert_eq!(run(None), Node { started: false, ..own });
    host.server.reset_counts();
    assert_eq!(run(Some("other")), Node { started: false, ..own });
    assert_eq!(host.server.last_key().as_deref(), Some("KEY2"), "it opened with its own keys");
    assert!(host.server.counts().bytes_sent < 64 << 10, "the node had the data");
    let (status, _) = start(Some("refused")).finish();
    assert!(!status.success(), "the store refuses its keys");
    assert_eq!(host.nodes(), [own.pid]);
}

#[test]
fn job_reads_on_with_its_own_keys_when_those_of_another_expire() {
    let host = host_with_large();
    let home = tempfile::tempdir().expect("a folder");
    profiles(home.path(), &[("default", 1), ("other", 2)]);
    host.server.accept(vec![key(1), key(2)]);
    let over = home.path().join("over");
    let memory = ("LARDER_MEMORY".to_owned(), "16MiB".to_owned());
    let env: Vec<_> = env_of(&host, home.path()).into_iter().chain([memory]).collect();
    let args = ["--until", over.to_str().expect("UTF-8")];
    let mut job = Host::start(LARGE, u64::MAX, env.clone(), &args, &[]);
    let node = node_of(&mut job);
    let profile = ("AWS_PROFILE".to_owned(), "other".to_owned());
    let mut other = Host::start(LARGE, 1, env.into_iter().chain([profile]).collect(), &[], &[]);
    assert_eq!(node_of(&mut other).pid, node.pid);
    finish(&mut other);
    until("the node signs with the newest keys", || {
        host.server.last_key().as_deref() == Some("KEY2")
    });
    host.server.accept(vec![key(1)]);
    until("the node signs with the keys that hold", || {
        host.server.last_key().as_deref() == Some("KEY1")
    });
    job.wait_for("epoch ");
    fs::write(&over, "").expect("a file");
    finish(&mut job);
    assert_eq!(host.nodes(), [node.pid]);
}

#[test]
fn new_keys_in_a_file_are_read_once_the_old_are_refused() {
    let host = host_with_large();
    let home = tempfile::tempdir().expect("a folder");
    profiles(home.path(), &[("default", 1)]);
    host.server.accept(vec![key(1)]);
    let over = home.path().join("over");
    let memory = ("LARDER_MEMORY".to_owned(), "16MiB".to_owned());
    let env = env_of(&host, home.path()).into_iter().chain([memory]).collect();
    let args = ["--until", over.to_str().expect("UTF-8")];
    let mut job = Host::start(LARGE, u64::MAX, env, &args, &[]);
    let node = node_of(&mut job);
    // The file is read each minute, and at once when the store refuses its keys.
    profiles(home.path(), &[("default", 2)]);
    host.server.accept(vec![key(2)]);
    until("the node signs with the new keys", || host.server.last_key().as_deref() == Some("KEY2"));
    fs::write(&over, "").expect("a file");
    finish(&mut job);
    assert_eq!(host.nodes(), [node.pid]);
}
