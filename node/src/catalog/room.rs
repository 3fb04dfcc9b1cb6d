//! What opening datasets may cost, all that are being opened together.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use larder_dataset::Room;
use larder_wire::limits;
use tokio::sync::Semaphore;

use crate::cache::Cache;

/// The memory of a node, as far as datasets that are being opened may have it.
#[derive(Debug)]
pub(super) struct Openings {
    cache: Arc<Cache>,
    indexing: Arc<Semaphore>,
}

impl Openings {
    pub(super) fn new(cache: &Arc<Cache>) -> Self {
        let indexing = Arc::new(Semaphore::new(limits::INDEXINGS_MAX));
        Self { cache: Arc::clone(cache), indexing }
    }
}

impl Room for Openings {
    fn for_manifest(&self, bytes: u64) -> Result<Box<dyn Any + Send + Sync>, String> {
        if bytes <= limits::MANIFEST_BYTES_FREE {
            return Ok(Box::new(()));
        }
        let reserved = self.cache.reserve(bytes).map_err(|why| why.message().to_owned())?;
        Ok(Box::new(reserved))
    }

    fn to_index(&self) -> Pin<Box<dyn Future<Output = Box<dyn Any + Send>> + Send + '_>> {
        let turn = Arc::clone(&self.indexing).acquire_owned();
        Box::pin(async { Box::new(turn.await) as Box<dyn Any + Send> })
    }
}
