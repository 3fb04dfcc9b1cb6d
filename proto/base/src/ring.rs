//! Which members own which shards: a consistent-hash ring with weighted points, computed alike by
//! every process from the same list of members.
//!
//! A member stands on the ring at many pseudo-random points, in proportion to its weight; a shard is
//! owned by the member of the first point at or after the shard's own place. The *walk* goes on from
//! there and names the other members, each once, in the order in which they would take over.
//!
//! Places are xxh3 of canonical bytes under a fixed seed, so that neither the order in which members
//! are listed nor the process, platform or standard library has a say. [`hashring`] puts the points in
//! order; owners are looked up, and walks go, over a table of them.
//!
//! **Copies.** Where a shard has several owners they are the first on its walk that keep apart: distinct
//! members always, distinct zones, then distinct hosts, as far as there are enough ([`Spread`]).
//!
//! **How much moves.** A member of weight `w` has `256 * w / unit` points. The `unit` is a power of two:
//! of a new ring the one nearest to the mean weight, and [`Ring::next`] keeps it for as long as the mean
//! stays between half of it and four times it. While it stays, a member that comes takes only what it
//! will own and one that goes leaves only what it owned: K/N. With another unit all point counts double
//! or halve and about half of the shards have another owner. (Dividing by the mean itself would move a
//! little between bystanders at *every* change of an unequal cluster.)
//!
//! Thread rule: a [`Ring`] is immutable; share it in an `Arc` and replace it whole.
//! Non-goals: no membership, no health; even loads are the business of [`crate::placement`].

mod member;
mod owners;
mod points;
mod scheme;
mod spread;

use std::fmt;

use crate::ShardId;

pub use member::Member;
pub use owners::Owners;
pub use points::place_of;
pub use scheme::Scheme;
pub use spread::Spread;

use crate::Error;
use points::Points;

/// The members of one version of the ring and who owns what.
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
    /// The ring of these members, in whatever order they are listed, with one owner for each shard.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when there are none or too many members, when two share an
    /// id or a control address, or when a member is not well formed.
    pub fn new(version: u64, members: Vec<Member>) -> Result<Self, Error> {
        member::check(&members)?;
        let scheme = Scheme::one_copy(points::nearest_unit(&members));
        Ok(Self::build(version, members, scheme))
    }

    /// The same by a scheme that is known.
    ///
    /// # Errors
    /// Also when the unit is not a power of two, or the mean weight is below half of it or above four
    /// times it; and when a shard can't have so many owners.
    pub fn with_scheme(version: u64, members: Vec<Member>, scheme: Scheme) -> Result<Self, Error> {
        member::check(&members)?;
        scheme.check(&members)?;
        Ok(Self::build(version, members, scheme))
    }

    /// The same ring with so many owners for each shard.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when there can't be so many.
    pub fn with_copies(self, copies: u8) -> Result<Self, Error> {
        let scheme = Scheme { copies, ..self.scheme };
        scheme.check(&self.members)?;
        Ok(Self { scheme, ..self })
    }

    /// The ring of the next version, which has as many owners for each shard and keeps the unit of this one if
    /// it can.
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

    /// The version: of two rings the one with the greater number is the newer.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All members, sorted by id.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member with this id.
    pub fn member(&self, id: &str) -> Option<&Member> {
        Some(&self.members[self.index(id)?])
    }

    /// The index among [`Ring::members`] of the one with this id.
    pub fn index(&self, id: &str) -> Option<usize> {
        self.members.binary_search_by(|member| member.id.as_str().cmp(id)).ok()
    }

    /// What it goes by beside its members.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// How many owners a shard is to have, where there are enough members.
    pub fn copies(&self) -> usize {
        self.scheme.copies.into()
    }

    /// Who shares a zone or a host with whom.
    pub fn spread(&self) -> &Spread {
        &self.spread
    }

    /// The member that owns this shard.
    pub fn owner(&self, shard: ShardId) -> &Member {
        &self.members[self.points.owner(place_of(shard))]
    }

    /// All members, each once, in the order in which they are to be asked for this shard: the owner
    /// first.
    pub fn walk(&self, shard: ShardId) -> impl Iterator<Item = &Member> {
        self.points.walk(place_of(shard)).map(|index| &self.members[index])
    }

    /// The first `count` members of the walk that keep apart (see [`Spread`]); fewer when the ring has
    /// fewer, and at most [`crate::limits::REPLICAS_MAX`].
    pub fn replicas(&self, shard: ShardId, count: usize) -> impl Iterator<Item = &Member> {
        let owners = self.owners_at(place_of(shard), count);
        (0..owners.len()).map(move |at| &self.members[usize::from(owners[at])])
    }

    /// [`Ring::replicas`] as indices, of the shards that lie at `place` (see [`place_of`]).
    pub fn owners_at(&self, place: u64, count: usize) -> Owners {
        match self.spread.copies(count) {
            1 => Owners::one(self.points.owner(place)),
            // Any other member may join: there is nothing to remember of those that may not.
            copies if self.spread.alone() => self.spread.first(self.points.around(place), copies),
            copies => self.spread.first(self.points.walk(place), copies),
        }
    }

    /// [`Ring::walk`] as indices, of the shards that lie at `place`.
    pub(crate) fn walk_at(&self, place: u64) -> impl Iterator<Item = usize> {
        self.points.walk(place)
    }

    /// A digest of the placement: equal for two rings exactly when they place every shard, and all
    /// copies of it, alike. Two nodes that report different digests for one version were told different
    /// members.
    pub fn digest(&self) -> u64 {
        self.points.digest(&self.members, &self.spread, self.scheme.copies)
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ring = f.debug_struct("Ring");
        ring.field("version", &self.version).field("members", &self.members).finish()
    }
}

#[cfg(test)]
mod tests;
