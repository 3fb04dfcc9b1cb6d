//! Tests for every coordinator. Each test gets connections to one, as from several nodes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_base::{BootId, limits};

use super::settings::Setting;
use super::{announcement, digits, is_refused, number, until, until_here, until_shown, write};
use crate::now;
use crate::types::RECORD_BLOBS_MAX;
use crate::{BlobId, Coordinator, CoordinatorError, Replaced, Revision};

/// Runs each test over each setting.
macro_rules! over_all_settings {
    ($($test:ident)*) => {
        mod over_embedded { $(#[test] fn $test() { super::super::settings::embedded(super::$test); })* }
        mod over_remote { $(#[test] fn $test() { super::super::settings::remote(super::$test); })* }
        mod over_etcd { $(#[test] fn $test() { super::super::settings::etcd(super::$test); })* }
    };
}

over_all_settings! {
    no_update_is_lost_in_a_race
    record_is_replaced_only_by_a_writer_that_saw_it
    record_never_names_a_missing_blob
    blobs_of_any_size_read_back
    only_unneeded_blobs_are_swept
    too_large_input_is_refused
    watch_shows_the_latest_state
    announcement_lasts_while_renewed_and_then_expires
    announcement_is_withdrawn_only_by_its_own_start
    restart_keeps_all_state_and_watches_miss_nothing
}

/// Adds one to the number in the record. Retries until no other writer was faster.
async fn add_one(coordinator: &dyn Coordinator) -> Revision {
    let (mut expected, mut before) = number(coordinator).await;
    loop {
        match coordinator.replace(expected, digits(before + 1), vec![]).await {
            Ok(Replaced::Done(revision)) => return revision,
            Ok(Replaced::Moved(Some(present))) => {
                expected = Some(present.revision);
                before = std::str::from_utf8(&present.record).unwrap().parse().unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn no_update_is_lost_in_a_race(setting: Setting) {
    const TASKS: u64 = 8;
    const EACH: u64 = 8;
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let client = setting.client().await;
        tasks.push(tokio::spawn(async move {
            let mut revisions = Vec::new();
            for _ in 0..EACH {
                revisions.push(add_one(&*client).await);
            }
            revisions
        }));
    }
    let mut all = BTreeSet::new();
    for task in tasks {
        let revisions = task.await.unwrap();
        assert!(revisions.is_sorted(), "of two the greater is the newer");
        all.extend(revisions);
    }
    let client = setting.client().await;
    let (last, total) = number(&*client).await;
    assert_eq!((total, all.len() as u64), (TASKS * EACH, TASKS * EACH));
    assert_eq!(last.as_ref(), all.last());
}

async fn record_is_replaced_only_by_a_writer_that_saw_it(setting: Setting) {
    let client = setting.client().await;
    assert_eq!(client.read().await.unwrap().record, None);
    let nobody = client.replace(Some(Revision(7)), digits(1), vec![]).await.unwrap();
    assert_eq!(nobody, Replaced::Moved(None));
    let Replaced::Done(first) = client.replace(None, digits(1), vec![]).await.unwrap() else {
        panic!("there was none");
    };
    let Replaced::Moved(Some(present)) = client.replace(None, digits(2), vec![]).await.unwrap()
    else {
        panic!("there is one");
    };
    assert_eq!((present.revision, present.record), (first, digits(1)));
    let Replaced::Done(second) = client.replace(Some(first), digits(2), vec![]).await.unwrap()
    else {
        panic!("it was that");
    };
    assert!(second > first);
    let late = client.replace(Some(first), digits(3), vec![]).await.unwrap();
    assert!(matches!(late, Replaced::Moved(Some(present)) if present.revision == second));
    // The same bytes are another write all the same.
    let Replaced::Done(third) = client.replace(Some(second), digits(2), vec![]).await.unwrap()
    else {
        panic!("it was that");
    };
    assert!(third > second);
}

async fn record_never_names_a_missing_blob(setting: Setting) {
    let (client, other) = (setting.client().await, setting.client().await);
    let there = client.put_blob(Bytes::from_static(b"a placement")).await.unwrap();
    let not = BlobId::of(b"a plan");
    let refused = other.replace(None, digits(1), vec![there, not]).await.unwrap();
    assert_eq!(refused, Replaced::Missing(vec![not]));
    assert_eq!(client.read().await.unwrap().record, None);
    assert_eq!(client.put_blob(Bytes::from_static(b"a plan")).await.unwrap(), not);
    let done = other.replace(None, digits(1), vec![there, not]).await.unwrap();
    let Replaced::Done(at) = done else { panic!("{done:?}") };
    let stored = client.read().await.unwrap().record.unwrap();
    assert_eq!((stored.revision, stored.blobs), (at, vec![there, not]));
}

async fn blobs_of_any_size_read_back(setting: Setting) {
    let (client, other) = (setting.client().await, setting.client().await);
    for length in [0, 1, limits::BLOB_PIECE_BYTES, 3 * limits::BLOB_PIECE_BYTES + 5] {
        let mut bytes = vec![0; length];
        fastrand::Rng::with_seed(length as u64).fill(&mut bytes);
        let bytes = Bytes::from(bytes);
        let id = client.put_blob(bytes.clone()).await.unwrap();
        assert_eq!(id, BlobId::of(&bytes));
        assert_eq!(other.put_blob(bytes.clone()).await.unwrap(), id, "once more changes nothing");
        assert_eq!(other.blob(id).await.unwrap().unwrap(), bytes, "{length} bytes");
    }
    assert_eq!(client.blob(BlobId::of(b"never put")).await.unwrap(), None);
}

async fn only_unneeded_blobs_are_swept(setting: Setting) {
    let client = setting.client().await;
    let needed = client.put_blob(Bytes::from_static(b"needed")).await.unwrap();
    let idle = client.put_blob(Bytes::from_static(b"idle")).await.unwrap();
    assert_eq!(client.sweep(Revision(1)).await.unwrap(), None, "there is no record yet");
    let done = client.replace(None, digits(1), vec![needed]).await.unwrap();
    let Replaced::Done(first) = done else { panic!("{done:?}") };
    let done = client.replace(Some(first), digits(2), vec![needed]).await.unwrap();
    let Replaced::Done(second) = done else { panic!("{done:?}") };
    assert_eq!(client.sweep(first).await.unwrap(), None, "the record had moved on");
    let elsewhere = setting.client().await;
    assert!(elsewhere.blob(idle).await.unwrap().is_some());
    assert_eq!(client.sweep(second).await.unwrap(), Some(1));
    assert_eq!(client.sweep(second).await.unwrap(), Some(0));
    assert!(client.blob(needed).await.unwrap().is_some());
    assert_eq!(setting.client().await.blob(idle).await.unwrap(), None);
    // A node that was about to need it learns that it is gone, and puts it again.
    let late = client.replace(Some(second), digits(3), vec![idle]).await.unwrap();
    assert_eq!(late, Replaced::Missing(vec![idle]));
    client.put_blob(Bytes::from_static(b"idle")).await.unwrap();
    let again = client.replace(Some(second), digits(3), vec![idle]).await.unwrap();
    assert!(matches!(again, Replaced::Done(_)));
}

async fn too_large_input_is_refused(setting: Setting) {
    let client = setting.client().await;
    let most = Bytes::from(vec![b'7'; limits::RECORD_BYTES_MAX]);
    let Replaced::Done(at) = client.replace(None, most, vec![]).await.unwrap() else {
        panic!("that much is allowed");
    };
    let more = Bytes::from(vec![b'7'; limits::RECORD_BYTES_MAX + 1]);
    let why = is_refused(client.replace(Some(at), more, vec![]).await);
    assert!(why.contains("262145") && why.contains("262144"), "{why}");
    let many = vec![BlobId::of(b""); RECORD_BLOBS_MAX + 1];
    is_refused(client.replace(Some(at), digits(1), many).await);
    let blob = Bytes::from(vec![0; limits::BLOB_BYTES_MAX + 1]);
    is_refused(client.put_blob(blob).await);
    let mut node = announcement("n", 1, 2);
    node.word = Bytes::from(vec![0; limits::ANNOUNCEMENT_BYTES_MAX + 1]);
    is_refused(client.announce(node).await);
    for id in ["", "a/b", "a\nb", &"x".repeat(65)] {
        is_refused(client.announce(announcement(id, 1, 2)).await);
    }
    for seconds in [0, 601] {
        is_refused(client.announce(announcement("n", 1, seconds)).await);
    }
    assert!(client.read().await.unwrap().alive.nodes.is_empty());
}

async fn watch_shows_the_latest_state(setting: Setting) {
    let (client, other) = (setting.client().await, setting.client().await);
    let mut early = other.watch();
    write(&client, "one").await;
    until_shown("the first record", &mut early, |view| {
        view.record.as_ref().is_some_and(|stored| stored.record == "one")
    })
    .await;
    let mut stamp = early.view().alive.stamp;
    for node in ["a", "b", "c"] {
        client.announce(announcement(node, 1, 30)).await.unwrap();
        until_shown("who came", &mut early, |view| view.alive.nodes.contains_key(node)).await;
        let next = early.view().alive.stamp;
        assert!(next > stamp, "the stamp grows: {next} after {stamp}");
        stamp = next;
    }
    for record in ["two", "three", "four"] {
        write(&client, record).await;
    }
    let shows = |view: &super::super::CoordinatorView| {
        view.record.as_ref().is_some_and(|stored| stored.record == "four")
    };
    until_shown("the last record", &mut early, shows).await;
    // A watch that begins now shows it at once.
    let mut late = other.watch();
    assert!(shows(&late.view()));
    assert_eq!(late.view().alive.nodes["b"], announcement("b", 1, 30));
}

async fn announcement_lasts_while_renewed_and_then_expires(setting: Setting) {
    let (client, other) = (setting.client().await, setting.client().await);
    let mut watch = other.watch();
    let ttl = Duration::from_secs(2);
    let begun = now();
    client.announce(announcement("idle", 1, 2)).await.unwrap();
    // The idle node's announcement must expire, but not early; the busy node's must not.
    loop {
        let renewed = now();
        client.announce(announcement("busy", 1, 2)).await.unwrap();
        let nodes = other.read().await.unwrap().alive.nodes;
        let read = now();
        assert!(nodes.contains_key("busy") || read - renewed >= ttl, "after {:?}", read - renewed);
        if !nodes.contains_key("idle") {
            assert!(read - begun >= ttl, "it went after {:?}", read - begun);
            break;
        }
        assert!(read - begun < super::PATIENCE, "it never went");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    until_shown("that it is gone", &mut watch, |view| !view.alive.nodes.contains_key("idle")).await;
    client.announce(announcement("idle", 2, 2)).await.unwrap();
    until_shown("that it is back", &mut watch, |view| {
        view.alive.nodes.get("idle").is_some_and(|node| node.boot == BootId::from_bytes([2; 16]))
    })
    .await;
}

async fn announcement_is_withdrawn_only_by_its_own_start(setting: Setting) {
    let (client, other) = (setting.client().await, setting.client().await);
    let (old, new) = (BootId::from_bytes([1; 16]), BootId::from_bytes([2; 16]));
    client.announce(announcement("n", 1, 60)).await.unwrap();
    // The node restarts: its new boot's announcement replaces the old one.
    other.announce(announcement("n", 2, 60)).await.unwrap();
    client.withdraw("n", old).await.unwrap();
    assert_eq!(other.read().await.unwrap().alive.nodes["n"].boot, new);
    other.withdraw("n", new).await.unwrap();
    other.withdraw("n", new).await.unwrap();
    assert!(client.read().await.unwrap().alive.nodes.is_empty());
    other.announce(announcement("n", 2, 60)).await.unwrap();
    assert!(client.read().await.unwrap().alive.nodes.contains_key("n"));
}

async fn restart_keeps_all_state_and_watches_miss_nothing(mut setting: Setting) {
    let client = setting.client().await;
    let blob = client.put_blob(Bytes::from_static(b"kept")).await.unwrap();
    let done = client.replace(None, digits(1), vec![blob]).await.unwrap();
    let Replaced::Done(first) = done else { panic!("{done:?}") };
    client.announce(announcement("n", 1, 60)).await.unwrap();
    let mut watch = client.watch();
    until_shown("the record", &mut watch, |view| view.record.is_some()).await;
    let client = setting.outlives_a_restart().then_some(client);
    setting.restart().await;
    let other = setting.client().await;
    let view = other.read().await.unwrap();
    assert_eq!(view.record.map(|stored| stored.revision), Some(first));
    assert!(view.alive.nodes.contains_key("n"));
    assert_eq!(other.blob(blob).await.unwrap().unwrap(), "kept");
    let done = other.replace(Some(first), digits(2), vec![blob]).await.unwrap();
    let Replaced::Done(second) = done else { panic!("{done:?}") };
    assert!(second > first);
    if let Some(client) = client {
        until_shown("what changed meanwhile", &mut watch, |view| {
            view.record.as_ref().is_some_and(|stored| stored.revision == second)
        })
        .await;
        until_here(&*client).await;
        assert_eq!(number(&*client).await, (Some(second), 2));
    }
}

/// A stopped client counts as gone, and is back when it continues.
pub(super) async fn stopped_client_is_absent_until_it_resumes(
    watching: Arc<dyn Coordinator>,
    client: super::process::Announcer,
) {
    let mut watch = watching.watch();
    until_shown("the client", &mut watch, |view| view.alive.nodes.contains_key("client")).await;
    client.stand_still();
    until_shown("that it is gone", &mut watch, |view| !view.alive.nodes.contains_key("client"))
        .await;
    client.go_on();
    until_shown("that it is back", &mut watch, |view| view.alive.nodes.contains_key("client"))
        .await;
}

/// A stopped coordinator is away, calls to it have an unknown outcome, and it is back when it
/// continues.
pub(super) async fn stopped_coordinator_is_away_until_it_resumes(
    client: Arc<dyn Coordinator>,
    stand_still: impl FnOnce(),
    go_on: impl FnOnce(),
) {
    until_here(&*client).await;
    let at = write(&client, "before").await;
    let mut watch = client.watch();
    until_shown("the record", &mut watch, |view| view.record.is_some()).await;
    stand_still();
    until("the watch says that it is away", async || watch.away().is_some()).await;
    let unanswered = client.replace(Some(at), Bytes::from_static(b"open"), vec![]).await;
    let open = matches!(unanswered, Err(CoordinatorError::Unknown(_) | CoordinatorError::Away(_)));
    assert!(open, "{unanswered:?}");
    assert_eq!(watch.view().record.as_ref().unwrap().record, "before", "the last that was known");
    go_on();
    until_here(&*client).await;
    write(&client, "after").await;
    until_shown("that it is back", &mut watch, |view| {
        view.record.as_ref().is_some_and(|stored| stored.record == "after")
    })
    .await;
}
