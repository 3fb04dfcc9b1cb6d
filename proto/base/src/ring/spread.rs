//! Keeps the copies of a shard apart: always on distinct members, and on distinct zones and hosts
//! as far as there are enough.
//!
//! One rule serves the walk and the planner. A member may join the chosen owners under two
//! conditions: it is not one of them, and the remaining places still suffice for the zones and
//! hosts to be reached. Along the walk, this selects the first members that keep apart. For the
//! owners that a plan keeps, it selects those that may stay.

use super::{Member, Owners};

/// Which members share a zone or a host, by the index of the member.
#[derive(Debug, Clone)]
pub struct Spread {
    domains: Box<[Domain]>,
    zones: usize,
    hosts: usize,
    /// See [`Spread::alone`].
    alone: bool,
}

/// The zone and host of a member, numbered by first appearance, so that names have no influence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Domain {
    zone: u16,
    /// Within its zone: equal names in two zones are two hosts.
    host: u16,
}

impl Spread {
    pub(super) fn new(members: &[Member]) -> Self {
        let (mut zones, mut hosts) = (Vec::new(), Vec::new());
        let domains = members
            .iter()
            .map(|member| Domain {
                zone: number(&mut zones, member.zone.as_str()),
                host: number(&mut hosts, (member.zone.as_str(), member.host.as_str())),
            })
            .collect();
        let (zones, hosts) = (zones.len(), hosts.len());
        Self { domains, zones, hosts, alone: zones == 1 && hosts == members.len() }
    }

    /// Returns the number of zones; members without a zone count as one zone together.
    pub fn zones(&self) -> usize {
        self.zones
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// Returns whether every member has its own host and all are in one zone: any two keep apart
    /// then.
    pub(super) fn alone(&self) -> bool {
        self.alone
    }

    /// Returns the number of a member's zone, below [`Spread::zones`].
    pub fn zone(&self, member: u16) -> u16 {
        self.domains[usize::from(member)].zone
    }

    /// Returns the number of a member's host, below [`Spread::hosts`].
    pub fn host(&self, member: u16) -> u16 {
        self.domains[usize::from(member)].host
    }

    /// Returns how many copies are possible if `count` are wanted: each needs a member of its own.
    pub fn owner_count(&self, count: usize) -> usize {
        count.min(self.domains.len()).min(crate::limits::REPLICAS_MAX)
    }

    /// Returns whether `candidate` may be one of `replicas` owners beside those in `chosen`, which
    /// must keep the same rule.
    pub fn may_join(&self, chosen: &[u16], candidate: u16, replicas: usize) -> bool {
        if chosen.is_empty() {
            return replicas > 0;
        }
        if chosen.len() >= replicas || chosen.contains(&candidate) {
            return false;
        }
        if self.alone {
            return true; // any other member is on another host
        }
        let left = replicas - chosen.len() - 1;
        let reached = |domain: fn(&Self, u16) -> u16| {
            let new = |seen: &[u16], member| {
                seen.iter().all(|&other| domain(self, other) != domain(self, member))
            };
            let counted = (0..chosen.len()).filter(|&at| new(&chosen[..at], chosen[at])).count();
            counted + usize::from(new(chosen, candidate))
        };
        replicas.min(self.zones) <= reached(Self::zone) + left
            && replicas.min(self.hosts) <= reached(Self::host) + left
    }

    /// Returns whether these owners keep apart as far as possible.
    pub fn keeps_apart(&self, owners: &[u16], replicas: usize) -> bool {
        owners.len() == replicas
            && (0..replicas).all(|at| self.may_join(&owners[..at], owners[at], replicas))
    }

    /// Returns the first `replicas` members of a walk that keep apart.
    pub(super) fn first(&self, walk: impl Iterator<Item = usize>, replicas: usize) -> Owners {
        let mut owners = Owners::default();
        for index in walk {
            if owners.len() == replicas {
                break;
            }
            let member = u16::try_from(index).expect("members are at most 1,024");
            if self.may_join(&owners, member, replicas) {
                owners.push(member);
            }
        }
        owners
    }

    /// Returns the zones and hosts as numbers; nothing if all members stand alone in one zone.
    pub(super) fn shared(&self) -> impl Iterator<Item = u16> {
        let domains = if self.alone { &[][..] } else { &self.domains };
        domains.iter().flat_map(|domain| [domain.zone, domain.host])
    }
}

/// Returns the number of a name: the count of other names before it.
fn number<T: PartialEq>(names: &mut Vec<T>, name: T) -> u16 {
    let known = names.iter().position(|known| *known == name);
    let number = known.unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    });
    u16::try_from(number).expect("members are at most 1,024")
}
