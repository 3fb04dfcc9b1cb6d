//! The bytes that each member holds when placement is perfectly even.

use larder_base::Ring;

/// One receiver of shared-out bytes: its weight and its bounds.
#[derive(Debug, Clone, Copy)]
struct Receiver {
    weight: u64,
    low: u128,
    high: u128,
}

/// Returns each member's bytes of shards of `bytes` in all, with `copies` owners each: in
/// proportion to its weight, as far as copies stay apart. Rounded up.
pub(super) fn shares(ring: &Ring, bytes: u64, replicas: usize) -> Vec<u64> {
    let replicas = ring.spread().owner_count(replicas);
    let (one, all) = (u128::from(bytes), u128::from(bytes) * replicas as u128);
    let spread = ring.spread();
    let zones = groups(spread.zones(), 0..ring.members().len(), |member| spread.zone(member));
    // With enough zones each holds a shard at most once; with too few each holds it at least once.
    let scarce = spread.zones() <= replicas;
    let zone_copies = if scarce { replicas - (spread.zones() - 1) } else { 1 };
    let parts = zones.iter().map(|members| Receiver {
        low: if scarce { one } else { 0 },
        high: one * zone_copies.min(members.len()) as u128,
        weight: weight(ring, members),
    });
    let mut shares = vec![0; ring.members().len()];
    for (members, share) in zones.iter().zip(share_out(all, &parts.collect::<Vec<_>>())) {
        share_zone(ring, members, share, one, replicas, &mut shares);
    }
    shares
}

/// Shares a zone's bytes out among its hosts, and a host's among its members.
fn share_zone(
    ring: &Ring,
    members: &[usize],
    share: u128,
    one: u128,
    replicas: usize,
    shares: &mut [u64],
) {
    let spread = ring.spread();
    let mut hosts = groups(spread.hosts(), members.iter().copied(), |member| spread.host(member));
    hosts.retain(|members| !members.is_empty());
    let enough = spread.hosts() >= replicas;
    let parts = hosts.iter().map(|members| Receiver {
        low: 0,
        high: if enough { one } else { one * members.len() as u128 },
        weight: weight(ring, members),
    });
    for (members, share) in hosts.iter().zip(share_out(share, &parts.collect::<Vec<_>>())) {
        let part =
            |&member: &usize| Receiver { low: 0, high: one, weight: weight(ring, &[member]) };
        let parts: Vec<Receiver> = members.iter().map(part).collect();
        for (&member, share) in members.iter().zip(share_out(share, &parts)) {
            shares[member] = u64::try_from(share).expect("at most one copy of everything");
        }
    }
}

/// Groups members by the number that `of` gives them.
fn groups(
    count: usize,
    members: impl Iterator<Item = usize>,
    of: impl Fn(u16) -> u16,
) -> Vec<Vec<usize>> {
    let mut groups = vec![Vec::new(); count];
    for member in members {
        let index = u16::try_from(member).expect("members are at most 1,024");
        groups[usize::from(of(index))].push(member);
    }
    groups
}

fn weight(ring: &Ring, members: &[usize]) -> u64 {
    members.iter().map(|&member| u64::from(ring.members()[member].weight)).sum()
}

/// Shares `total` out in proportion to weights. A part that would leave its bounds gets the bound,
/// and the others share the rest.
fn share_out(total: u128, parts: &[Receiver]) -> Vec<u128> {
    let mut fixed: Vec<Option<u128>> = vec![None; parts.len()];
    loop {
        let rest = total.saturating_sub(fixed.iter().flatten().sum());
        let free = || parts.iter().zip(&fixed).filter(|(_, fixed)| fixed.is_none());
        let weight = free().map(|(part, _)| u128::from(part.weight)).sum::<u128>().max(1);
        let share = |part: &Receiver| (rest * u128::from(part.weight)).div_ceil(weight);
        let over: u128 = free().map(|(part, _)| share(part).saturating_sub(part.high)).sum();
        let under: u128 = free().map(|(part, _)| part.low.saturating_sub(share(part))).sum();
        if over == 0 && under == 0 {
            let shared = parts.iter().zip(&fixed);
            return shared.map(|(part, fixed)| fixed.unwrap_or_else(|| share(part))).collect();
        }
        for (part, fixed) in parts.iter().zip(&mut fixed) {
            let bound = if over >= under { part.high } else { part.low };
            let beyond = if over >= under { share(part) > bound } else { share(part) < bound };
            if fixed.is_none() && beyond {
                *fixed = Some(bound);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_base::Member;

    use super::*;

    /// A ring of members given as weight, zone and host.
    fn ring(members: &[(u32, &str, &str)]) -> Ring {
        let member = |(index, &(weight, zone, host)): (usize, &(u32, &str, &str))| Member {
            id: format!("node-{index}"),
            weight,
            control: format!("http://node-{index}:1"),
            host: host.to_owned(),
            zone: zone.to_owned(),
        };
        Ring::new(1, members.iter().enumerate().map(member).collect()).unwrap()
    }

    #[test]
    fn single_copy_is_divided_by_weight() {
        let ring = ring(&[(1, "", "a"), (2, "", "b"), (7, "", "c")]);
        assert_eq!(shares(&ring, 1_000, 1), [100, 200, 700]);
    }

    #[test]
    fn no_member_holds_more_than_all_shards_once() {
        let ring = ring(&[(1, "", "a"), (1, "", "b"), (98, "", "c")]);
        assert_eq!(shares(&ring, 1_000, 2), [500, 500, 1_000]);
        assert_eq!(shares(&ring, 1_000, 3), [1_000; 3]);
        assert_eq!(shares(&ring, 1_000, 8), [1_000; 3]);
    }

    #[test]
    fn zone_holds_all_shards_once_if_there_are_enough_zones() {
        let ring = ring(&[(1, "a", "1"), (1, "a", "2"), (2, "b", "3"), (4, "c", "4")]);
        assert_eq!(shares(&ring, 1_200, 1), [150, 150, 300, 600]);
        assert_eq!(shares(&ring, 1_200, 2), [300, 300, 600, 1_200]);
        assert_eq!(shares(&ring, 1_200, 3), [600, 600, 1_200, 1_200]);
    }

    #[test]
    fn small_zone_holds_all_shards_if_there_are_too_few_zones() {
        let ring = ring(&[(10, "a", "1"), (10, "a", "2"), (1, "b", "3")]);
        assert_eq!(shares(&ring, 1_000, 2), [500, 500, 1_000]);
    }

    #[test]
    fn host_holds_all_shards_once_if_there_are_enough_hosts() {
        let ring = ring(&[(5, "", "1"), (5, "", "1"), (1, "", "2"), (1, "", "3")]);
        assert_eq!(shares(&ring, 1_000, 2), [500, 500, 500, 500]);
    }
}
