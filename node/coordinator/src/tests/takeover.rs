//! Tests of takeovers: one node lost for good, another in its place.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::time::timeout;

use super::super::message::Promise;
use super::super::types::{CoordinatorView, RecordAtRevision};
use super::process::Server;
use super::settings::{Served, until_copied};
use super::{announcement, digits, number, until, until_here};
use crate::{ClusterPeer, Coordinator, CoordinatorError, Replaced, Revision};

/// Three nodes, of which `a` coordinates.
struct ThreeNodes {
    a: Served,
    b: Served,
    c: Served,
    home: TempDir,
}

impl ThreeNodes {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let a = Served::start(&home.path().join("a"), "a", 0, vec![]).await;
        let join = vec![a.address.clone()];
        let b = Served::start(&home.path().join("b"), "b", 0, join.clone()).await;
        let c = Served::start(&home.path().join("c"), "c", 0, join).await;
        until_here(&*b.coordinator).await;
        until_here(&*c.coordinator).await;
        Self { a, b, c, home }
    }

    fn nodes(&self) -> Vec<ClusterPeer> {
        let served = [("a", &self.a), ("b", &self.b), ("c", &self.c)];
        let peer = |(id, served): (&str, &Served)| ClusterPeer {
            node_id: id.to_owned(),
            address: served.address.clone(),
        };
        served.map(peer).to_vec()
    }

    /// Writes a record with a blob, and waits until both others have a whole copy.
    async fn write(&self, record: u64) -> Revision {
        let blob =
            self.c.coordinator.put_blob(Bytes::from(format!("blob {record}"))).await.unwrap();
        let (expected, _) = number(&*self.a.coordinator).await;
        let done = self.a.coordinator.replace(expected, digits(record), vec![blob]).await.unwrap();
        let Replaced::Done(revision) = done else { panic!("{done:?}") };
        until_copied(&self.b.coordinator, revision).await;
        until_copied(&self.c.coordinator, revision).await;
        revision
    }
}

/// Waits until a node has noticed that the coordinator is away.
async fn until_away(node: &Served) {
    until("it is noticed", async || !node.coordinator.located().reaches).await;
}

fn promise(generation: u32, node_id: &str) -> Promise {
    Promise { generation, node_id: node_id.to_owned(), address: "http://127.0.0.1:1".to_owned() }
}

fn state(home: &TempDir, name: &str) -> std::path::PathBuf {
    Path::join(home.path(), name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_takes_over_and_the_old_coordinator_is_refused() {
    let trio = ThreeNodes::start().await;
    let before = trio.write(7).await;
    trio.a.coordinator.announce(announcement("c", 1, 60)).await.unwrap();
    let nodes = trio.nodes();
    let alive = trio.b.coordinator.take_over(&nodes, &[]).await.unwrap_err();
    assert!(alive.message().contains("alive"), "{alive}");
    let ThreeNodes { a, b, c, home } = trio;
    let old_port = a.port;
    a.end().await;
    until_away(&b).await;
    until_away(&c).await;

    let taken = b.coordinator.take_over(&nodes, &[]).await.unwrap();
    assert_eq!((taken.generation, taken.untold.len()), (2, 0));
    let after = taken.revision.unwrap();
    assert!(after > before && b.coordinator.serves());
    until_here(&*c.coordinator).await;
    assert_eq!(number(&*c.coordinator).await, (Some(after), 7));
    let stored = c.coordinator.read().await.unwrap().record.unwrap();
    assert_eq!(b.coordinator.blob(stored.blobs[0]).await.unwrap().unwrap(), "blob 7");
    let done = c.coordinator.replace(Some(after), digits(8), stored.blobs).await.unwrap();
    assert!(matches!(done, Replaced::Done(revision) if revision > after));

    // The old coordinator comes back, still in its role. The new one's message tells it.
    let back = Served::start(&state(&home, "a"), "a", old_port, vec![]).await;
    until("it follows", async || !back.coordinator.serves()).await;
    until("it sees what the others see", async || {
        back.coordinator.read().await.is_ok_and(|view| view.record.unwrap().record == digits(8))
    })
    .await;
    // That is saved: its next start follows at once.
    back.end().await;
    let again = Served::start(&state(&home, "a"), "a", old_port, vec![]).await;
    assert!(!again.coordinator.serves());
    until_here(&*again.coordinator).await;
    until("the new one has been heard", async || {
        b.coordinator.durable.kept().supersedes.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_continues_after_its_caller_dropped_it() {
    let trio = ThreeNodes::start().await;
    trio.write(7).await;
    let nodes = trio.nodes();
    let ThreeNodes { a, b, c, home: _home } = trio;
    a.end().await;
    until_away(&b).await;
    until_away(&c).await;
    // Begun, and abandoned by its caller at once.
    drop(timeout(Duration::ZERO, b.coordinator.take_over(&nodes, &[])).await);
    until("it takes over", async || b.coordinator.serves()).await;
    until("the other follows", async || c.coordinator.generation() == 2).await;
    until_here(&*c.coordinator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_follows_after_the_caller_dropped_the_request() {
    let trio = ThreeNodes::start().await;
    let place = super::super::peer::LeaderAddress { generation: 9, coordinator: String::new() };
    drop(timeout(Duration::ZERO, trio.a.coordinator.follow(place)).await);
    until("it serves no more", async || !trio.a.coordinator.serves()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_coordinator_is_refused_before_it_learns_of_takeover() {
    let trio = ThreeNodes::start().await;
    trio.write(1).await;
    // As if a takeover had happened while `a` was cut off: `c` knows of it.
    let place = super::super::peer::LeaderAddress { generation: 9, coordinator: String::new() };
    trio.c.coordinator.follow(place).await.unwrap();
    let refused = trio.c.coordinator.read().await;
    assert!(matches!(refused, Err(CoordinatorError::Away(_))), "{refused:?}");
    until("the first call ends its reign", async || !trio.a.coordinator.serves()).await;
    let away = trio.a.coordinator.replace(None, digits(2), vec![]).await;
    assert!(matches!(away, Err(CoordinatorError::Away(_))), "{away:?}");
    let promised = trio.b.coordinator.promise(promise(1, "a")).await;
    assert!(matches!(promised, Err(CoordinatorError::Refused(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_needs_the_newest_record_and_answers_of_all_nodes() {
    let trio = ThreeNodes::start().await;
    trio.write(1).await;
    let nodes = trio.nodes();
    let ThreeNodes { a, b, c, home } = trio;
    // `b` misses the last record: it was not running.
    let (b_port, b_state) = (b.port, state(&home, "b"));
    b.end().await;
    let (expected, _) = number(&*a.coordinator).await;
    let done = a.coordinator.replace(expected, digits(2), vec![]).await.unwrap();
    let Replaced::Done(newest) = done else { panic!("{done:?}") };
    until_copied(&c.coordinator, newest).await;
    a.end().await;
    until_away(&c).await;
    let b = Served::start(&b_state, "b", b_port, vec![]).await;
    let older = b.coordinator.take_over(&nodes, &[]).await.unwrap_err();
    assert!(older.message().contains("newer record"), "{older}");

    let (c_port, c_state) = (c.port, state(&home, "c"));
    c.end().await;
    let silent = b.coordinator.take_over(&nodes, &[]).await.unwrap_err();
    assert!(silent.message().contains("name it as lost"), "{silent}");
    let c = Served::start(&c_state, "c", c_port, vec![]).await;

    // A generation is promised only once.
    b.coordinator.promise(promise(2, "b")).await.unwrap();
    let taken = c.coordinator.take_over(&nodes, &[]).await.unwrap();
    assert_eq!(taken.generation, 3, "not the one that b promised to itself");
    assert_eq!(number(&*c.coordinator).await, (taken.revision, 2));
    let late = b.coordinator.promise(promise(3, "b")).await;
    assert!(matches!(late, Err(CoordinatorError::Refused(_))), "{late:?}");
    until_here(&*b.coordinator).await;
    let follows = b.coordinator.take_over(&nodes, &[]).await.unwrap_err();
    assert!(follows.message().contains("no takeover"), "{follows}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_one_of_two_concurrent_takeovers_succeeds() {
    let trio = ThreeNodes::start().await;
    trio.write(1).await;
    let nodes = trio.nodes();
    let ThreeNodes { a, b, c, home: _home } = trio;
    a.end().await;
    until_away(&b).await;
    until_away(&c).await;
    let (one, other) =
        tokio::join!(b.coordinator.take_over(&nodes, &[]), c.coordinator.take_over(&nodes, &[]));
    assert!(!(one.is_ok() && other.is_ok()), "{one:?} {other:?}");
    if one.is_err() && other.is_err() {
        b.coordinator.take_over(&nodes, &[]).await.unwrap();
    }
    until("one serves and the other follows", async || {
        b.coordinator.serves() != c.coordinator.serves()
    })
    .await;
    until_here(&*b.coordinator).await;
    until_here(&*c.coordinator).await;
    assert_eq!(number(&*b.coordinator).await, number(&*c.coordinator).await);
}

/// Makes a node promise a generation to another that takes over.
fn promise_to(node: &Served, generation: u32, node_id: &str) -> Promise {
    Promise { generation, node_id: node_id.to_owned(), address: node.address.clone() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_blocks_older_coordinators_until_the_takeover_fails() {
    let home = tempfile::tempdir().unwrap();
    let a = Server::start(&state(&home, "a"), 0);
    let join = vec![a.address.clone()];
    let b = Served::start(&state(&home, "b"), "b", 0, join.clone()).await;
    let c = Served::start(&state(&home, "c"), "c", 0, join.clone()).await;
    let d = Served::start(&state(&home, "d"), "d", 0, join).await;
    until_here(&*c.coordinator).await;
    let Ok(Replaced::Done(first)) = c.coordinator.replace(None, digits(1), vec![]).await else {
        panic!("there was no record");
    };
    for node in [&b, &c, &d] {
        until_copied(&node.coordinator, first).await;
    }
    a.signal(Signal::SIGSTOP);
    until_away(&b).await;
    until_away(&c).await;
    let promise = promise_to(&b, 2, "b");
    for node in [&b, &c] {
        let said = node.coordinator.promise(promise.clone()).await.unwrap();
        assert_eq!((said.revision, said.reaches), (first.0, false));
    }
    // The old coordinator is awake again, and the node without a promise goes on with it.
    a.signal(Signal::SIGCONT);
    until_here(&*d.coordinator).await;
    let Ok(Replaced::Done(second)) = d.coordinator.replace(Some(first), digits(2), vec![]).await
    else {
        panic!("nobody else wrote");
    };
    let watch = c.coordinator.watch();
    let told = async || watch.away().is_some_and(|why| why.contains("promised to b"));
    until("c was there and did not listen", told).await;
    let away = c.coordinator.replace(Some(second), digits(3), vec![]).await;
    assert!(matches!(away, Err(CoordinatorError::Away(_))), "{away:?}");
    assert_eq!(c.coordinator.located().revision, first.0);
    assert_eq!(number(&*d.coordinator).await, (Some(second), 2));

    b.coordinator.give_up(promise.clone()).await;
    until_here(&*c.coordinator).await;
    assert_eq!(number(&*c.coordinator).await, (Some(second), 2));
    let again = c.coordinator.promise(promise).await;
    assert!(matches!(again, Err(CoordinatorError::Refused(_))), "it is used up: {again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_takeover_frees_the_promises() {
    let trio = ThreeNodes::start().await;
    let promise = promise_to(&trio.b, 2, "b");
    trio.b.coordinator.promise(promise.clone()).await.unwrap();
    trio.c.coordinator.promise(promise).await.unwrap();
    until_away(&trio.c).await;
    let ThreeNodes { a, b, c, home } = trio;
    let port = b.port;
    b.end().await;
    let b = Served::start(&state(&home, "b"), "b", port, vec![a.address.clone()]).await;
    until_here(&*c.coordinator).await;
    until_here(&*b.coordinator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seen_record_newer_than_the_copy_blocks_a_takeover() {
    let trio = ThreeNodes::start().await;
    let copied = trio.write(1).await;
    let nodes = trio.nodes();
    let ThreeNodes { a, b, c, home: _home } = trio;
    a.end().await;
    until_away(&b).await;
    until_away(&c).await;
    // As if the blobs of one more record were missing at the end.
    let newer = Revision(copied.0 + 1);
    let record = Some(RecordAtRevision { revision: newer, record: digits(2), blobs: vec![] });
    let seen = b.coordinator.publisher.successor();
    seen.here(CoordinatorView { record, ..CoordinatorView::default() });
    seen.away("and then it was gone");
    let why = b.coordinator.take_over(&nodes, &[]).await.unwrap_err();
    assert!(why.message().contains("whole copy"), "{why}");
    let why = c.coordinator.take_over(&nodes, &[]).await.unwrap_err();
    assert!(why.message().contains("b has seen a newer record"), "{why}");
}
