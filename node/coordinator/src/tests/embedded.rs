//! Tests of coordinators: processes that die and stop, tokens, damaged folders.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nix::sys::signal::Signal;
use tokio::sync::Notify;

use super::contract::{
    stopped_client_is_absent_until_it_resumes, stopped_coordinator_is_away_until_it_resumes,
};
use super::process::{Announcer, Server};
use super::settings::{Served, options};
use super::{announcement, digits, is_refused, number, until, until_here};
use crate::{Coordinator, EmbeddedCoordinator, JoinToken, Replaced};

/// Kills during writes.
const DEATHS: u64 = 25;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_in_mid_write_loses_no_acknowledged_write() {
    let home = tempfile::tempdir().unwrap();
    let (state, follower) = (home.path().join("first"), home.path().join("follower"));
    let mut server = Server::start(&state, 0);
    let port = server.port();
    let join = vec![server.address.clone()];
    let client = EmbeddedCoordinator::start(options(&follower, "b", "http://127.0.0.1:1", join))
        .await
        .unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let (mut acknowledged, mut tried) = (0, 0);
    for _ in 0..DEATHS {
        until_here(&*client).await;
        let (at, found) = number(&*client).await;
        assert!(found >= acknowledged && found <= tried, "{acknowledged} <= {found} <= {tried}");
        let begun = Notify::new();
        let writing = async {
            let (mut at, mut next) = (at, found);
            loop {
                next += 1;
                tried = tried.max(next);
                match client.replace(at, digits(next), vec![]).await {
                    Ok(Replaced::Done(revision)) => {
                        (at, acknowledged) = (Some(revision), next);
                        begun.notify_one();
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => return,
                }
            }
        };
        let killing = async {
            begun.notified().await;
            tokio::time::sleep(Duration::from_millis(random.u64(0..40))).await;
            server.signal(Signal::SIGKILL);
        };
        tokio::join!(writing, killing);
        drop(server);
        server = Server::start(&state, port);
    }
    until_here(&*client).await;
    let (_, found) = number(&*client).await;
    assert!(found >= acknowledged && found <= tried, "{acknowledged} <= {found} <= {tried}");
    assert!(acknowledged >= DEATHS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_node_is_absent_until_it_resumes() {
    let home = tempfile::tempdir().unwrap();
    let server = Served::start(&home.path().join("first"), "first", 0, vec![]).await;
    let client = Announcer::to_seat(&home.path().join("client"), &server.address);
    let watching = Arc::clone(&server.coordinator) as Arc<dyn Coordinator>;
    stopped_client_is_absent_until_it_resumes(watching, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_coordinator_is_away_and_forgets_no_node() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("first"), 0);
    let join = vec![server.address.clone()];
    let state = home.path().join("follower");
    let client =
        EmbeddedCoordinator::start(options(&state, "b", "http://127.0.0.1:1", join)).await.unwrap();
    until_here(&*client).await;
    // No node can renew it while the coordinator is stopped, for longer than it lasts.
    client.announce(announcement("b", 1, 2)).await.unwrap();
    let still = || server.signal(Signal::SIGSTOP);
    let go_on = || server.signal(Signal::SIGCONT);
    let seen = Arc::clone(&client) as Arc<dyn Coordinator>;
    stopped_coordinator_is_away_until_it_resumes(seen, still, go_on).await;
    until_here(&*client).await;
}

#[tokio::test]
async fn caller_without_the_token_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let server = Served::start(&home.path().join("first"), "first", 0, vec![]).await;
    let join = vec![server.address.clone()];
    let mut stranger = options(&home.path().join("stranger"), "s", "http://127.0.0.1:1", join);
    stranger.token = JoinToken::new("a token for guests").unwrap();
    let stranger = EmbeddedCoordinator::start(stranger).await.unwrap();
    let watch = stranger.watch();
    until("it is told why", async || watch.away().is_some_and(|why| why.contains("not the token")))
        .await;
    assert!(stranger.read().await.is_err());
    let caller = super::super::peer::Caller::new(
        &server.address,
        &JoinToken::new("a token for guests").unwrap(),
    );
    let why = is_refused(caller.unwrap().locate(u32::MAX).await.map_err(|fault| fault.error));
    assert!(why.contains("--token"), "{why}");
    assert!(server.coordinator.serves(), "what a stranger says of generations is not heard");
}

#[tokio::test]
async fn a_damaged_folder_is_refused_and_two_nodes_do_not_share_one() {
    let home = tempfile::tempdir().unwrap();
    let coordinator =
        EmbeddedCoordinator::start(options(home.path(), "a", "http://127.0.0.1:1", vec![]))
            .await
            .unwrap();
    assert!(matches!(coordinator.replace(None, digits(1), vec![]).await, Ok(Replaced::Done(_))));
    let second =
        EmbeddedCoordinator::start(options(home.path(), "b", "http://127.0.0.1:1", vec![])).await;
    assert!(second.unwrap_err().message().contains("another node"));
    coordinator.stop();
    drop(coordinator);
    let state = home.path().join("state");
    let mut bytes = std::fs::read(&state).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&state, bytes).unwrap();
    until("the folder is free", async || {
        let again =
            EmbeddedCoordinator::start(options(home.path(), "a", "http://127.0.0.1:1", vec![]))
                .await;
        again.unwrap_err().message().contains("checksum")
    })
    .await;
}

#[tokio::test]
async fn full_blob_store_accepts_blobs_after_a_sweep() {
    let home = tempfile::tempdir().unwrap();
    let coordinator =
        EmbeddedCoordinator::start(options(home.path(), "a", "http://127.0.0.1:1", vec![]))
            .await
            .unwrap();
    for number in 0..larder_base::limits::BLOBS_KEPT_MAX {
        coordinator.put_blob(Bytes::from(number.to_string())).await.unwrap();
    }
    let why = is_refused(coordinator.put_blob(Bytes::from_static(b"one more")).await);
    assert!(why.contains("sweep"), "{why}");
    let Replaced::Done(at) = coordinator.replace(None, digits(1), vec![]).await.unwrap() else {
        panic!("there was none");
    };
    coordinator.sweep(at).await.unwrap();
    coordinator.put_blob(Bytes::from_static(b"one more")).await.unwrap();
}
