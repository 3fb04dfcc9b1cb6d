//! The key table of a manifest: from the value of one column, which no two samples share, to the
//! sample.
//!
//! ```text
//! record   16 bytes, little-endian, ascending: fingerprint of the key (88 bits), sample (40 bits)
//! ```
//!
//! The fingerprint of an integer is a permutation of its 64 bits, so equal fingerprints mean equal
//! keys. Of a text it is the beginning of its SHA-256. Two of 10^9 texts share one with a chance
//! below 10^-8, and indexing refuses those. Both kinds spread evenly, so a lookup computes the
//! place of a record and looks around there: about four records, where a binary search of 10^7
//! reads 24.
//!
//! Thread rule: plain data. Non-goals: reading the column, which `index` does; columns of floats.

use larder_base::limits;
use ring::digest::{SHA256, digest};

use super::{Manifest, Tensor, build::BuildError, format::RootHeader};
use crate::Dtype;

/// Bits of a sample's number in a record.
const SAMPLE_BITS: u32 = 40;

/// Bytes of a record.
const RECORD_BYTES: usize = size_of::<u128>();

/// Probes by computed places. After them a lookup halves what is left.
const COMPUTED_PROBES_MAX: u32 = 16;

/// The values of a column that can be keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// One signed integer a sample.
    Signed,
    /// One unsigned integer a sample.
    Unsigned,
    /// Bytes, which are UTF-8 by custom: a ragged tensor of bytes.
    Text,
    /// Bytes of a fixed length, whose zeros at the end do not count.
    PaddedText,
}

impl KeyKind {
    /// Returns the kind of a column; `None` if it can't hold keys.
    pub(crate) fn of(tensor: &Tensor) -> Option<Self> {
        match (tensor.dtype(), tensor.is_ragged(), tensor.shape()) {
            (Dtype::U8, true, []) => Some(Self::Text),
            (Dtype::U8, false, [length]) if *length <= limits::KEY_BYTES_MAX => {
                Some(Self::PaddedText)
            }
            (Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64, false, []) => Some(Self::Signed),
            (Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64, false, []) => Some(Self::Unsigned),
            _ => None,
        }
    }

    /// Returns the key in the bytes of a row.
    pub(crate) fn read(self, row: &[u8]) -> Key<'_> {
        match self {
            Self::Text => Key::Text(row),
            Self::PaddedText => {
                let end = row.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                Key::Text(&row[..end])
            }
            Self::Signed => {
                let sign = if row.last().is_some_and(|last| *last >= 0x80) { 0xFF } else { 0 };
                Key::Signed(i64::from_le_bytes(widened(row, sign)))
            }
            Self::Unsigned => Key::Unsigned(u64::from_le_bytes(widened(row, 0))),
        }
    }
}

/// The bytes of an integer, little-endian, with more behind them.
fn widened(row: &[u8], more: u8) -> [u8; 8] {
    let mut wide = [more; 8];
    wide[..row.len()].copy_from_slice(row);
    wide
}

/// A key to look up. An integer may have any type: 5 is the same key in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'a> {
    /// An integer.
    Signed(i64),
    /// An integer.
    Unsigned(u64),
    /// Bytes.
    Text(&'a [u8]),
}

impl Key<'_> {
    /// Returns the fingerprint in a column of this kind; `None` if that has no such value.
    pub(crate) fn fingerprint(self, kind: KeyKind) -> Option<u128> {
        let bits = match (self, kind) {
            (Self::Signed(key), KeyKind::Signed) => key.cast_unsigned(),
            (Self::Signed(key), KeyKind::Unsigned) => u64::try_from(key).ok()?,
            (Self::Unsigned(key), KeyKind::Signed) => i64::try_from(key).ok()?.cast_unsigned(),
            (Self::Unsigned(key), KeyKind::Unsigned) => key,
            (Self::Text(text), KeyKind::Text | KeyKind::PaddedText) => {
                let hash = digest(&SHA256, text);
                let head = hash.as_ref().first_chunk().expect("a SHA-256 has 32 bytes");
                return Some(u128::from_be_bytes(*head) >> SAMPLE_BITS);
            }
            _ => return None,
        };
        Some(u128::from(spread(bits)) << (u128::BITS - SAMPLE_BITS - u64::BITS))
    }
}

impl std::fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Signed(key) => write!(f, "{key}"),
            Self::Unsigned(key) => write!(f, "{key}"),
            Self::Text(text) => write!(f, "'{}'", text.escape_ascii()),
        }
    }
}

/// A permutation of the integers that spreads close ones: the last step of SplitMix64 (Steele, Lea
/// and Flood, 2014).
fn spread(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Makes the record of a key.
pub(crate) fn record(fingerprint: u128, sample: u64) -> u128 {
    (fingerprint << SAMPLE_BITS) | u128::from(sample)
}

/// Returns the fingerprint of a record, and its sample.
pub(crate) fn parts(record: u128) -> (u128, u64) {
    let sample = record & ((1 << SAMPLE_BITS) - 1);
    (record >> SAMPLE_BITS, u64::try_from(sample).expect("40 bits"))
}

/// The keys of a snapshot, by which its samples are found.
#[derive(Debug, Clone, Copy)]
pub struct KeyTable<'a> {
    records: &'a [[u8; RECORD_BYTES]],
    kind: KeyKind,
    samples: u64,
}

impl KeyTable<'_> {
    /// Returns the key that a user wrote; `None` if the column has integers and this is none.
    pub fn read<'a>(&self, text: &'a str) -> Option<Key<'a>> {
        match self.kind {
            KeyKind::Text | KeyKind::PaddedText => Some(Key::Text(text.as_bytes())),
            KeyKind::Signed => text.parse().ok().map(Key::Signed),
            KeyKind::Unsigned => text.parse().ok().map(Key::Unsigned),
        }
    }

    /// Returns the sample with this key.
    pub fn find(&self, key: Key<'_>) -> Option<u64> {
        let wanted = key.fingerprint(self.kind)?;
        let (mut low, mut high) = (0, self.records.len());
        let mut at = self.rank(wanted);
        let mut probes = 0;
        while low < high {
            probes += 1;
            at = if probes > COMPUTED_PROBES_MAX {
                low.midpoint(high)
            } else {
                at.clamp(low, high - 1)
            };
            let (found, sample) = parts(u128::from_le_bytes(self.records[at]));
            if found == wanted {
                // A hostile table could name any number.
                return (sample < self.samples).then_some(sample);
            }
            if found < wanted {
                low = at + 1;
                at = low.saturating_add(self.rank(wanted - found));
            } else {
                high = at;
                at = high.saturating_sub(self.rank(found - wanted) + 1);
            }
        }
        None
    }

    /// Returns how many of all fingerprints are expected below this one.
    fn rank(&self, fingerprint: u128) -> usize {
        let share = fingerprint >> (u128::BITS - SAMPLE_BITS - u64::BITS);
        usize::try_from((share * self.records.len() as u128) >> u64::BITS).unwrap_or(usize::MAX)
    }
}

impl Manifest {
    /// Returns its key table. Only the manifest that indexing with a key writes beside the
    /// snapshot's own has one.
    pub fn key_table(&self) -> Option<KeyTable<'_>> {
        let (tensor, tables) = (self.key_tensor()?, self.tables());
        let (records, _) = self.as_bytes()[tables.keys..tables.names].as_chunks();
        Some(KeyTable { records, kind: KeyKind::of(tensor)?, samples: self.samples() })
    }

    /// Returns the column of its keys, if it has a key table.
    pub fn key_tensor(&self) -> Option<&Tensor> {
        let header = &self.inner.header;
        (header.keys > 0).then(|| &self.tensors()[header.key_tensor as usize])
    }

    /// Returns the snapshot without keys that this manifest is a copy of.
    pub fn key_of(&self) -> Option<larder_base::SnapshotId> {
        let header = &self.inner.header;
        (header.keys > 0).then(|| larder_base::SnapshotId::from_bytes(header.key_of))
    }

    /// Returns a copy with the keys of a column: sorted [`record`]s, one for each sample. The copy
    /// is another snapshot, of the same samples and shards.
    ///
    /// # Errors
    /// If it exceeds the limit of a manifest.
    pub(crate) fn with_keys(&self, tensor: usize, records: &[u128]) -> Result<Self, BuildError> {
        debug_assert!(records.is_sorted() && records.len() as u64 == self.samples());
        let (old, at) = (self.as_bytes(), self.tables().keys);
        let file_bytes = old.len() as u64 + (records.len() * RECORD_BYTES) as u64;
        if file_bytes > limits::MANIFEST_BYTES_MAX {
            let (what, limit) = ("bytes of manifest with keys:", limits::MANIFEST_BYTES_MAX);
            return Err(BuildError::TooMuch { what, found: file_bytes, limit });
        }
        let header = RootHeader {
            file_bytes,
            keys: records.len() as u64,
            key_tensor: u32::try_from(tensor).expect("tensors are counted in 32 bits"),
            key_of: *self.snapshot().as_bytes(),
            ..self.inner.header
        };
        let mut bytes = Vec::with_capacity(old.len() + records.len() * RECORD_BYTES);
        header.encode(&mut bytes);
        bytes.extend_from_slice(&old[RootHeader::BYTES..at]);
        records.iter().for_each(|record| bytes.extend_from_slice(&record.to_le_bytes()));
        bytes.extend_from_slice(&old[at..]);
        Ok(Self::parse(bytes.into())?)
    }
}

/// Returns the most keys that a table beside this manifest can have.
pub(crate) fn keys_max(manifest: &Manifest) -> u64 {
    let left = limits::MANIFEST_BYTES_MAX.saturating_sub(manifest.as_bytes().len() as u64);
    left / RECORD_BYTES as u64
}

const _: () = assert!(limits::MANIFEST_BYTES_MAX / (RECORD_BYTES as u64) < 1 << SAMPLE_BITS);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The table of these keys, whose samples are their places.
    fn records(keys: &[Key<'_>], kind: KeyKind) -> Vec<[u8; RECORD_BYTES]> {
        let numbered = (0..).zip(keys);
        let of = |(sample, key): (u64, &Key<'_>)| record(key.fingerprint(kind).unwrap(), sample);
        let mut records: Vec<u128> = numbered.map(of).collect();
        records.sort_unstable();
        records.into_iter().map(u128::to_le_bytes).collect()
    }

    fn table(records: &[[u8; RECORD_BYTES]], kind: KeyKind) -> KeyTable<'_> {
        KeyTable { records, kind, samples: records.len() as u64 }
    }

    #[test]
    fn every_key_of_a_large_table_is_found_and_no_other() {
        for count in [1, 2, 1000, 300_000] {
            let keys: Vec<Key<'_>> = (0..count).map(|key| Key::Signed(key * 3 - 1000)).collect();
            let records = records(&keys, KeyKind::Signed);
            let table = table(&records, KeyKind::Signed);
            for (sample, key) in (0..).zip(&keys) {
                assert_eq!(table.find(*key), Some(sample));
            }
            for other in 0..count {
                assert_eq!(table.find(Key::Signed(other * 3 - 999)), None);
            }
        }
        assert_eq!(table(&[], KeyKind::Text).find(Key::Text(b"a")), None);
    }

    #[test]
    fn integer_is_one_key_in_every_type_that_holds_it() {
        let signed = KeyKind::Signed;
        assert_eq!(Key::Signed(5).fingerprint(signed), Key::Unsigned(5).fingerprint(signed));
        assert_eq!(Key::Signed(-1).fingerprint(KeyKind::Unsigned), None);
        assert_eq!(Key::Unsigned(u64::MAX).fingerprint(signed), None);
        assert_eq!(Key::Text(b"5").fingerprint(signed), None);
        assert_eq!(signed.read(&[0xFE, 0xFF]), Key::Signed(-2));
        assert_eq!(KeyKind::Unsigned.read(&[0xFE, 0xFF]), Key::Unsigned(0xFFFE));
        assert_eq!(KeyKind::PaddedText.read(b"cat\0\0"), Key::Text(b"cat"));
        assert_eq!(KeyKind::Text.read(b"cat\0"), Key::Text(b"cat\0"));
    }

    #[test]
    fn hostile_table_ends_the_lookup_and_names_no_absent_sample() {
        let descending: Vec<_> = (0..1000_u128).rev().map(|n| (n << 90).to_le_bytes()).collect();
        let equal = vec![[0xFF; RECORD_BYTES]; 1000];
        for records in [descending, equal] {
            for key in 0..1000 {
                let found = table(&records, KeyKind::Unsigned).find(Key::Unsigned(key));
                assert!(found.is_none_or(|sample| sample < 1000));
            }
        }
    }

    proptest! {
        #[test]
        fn texts_are_found(texts in prop::collection::hash_set("[a-z0-9/.]{0,64}", 1..200)) {
            let texts: Vec<String> = texts.into_iter().collect();
            let keys: Vec<Key<'_>> = texts.iter().map(|text| Key::Text(text.as_bytes())).collect();
            let records = records(&keys, KeyKind::Text);
            for (sample, key) in (0..).zip(&keys) {
                prop_assert_eq!(table(&records, KeyKind::Text).find(*key), Some(sample));
            }
        }
    }
}
