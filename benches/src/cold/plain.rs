//! The baseline: the same ranges by plain GETs, counted and thrown away.

use std::ops::Range;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_client::admin::Snapshot;
use larder_tests::Garage;
use object_store::aws::AmazonS3;
use object_store::{GetOptions, ObjectStore, path::Path};
use tokio::runtime::Runtime;

use crate::Error;
use crate::measure::{Round, begin_over};

/// The server as the plain reader sees it.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) s3: Arc<AmazonS3>,
    pub(super) runtime: Arc<Runtime>,
}

/// Prepares plain access.
pub(super) fn connect(server: &Garage) -> Result<Store, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(Store { s3: Arc::new(server.client()?), runtime: Arc::new(runtime) })
}

/// Ranges of objects, to be read any number of times.
pub(super) struct Plain {
    store: Store,
    reads: Vec<(Path, Range<u64>)>,
}

impl Plain {
    /// The ranges that a node reads to fill every shard of a dataset.
    pub(super) fn new(store: &Store, snapshot: &Snapshot, part_bytes: u64) -> Self {
        let Snapshot { manifest, leaves } = snapshot;
        let mut reads = Vec::new();
        for leaf in leaves {
            for shard in leaf.shards() {
                for get in manifest.fill_plan(leaf, shard, part_bytes).gets {
                    let key = leaf.object_uri(get.object).path().to_owned();
                    reads.push((Path::from(key), get.range));
                }
            }
        }
        Self { store: store.clone(), reads }
    }

    /// Reads everything once.
    pub(super) fn round(&self, in_flight: usize, server: &Garage) -> Result<Round, Error> {
        let begun = begin_over(None, server.pid());
        let gets = self.reads.iter().map(|(path, range)| self.get(path, range.clone()));
        let gets = stream::iter(gets).buffer_unordered(in_flight);
        let counted = gets.try_fold(0, |sum, bytes| async move { Ok(sum + bytes) });
        let bytes: usize = self.store.runtime.block_on(counted)?;
        Ok(begun.end(bytes))
    }

    async fn get(&self, path: &Path, range: Range<u64>) -> object_store::Result<usize> {
        let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
        let body = self.store.s3.get_opts(path, options).await?.into_stream();
        body.try_fold(0, |sum, chunk| async move { Ok(sum + chunk.len()) }).await
    }
}
