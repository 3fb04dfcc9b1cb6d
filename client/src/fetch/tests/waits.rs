//! The reports of a gather: its waits, and the number of copies.

use super::*;
use crate::{CopyStats, Hop, deadline::CancelToken, fetch::Gathered};

fn images(fetcher: &Fetcher, rows: &[RowRef]) -> Gathered {
    let mut images = vec![0; rows.len() * IMAGE_BYTES];
    RowSource::gather(fetcher, rows.into(), &[0], &mut [&mut images], &CancelToken::never())
        .unwrap()
}

fn times(copies: CopyStats) -> f64 {
    copies.copies_per_byte()
}

#[test]
fn longest_wait_names_the_node_and_the_shard() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    let fetcher = fetcher(&fixture, &address, false);
    let silent = busiest(&fixture, &nodes, &fetcher);
    nodes[silent].plan([Act::Silence]);
    let gathered = images(&fetcher, &shuffled(&fixture));
    let longest = gathered.longest.unwrap();
    assert_eq!(longest.node.as_deref(), Some(&*format!("node-{silent}")));
    assert_eq!(longest.shard, nodes[silent].asked()[0].rows[0].shard);
    assert_eq!(longest.hop, Hop::Network);
    assert!(longest.waited >= Duration::from_secs(2));
    let hops = gathered.sources.hops();
    let network = hops.iter().find(|(hop, _)| *hop == Hop::Network).unwrap().1;
    assert!(network >= longest.waited && hops.iter().all(|&(_, time)| time <= network));
}

#[test]
fn waits_for_cold_reads_of_a_node_are_counted_separately() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, false);
    let fetcher = fetcher(&fixture, &address, false);
    let warm = images(&fetcher, &shuffled(&fixture));
    assert_eq!(warm.longest.unwrap().hop, Hop::Network);
    assert_eq!(warm.sources.wait_node_origin, Duration::ZERO);
    nodes[0].state.cold.store(true, SeqCst);
    let cold = images(&fetcher, &shuffled(&fixture));
    assert_eq!(cold.longest.unwrap().hop, Hop::NodeOrigin);
    assert!(cold.sources.wait_node_origin > Duration::ZERO);
    assert_eq!(cold.sources.rows_origin, SAMPLES);
}

#[test]
fn waits_for_retries_and_for_the_origin_are_separate() {
    let fixture = Fixture::new();
    let (mut nodes, address) = cluster(&fixture, 1, false);
    let fetcher = fetcher(&fixture, &address, false);
    nodes[0].plan((0..4).map(|_| Act::Fail(ErrorKind::ResourceExhausted)));
    assert!(images(&fetcher, &shuffled(&fixture)).sources.wait_retries > Duration::ZERO);
    nodes[0].kill();
    let sources = images(&fetcher, &shuffled(&fixture)).sources;
    assert!(sources.wait_origin > Duration::ZERO);
    assert_eq!(sources.wait_retries, Duration::ZERO);
}

#[test]
fn each_source_copies_its_stated_number_of_times() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, true);
    let over_network = fetcher(&fixture, &address, false);
    let rows = shuffled(&fixture);
    let remote = images(&over_network, &rows).sources;
    assert_eq!(remote.copies.remote_bytes, remote.bytes);
    assert_eq!(remote.copies.copied_bytes, remote.bytes);
    let mapping = fetcher(&fixture, &address, true);
    let deadline = process::now() + Duration::from_secs(60);
    while images(&mapping, &rows).sources.rows_local < SAMPLES {
        assert!(process::now() < deadline, "not all shards were mapped");
    }
    let local = images(&mapping, &rows);
    assert_eq!(local.longest, None);
    assert_eq!(local.sources.copies.local_bytes, local.sources.bytes);
    assert!((times(local.sources.copies) - 1.0).abs() < 1e-9);
    let before = CopyStats::of_process();
    drop(mapping.view(rows[0], 0).unwrap());
    // Other tests count too, but none of them views as many bytes at once.
    assert!(CopyStats::of_process().viewed_bytes >= before.viewed_bytes + IMAGE_BYTES as u64);
    drop(nodes);
    let alone =
        Fetcher::new(fixture.manifest.clone(), &name(&fixture), None, FetchOptions::default());
    let origin = images(&alone, &rows).sources;
    assert_eq!(origin.copies.origin_bytes, origin.bytes);
    assert!((times(origin.copies) - 3.0).abs() < 1e-9);
}

#[test]
fn row_received_twice_counts_once() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, false);
    let fetcher = fetcher(&fixture, &address, false);
    let flipping = busiest(&fixture, &nodes, &fetcher);
    nodes[flipping].plan([Act::Flip { frame: 1 }, Act::Die { frames: 1 }]);
    let sources = images(&fetcher, &shuffled(&fixture)).sources;
    assert_eq!(sources.copies.delivered_bytes(), sources.bytes);
}
