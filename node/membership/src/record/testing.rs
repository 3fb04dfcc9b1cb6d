//! Members and records for tests.

use larder_base::{Member, Scheme, SnapshotId};

use crate::{Record, record::Dataset};

pub(crate) fn member(id: &str, weight: u32) -> Member {
    let control = format!("http://{id}.example:7070");
    Member { id: id.to_owned(), weight, control, host: format!("host-{id}"), zone: String::new() }
}

/// A dataset of some size.
pub(crate) fn dataset(number: u16) -> Dataset {
    let mut snapshot = [0; 16];
    snapshot[..2].copy_from_slice(&number.to_be_bytes());
    let uri = format!("s3://bucket/data/{number}");
    let manifest = format!("{uri}/m.manifest");
    Dataset { snapshot: SnapshotId::from_bytes(snapshot), uri, manifest, shards: 7, bytes: 8 }
}

/// Datasets with names so long that the record has room for 32 of them.
pub(crate) fn long(numbers: std::ops::Range<u16>) -> Vec<Dataset> {
    let long = |number| Dataset { uri: format!("s3://bucket/{number:04000}"), ..dataset(number) };
    numbers.map(long).collect()
}

/// A ring of these members, as if they had always been in it.
pub(crate) fn record(ids: &[&str]) -> Record {
    let mut record = Record::founded([1; 16], member(ids[0], 1), Scheme::one_replica(1));
    for id in &ids[1..] {
        record = record.joined(member(id, 1)).unwrap().record;
    }
    for entry in &mut record.members {
        entry.state = super::State::Active;
    }
    record
}
