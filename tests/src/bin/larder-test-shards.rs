//! The shards of datasets as the Rust client reads them, for tests in other languages: prints the
//! SHA-256 of each as JSON. It covers the same bytes as the one that an index with checksums pins:
//! for each column the lengths of its rows, if they differ, and then the rows.

use std::{fmt::Write, process::ExitCode};

use larder_client::{Dataset, Error, RowRef, Sources, admin::Snapshot};
use ring::digest::{Context, SHA256};
use serde_json::{Map, Value, json};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cluster, uris @ ..] = &arguments[..] else {
        eprintln!("usage: larder-test-shards CLUSTER URI...");
        return ExitCode::FAILURE;
    };
    match uris.iter().map(|uri| read(cluster, uri)).collect::<Result<Vec<_>, _>>() {
        Ok(datasets) => {
            println!("{}", json!(datasets));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn read(cluster: &str, uri: &str) -> Result<Value, Error> {
    let dataset = Dataset::open(uri, (cluster != "none").then_some(cluster))?;
    let snapshot = dataset.whole_manifest()?;
    let mut sources = Sources::default();
    let shards = 0..snapshot.manifest.shard_count();
    let shards: Result<Vec<_>, _> =
        shards.map(|shard| read_shard(&dataset, &snapshot, shard, &mut sources)).collect();
    let from = [sources.rows_local, sources.rows_remote, sources.rows_origin];
    Ok(json!({ "shards": shards?, "from": from }))
}

fn read_shard(
    dataset: &Dataset,
    snapshot: &Snapshot,
    shard: u32,
    sources: &mut Sources,
) -> Result<Value, Error> {
    let (manifest, leaf) = (&snapshot.manifest, snapshot.leaf_of(shard));
    let rows = 0..manifest.shard(shard).rows;
    let places: Vec<_> = rows.map(|row| RowRef { shard, row }).collect();
    let (mut whole, mut columns) = (Context::new(&SHA256), Map::new());
    for (index, tensor) in manifest.tensors().iter().enumerate() {
        let length_of = |&row| manifest.row_in_region(leaf, row, index).1;
        let lengths: Vec<u64> = places.iter().map(length_of).collect();
        let size = usize::try_from(lengths.iter().sum::<u64>()).expect("a small shard");
        let mut bytes = vec![0; size];
        *sources += dataset.fetcher().gather(&places, &[index], &mut [&mut bytes])?;
        let mut own = Context::new(&SHA256);
        for digest in [&mut whole, &mut own] {
            if tensor.is_ragged() {
                lengths.iter().for_each(|length| digest.update(&length.to_le_bytes()));
            }
            digest.update(&bytes);
        }
        let facts = json!([tensor.logical().to_string(), size, hex(own.finish().as_ref())]);
        columns.insert(tensor.name().to_owned(), facts);
    }
    let (sha256, pinned) = (whole.finish(), leaf.shard_sha256(shard));
    let pinned = pinned.map(|digest| hex(&digest));
    Ok(json!({ "columns": columns, "sha256": hex(sha256.as_ref()), "pinned": pinned }))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all text");
        text
    })
}
