//! A short list of members by index, held in place.

use std::ops::Deref;

use crate::limits::REPLICAS_MAX;

/// The members that own a shard, as indices into the ring's members. Clients ask the first one
/// first.
#[derive(Clone, Copy, Default)]
pub struct Owners {
    members: [u16; REPLICAS_MAX],
    count: u8,
}

impl Owners {
    pub(super) fn one(member: usize) -> Self {
        let mut owners = Self::default();
        owners.push(u16::try_from(member).expect("members are at most 1,024"));
        owners
    }

    /// Appends a member.
    ///
    /// # Panics
    /// If there are [`REPLICAS_MAX`] already.
    pub fn push(&mut self, member: u16) {
        self.members[usize::from(self.count)] = member;
        self.count += 1;
    }
}

impl Deref for Owners {
    type Target = [u16];

    fn deref(&self) -> &[u16] {
        &self.members[..usize::from(self.count)]
    }
}

impl FromIterator<u16> for Owners {
    fn from_iter<I: IntoIterator<Item = u16>>(members: I) -> Self {
        let mut owners = Self::default();
        members.into_iter().for_each(|member| owners.push(member));
        owners
    }
}

impl PartialEq for Owners {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Owners {}

impl std::fmt::Debug for Owners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
