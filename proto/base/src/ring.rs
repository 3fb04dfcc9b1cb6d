//! The consistent-hash ring: which members own which shards. Every process computes the same ring
//! from the same list of members.
//!
//! A member has many pseudo-random points on the ring, in proportion to its weight. The owner of a
//! shard is the member of the first point at or after the shard's own place. The *walk* continues
//! from there and names the other members, each once, in the order in which they take over.
//!
//! Places are the xxh3 of canonical bytes under a fixed seed. So the order of the list, the
//! process, the platform and the standard library have no influence. [`hashring`] sorts the points;
//! lookups and walks use a table of them.
//!
//! **Copies.** If a shard has several owners, they are the first members on its walk that keep
//! apart. They are always distinct members. As far as there are enough, they also lie in distinct
//! zones, then on distinct hosts ([`Spread`]).
//!
//! **How much moves.** A member of weight `w` has `256 * w / unit` points. The `unit` is a power of
//! two: in a new ring the nearest to the mean weight. [`Ring::next`] keeps it while the mean stays
//! between half of it and four times it. With the same unit, a joining member takes only the shards
//! it will own, and a leaving member gives up only those it owned: K/N. With another unit all point
//! counts double or halve, and about half of the shards change owners. (Dividing by the mean itself
//! would move a few shards between other members at *every* change of an unequal cluster.)
//!
//! Thread rule: a [`Ring`] is immutable; share it in an `Arc` and replace it whole. Non-goals: no
//! membership, no health; [`crate::placement`] evens out loads.

mod member;
mod owners;
mod points;
mod spread;

use std::fmt;

pub use member::{Member, data_address};
pub use owners::Owners;
pub use points::place_of;
pub use spread::Spread;

use crate::{Error, ErrorKind, ShardId, limits};
use points::Points;

/// The members of one version of the ring, and the owners of all shards.
#[derive(Clone)]
pub struct Ring {
    version: u64,
    /// Sorted by id.
    members: Vec<Member>,
    scheme: Scheme,
    points: Points,
    spread: Spread,
}

impl Ring {
    /// Makes the ring of these members, listed in any order, with one owner for each shard.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] if there are no members or too many, two share an id
    /// or a control address, or a member is malformed.
    pub fn new(version: u64, members: Vec<Member>) -> Result<Self, Error> {
        member::check(&members)?;
        let scheme = Scheme::one_replica(points::nearest_unit(&members));
        Ok(Self::build(version, members, scheme))
    }

    /// Makes the ring of these members with a given scheme.
    ///
    /// # Errors
    /// * Those of [`Ring::new`].
    /// * The unit is not a power of two.
    /// * The mean weight is below half of the unit or above four times it.
    /// * A shard cannot have so many owners.
    pub fn with_scheme(version: u64, members: Vec<Member>, scheme: Scheme) -> Result<Self, Error> {
        member::check(&members)?;
        scheme.check(&members)?;
        Ok(Self::build(version, members, scheme))
    }

    /// Returns the same ring with this many owners for each shard.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] if the number is out of range.
    pub fn with_replicas(self, replicas: u8) -> Result<Self, Error> {
        let scheme = Scheme { replicas, ..self.scheme };
        scheme.check(&self.members)?;
        Ok(Self { scheme, ..self })
    }

    /// Makes the ring of the next version. It has as many owners for each shard as this one, and
    /// keeps its unit if possible.
    ///
    /// # Errors
    /// Those of [`Ring::new`].
    pub fn next(&self, members: Vec<Member>) -> Result<Self, Error> {
        let version = self.version.saturating_add(1);
        member::check(&members)?;
        let fits = points::unit_fits(self.scheme.unit, &members);
        let unit = if fits { self.scheme.unit } else { points::nearest_unit(&members) };
        Ok(Self::build(version, members, Scheme { unit, ..self.scheme }))
    }

    fn build(version: u64, mut members: Vec<Member>, scheme: Scheme) -> Self {
        members.sort_by(|a, b| a.id.cmp(&b.id));
        let points = Points::new(&members, scheme.unit);
        let spread = Spread::new(&members);
        Self { version, members, scheme, points, spread }
    }

    /// Returns the version: of two rings the one with the greater number is the newer.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns all members, sorted by id.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the member with this id.
    pub fn member(&self, id: &str) -> Option<&Member> {
        Some(&self.members[self.index(id)?])
    }

    /// Returns the index in [`Ring::members`] of the member with this id.
    pub fn index(&self, id: &str) -> Option<usize> {
        self.members.binary_search_by(|member| member.id.as_str().cmp(id)).ok()
    }

    /// Returns the unit of weights and the number of copies.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns how many owners a shard should have, if there are enough members.
    pub fn replicas(&self) -> usize {
        self.scheme.replicas.into()
    }

    /// Returns which members share a zone or a host.
    pub fn spread(&self) -> &Spread {
        &self.spread
    }

    /// Returns the member that owns this shard.
    pub fn owner(&self, shard: ShardId) -> &Member {
        &self.members[self.points.owner(place_of(shard))]
    }

    /// Returns all members, each once, in the order in which clients ask them for this shard: the
    /// owner first.
    pub fn walk(&self, shard: ShardId) -> impl Iterator<Item = &Member> {
        self.points.walk(place_of(shard)).map(|index| &self.members[index])
    }

    /// Returns the first `count` members of the walk that keep apart (see [`Spread`]). Returns
    /// fewer if the ring has fewer, and at most [`crate::limits::REPLICAS_MAX`].
    pub fn owners(&self, shard: ShardId, count: usize) -> impl Iterator<Item = &Member> {
        let owners = self.owners_at(place_of(shard), count);
        (0..owners.len()).map(move |at| &self.members[usize::from(owners[at])])
    }

    /// Returns [`Ring::owners`] as indices, for the shards at `place` (see [`place_of`]).
    pub fn owners_at(&self, place: u64, count: usize) -> Owners {
        match self.spread.owner_count(count) {
            1 => Owners::one(self.points.owner(place)),
            // Any other member may join, so repeated members of the walk need no filter.
            replicas if self.spread.alone() => {
                self.spread.first(self.points.around(place), replicas)
            }
            replicas => self.spread.first(self.points.walk(place), replicas),
        }
    }

    /// Returns [`Ring::walk`] as indices, for the shards at `place`.
    pub(crate) fn walk_at(&self, place: u64) -> impl Iterator<Item = usize> {
        self.points.walk(place)
    }

    /// Returns a digest of the placement. Two rings have equal digests exactly if they place every
    /// shard, and all copies of it, alike. Two nodes with different digests for one version were
    /// given different members.
    pub fn digest(&self) -> u64 {
        self.points.digest(&self.members, &self.spread, self.scheme.replicas)
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ring = f.debug_struct("Ring");
        ring.field("version", &self.version).field("members", &self.members).finish()
    }
}

/// The unit of a ring's weights, and the number of owners of a shard. Kept from ring to ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Scheme {
    /// The weight that gets an ordinary number of points. It is a power of two, and the mean weight
    /// is from half of it to four times it.
    pub unit: u32,
    /// Owners of each shard, if there are enough members: from 1 to [`limits::REPLICAS_MAX`].
    pub replicas: u8,
}

impl Scheme {
    /// Makes a scheme of one replica, with weights counted in this unit.
    pub fn one_replica(unit: u32) -> Self {
        Self { unit, replicas: 1 }
    }

    /// Checks that a ring of these members can use it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the unit does not fit the members, or a shard cannot have
    /// so many owners.
    fn check(self, members: &[Member]) -> Result<(), Error> {
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

#[cfg(test)]
mod tests;
