//! The scheme of a ring: the unit of its weights, and the number of copies.

use super::{Member, points};
use crate::{Error, ErrorKind, limits};

/// The unit of a ring's weights, and the number of owners of a shard. Kept from ring to ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scheme {
    /// The weight that gets an ordinary number of points. It is a power of two, and the mean weight
    /// is from half of it to four times it.
    pub unit: u32,
    /// Owners of each shard, if there are enough members: from 1 to [`limits::REPLICAS_MAX`].
    pub replicas: u8,
}

/// The place of the copies beyond the first in a scheme's number: above the largest unit.
const REPLICAS_SHIFT: u32 = 28;
const _: () = assert!(2 * limits::RING_WEIGHT_MAX < 1 << REPLICAS_SHIFT);
const _: () = assert!(limits::REPLICAS_MAX <= 1 << (u32::BITS - REPLICAS_SHIFT));

impl Scheme {
    /// Makes a scheme of one copy, with weights counted in this unit.
    #[must_use]
    pub fn one_replica(unit: u32) -> Self {
        Self { unit, replicas: 1 }
    }

    /// Returns the scheme as one number, which for one copy is the unit.
    #[must_use]
    pub fn to_number(self) -> u32 {
        self.unit | u32::from(self.replicas.saturating_sub(1)) << REPLICAS_SHIFT
    }

    /// Reverses [`Scheme::to_number`]. Any number gives a scheme, though perhaps not a valid one.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        let replicas = 1 + (number >> REPLICAS_SHIFT);
        let unit = number & ((1 << REPLICAS_SHIFT) - 1);
        Self { unit, replicas: u8::try_from(replicas).expect("at most 16") }
    }

    /// Checks that a ring of these members can use it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the unit does not fit the members, or a shard cannot have
    /// so many owners.
    pub(super) fn check(self, members: &[Member]) -> Result<(), Error> {
        let Self { unit, replicas } = self;
        let refused = |message| Err(Error::new(ErrorKind::InvalidArgument, message));
        if !points::unit_fits(unit, members) {
            return refused(format!(
                "weights counted in units of {unit}, which is no power of two or far from the mean weight"
            ));
        }
        let max = limits::REPLICAS_MAX;
        if !(1..=max).contains(&usize::from(replicas)) {
            return refused(format!("{replicas} replicas of each shard: there can be 1 to {max}"));
        }
        Ok(())
    }
}
