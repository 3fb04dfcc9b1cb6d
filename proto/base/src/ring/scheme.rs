//! What a ring goes by beside its members.

use super::{Member, points};
use crate::{Error, ErrorKind, limits};

/// How a ring counts: what is one of its weights, and how many members own a shard. It is kept from
/// ring to ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scheme {
    /// The weight that gets an ordinary number of points: a power of two, and the mean weight is from half of
    /// it up to four times it.
    pub unit: u32,
    /// Owners of each shard, where there are enough members: from 1 to [`limits::REPLICAS_MAX`].
    pub copies: u8,
}

/// Where a scheme's number has the copies beyond the first: above the largest unit.
const COPIES_SHIFT: u32 = 28;
const _: () = assert!(2 * limits::RING_WEIGHT_MAX < 1 << COPIES_SHIFT);
const _: () = assert!(limits::REPLICAS_MAX <= 1 << (u32::BITS - COPIES_SHIFT));

impl Scheme {
    /// One copy, and weights counted in this unit.
    #[must_use]
    pub fn one_copy(unit: u32) -> Self {
        Self { unit, copies: 1 }
    }

    /// The scheme as one number, which for one copy is the unit.
    #[must_use]
    pub fn to_number(self) -> u32 {
        self.unit | u32::from(self.copies.saturating_sub(1)) << COPIES_SHIFT
    }

    /// What [`Scheme::to_number`] made a number of. Any number is some scheme, if not one that a ring can go by.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        let copies = 1 + (number >> COPIES_SHIFT);
        let unit = number & ((1 << COPIES_SHIFT) - 1);
        Self { unit, copies: u8::try_from(copies).expect("at most 16") }
    }

    /// Makes sure that a ring of these members can go by it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when members can't be counted so, or a shard can't have so many owners.
    pub(super) fn check(self, members: &[Member]) -> Result<(), Error> {
        let Self { unit, copies } = self;
        let refused = |message| Err(Error::new(ErrorKind::InvalidArgument, message));
        if !points::unit_fits(unit, members) {
            return refused(format!(
                "weights counted in units of {unit}, which is no power of two or far from the mean weight"
            ));
        }
        let max = limits::REPLICAS_MAX;
        if !(1..=max).contains(&usize::from(copies)) {
            return refused(format!("{copies} copies of each shard: there can be 1 to {max}"));
        }
        Ok(())
    }
}
