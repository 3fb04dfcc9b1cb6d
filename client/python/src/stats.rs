//! Counters for Python: dicts of numbers, times in seconds.

use std::time::Duration;

use larder_client::{Batch, CopyStats, Hop, LoaderStats, LongestWait, SlowBatch};
use pyo3::{prelude::*, types::PyDict};

/// Bytes that this process received, by their source, and how often they were copied.
#[pyfunction]
pub(crate) fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let stats = PyDict::new(py);
    add_copies(&stats, &CopyStats::of_process())?;
    Ok(stats)
}

/// Counts of a loader's batches so far, and its waits.
pub(crate) fn of_loader<'py>(
    py: Python<'py>,
    loader: &LoaderStats,
) -> PyResult<Bound<'py, PyDict>> {
    let LoaderStats { batches, samples, padding, skipped, sources, fetching, waiting, .. } =
        *loader;
    let stats = PyDict::new(py);
    for (name, count) in [
        ("batches", batches),
        ("samples", samples),
        ("padding", padding),
        ("skipped", skipped),
        ("rows_local", sources.rows_local),
        ("rows_remote", sources.rows_remote),
        ("rows_origin", sources.rows_origin),
        ("bytes", sources.bytes),
    ] {
        stats.set_item(name, count)?;
    }
    add_copies(&stats, &sources.copies)?;
    // By nodes for this loader, and by this process.
    let origin_bytes = sources.node_origin_bytes.saturating_add(sources.copies.origin_bytes);
    stats.set_item("origin_bytes", origin_bytes)?;
    stats.set_item("fetching_seconds", fetching.as_secs_f64())?;
    stats.set_item("waiting_seconds", waiting.as_secs_f64())?;
    for (hop, time) in sources.hops() {
        stats.set_item(format!("wait_{}_seconds", hop.name()), time.as_secs_f64())?;
    }
    Ok(stats)
}

fn add_copies(stats: &Bound<'_, PyDict>, copies: &CopyStats) -> PyResult<()> {
    for (name, bytes) in [
        ("viewed_bytes", copies.viewed_bytes),
        ("local_bytes", copies.local_bytes),
        ("remote_bytes", copies.remote_bytes),
        ("direct_bytes", copies.origin_bytes),
        ("copied_bytes", copies.copied_bytes),
        ("device_bytes", copies.device_bytes),
        ("staged_bytes", copies.staged_bytes),
    ] {
        stats.set_item(name, bytes)?;
    }
    stats.set_item("copies_per_byte", copies.copies_per_byte())
}

/// A slow batch and its waits.
pub(crate) fn of_slow_batch<'py>(
    py: Python<'py>,
    batch: &SlowBatch,
) -> PyResult<Bound<'py, PyDict>> {
    let SlowBatch { epoch, batch: number, waiting, fetching, hops, ref longest, .. } = *batch;
    let facts = Fetched { fetching, hops, longest: longest.clone() }.facts(py)?;
    facts.set_item("epoch", epoch)?;
    facts.set_item("batch", number)?;
    facts.set_item("waiting_seconds", waiting.as_secs_f64())?;
    Ok(facts)
}

/// The times of a batch's fetch.
pub(crate) struct Fetched {
    fetching: Duration,
    hops: [(Hop, Duration); 6],
    longest: Option<LongestWait>,
}

impl Fetched {
    pub(crate) fn of<P>(batch: &Batch<P>) -> Self {
        Self {
            fetching: batch.fetching(),
            hops: batch.sources().hops(),
            longest: batch.longest_wait().cloned(),
        }
    }

    pub(crate) fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let facts = PyDict::new(py);
        facts.set_item("fetching_seconds", self.fetching.as_secs_f64())?;
        let hops = PyDict::new(py);
        for (hop, time) in self.hops {
            hops.set_item(hop.name(), time.as_secs_f64())?;
        }
        facts.set_item("hops", hops)?;
        let longest = self.longest.as_ref().map(|longest| {
            let seconds = longest.waited.as_secs_f64();
            (longest.hop.name(), seconds, longest.shard, longest.node.as_deref())
        });
        facts.set_item("longest", longest)?;
        Ok(facts)
    }
}
