//! Memory of the budget for large heap buffers that clients cause.

use std::sync::Arc;

use larder_base::{Error, ShardId, SnapshotId};
use larder_store::FillPermit;

use super::manifest::Admission;
use super::{Cache, Group, Reclaimable};
use crate::clock;

/// Bytes of the budget. Drop gives them back.
#[derive(Debug)]
pub(crate) struct Reserved {
    cache: Arc<Cache>,
    permit: Option<FillPermit<ShardId>>,
}

impl Cache {
    /// Takes `bytes` of the budget. May evict shards.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is no room.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reserved, Error> {
        // To the store this is a fill that never ends. Its random name belongs to no shard.
        let name = fastrand::u128(..).to_le_bytes();
        let group = Group::Manifest(SnapshotId::from_bytes(name));
        let permit = match self.admit(ShardId::from_bytes(name), group, bytes)? {
            Admission::Admitted(permit) => Some(permit),
            Admission::Resident(_) => None,
        };
        Ok(Reserved { cache: Arc::clone(self), permit })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let given_up = self.cache.lock().store.give_up(permit, clock::now());
        if let Ok(orphan) = given_up {
            self.cache.free(orphan.token, Reclaimable::Nothing);
        }
    }
}
