//! The names of a cluster's keys in etcd.

use bytes::Bytes;
use larder_base::{Error, ErrorKind};

use crate::types::BlobId;

/// Most bytes of a prefix: a path that people can still read.
const PREFIX_BYTES_MAX: usize = 256;

/// The keys of one cluster.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
}

/// Keys from the first to the second, exclusive.
pub(super) type KeyRange = (Bytes, Bytes);

impl Keys {
    /// Creates the keys under a prefix. Slashes at its end are ignored.
    pub(super) fn new(prefix: &str) -> Result<Self, Error> {
        let prefix = prefix.trim_end_matches('/');
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX {
            let why = format!(
                "--etcd-prefix: {} bytes; take 1 to {PREFIX_BYTES_MAX}, such as /larder/train",
                prefix.len()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, why));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    pub(super) fn record(&self) -> Bytes {
        self.key("state/record")
    }

    /// Returns the range of all announcements.
    pub(super) fn alive(&self) -> KeyRange {
        self.under("state/alive/")
    }

    pub(super) fn node(&self, node_id: &str) -> Bytes {
        self.key(&format!("state/alive/{node_id}"))
    }

    /// Returns the range of record and announcements.
    pub(super) fn state(&self) -> KeyRange {
        self.under("state/")
    }

    pub(super) fn blobs(&self) -> KeyRange {
        self.under("blobs/")
    }

    pub(super) fn blob(&self, id: BlobId) -> Bytes {
        self.key(&format!("blobs/{id}"))
    }

    pub(super) fn pieces(&self) -> KeyRange {
        self.under("pieces/")
    }

    pub(super) fn pieces_of(&self, id: BlobId) -> KeyRange {
        self.under(&format!("pieces/{id}/"))
    }

    pub(super) fn piece(&self, id: BlobId, number: usize) -> Bytes {
        self.key(&format!("pieces/{id}/{number:04}"))
    }

    /// Returns the node of an announcement's key.
    pub(super) fn node_of(&self, key: &[u8]) -> Option<String> {
        self.rest(key, "state/alive/").map(str::to_owned)
    }

    /// Returns the blob that a key belongs to.
    pub(super) fn blob_of(&self, key: &[u8]) -> Option<BlobId> {
        self.rest(key, "blobs/")?.parse().ok()
    }

    /// Returns the blob that the key of a piece belongs to.
    pub(super) fn blob_of_piece(&self, key: &[u8]) -> Option<BlobId> {
        let (id, _) = self.rest(key, "pieces/")?.split_once('/')?;
        id.parse().ok()
    }

    fn key(&self, name: &str) -> Bytes {
        Bytes::from(format!("{}/{name}", self.prefix))
    }

    /// Returns the range of keys under a name that ends in a slash. '0' is the character after '/'.
    fn under(&self, name: &str) -> KeyRange {
        let first = format!("{}/{name}", self.prefix);
        let end = format!("{}0", first.trim_end_matches('/'));
        (Bytes::from(first), Bytes::from(end))
    }

    fn rest<'key>(&self, key: &'key [u8], name: &str) -> Option<&'key str> {
        let key = std::str::from_utf8(key).ok()?;
        key.strip_prefix(&self.prefix)?.strip_prefix('/')?.strip_prefix(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_its_range_and_parses_back() {
        let keys = Keys::new("/larder/train/").unwrap();
        let id = BlobId::of(b"blob");
        let cases = [
            (keys.record(), keys.state()),
            (keys.node("a"), keys.state()),
            (keys.node("z~"), keys.alive()),
            (keys.blob(id), keys.blobs()),
            (keys.piece(id, 15), keys.pieces()),
            (keys.piece(id, 0), keys.pieces_of(id)),
        ];
        for (key, (first, end)) in cases {
            assert!(first < key && key < end, "{key:?} in {first:?}..{end:?}");
        }
        assert!(keys.record() >= keys.alive().1 && keys.blob(id) < keys.pieces().0);
        assert_eq!(keys.node_of(&keys.node("n1")).as_deref(), Some("n1"));
        assert_eq!(keys.node_of(&keys.record()), None);
        assert_eq!(keys.blob_of(&keys.blob(id)), Some(id));
        assert_eq!(keys.blob_of_piece(&keys.piece(id, 3)), Some(id));
        assert!(Keys::new("/").is_err());
    }
}
