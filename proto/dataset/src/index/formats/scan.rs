//! Scans files of any format that `larder-formats` knows: performs the reads that a scan asks for.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use futures_util::{StreamExt, stream};
use larder_formats::{
    ArrowScan, Fault as FormatFault, Forms, ParquetScan, Scan, Table, TarScan, jsonl::LinesScan,
};

use super::{
    kind::Kind,
    tables::{check_places, listed_places},
};
use crate::{
    DatasetError, ObjectInfo, Origin, OriginUri,
    index::{IndexProgress, LeftOuts, Progress, headers::FileFault},
    origin::Target,
};

/// Files scanned at the same time while indexing: each read has at most 8 MiB.
const SCANS_IN_FLIGHT: usize = 8;

/// Most bytes between two reads that belong together. Scans hop over larger gaps.
const NEAR_BYTES_MAX: u64 = 256 << 10;

/// Begins a scan of a file of this kind. `columns` are those to keep, or all. `forms` are those
/// that they must have.
pub(super) fn begin(
    kind: Kind,
    file: ObjectInfo,
    columns: Option<&[String]>,
    forms: &Forms,
) -> BegunScan {
    let bytes = file.size_bytes;
    let scan: Box<dyn Scan + Send> = match kind {
        Kind::WebDataset => Box::new(TarScan::new(bytes)),
        Kind::Arrow => Box::new(ArrowScan::new(bytes).with(columns, forms)),
        Kind::Lines => Box::new(LinesScan::new(bytes)),
        Kind::Parquet => Box::new(ParquetScan::new(bytes, columns).with_forms(forms)),
    };
    BegunScan { file, scan }
}

/// A file, and the scan of it.
pub(super) struct BegunScan {
    pub(super) file: ObjectInfo,
    pub(super) scan: Box<dyn Scan + Send>,
}

/// Scans files, several at a time, in the order of the files. Notes the version that the store
/// answers with.
pub(super) async fn scan_all(
    origin: &Origin,
    uri: &OriginUri,
    scans: Vec<BegunScan>,
    columns: Option<&[String]>,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<Vec<(ObjectInfo, Table)>, DatasetError> {
    let total = scans.len() as u64;
    let mut tables = Vec::with_capacity(scans.len());
    progress(IndexProgress::Headers { done: 0, total });
    let ended = AtomicU64::new(0);
    let scan = async |begun: BegunScan| {
        let scanned = (begun.file.key.clone(), scan_one(origin, uri, begun).await);
        progress(IndexProgress::Headers { done: ended.fetch_add(1, Relaxed) + 1, total });
        scanned
    };
    let mut reads = stream::iter(scans).map(scan).buffered(SCANS_IN_FLIGHT);
    let mut places = 0u64;
    while let Some((key, scanned)) = reads.next().await {
        if let Some((file, table)) = left_out.read(&key, scanned)? {
            places = places.saturating_add(listed_places(&table, columns));
            check_places(uri, places)?;
            tables.push((file, table));
        }
    }
    Ok(tables)
}

async fn scan_one(
    origin: &Origin,
    uri: &OriginUri,
    BegunScan { mut file, mut scan }: BegunScan,
) -> Result<(ObjectInfo, Table), DatasetError> {
    let target = target(origin, uri, &mut file).await?;
    let (object, mut before) = (&target.object, None);
    while let Some(Range { start, end }) = scan.wants() {
        let (bytes, version) = origin.read_header(&target, start, end - start).await?;
        file.version = version;
        scan.take(&bytes).map_err(|fault| in_file(fault, object))?;
        // A read that stands alone has headers, and next to no rows.
        let next = scan.wants().map(|next| next.start);
        let is_whole = start == 0 && end == file.size_bytes;
        if is_whole || are_near(before, Some(start)) || are_near(Some(end), next) {
            origin.keep(&target, start, &bytes);
        }
        before = Some(end);
    }
    let table = scan.finish().map_err(|fault| in_file(fault, object))?;
    Ok((file, table))
}

/// Returns whether a read begins where another ends, or a little behind.
fn are_near(end: Option<u64>, begin: Option<u64>) -> bool {
    let gap = end.zip(begin).and_then(|(end, begin)| begin.checked_sub(end));
    gap.is_some_and(|gap| gap <= NEAR_BYTES_MAX)
}

/// Returns the version of a file to scan.
pub(super) async fn target(
    origin: &Origin,
    uri: &OriginUri,
    file: &mut ObjectInfo,
) -> Result<Target, DatasetError> {
    let object = uri.join(&file.key)?;
    if file.etag.is_none() {
        file.etag = origin.head(&object).await?.etag;
    }
    let (etag, size_bytes) = (file.etag.clone(), file.size_bytes);
    Ok(Target { object, etag, version: None, size_bytes })
}

/// Returns the error for a mistake in a file.
pub(super) fn in_file(fault: FormatFault, object: &OriginUri) -> DatasetError {
    FileFault::new(fault.field, fault.why).of(object.clone())
}
