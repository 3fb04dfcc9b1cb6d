//! Datasets in use: their shards stay while the client's connection lives, however long it is idle.

use std::sync::Arc;

use larder_base::limits;

use super::{Cache, Group};
use crate::clock;
use crate::dataset::Dataset;

/// The datasets that one connection has asked for. While this lives their shards are not evicted
/// for other datasets, and the datasets stay open. So a job that validates for an hour finds its
/// shards in the cache. When the connection ends, the shards count as just used.
#[derive(Debug)]
pub(crate) struct InUse {
    cache: Arc<Cache>,
    datasets: Vec<Arc<Dataset>>,
}

impl InUse {
    /// Creates an empty list.
    pub(crate) fn new(cache: &Arc<Cache>) -> Self {
        Self { cache: Arc::clone(cache), datasets: Vec::new() }
    }

    /// Notes a dataset that the connection asks for. A noted dataset costs only a comparison.
    pub(crate) fn note(&mut self, dataset: &Arc<Dataset>) {
        if self.datasets.iter().any(|noted| Arc::ptr_eq(noted, dataset)) {
            return;
        }
        let group = Group::Shards(dataset.snapshot());
        self.cache.lock().store.open_group(group, clock::now());
        self.datasets.push(Arc::clone(dataset));
        if self.datasets.len() > limits::CONNECTION_DATASETS_MAX {
            self.close(0);
        }
    }

    fn close(&mut self, index: usize) {
        let dataset = self.datasets.remove(index);
        let group = Group::Shards(dataset.snapshot());
        self.cache.lock().store.close_group(group, clock::now());
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        while !self.datasets.is_empty() {
            self.close(self.datasets.len() - 1);
        }
    }
}
