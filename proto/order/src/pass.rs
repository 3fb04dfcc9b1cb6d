//! Makes passes from views, reads their text, checks them against a view, and derives their keys.

mod text;

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_128;

use crate::{Error, LocalityId, ORDER_VERSION, PASS_ID_BYTES, PassId, Shuffle, View};
pub(crate) use text::Fields;

/// The use of a key. One pass never uses the same key twice.
#[derive(Clone, Copy)]
pub(super) enum KeyUse {
    /// Order of all samples.
    Samples,
    /// Order of the shards.
    Shards,
    /// Order of the rows within the window of this index.
    Window(u64),
    /// Hashes of the epoch digest.
    Digest,
    /// How the sources of a mixture before this one are interleaved with those from it on.
    Interleave(usize),
    /// The order of this source of a mixture.
    Source(usize),
}

impl PassId {
    /// The pass `epoch` (0, 1, 2, ...) over `view`, in this build's order.
    pub fn new(view: &View, seed: u64, epoch: u64, shuffle: Shuffle) -> Self {
        Self::of(view.digest(), seed, epoch, shuffle)
    }

    /// The key of one use: a hash of the canonical form, the use's number and its index.
    pub(super) fn key(&self, key_use: KeyUse) -> u128 {
        let (number, index) = match key_use {
            KeyUse::Samples => (0_u8, 0),
            KeyUse::Shards => (1, 0),
            KeyUse::Window(index) => (2, index),
            KeyUse::Digest => (3, 0),
            KeyUse::Interleave(source) => (4, source as u64),
            KeyUse::Source(source) => (5, source as u64),
        };
        let mut bytes = [0; PASS_ID_BYTES + 9];
        bytes[..PASS_ID_BYTES].copy_from_slice(&self.to_bytes());
        bytes[PASS_ID_BYTES] = number;
        bytes[PASS_ID_BYTES + 1..].copy_from_slice(&index.to_le_bytes());
        xxh3_128(&bytes)
    }

    /// Half of a key, where that is enough.
    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    pub(super) fn number(&self, key_use: KeyUse) -> u64 {
        self.key(key_use) as u64
    }

    /// Checks that this build computes this pass's order of the view or mixture.
    pub(super) fn check(&self, view: [u8; 16]) -> Result<(), Error> {
        if self.order_version != ORDER_VERSION {
            let found = self.order_version;
            return Err(Error::OrderVersion { found, supported: ORDER_VERSION });
        }
        if self.view != view {
            return Err(Error::View { pass_id: Box::new(*self) });
        }
        Ok(())
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, Error> {
        Ok(Self {
            view: fields.hex()?.to_be_bytes(),
            seed: fields.number()?,
            epoch: fields.number()?,
            shuffle: fields.word()?.parse()?,
            order_version: fields.number()?,
        })
    }
}

impl FromStr for PassId {
    type Err = Error;

    /// Reads the text that [`Display`](std::fmt::Display) writes. A pass of another order version
    /// can be read and shown; [`Order::new`](super::Order::new) refuses it.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut fields = Fields::new(text, "a pass id: VIEW/SEED/EPOCH/SHUFFLE/ORDER-VERSION");
        let pass_id = Self::read(&mut fields)?;
        fields.end()?;
        Ok(pass_id)
    }
}

/// The order that all ranks walk, and the locality that divides their global batches. Ranks with
/// different names lose and repeat rows.
///
/// A [`LoaderState`](crate::LoaderState) and an [`EpochDigest`](crate::EpochDigest) know only the
/// pass: the division among ranks does not change which samples come.
///
/// Its text is that of the pass, and where a locality divides batches `/` and 32 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PassName {
    pass_id: PassId,
    locality: Option<LocalityId>,
}

impl PassName {
    /// The name of a pass with batches divided by `locality`, or without one in consecutive slices.
    pub fn new(pass_id: PassId, locality: Option<LocalityId>) -> Self {
        Self { pass_id, locality }
    }

    /// The order.
    pub fn pass_id(&self) -> PassId {
        self.pass_id
    }

    /// The locality that divides batches.
    pub fn locality(&self) -> Option<LocalityId> {
        self.locality
    }

    /// Checks that another rank gives its pass the same name.
    ///
    /// # Errors
    /// [`Error::Pass`] if the other rank walks another order, [`Error::Division`] if it divides the
    /// batches of this order differently.
    pub fn agrees_with(&self, other: &Self) -> Result<(), Error> {
        if self.pass_id != other.pass_id {
            let (wanted, found) = (Box::new(self.pass_id), Box::new(other.pass_id));
            return Err(Error::Pass { wanted, found });
        }
        if self.locality != other.locality {
            return Err(Error::Division { wanted: self.locality, found: other.locality });
        }
        Ok(())
    }
}

impl fmt::Display for PassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pass_id)?;
        self.locality.map_or(Ok(()), |locality| write!(f, "/{locality}"))
    }
}

impl FromStr for PassName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wanted = "the name of a pass: VIEW/SEED/EPOCH/SHUFFLE/ORDER-VERSION[/LOCALITY]";
        let mut fields = Fields::new(text, wanted);
        let pass_id = PassId::read(&mut fields)?;
        let locality =
            if fields.has_more() { Some(LocalityId::from_u128(fields.hex()?)) } else { None };
        fields.end()?;
        Ok(Self { pass_id, locality })
    }
}

#[cfg(test)]
mod tests {
    use super::super::DatasetShape;
    use super::*;

    #[test]
    fn a_plan_id_has_one_text_and_one_byte_form() {
        let snapshot = *b"0123456789abcdef0123456789abcdef";
        let view = View::all(snapshot, DatasetShape::from_rows([1000]).unwrap());
        let shuffle = "window:64".parse().unwrap();
        let pass_id = PassId::new(&view, 0x0102_0304_0506_0708, 9, shuffle);
        let text = pass_id.to_string();
        assert_eq!(
            text,
            format!("{:032x}/72623859790382856/9/window:64/1", u128::from_be_bytes(view.digest()))
        );
        assert_eq!(text.parse(), Ok(pass_id));
        let bytes = pass_id.to_bytes();
        assert_eq!(bytes[..16], view.digest());
        assert_eq!(
            bytes[16..],
            [8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 1, 0, 1, 0]
        );
    }

    #[test]
    fn every_part_of_a_plan_and_every_use_changes_the_key() {
        let pass_id = |snapshot, seed, epoch, shuffle: &str| {
            let shape = DatasetShape::from_rows([10]).unwrap();
            PassId::new(&View::all([snapshot; 32], shape), seed, epoch, shuffle.parse().unwrap())
        };
        let base = pass_id(1, 1, 1, "window:2");
        let keys = [
            base.key(KeyUse::Samples),
            base.key(KeyUse::Shards),
            base.key(KeyUse::Digest),
            base.key(KeyUse::Window(0)),
            base.key(KeyUse::Window(1)),
            pass_id(2, 1, 1, "window:2").key(KeyUse::Samples),
            pass_id(1, 2, 1, "window:2").key(KeyUse::Samples),
            pass_id(1, 1, 2, "window:2").key(KeyUse::Samples),
            pass_id(1, 1, 1, "window:3").key(KeyUse::Samples),
            pass_id(1, 1, 1, "global").key(KeyUse::Samples),
            pass_id(1, 1, 1, "none").key(KeyUse::Samples),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key), "key {i} repeats");
        }
    }

    #[test]
    fn texts_that_are_not_exactly_a_plan_id_are_refused() {
        let good = "00112233445566778899aabbccddeeff/7/3/global/1";
        assert!(good.parse::<PassId>().is_ok());
        for wrong in [
            "",
            "00112233445566778899aabbccddeeff/7/3/global",
            "00112233445566778899aabbccddeeff/7/3/global/1/",
            "00112233445566778899AABBCCDDEEFF/7/3/global/1",
            "+0112233445566778899aabbccddeeff/7/3/global/1",
            "00112233445566778899aabbccddeeff/07/3/global/1",
            "00112233445566778899aabbccddeeff/7/-3/global/1",
            "00112233445566778899aabbccddeeff/7/3/auto/1",
            "00112233445566778899aabbccddeeff/7/3/global/65536",
        ] {
            assert!(wrong.parse::<PassId>().is_err(), "{wrong}");
        }
    }

    fn pass_id(epoch: u64) -> PassId {
        let view = View::all([7; 32], DatasetShape::from_rows([10]).unwrap());
        PassId::new(&view, 3, epoch, Shuffle::Global)
    }

    #[test]
    fn pass_name_has_one_text_form() {
        for locality in [None, Some(LocalityId::from_u128(0xab))] {
            let name = PassName::new(pass_id(1), locality);
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for wrong in ["", "/", "/ab", "/000000000000000000000000000000ab/"] {
            assert!(
                format!("{}{wrong}", pass_id(1)).parse::<PassName>().is_ok() == wrong.is_empty()
            );
        }
    }

    #[test]
    fn error_names_the_difference_between_passes_of_ranks() {
        let name = |epoch, locality: u128| {
            PassName::new(pass_id(epoch), (locality > 0).then(|| LocalityId::from_u128(locality)))
        };
        assert_eq!(name(1, 5).agrees_with(&name(1, 5)), Ok(()));
        assert!(matches!(name(1, 5).agrees_with(&name(2, 5)), Err(Error::Pass { .. })));
        for other in [0, 6] {
            let error = name(1, 5).agrees_with(&name(1, other)).unwrap_err();
            assert!(error.to_string().contains("one locality"), "{error}");
        }
    }
}
