//! Divides the rows of a global batch among ranks, so that as many rows as possible are read on a
//! host that holds them.
//!
//! The ranks of a job may divide a global batch in any way: its samples, and so the step, stay the
//! same. Here each host keeps as many of the rows that it holds as its ranks have room for. The
//! other rows fill up the ranks with room left, so that
//!
//! - every rank gets as many rows as without a locality, and every row goes to one rank;
//! - of rows that one host holds, `min(rows it holds, room of its ranks)` stay, summed over hosts:
//!   no division keeps more. Of rows that several hosts hold, those without a choice are placed
//!   first. The others go to the host with most room left, which is close to the most that could
//!   stay;
//! - ranks of one host share its rows as evenly as possible, and each reads its rows in the order
//!   of the global batch.
//!
//! Thread rule: plain data, computed synchronously. One pass over a global batch divides it, and
//! every rank computes the same division. Non-goals: which host holds a shard (`Locality` of the
//! client).

use std::ops::Range;

/// On which hosts the ranks of a job run: host `h` is any number that is the same for two ranks
/// exactly when they share a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankHosts {
    /// Of each rank.
    hosts: Box<[u16]>,
    /// Of each rank, how many of the ranks before it are on its host.
    before: Box<[u32]>,
    /// Ranks on each host.
    ranks: Box<[u32]>,
}

/// How a global batch is divided.
#[derive(Debug)]
pub struct Division<'a> {
    of: &'a RankHosts,
    /// The host that each row is to stay on, if it is that of a rank.
    wanted: Vec<Option<u16>>,
    /// Rows that stay on each host: as many of its own as there is room for.
    kept: Vec<u32>,
}

impl RankHosts {
    /// Of ranks 0, 1, 2, ... on these hosts.
    pub fn new(hosts: impl IntoIterator<Item = u16>) -> Self {
        let hosts: Box<[u16]> = hosts.into_iter().collect();
        let count = hosts.iter().max().map_or(0, |&last| usize::from(last) + 1);
        let mut ranks = vec![0; count].into_boxed_slice();
        let before = hosts.iter().map(|&host| {
            let ranks = &mut ranks[usize::from(host)];
            *ranks += 1;
            *ranks - 1
        });
        Self { before: before.collect(), hosts, ranks }
    }

    /// Number of ranks.
    pub fn world(&self) -> u32 {
        u32::try_from(self.hosts.len()).expect("ranks are counted in u32")
    }

    /// The host of each rank.
    pub fn hosts(&self) -> &[u16] {
        &self.hosts
    }

    /// Whether a rank runs on this host.
    pub fn has(&self, host: u16) -> bool {
        self.ranks.get(usize::from(host)).is_some_and(|&ranks| ranks > 0)
    }

    /// The division of a global batch of `rows` rows. `holders` says which hosts hold the row of an
    /// index; hosts without a rank may be among them.
    pub fn divide<'a, H>(&self, rows: u32, holders: impl Fn(u32) -> H) -> Division<'_>
    where
        H: IntoIterator<Item = &'a u16>,
    {
        let mut room = self.room(rows);
        let mut wanted = Vec::with_capacity(rows as usize);
        let mut undecided = Vec::new();
        for row in 0..rows {
            let mut choices = holders(row).into_iter().copied().filter(|&host| self.has(host));
            let first = choices.next();
            if choices.any(|other| Some(other) != first) {
                undecided.push(row);
            } else if let Some(host) = first {
                room[usize::from(host)] -= 1;
            }
            wanted.push(first);
        }
        for row in undecided {
            let choices = holders(row).into_iter().copied().filter(|&host| self.has(host));
            // Of several with as much room the first: it is asked first also for reading.
            let roomiest = choices.reduce(|best, other| {
                if room[usize::from(other)] > room[usize::from(best)] { other } else { best }
            });
            let host = roomiest.expect("it has several");
            room[usize::from(host)] -= 1;
            wanted[row as usize] = Some(host);
        }
        let full = self.room(rows);
        let kept = full.iter().zip(&room).map(|(full, left)| full - left.max(&0));
        let kept = kept.map(|rows| u32::try_from(rows).expect("no more than there is room for"));
        Division { of: self, kept: kept.collect(), wanted }
    }

    /// How many of `rows` rows the ranks of each host get.
    fn room(&self, rows: u32) -> Vec<i64> {
        let mut room = vec![0; self.ranks.len()];
        for (rank, &host) in (0..).zip(&self.hosts) {
            room[usize::from(host)] += i64::from(self.rows_of(rows, rank));
        }
        room
    }

    /// How many of `rows` rows a rank gets.
    fn rows_of(&self, rows: u32, rank: u32) -> u32 {
        length(&slice(rows, rank, self.world()))
    }
}

impl Division<'_> {
    /// The rows of `rank` as indices into the global batch, ascending.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn rows_of(&self, rank: u32) -> Vec<u32> {
        let host = self.of.hosts[rank as usize];
        let (own, other) = (self.own(rank), self.other(rank));
        let mut seen = vec![0; self.kept.len()];
        let mut left_over = 0;
        let mut rows = Vec::with_capacity(own.len() + other.len());
        for (row, &wanted) in (0..).zip(&self.wanted) {
            let stays = wanted.filter(|&host| {
                let seen = &mut seen[usize::from(host)];
                *seen += 1;
                *seen <= self.kept[usize::from(host)]
            });
            let mine = match stays {
                Some(stays) => stays == host && own.contains(&(seen[usize::from(host)] - 1)),
                None => {
                    left_over += 1;
                    other.contains(&(left_over - 1))
                }
            };
            if mine {
                rows.push(row);
            }
        }
        rows
    }

    /// How many rows are read on a host that holds them.
    pub fn local(&self) -> u64 {
        self.kept.iter().copied().map(u64::from).sum()
    }

    /// Of the rows that the rank's host keeps, those of the rank, by their order among them.
    fn own(&self, rank: u32) -> Range<u32> {
        let host = usize::from(self.of.hosts[rank as usize]);
        slice(self.kept[host], self.of.before[rank as usize], self.of.ranks[host])
    }

    /// Of the rows that stay nowhere, those of the rank.
    fn other(&self, rank: u32) -> Range<u32> {
        // The first ranks get the longer slices of both kinds, so that no rank keeps more than its
        // number of rows.
        let missing = |rank| self.of.rows_of(self.rows(), rank) - length(&self.own(rank));
        let start = (0..rank).map(missing).sum();
        start..start + missing(rank)
    }

    fn rows(&self) -> u32 {
        u32::try_from(self.wanted.len()).expect("as many as it was made of")
    }
}

/// Of `count` things in a row, those of the one at `place` of `sharers`: shares are as equal as can
/// be, the longer ones first.
fn slice(count: u32, place: u32, sharers: u32) -> Range<u32> {
    let (each, longer) = (count / sharers, count % sharers);
    let start = place * each + place.min(longer);
    start..start + each + u32::from(place < longer)
}

fn length(range: &Range<u32>) -> u32 {
    range.end - range.start
}

#[cfg(test)]
mod tests;
