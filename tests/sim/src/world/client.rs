//! Clients: they read by the ring they know, pass over silent nodes, and ask the origin last.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use larder_base::limits::{NODE_RETRY_AFTER, OWNER_SILENT_TIMEOUT};
use larder_membership::Now;

use super::{Item, Place, Placed, ShardNo, World, node::Copy};
use crate::bugs::Mishap;

/// A client and the ring it was told.
#[derive(Debug, Default)]
pub(super) struct Client {
    ring: Option<(u64, Rc<Placed>)>,
    /// Nodes that were silent, and when.
    struck: BTreeMap<Place, Now>,
}

/// A read under way.
#[derive(Debug)]
pub(super) struct Read {
    client: usize,
    shard: ShardNo,
    began: Now,
    /// The nodes to ask, in order; those before `next` were asked.
    order: Vec<Place>,
    next: usize,
    silent: Duration,
}

impl World {
    fn client_place(&self, client: usize) -> Place {
        self.nodes.len() + client
    }

    pub(super) fn begin_read(&mut self, client: usize) {
        let mean = self.scene.read_every.as_secs() * 1_000;
        let wait = Duration::from_millis(self.rng.u64(mean / 2..mean * 3 / 2));
        if self.troubled {
            self.after(wait, Item::Read(client));
        }
        if self.clients[client].ring.is_none() {
            let used = self.nodes.iter().find_map(|node| node.in_use.as_ref());
            let told = used.map(|used| (used.version, Rc::clone(&used.placed)));
            self.clients[client].ring = told;
        }
        let opened = self.opened_snapshots();
        let readable = self.shards.iter().filter(|known| known.of < opened).count();
        let shard = self.rng.usize(..readable);
        if self.clients[client].ring.is_none() {
            return;
        }
        let order = self.order(client, shard);
        self.numbers += 1;
        let number = self.numbers;
        let began = self.now;
        let read = Read { client, shard, began, order, next: 0, silent: Duration::ZERO };
        self.reads.insert(number, read);
        self.after(Duration::ZERO, Item::ReadOn(number));
    }

    /// Returns the walk, with nodes that were silent lately at its end.
    fn order(&self, client: usize, shard: ShardNo) -> Vec<Place> {
        let Client { ring, struck } = &self.clients[client];
        let Some((_, ring)) = ring else {
            return Vec::new();
        };
        let mut order: Vec<Place> = ring.walk(shard).to_vec();
        let quiet =
            |place: &Place| struck.get(place).is_some_and(|at| self.now < *at + NODE_RETRY_AFTER);
        order.sort_by_key(quiet);
        if self.planted.world(Mishap::OwnerOnly) {
            order.truncate(1);
        }
        order
    }

    pub(super) fn read_on(&mut self, number: u64) {
        let Some(read) = self.reads.get(&number) else {
            return;
        };
        let Some(&place) = read.order.get(read.next) else {
            return self.read_origin(number);
        };
        let client = self.client_place(read.client);
        if self.nodes[place].answers(self.now) && self.network.both_ways(client, place) {
            let travel = Duration::from_millis(self.rng.u64(1..10));
            self.after(travel, Item::ReadAt(number, place));
        } else {
            self.silence(number, place);
        }
    }

    /// Handles a silent node: after a while the client asks the next one.
    fn silence(&mut self, number: u64, place: Place) {
        let patient = self.planted.world(Mishap::PatientClient);
        let wait = if patient { 5 * OWNER_SILENT_TIMEOUT } else { OWNER_SILENT_TIMEOUT };
        let (now, asked) = (self.now, self.nodes.len());
        let Some(read) = self.reads.get_mut(&number) else {
            return;
        };
        read.next += 1;
        read.silent += wait;
        self.clients[read.client].struck.insert(place, now);
        let per_node = read.silent / u32::try_from(read.next.min(asked)).unwrap_or(1);
        if per_node > OWNER_SILENT_TIMEOUT {
            self.checks.violate(now, format!("a read waited {per_node:?} for n{place}"));
        }
        self.after(wait, Item::ReadOn(number));
    }

    pub(super) fn read_at(&mut self, number: u64, place: Place) {
        if !self.nodes[place].answers(self.now) {
            return self.silence(number, place);
        }
        let Some(Read { client, shard, .. }) = self.reads.get(&number) else {
            return;
        };
        let (client, shard) = (*client, *shard);
        self.tell_ring(number, client, shard, place);
        match self.serve(place, shard) {
            Some(copy) => self.answer_read(number, copy),
            None => {
                let knows = self.nodes[place].in_use.is_some();
                if knows && self.origin_up && !self.overwritten[shard] {
                    let words = format!("n{place} refused shard {shard}, which the origin has");
                    self.checks.violate(self.now, words);
                }
                if let Some(read) = self.reads.get_mut(&number) {
                    read.next += 1;
                }
                self.after(Duration::ZERO, Item::ReadOn(number));
            }
        }
    }

    /// A client that reads by an older ring is told the newer one in the reply.
    fn tell_ring(&mut self, number: u64, client: usize, shard: ShardNo, place: Place) {
        let Some(used) = self.nodes[place].in_use.clone() else {
            return;
        };
        let known = self.clients[client].ring.as_ref().map_or(0, |(version, _)| *version);
        if known >= used.version {
            return;
        }
        if self.planted.world(Mishap::ClientNeverTold) {
            let version = used.version;
            return self.checks.violate(
                self.now,
                format!("a client reads on by ring {known} though n{place} is at {version}"),
            );
        }
        self.clients[client].ring = Some((used.version, used.placed));
        let order = self.order(client, shard);
        if let Some(read) = self.reads.get_mut(&number) {
            let new: Vec<Place> = order.into_iter().filter(|p| !read.order.contains(p)).collect();
            read.order.extend(new);
        }
    }

    /// Returns a node's answer: its copy, else one from an owner, else one from the origin.
    fn serve(&mut self, place: Place, shard: ShardNo) -> Option<Copy> {
        if let Some(copy) = self.nodes[place].copies.get(&shard) {
            return Some(*copy);
        }
        let used = self.nodes[place].in_use.clone()?;
        let owners = used.placed.owners(shard);
        let owns = owners.contains(&place);
        if !owns && self.planted.world(Mishap::SurrogateRefuses) {
            return None;
        }
        let previous = used.previous.iter().flat_map(|previous| previous.owners(shard));
        let mut holders = owners.iter().chain(previous).copied();
        let holder = holders.find(|holder| self.has(place, *holder, shard));
        let skip = self.planted.world(Mishap::OriginBeforePeers);
        let copy = match holder.filter(|_| !skip) {
            Some(holder) => self.nodes[holder].copies[&shard],
            None => {
                self.check_origin_is_last(place, shard);
                self.fill_from_origin(shard)?
            }
        };
        let surrogate = owners.iter().all(|owner| !self.nodes[*owner].answers(self.now));
        if (owns || surrogate) && self.make_room(place) {
            self.nodes[place].copies.insert(shard, Copy { since: self.now, ..copy });
        }
        Some(copy)
    }

    /// Checks that no node asks the origin for a shard that the owner before it has.
    fn check_origin_is_last(&mut self, place: Place, shard: ShardNo) {
        let Some(record) = self.checks.newest() else {
            return;
        };
        let in_use = self.nodes[place].in_use.as_ref().map(|used| used.version);
        let Some(previous) = record.previous.as_ref().filter(|_| in_use == Some(record.version))
        else {
            return;
        };
        let versions = [record.version, previous.version];
        let owners = versions.iter().filter_map(|version| self.checks.ring(*version));
        let owners = owners.flat_map(|ring| ring.placed.owners(shard));
        let holder = owners.copied().find(|owner| self.has(place, *owner, shard));
        if let Some(owner) = holder {
            let words = format!("n{place} asked the origin for shard {shard}, which n{owner} has");
            self.checks.violate(self.now, words);
        }
    }

    fn read_origin(&mut self, number: u64) {
        let Some(read) = self.reads.get(&number) else {
            return;
        };
        let shard = read.shard;
        let fallback = !self.planted.world(Mishap::NoFallback);
        match self.fill_from_origin(shard).filter(|_| fallback) {
            Some(copy) => self.answer_read(number, copy),
            None => {
                if let Some(read) = self.reads.remove(&number) {
                    self.judge_failure(&read);
                }
            }
        }
    }

    fn answer_read(&mut self, number: u64, copy: Copy) {
        self.reads_done += 1;
        if let Some(read) = self.reads.remove(&number)
            && copy.wrong
        {
            let shard = read.shard;
            self.checks.violate(self.now, format!("a read of shard {shard} got wrong bytes"));
        }
    }

    /// Checks a failed read: neither the origin nor a node could have answered all the time.
    fn judge_failure(&mut self, read: &Read) {
        if self.network_changed > read.began {
            return;
        }
        let shard = read.shard;
        if self.origin_up && !self.overwritten[shard] && self.origin_since <= read.began {
            return self
                .checks
                .violate(self.now, format!("a read of shard {shard} failed, the origin lives"));
        }
        let client = self.client_place(read.client);
        let ring = self.clients[read.client].ring.as_ref();
        let lived = self.nodes.iter().find(|node| {
            ring.is_some_and(|(_, ring)| ring.walk(shard).contains(&node.place))
                && node.answers(self.now)
                && node.started <= read.began
                && node.paused_until <= read.began
                && node.copies.get(&shard).is_some_and(|copy| copy.since <= read.began)
                && self.network.both_ways(client, node.place)
        });
        if let Some(node) = lived {
            let words = format!("a read of shard {shard} failed, {} has it", node.id);
            self.checks.violate(self.now, words);
        }
    }
}
