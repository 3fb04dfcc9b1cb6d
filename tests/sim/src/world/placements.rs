//! Works out placements from rings and the exceptions at the coordinator.

use std::{
    hash::{Hash, Hasher},
    rc::Rc,
    sync::Arc,
};

use larder_base::{Placement, Ring};
use larder_membership::{agent::RingOf, plan::Tables};
use xxhash_rust::xxh3::Xxh3;

use super::World;
use crate::placed::Placed;

impl World {
    /// The placement of a ring, its exceptions taken from what was put at the coordinator.
    pub(super) fn placed(&mut self, ring: &RingOf) -> Result<Rc<Placed>, String> {
        let key = key_of(ring);
        if let Some(placed) = self.placements.get(&key) {
            return Ok(Rc::clone(placed));
        }
        let tables = match ring.placement {
            Some(id) => {
                let bytes = self.coordinator.blob(id).ok_or("its exceptions are not there")?;
                Tables::decode(bytes).map_err(|why| why.to_string())?
            }
            None => Tables::default(),
        };
        let placed = Rc::new(self.work_out(ring, &tables)?);
        self.placements.insert(key, Rc::clone(&placed));
        Ok(placed)
    }

    fn work_out(&self, ring: &RingOf, tables: &Tables) -> Result<Placed, String> {
        let words = |why: larder_base::Error| why.to_string();
        let RingOf { version, members, scheme, .. } = ring;
        let ring = Arc::new(Ring::with_scheme(*version, members.clone(), *scheme).map_err(words)?);
        let mut of_snapshots = Vec::new();
        for (snapshot, _) in &self.snapshots {
            of_snapshots.push(match tables.get(*snapshot) {
                Some(table) => Placement::new(ring.clone(), table.clone()).map_err(words)?,
                None => Placement::of_ring(ring.clone()),
            });
        }
        let mut placed = Placed { walks: Vec::new(), copies: Vec::new(), keeps_apart: true };
        for known in &self.shards {
            let (id, placement) = (known.shard.shard, &of_snapshots[known.of]);
            let copies = ring.spread().owner_count(placement.replicas());
            let owners = placement.owners(id);
            placed.keeps_apart &= ring.spread().keeps_apart(&owners, copies);
            let walk = placement.walk(id).filter_map(|member| self.place_of(&member.id));
            placed.walks.push(walk.collect());
            placed.copies.push(owners.len());
        }
        Ok(placed)
    }
}

/// What a placement is a function of.
fn key_of(ring: &RingOf) -> u64 {
    let mut hash = Xxh3::new();
    (ring.version, ring.scheme, ring.placement).hash(&mut hash);
    for member in &ring.members {
        (&member.id, member.weight, &member.host, &member.zone).hash(&mut hash);
    }
    hash.finish()
}
