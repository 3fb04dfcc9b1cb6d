//! Tests of etcd: stopped processes, names and passwords, certificates, several endpoints.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use nix::sys::signal::Signal;

use super::contract::{
    stopped_client_is_absent_until_it_resumes, stopped_coordinator_is_away_until_it_resumes,
};
use super::process::Announcer;
use super::settings::EtcdProcess;
use super::{is_refused, until, until_here, until_shown, write};
use crate::{Coordinator, Etcd, EtcdTls, Password};

fn connect(options: &super::super::EtcdOptions) -> Arc<dyn Coordinator> {
    Arc::new(Etcd::start(options).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_node_is_absent_until_it_resumes() {
    let server = EtcdProcess::start(&[]);
    let home = tempfile::tempdir().unwrap();
    let watching = connect(&server.options());
    until_here(&*watching).await;
    let client = Announcer::to_etcd(home.path(), &server);
    stopped_client_is_absent_until_it_resumes(watching, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_etcd_is_away_until_it_resumes() {
    let server = EtcdProcess::start(&[]);
    let client = connect(&server.options());
    let still = || server.signal(Signal::SIGSTOP);
    let go_on = || server.signal(Signal::SIGCONT);
    stopped_coordinator_is_away_until_it_resumes(client, still, go_on).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_member_without_quorum_is_away() {
    let [member, other] = EtcdProcess::pair();
    let client = connect(&member.options());
    until_here(&*client).await;
    write(&client, "there").await;
    let watch = client.watch();
    until("the watch is here", async || watch.away().is_none()).await;
    drop(other);
    until("the watch is left", async || watch.away().is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoint_that_is_down_is_skipped() {
    let server = EtcdProcess::start(&[]);
    let mut options = server.options();
    options.endpoints.insert(0, "http://127.0.0.1:1".to_owned());
    let client = connect(&options);
    until_here(&*client).await;
    write(&client, "there").await;
}

/// Returns the path of a file in the folder of certificates.
fn certificate(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/certificates");
    format!("{folder}/{name}")
}

fn pem(name: &str) -> Vec<u8> {
    std::fs::read(certificate(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_required_and_verified_on_both_sides() {
    let files = ["server.pem", "server.key", "authority.pem"].map(certificate);
    let [cert, key, authority] = files.each_ref().map(String::as_str);
    let server = EtcdProcess::start(&[
        "--cert-file",
        cert,
        "--key-file",
        key,
        "--trusted-ca-file",
        authority,
        "--client-cert-auth",
    ]);
    let mut options = server.options();
    options.endpoints = vec![format!("https://127.0.0.1:{}", server.port())];
    let why = Etcd::start(&options).unwrap_err();
    assert!(why.message().contains("--etcd-ca"), "{why}");
    let identity = Some((pem("client.pem"), pem("client.key")));
    let ours = EtcdTls { ca: pem("authority.pem"), identity };
    options.tls = Some(ours.clone());
    let client = connect(&options);
    until_here(&*client).await;
    write(&client, "in secret").await;
    options.tls = Some(EtcdTls { ca: pem("stranger.pem"), ..ours.clone() });
    assert!(connect(&options).read().await.is_err(), "who etcd is was not checked");
    options.tls = Some(EtcdTls { identity: None, ..ours });
    assert!(connect(&options).read().await.is_err(), "etcd lets in who has no certificate");
}

/// Calls etcd as an administrator does with etcd's own tool.
fn administer(server: &EtcdProcess, path: &str, json: &str) -> String {
    administer_as(server, "", path, json)
}

/// The same, with the auth token that etcd requires once passwords are on.
fn administer_as(server: &EtcdProcess, token: &str, path: &str, json: &str) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    socket.set_read_timeout(Some(super::PATIENCE)).unwrap();
    let length = json.len();
    let authorization = match token {
        "" => String::new(),
        token => format!("Authorization: {token}\r\n"),
    };
    write!(
        socket,
        "POST /v3/auth/{path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n{authorization}\
         Content-Length: {length}\r\n\r\n{json}"
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}

/// Logs the administrator in. Returns the auth token.
fn log_in(server: &EtcdProcess) -> String {
    let answer = administer(server, "authenticate", r#"{"name":"root","password":"root"}"#);
    let (_, token) = answer.split_once(r#""token":""#).unwrap();
    token.split_once('"').unwrap().0.to_owned()
}

/// Admits only the user `larder`, with access to the prefix and nothing else.
fn ask_for_passwords(server: &EtcdProcess) {
    administer(server, "user/add", r#"{"name":"root","password":"root"}"#);
    administer(server, "role/add", r#"{"name":"root"}"#);
    administer(server, "user/grant", r#"{"user":"root","role":"root"}"#);
    administer(server, "user/add", r#"{"name":"larder","password":"se cret"}"#);
    administer(server, "role/add", r#"{"name":"nodes"}"#);
    // From "/larder/test/" to "/larder/test0".
    let range = r#""key":"L2xhcmRlci90ZXN0Lw==","range_end":"L2xhcmRlci90ZXN0MA==""#;
    let grant = format!(r#"{{"name":"nodes","perm":{{"permType":"READWRITE",{range}}}}}"#);
    administer(server, "role/grant", &grant);
    administer(server, "user/grant", r#"{"user":"larder","role":"nodes"}"#);
    administer(server, "enable", "{}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_login_works_after_the_auth_token_was_forgotten() {
    let mut server = EtcdProcess::start(&[]);
    until_here(&*connect(&server.options())).await;
    ask_for_passwords(&server);
    let mut options = server.options();
    is_refused(connect(&options).read().await);
    options.user = Some(("larder".to_owned(), Password("wrong".to_owned())));
    is_refused(connect(&options).read().await);
    options.user = Some(("larder".to_owned(), Password("se cret".to_owned())));
    let client = connect(&options);
    until_here(&*client).await;
    client.announce(super::announcement("n", 1, 60)).await.unwrap();
    write(&client, "first").await;
    options.prefix = "/elsewhere".to_owned();
    is_refused(connect(&options).read().await);
    // A restart forgets the auth tokens that etcd issued.
    let mut watch = client.watch();
    server.restart();
    until_here(&*client).await;
    write(&client, "second").await;
    until_shown("the record", &mut watch, |view| {
        view.record.as_ref().is_some_and(|stored| stored.record == "second")
    })
    .await;
    client.withdraw("n", larder_base::BootId::from_bytes([1; 16])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_invalidated_by_a_change_of_users_is_renewed() {
    let [public, private] = ["tokens.pub", "tokens.key"].map(certificate);
    let kind = format!("jwt,pub-key={public},priv-key={private},sign-method=ES256,ttl=10m");
    let server = EtcdProcess::start(&["--auth-token", &kind]);
    until_here(&*connect(&server.options())).await;
    ask_for_passwords(&server);
    let mut options = server.options();
    options.user = Some(("larder".to_owned(), Password("se cret".to_owned())));
    let client = connect(&options);
    until_here(&*client).await;
    write(&client, "first").await;
    let root = log_in(&server);
    administer_as(&server, &root, "user/add", r#"{"name":"another","password":"secret"}"#);
    write(&client, "second").await;
    client.announce(super::announcement("n", 1, 60)).await.unwrap();
    until_shown("what was announced", &mut client.watch(), |view| {
        view.alive.nodes.contains_key("n")
    })
    .await;
}
