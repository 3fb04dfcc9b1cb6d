//! Which members own which shards: a consistent-hash ring with weighted points, computed alike by
//! every process from the same list of members.
//!
//! A member stands on the ring at many pseudo-random points, in proportion to its weight; a shard is
//! owned by the member of the first point at or after the shard's own place. The *walk* goes on from
//! there and names the other members, each once, in the order in which they would take over.
//!
//! Places are xxh3 of canonical bytes under a fixed seed, so that neither the order in which members
//! are listed nor the process, platform or standard library has a say. The owner is looked up by
//! [`hashring`]; walks, which that crate does not have, go over a sorted table of the same points.
//!
//! **How much moves.** A member of weight `w` has `256 * w / unit` points, where `unit` is the power
//! of two nearest to the mean weight. While `unit` stays, a member that comes takes only what it will
//! own and one that goes leaves only what it owned: K/N. When a change carries the mean across the
//! middle between two powers of two all point counts double or halve and about half of the shards
//! move once. Clusters of equal weights, and those of ordinary mixes, never see it. (Dividing by the
//! mean itself would move a little between bystanders at *every* change of an unequal cluster.)
//!
//! Thread rule: a [`Ring`] is immutable; share it in an `Arc` and replace it whole.
//! Non-goals: no membership, no health, no bounded loads; version numbers are compared, not made.

mod member;
mod points;

use std::fmt;

use larder_dataset::ShardId;

pub use member::Member;

use crate::Error;
use points::Points;

/// The members of one version of the ring and who owns what.
#[derive(Clone)]
pub struct Ring {
    version: u64,
    /// Sorted by id.
    members: Vec<Member>,
    points: Points,
}

impl Ring {
    /// The ring of these members, in whatever order they are listed.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when there are none or too many members, when two share an
    /// id or a control address, or when a member is not well formed.
    pub fn new(version: u64, mut members: Vec<Member>) -> Result<Self, Error> {
        member::check(&members)?;
        members.sort_by(|a, b| a.id.cmp(&b.id));
        let points = Points::new(&members);
        Ok(Self { version, members, points })
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
        let index = self.members.binary_search_by(|member| member.id.as_str().cmp(id)).ok()?;
        Some(&self.members[index])
    }

    /// The member that owns this shard.
    pub fn owner(&self, shard: ShardId) -> &Member {
        &self.members[self.points.owner(shard)]
    }

    /// All members, each once, in the order in which they are to be asked for this shard: the owner
    /// first.
    pub fn walk(&self, shard: ShardId) -> impl Iterator<Item = &Member> {
        self.points.walk(shard).map(|index| &self.members[index])
    }

    /// The first `count` members of the walk; fewer when the ring has fewer.
    pub fn replicas(&self, shard: ShardId, count: usize) -> impl Iterator<Item = &Member> {
        self.walk(shard).take(count)
    }

    /// A digest of the placement: equal for two rings exactly when they place every shard alike. Two
    /// nodes that report different digests for one version were told different members.
    pub fn digest(&self) -> u64 {
        self.points.digest(&self.members)
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
