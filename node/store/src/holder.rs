//! Leases, counted per holder and shard.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A client, as the shell numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HolderId(pub u64);

/// The leases of one holder. `leases` counts per shard; `bytes` counts each shard once.
#[derive(Debug)]
pub(crate) struct Holder<K> {
    pub(crate) bytes: u64,
    pub(crate) leases: BTreeMap<K, u64>,
}

/// Holders with at least one lease.
#[derive(Debug)]
pub(crate) struct Holders<K>(HashMap<HolderId, Holder<K>>);

/// Whether a lease is the holder's first on that shard, or its end the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// The holder's count went between 0 and 1.
    Outer,
    /// The holder holds other leases on the same shard.
    Inner,
}

impl<K: Copy + Eq + Hash + Ord> Holders<K> {
    pub(crate) fn new() -> Self {
        Self(HashMap::new())
    }

    pub(crate) fn bytes(&self, holder: HolderId) -> u64 {
        self.0.get(&holder).map_or(0, |held| held.bytes)
    }

    pub(crate) fn holds(&self, holder: HolderId, id: K) -> bool {
        self.0.get(&holder).is_some_and(|held| held.leases.contains_key(&id))
    }

    pub(crate) fn begin(&mut self, holder: HolderId, id: K, bytes: u64) -> Edge {
        let held =
            self.0.entry(holder).or_insert_with(|| Holder { bytes: 0, leases: BTreeMap::new() });
        let count = held.leases.entry(id).or_insert(0);
        *count += 1;
        if *count > 1 {
            return Edge::Inner;
        }
        held.bytes += bytes;
        Edge::Outer
    }

    /// Ends one lease, if there is one.
    pub(crate) fn end(&mut self, holder: HolderId, id: K, bytes: u64) -> Option<Edge> {
        let held = self.0.get_mut(&holder)?;
        let count = held.leases.get_mut(&id)?;
        *count -= 1;
        if *count > 0 {
            return Some(Edge::Inner);
        }
        held.leases.remove(&id);
        held.bytes -= bytes;
        if held.leases.is_empty() {
            self.0.remove(&holder);
        }
        Some(Edge::Outer)
    }

    /// Removes all leases of a holder.
    pub(crate) fn end_all(&mut self, holder: HolderId) -> Option<Holder<K>> {
        self.0.remove(&holder)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (HolderId, &Holder<K>)> {
        self.0.iter().map(|(&holder, held)| (holder, held))
    }
}
