//! What is particular to etcd: a process that stands still, names and passwords, certificates, several endpoints.

use std::sync::Arc;

use nix::sys::signal::Signal;

use super::contract::{
    a_client_that_stands_still_is_gone_until_it_goes_on,
    a_coordinator_that_stands_still_is_away_until_it_goes_on,
};
use super::process::Announcer;
use super::settings::EtcdProcess;
use super::{until, until_here, write};
use crate::cluster::coordinator::{Coordinator, Etcd, EtcdTls};

fn connect(options: &super::super::EtcdOptions) -> Arc<dyn Coordinator> {
    Arc::new(Etcd::start(options).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stands_still_is_gone_until_it_goes_on() {
    let server = EtcdProcess::start(&[]);
    let home = tempfile::tempdir().unwrap();
    let watching = connect(&server.options());
    until_here(&*watching).await;
    let client = Announcer::to_etcd(home.path(), &server);
    a_client_that_stands_still_is_gone_until_it_goes_on(watching, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_that_stands_still_is_away_until_it_goes_on() {
    let server = EtcdProcess::start(&[]);
    let client = connect(&server.options());
    let still = || server.signal(Signal::SIGSTOP);
    let go_on = || server.signal(Signal::SIGCONT);
    a_coordinator_that_stands_still_is_away_until_it_goes_on(client, still, go_on).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_is_down_is_passed_over() {
    let server = EtcdProcess::start(&[]);
    let mut options = server.options();
    options.endpoints.insert(0, "http://127.0.0.1:1".to_owned());
    let client = connect(&options);
    until_here(&*client).await;
    write(&client, "there").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_checked_by_the_authority_that_was_named() {
    let server = EtcdProcess::start(&["--auto-tls"]);
    let made = server.home().join("data/fixtures/client/cert.pem");
    until("etcd has made its certificate", async || made.is_file()).await;
    let mut options = server.options();
    options.endpoints = vec![format!("https://127.0.0.1:{}", server.port())];
    let why = Etcd::start(&options).unwrap_err();
    assert!(why.message().contains("--etcd-ca"), "{why}");
    options.tls = Some(EtcdTls { ca: std::fs::read(&made).unwrap(), identity: None });
    let client = connect(&options);
    until_here(&*client).await;
    write(&client, "in secret").await;
    let stranger = EtcdProcess::start(&["--auto-tls"]);
    let other = stranger.home().join("data/fixtures/client/cert.pem");
    until("the other has made its certificate", async || other.is_file()).await;
    options.tls = Some(EtcdTls { ca: std::fs::read(&other).unwrap(), identity: None });
    assert!(connect(&options).read().await.is_err());
}
