//! Cancelled work ends during any wait, and leaves no half-read stream behind.

use std::{fs, sync::Arc};

use super::*;
use crate::{
    LoaderBuilder,
    dataset::all_samples,
    deadline::CancelToken,
    loader::LoaderSource,
    sampler::{Mixture, Shuffle},
};

/// Passes only if something hangs.
const HUNG: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = process::now() + HUNG;
    while !reached() {
        assert!(process::now() < deadline, "{what}");
        thread::yield_now();
    }
}

/// A fetcher that retries for an hour.
fn patient(fixture: &Fixture, address: &str) -> Arc<Fetcher> {
    let options = FetchOptions { local: false, patience: HUNG * 60, ..FetchOptions::default() };
    let cluster = Cluster::connect(address).unwrap();
    Fetcher::new(fixture.manifest.clone(), &name(fixture), Some(cluster), options)
}

#[test]
fn dropped_epoch_ends_its_threads_despite_silent_nodes() {
    let scripts: [(usize, fn() -> Act); 4] =
        [(1, || Act::Silence), (2, || Act::Silence), (1, || Act::Half), (2, || Act::Busy)];
    for (nodes, act) in scripts {
        let fixture = Fixture::new();
        let (nodes, address) = cluster(&fixture, nodes, false);
        let fetcher = patient(&fixture, &address);
        nodes.iter().for_each(|node| node.plan((0..1000).map(|_| act())));
        // With the origin gone, no gather ends by itself.
        let origin = fixture.folder.path().join("data.bin");
        fs::remove_file(origin).unwrap();
        let source = LoaderSource {
            leaves: Arc::clone(fetcher.leaves()),
            columns: None,
            rows: Arc::<Fetcher>::clone(&fetcher),
            cluster: None,
        };
        let mixture = Mixture::single(all_samples(&fixture.manifest).unwrap());
        let builder = LoaderBuilder::new(vec![source], mixture);
        // More batches ahead than connections, so some wait for a connection.
        let builder = builder.batch_size(12).shuffle(Shuffle::Global).prefetch(4);
        let mut loader = builder.build().unwrap();
        let epoch = loader.epoch(0).unwrap();
        wait_until("a node is asked", || nodes.iter().any(|node| !node.asked().is_empty()));
        drop((epoch, loader));
        wait_until("the threads end", || Arc::strong_count(&fetcher) == 1);
        nodes.iter().for_each(|node| node.state.script.lock().unwrap().clear());
        let sources = gather_all(&fixture, &fetcher);
        assert_eq!(sources.rows_remote, SAMPLES);
    }
}

fn gather_all(fixture: &Fixture, fetcher: &Fetcher) -> Sources {
    gather(fixture, fetcher, &shuffled(fixture)).unwrap()
}

#[test]
fn cancelled_gather_marks_no_node_and_drops_its_connection() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, false);
    let fetcher = patient(&fixture, &address);
    gather_all(&fixture, &fetcher);
    nodes[0].plan([Act::Half]);
    let (cancel, rows) = (CancelToken::new(), shuffled(&fixture));
    thread::scope(|scope| {
        let gathering = scope.spawn(|| {
            let mut images = vec![0; rows.len() * IMAGE_BYTES];
            RowSource::gather(&*fetcher, rows[..].into(), &[0], &mut [&mut images], &cancel)
                .map(|_| ())
        });
        wait_until("the node is asked again", || nodes[0].asked().len() == 2);
        cancel.cancel();
        let error = gathering.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("cancelled"), "{error}");
    });
    assert_eq!(nodes[0].state.connections.load(SeqCst), 1);
    gather_all(&fixture, &fetcher);
    assert_eq!(nodes[0].state.connections.load(SeqCst), 2);
    assert_eq!(nodes[0].asked().len(), 3, "the node was asked at once, as one that is well");
}

#[test]
fn gather_is_cancelled_while_nodes_keep_sending_keepalives() {
    for count in [1, 2] {
        let fixture = Fixture::new();
        let (nodes, address) = cluster(&fixture, count, false);
        let (fetcher, cancel, rows) =
            (patient(&fixture, &address), CancelToken::new(), shuffled(&fixture));
        nodes.iter().for_each(|node| node.plan([Act::Chatter]));
        thread::scope(|scope| {
            let gathering = scope.spawn(|| {
                let mut labels = vec![0; rows.len() * LABEL_BYTES];
                RowSource::gather(&*fetcher, rows[..].into(), &[1], &mut [&mut labels], &cancel)
                    .map(drop)
            });
            wait_until("a node is asked", || nodes.iter().any(|node| !node.asked().is_empty()));
            cancel.cancel();
            gathering.join().unwrap().unwrap_err();
        });
    }
}

#[test]
fn gather_cancelled_before_its_start_asks_no_node() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, false);
    let (fetcher, cancel) = (patient(&fixture, &address), CancelToken::new());
    cancel.cancel();
    let (rows, mut labels) = (shuffled(&fixture), vec![0; 96 * LABEL_BYTES]);
    RowSource::gather(&*fetcher, rows[..].into(), &[1], &mut [&mut labels], &cancel).unwrap_err();
    assert!(nodes[0].asked().is_empty());
}

#[test]
fn idle_connection_keeps_nothing_of_its_last_call() {
    let fixture = Fixture::new();
    let (_nodes, address) = cluster(&fixture, 2, false);
    let fetcher = patient(&fixture, &address);
    let (watched, rows) = (Arc::new(()), shuffled(&fixture));
    let watching = Arc::clone(&watched);
    let cancel = CancelToken::watching(move || Arc::strong_count(&watching) == 0);
    let mut labels = vec![0; rows.len() * LABEL_BYTES];
    RowSource::gather(&*fetcher, rows[..].into(), &[1], &mut [&mut labels], &cancel).unwrap();
    drop(cancel);
    assert_eq!(Arc::strong_count(&watched), 1);
}
