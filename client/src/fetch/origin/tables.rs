//! Row checksums as the fallback uses them: looked for once, read a shard at a time, some kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use larder_base::limits;
use larder_dataset::{Manifest, Origin, OriginUri, RowChecksums, ShardChecksums};
use tokio::sync::OnceCell;

use super::from_dataset;
use crate::Error;

/// The checksums of one snapshot, if it has any, and those of the shards used last.
#[derive(Default)]
pub(super) struct Tables {
    found: OnceCell<Option<RowChecksums>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    shards: HashMap<u32, Arc<ShardChecksums>>,
    bytes: usize,
}

impl Tables {
    /// Whether rows can be checked.
    pub(super) async fn are_there(
        &self,
        origin: &Origin,
        manifest: &Manifest,
        given: Option<&OriginUri>,
    ) -> Result<bool, Error> {
        let found = self.found.get_or_try_init(async || {
            let found = RowChecksums::find(origin, manifest, given).await.map_err(from_dataset)?;
            let pinned = manifest.shard_count() > 0 && manifest.shard(0).checksum.is_some();
            if pinned && found.is_none() {
                let uri = manifest.uri();
                tracing::warn!(%uri, "the snapshot pins checksums of shards and none of rows: rows read from the origin are not compared with them; index it again with --checksum");
            }
            Ok::<_, Error>(found)
        });
        Ok(found.await?.is_some())
    }

    /// The checksums of a shard, once it is known that they are there.
    pub(super) async fn shard(
        &self,
        manifest: &Manifest,
        shard: u32,
    ) -> Result<Arc<ShardChecksums>, Error> {
        if let Some(kept) = self.kept(|kept| kept.shards.get(&shard).cloned()) {
            return Ok(kept);
        }
        let tables =
            self.found.get().and_then(Option::as_ref).expect("asked after they were found");
        let sums = Arc::new(tables.shard(manifest, shard).await.map_err(from_dataset)?);
        self.kept(|kept| kept.keep(shard, &sums));
        Ok(sums)
    }

    fn kept<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        change(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kept {
    /// Begins anew when it is full: in an epoch a shard's time comes and goes.
    fn keep(&mut self, shard: u32, sums: &Arc<ShardChecksums>) {
        if self.bytes + sums.bytes() > limits::ROW_CHECKSUM_BYTES_MAX {
            *self = Self::default();
        }
        if self.shards.insert(shard, Arc::clone(sums)).is_none() {
            self.bytes += sums.bytes();
        }
    }
}
