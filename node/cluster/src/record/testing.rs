//! Members and records for tests.

use larder_wire::Member;

use crate::Record;

pub(crate) fn member(id: &str, weight: u32) -> Member {
    let control = format!("http://{id}.example:7070");
    Member { id: id.to_owned(), weight, control, host: format!("host-{id}"), zone: String::new() }
}

/// A ring of these members, as if they had always been in it.
pub(crate) fn record(ids: &[&str]) -> Record {
    let mut record = Record::founded([1; 16], member(ids[0], 1), 1);
    for id in &ids[1..] {
        record = record.joined(member(id, 1)).unwrap().record;
    }
    for entry in &mut record.members {
        entry.state = super::State::Active;
    }
    record
}
