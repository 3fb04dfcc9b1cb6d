//! The clients on this host and their leases, to find the holders of a shard that is recalled.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use larder_base::{Error, ErrorKind, ShardId, SnapshotId, limits};
use larder_wire::data::Recall;
use nix::sys::eventfd::EventFd;

use crate::cache::HolderId;
use crate::serve::event;

/// RECALL frames that wait for one client; beyond it the client is asked again later.
const RECALLS_QUEUED_MAX: usize = 256;

/// The connected clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: Mutex<HashMap<HolderId, Arc<Client>>>,
    next: AtomicU64,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) holder: HolderId,
    leases: Mutex<Leases>,
    recalls: Mutex<VecDeque<Recall>>,
    /// Made with the first lease: most connections only show that a dataset is in use.
    wake: OnceLock<EventFd>,
}

/// A shard as clients name it.
type Name = (SnapshotId, u32);

#[derive(Debug, Default)]
struct Leases {
    /// The shard behind a name, and how often it was attached.
    by_name: HashMap<Name, (ShardId, usize)>,
    count: usize,
}

impl Clients {
    /// Adds a client.
    pub(super) fn join(&self) -> Arc<Client> {
        let client = Arc::new(Client {
            holder: HolderId(self.next.fetch_add(1, Ordering::Relaxed)),
            leases: Mutex::default(),
            recalls: Mutex::default(),
            wake: OnceLock::new(),
        });
        self.lock().insert(client.holder, Arc::clone(&client));
        client
    }

    /// Removes a client after its leases have ended.
    pub(super) fn leave(&self, client: &Client) {
        self.lock().remove(&client.holder);
    }

    /// Asks all holders of a shard to release it.
    pub(crate) fn recall(&self, id: ShardId) {
        let clients: Vec<_> = self.lock().values().cloned().collect();
        clients.iter().for_each(|client| client.recall(id));
    }

    /// Returns the number of leases of all clients.
    pub(crate) fn leases(&self) -> u64 {
        self.lock().values().map(|client| lock(&client.leases).count as u64).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HolderId, Arc<Client>>> {
        lock(&self.all)
    }
}

impl Client {
    /// Notes a lease, before the cache grants it, so that no recall is missed.
    ///
    /// # Errors
    /// `ResourceExhausted` if the client has the most leases it may have, or the system has no
    /// descriptor.
    pub(super) fn note(&self, name: Name, id: ShardId) -> Result<(), Error> {
        let refused = |why: &str| Err(Error::new(ErrorKind::ResourceExhausted, why));
        if self.wake.get().is_none() {
            let Ok(wake) = event() else {
                return refused("the node has no descriptor for a lease; ask again");
            };
            let _ = self.wake.set(wake);
        }
        let mut leases = lock(&self.leases);
        if leases.count >= limits::MAPPED_EXTENTS_MAX {
            return refused("the client has as many leases as one may; release some first");
        }
        leases.count += 1;
        leases.by_name.entry(name).or_insert((id, 0)).1 += 1;
        Ok(())
    }

    /// Removes one lease. Returns the shard, if there was one.
    pub(super) fn strike(&self, name: Name) -> Option<ShardId> {
        let mut leases = lock(&self.leases);
        let (id, count) = leases.by_name.get_mut(&name)?;
        let id = *id;
        *count -= 1;
        if *count == 0 {
            leases.by_name.remove(&name);
        }
        leases.count -= 1;
        Some(id)
    }

    fn recall(&self, id: ShardId) {
        let names: Vec<_> = {
            let leases = lock(&self.leases);
            let has = leases.by_name.iter().filter(|(_, (leased, _))| *leased == id);
            has.map(|(&name, _)| name).collect()
        };
        let mut recalls = lock(&self.recalls);
        for (snapshot, shard) in names {
            let recall = Recall { snapshot, shard };
            if recalls.len() < RECALLS_QUEUED_MAX && !recalls.contains(&recall) {
                recalls.push_back(recall);
            }
        }
        if let Some(wake) = self.wake.get().filter(|_| !recalls.is_empty()) {
            // Refused only when the counter is full, and then the thread is being woken already.
            let _ = wake.write(1);
        }
    }

    /// Takes the recalls to send, after a wake-up.
    pub(super) fn take_recalls(&self) -> Vec<Recall> {
        let _ = self.wake.get().map(EventFd::read);
        lock(&self.recalls).drain(..).collect()
    }

    /// Returns a descriptor that is readable when there are recalls, if the client has leases.
    pub(super) fn woken(&self) -> Option<BorrowedFd<'_>> {
        self.wake.get().map(AsFd::as_fd)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name = (SnapshotId::from_bytes([1; 32]), 3);
    const ID: ShardId = ShardId::from_bytes([7; 16]);

    #[test]
    fn only_holders_of_a_shard_are_recalled_and_only_once() {
        let clients = Clients::default();
        let (with, without) = (clients.join(), clients.join());
        with.note(NAME, ID).unwrap();
        with.note(NAME, ID).unwrap();
        clients.recall(ID);
        clients.recall(ID);
        assert_eq!(with.take_recalls(), [Recall { snapshot: NAME.0, shard: NAME.1 }]);
        assert!(without.take_recalls().is_empty());
    }

    #[test]
    fn leases_are_counted_and_end_one_by_one() {
        let clients = Clients::default();
        let client = clients.join();
        client.note(NAME, ID).unwrap();
        client.note(NAME, ID).unwrap();
        assert_eq!(clients.leases(), 2);
        assert_eq!(client.strike(NAME), Some(ID));
        assert_eq!(client.strike(NAME), Some(ID));
        assert_eq!(client.strike(NAME), None);
        assert_eq!(clients.leases(), 0);
    }

    #[test]
    fn a_client_has_no_more_leases_than_it_can_map() {
        let clients = Clients::default();
        let client = clients.join();
        (0..limits::MAPPED_EXTENTS_MAX).for_each(|_| client.note(NAME, ID).unwrap());
        client.note(NAME, ID).unwrap_err();
    }
}
