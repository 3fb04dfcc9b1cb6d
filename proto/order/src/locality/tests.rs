#![expect(clippy::cast_possible_truncation, reason = "a handful of hosts")]

use super::*;

/// A small generator, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// Checks what every division must have; returns how many rows are local on each rank.
fn check(hosts: &[u16], holders: &[Vec<u16>]) -> Vec<usize> {
    let of = RankHosts::new(hosts.iter().copied());
    let rows = u32::try_from(holders.len()).unwrap();
    let division = of.divide(rows, |row| &holders[row as usize]);
    let mut seen = vec![0; holders.len()];
    let mut local = Vec::new();
    for (rank, host) in (0..of.world()).zip(hosts) {
        let mine = division.rows_of(rank);
        assert!(mine.is_sorted_by(|a, b| a < b), "in the order of the global batch");
        assert_eq!(mine.len(), slice(rows, rank, of.world()).len(), "rank {rank} of {hosts:?}");
        mine.iter().for_each(|&row| seen[row as usize] += 1);
        local.push(mine.iter().filter(|&&row| holders[row as usize].contains(host)).count());
    }
    assert!(seen.iter().all(|&times| times == 1), "every row once: {seen:?}");
    // A row that stays nowhere may still come to a rank of a host that holds it.
    assert!(local.iter().sum::<usize>() as u64 >= division.local());
    local
}

/// The most rows that any division could have local, by augmenting paths.
fn most_local(hosts: &[u16], holders: &[Vec<u16>]) -> usize {
    let world = u32::try_from(hosts.len()).unwrap();
    let rows = u32::try_from(holders.len()).unwrap();
    let mut room = [0_usize; 64];
    (0..world).for_each(|rank| {
        room[usize::from(hosts[rank as usize])] += slice(rows, rank, world).len();
    });
    fn place(
        row: usize,
        holders: &[Vec<u16>],
        room: &[usize; 64],
        on: &mut Vec<Vec<usize>>,
        tried: &mut [bool; 64],
    ) -> bool {
        for &host in &holders[row] {
            let host = usize::from(host);
            if std::mem::replace(&mut tried[host], true) {
                continue;
            }
            if on[host].len() < room[host] {
                on[host].push(row);
                return true;
            }
            for at in 0..on[host].len() {
                if place(on[host][at], holders, room, on, tried) {
                    on[host][at] = row;
                    return true;
                }
            }
        }
        false
    }
    let mut on = vec![Vec::new(); 64];
    (0..holders.len()).filter(|&row| place(row, holders, &room, &mut on, &mut [false; 64])).count()
}

/// `sum over hosts of min(rows held, room of its ranks)`.
fn bound(hosts: &[u16], holders: &[Vec<u16>]) -> usize {
    let world = u32::try_from(hosts.len()).unwrap();
    let rows = u32::try_from(holders.len()).unwrap();
    let room = |host: u16| -> usize {
        let ranks = (0..world).filter(|&rank| hosts[rank as usize] == host);
        ranks.map(|rank| slice(rows, rank, world).len()).sum()
    };
    let held = |host: u16| holders.iter().filter(|row| row.contains(&host)).count();
    (0..64).map(|host| room(host).min(held(host))).sum()
}

#[test]
fn division_is_complete_and_has_most_possible_local_rows() {
    let mut numbers = Numbers(7);
    for case in 0..3000 {
        let (ranks, machines) = (1 + numbers.below(12), 1 + numbers.below(6));
        let hosts: Vec<u16> = (0..ranks).map(|_| numbers.below(machines) as u16).collect();
        // Some hosts that hold rows have no rank, and no host holds some of the rows.
        let holders: Vec<Vec<u16>> = (0..numbers.below(90))
            .map(|_| match numbers.below(machines + 3) {
                nobody if nobody == machines + 2 => Vec::new(),
                host => vec![host as u16],
            })
            .collect();
        let local: usize = check(&hosts, &holders).iter().sum();
        assert_eq!(local, bound(&hosts, &holders), "case {case}: {hosts:?} {holders:?}");
    }
}

#[test]
fn division_of_replicated_rows_is_nearly_optimal() {
    let mut numbers = Numbers(11);
    let (mut local, mut most) = (0, 0);
    for _ in 0..400 {
        let (ranks, machines) = (1 + numbers.below(10), 2 + numbers.below(5));
        let hosts: Vec<u16> = (0..ranks).map(|_| numbers.below(machines) as u16).collect();
        let holders: Vec<Vec<u16>> = (0..numbers.below(120))
            .map(|_| {
                let first = numbers.below(machines);
                let second = (first + 1 + numbers.below(machines - 1)) % machines;
                vec![first as u16, second as u16]
            })
            .collect();
        local += check(&hosts, &holders).iter().sum::<usize>();
        most += most_local(&hosts, &holders);
    }
    assert!(local <= most && local * 100 >= most * 98, "{local} of {most}");
}

#[test]
fn ranks_of_one_host_share_its_rows_evenly() {
    // Hosts 0 and 1 with four ranks each; host 0 holds 10 rows of 40, host 1 the others.
    let hosts = [0, 0, 0, 0, 1, 1, 1, 1];
    let holders: Vec<Vec<u16>> = (0..40).map(|row| vec![u16::from(row % 4 != 1)]).collect();
    assert_eq!(check(&hosts, &holders), [3, 3, 2, 2, 5, 5, 5, 5]);
}

#[test]
fn consecutive_rows_of_a_host_stay_consecutive_on_its_ranks() {
    let of = RankHosts::new([0, 0, 1, 1]);
    let holders: Vec<u16> = (0..16).map(|row| u16::from(row < 8)).collect();
    let division = of.divide(16, |row| std::slice::from_ref(&holders[row as usize]));
    let rows: Vec<Vec<u32>> = (0..4).map(|rank| division.rows_of(rank)).collect();
    assert_eq!(rows, [(8..12), (12..16), (0..4), (4..8)].map(Vec::from_iter));
    assert_eq!(division.local(), 16);
}

#[test]
fn rows_without_a_holder_are_divided_into_plain_slices() {
    let of = RankHosts::new([0, 1, 2]);
    let division = of.divide(11, |_| &[]);
    let rows: Vec<Vec<u32>> = (0..3).map(|rank| division.rows_of(rank)).collect();
    assert_eq!(rows, [(0..4), (4..8), (8..11)].map(Vec::from_iter));
    assert!(of.divide(0, |_| &[]).rows_of(2).is_empty());
}
