use std::{fs, process::Command, sync::mpsc};

use bytes::Bytes;

use super::super::{Origin, PathAllowlist, read::Target};
use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const MOMENT: Duration = Duration::from_millis(1);

fn object() -> OriginUri {
    OriginUri::parse("file:///away/data/a").unwrap()
}

/// A call that hangs until it is released, and its caller.
struct Hanging {
    let_go: mpsc::SyncSender<()>,
    waiter: JoinHandle<Result<bool, Unanswered>>,
}

impl Hanging {
    async fn among(calls: &LocalCalls) -> Self {
        let (let_go, hangs) = mpsc::sync_channel(1);
        let (before, own) = (calls.permits.available_permits(), calls.clone());
        let waiter =
            task::spawn(async move { own.run(&object(), move || hangs.recv().is_ok()).await });
        while calls.permits.available_permits() == before {
            task::yield_now().await;
        }
        Self { let_go, waiter }
    }

    async fn end(self) {
        self.let_go.send(()).unwrap();
        assert!(self.waiter.await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn hanging_call_keeps_its_permit_after_its_caller_left() {
    let calls = LocalCalls::new(2, MOMENT, HOUR);
    let (one, other) = (Hanging::among(&calls).await, Hanging::among(&calls).await);
    one.waiter.abort();
    assert!(one.waiter.await.unwrap_err().is_cancelled());
    let why = calls.run(&object(), || ()).await.unwrap_err().to_string();
    assert!(why.contains("2 calls") && why.contains("of /away/data/a there?"), "{why}");
    let why = calls.run_async(&object(), async {}).await.unwrap_err().to_string();
    assert!(why.contains("are under way"), "{why}");
    one.let_go.send(()).unwrap();
    while calls.permits.available_permits() == 0 {
        task::yield_now().await;
    }
    assert_eq!(calls.run(&object(), || 7).await.unwrap(), 7);
    other.end().await;
}

#[tokio::test]
async fn hanging_async_call_keeps_its_permit() {
    let calls = LocalCalls::new(1, MOMENT, HOUR);
    let (let_go, hangs) = mpsc::sync_channel::<()>(1);
    let own = calls.clone();
    let waiter = task::spawn(async move {
        let hangs = async move { task::spawn_blocking(move || hangs.recv()).await.is_ok() };
        own.run_async(&object(), hangs).await
    });
    while calls.permits.available_permits() == 1 {
        task::yield_now().await;
    }
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    calls.run_async(&object(), async {}).await.unwrap_err();
    let_go.send(()).unwrap();
    while calls.permits.available_permits() == 0 {
        task::yield_now().await;
    }
    calls.run_async(&object(), async {}).await.unwrap();
}

#[tokio::test]
async fn waits_longer_while_other_calls_return() {
    let patience = 100 * MOMENT;
    let calls = LocalCalls::new(1, patience, HOUR);
    let hanging = Hanging::among(&calls).await;
    let (own, returned) = (calls.clone(), Arc::clone(&calls.returned));
    let waiter = task::spawn(async move { own.run(&object(), || 7).await });
    // A busy thread that never sleeps: on a loaded machine a short sleep may outlast the timeouts.
    let (stop, stopped) = mpsc::sync_channel::<()>(1);
    let returns = std::thread::spawn(move || {
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            returned.fetch_add(1, Relaxed);
            std::thread::yield_now();
        }
    });
    tokio::time::sleep(4 * patience).await;
    hanging.end().await;
    drop(stop);
    returns.join().unwrap();
    assert_eq!(waiter.await.unwrap().unwrap(), 7);
}

#[tokio::test]
async fn caller_gives_up_on_a_hanging_call() {
    let calls = LocalCalls::new(1, HOUR, MOMENT);
    let (let_go, hangs) = mpsc::sync_channel::<()>(1);
    let why = calls.run(&object(), move || hangs.recv()).await.unwrap_err().to_string();
    assert!(why.contains("has not returned") && why.contains("/away/data/a"), "{why}");
    assert_eq!(calls.permits.available_permits(), 0);
    drop(let_go);
}

#[test]
fn process_has_one_limit_of_local_calls() {
    let calls = [LocalCalls::of_process(), LocalCalls::of_process()];
    assert!(Arc::ptr_eq(&calls[0].permits, &calls[1].permits));
}

/// Makes an origin of one file, and that file's address.
async fn origin(home: &tempfile::TempDir, calls: &LocalCalls) -> (Origin, OriginUri, OriginUri) {
    fs::write(home.path().join("a"), "data").unwrap();
    let prefix = OriginUri::parse(&format!("file://{}", home.path().display())).unwrap();
    let object = prefix.join("a").unwrap();
    let fence = PathAllowlist::new(std::slice::from_ref(&prefix));
    let origin = Origin::connect(&prefix).await.unwrap().within(Some(fence));
    (Origin { local: calls.clone(), ..origin }, prefix, object)
}

#[tokio::test]
async fn all_local_file_calls_take_a_permit() {
    let home = tempfile::tempdir().unwrap();
    let calls = LocalCalls::new(1, HOUR, HOUR);
    let (origin, prefix, object) = origin(&home, &calls).await;
    let mut before = 0;
    let mut since = || {
        let now = calls.returned.load(Relaxed);
        now - std::mem::replace(&mut before, now)
    };
    let size = origin.head(&object).await.unwrap().size_bytes;
    assert_eq!((size, since()), (4, 2), "found, opened");
    assert_eq!(origin.get(&object, 100).await.unwrap().0, "data");
    assert_eq!(since(), 3, "the same, and read");
    assert_eq!(origin.list(&prefix).await.unwrap().len(), 1);
    assert_eq!(since(), 3, "listed, compared with the fence, and nothing more was found");
    let other = prefix.join("b").unwrap();
    assert!(origin.put_if_absent(&other, Bytes::from_static(b"more")).await.unwrap());
    assert_eq!(since(), 2, "its folder found, written");
    let target = Target { object, etag: None, version: None, size_bytes: 4 };
    assert_eq!(origin.read_header(&target, 1, 2).await.unwrap().0, b"at");
    assert_eq!(since(), 5, "found, opened, read, found and looked at again");
}

#[tokio::test]
async fn fails_local_requests_with_reason_while_no_call_returns() {
    let home = tempfile::tempdir().unwrap();
    let calls = LocalCalls::new(1, MOMENT, HOUR);
    let (origin, prefix, object) = origin(&home, &calls).await;
    let hanging = Hanging::among(&calls).await;
    let target = Target { object: object.clone(), etag: None, version: None, size_bytes: 4 };
    let bytes = Bytes::from_static(b"more");
    for outcome in [
        origin.head(&object).await.map(drop),
        origin.get(&object, 100).await.map(drop),
        origin.list(&prefix).await.map(drop),
        origin.put_if_absent(&prefix.join("b").unwrap(), bytes).await.map(drop),
    ] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, OriginError::Failed { .. }), "{error}");
        assert!(error.to_string().contains("1 calls to local files are under way"), "{error}");
    }
    let error = origin.read_header(&target, 0, 4).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("under way"), "{error}");
    hanging.end().await;
    assert_eq!(origin.get(&object, 100).await.unwrap().0, "data");
}

#[tokio::test]
async fn refuses_a_pipe_without_waiting() {
    let home = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(home.path().join("pipe")).status().unwrap();
    assert!(made.success());
    let prefix = OriginUri::parse(&format!("file://{}", home.path().display())).unwrap();
    let pipe = prefix.join("pipe").unwrap();
    let origin = Origin::connect(&prefix).await.unwrap();
    let refused =
        |why: &dyn std::fmt::Display| assert!(why.to_string().contains("a pipe"), "{why}");
    refused(&origin.get(&pipe, 100).await.unwrap_err());
    refused(&origin.head(&pipe).await.unwrap_err());
    let target = Target { object: pipe, etag: None, version: None, size_bytes: 10 };
    refused(&origin.read_header(&target, 0, 10).await.unwrap_err());
}

#[tokio::test]
async fn refuses_a_pipe_that_replaces_a_file() {
    let home = tempfile::tempdir().unwrap();
    let calls = LocalCalls::new(1, HOUR, 1000 * MOMENT);
    let (origin, _, object) = origin(&home, &calls).await;
    let made = Command::new("mkfifo").arg(home.path().join("pipe")).status().unwrap();
    assert!(made.success());
    let (file, pipe) = (home.path().join("file"), home.path().join("pipe"));
    fs::rename(home.path().join("a"), &file).unwrap();
    let (stop, stopped) = mpsc::sync_channel::<()>(1);
    let name = home.path().join("a");
    let replaces = std::thread::spawn(move || {
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            for kind in [&file, &pipe] {
                fs::rename(kind, &name).unwrap();
                fs::rename(&name, kind).unwrap();
            }
        }
    });
    let (mut read, mut refused) = (0, 0);
    for _ in 0..100_000 {
        if read > 1000 && refused > 1000 {
            break;
        }
        match origin.get(&object, 100).await {
            Ok((bytes, _)) => read += usize::from(bytes == "data"),
            Err(OriginError::NotFound { .. }) => {}
            Err(why) => refused += usize::from(why.to_string().contains("a pipe")),
        }
    }
    drop(stop);
    replaces.join().unwrap();
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
    assert_eq!(calls.permits.available_permits(), 1, "no call hangs");
}
