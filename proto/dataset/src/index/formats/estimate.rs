//! Estimates the reads of an index, before it begins.

use larder_base::limits;
use serde::Serialize;

use super::{
    Format, Kind, mds,
    scan::{BegunScan, begin, target},
};
use crate::index::{IndexOptions, LeftOuts};
use crate::{DatasetError, ObjectInfo, Origin, OriginUri};

/// The sample of a format is the begin of one file: about this many bytes, and so many reads.
const SAMPLE_BYTES: u64 = 1 << 20;
const SAMPLE_READS_MAX: u32 = 16;

/// What an index reads, about. Headers of tensors count as short ones. Of the other formats a
/// stretch of the first file, up to about 1 MiB, is scanned to see which share of it is read. A
/// column of keys or of windows is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlannedReads {
    /// Files with samples.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// The bytes that are read, about.
    pub read_bytes: u64,
}

impl PlannedReads {
    /// Estimates the reads of an index.
    pub(in crate::index) async fn estimate(
        origin: &Origin,
        uri: &OriginUri,
        options: &IndexOptions,
        format: Format,
        data: &[ObjectInfo],
        notes: &[ObjectInfo],
    ) -> Result<Self, DatasetError> {
        let file_bytes = sum(data, u64::MAX);
        let first = match (format, Kind::of(format)) {
            (_, Some(kind)) => data.first().map(|file| {
                let columns = options.columns.as_deref();
                begin(kind, file.clone(), columns, &Default::default())
            }),
            (Format::Mds, None) => {
                let (data, notes, mut left_out) =
                    (data.to_vec(), notes.to_vec(), LeftOuts::default());
                let scans = mds::begin(origin, uri, data, notes, &mut left_out);
                Box::pin(scans).await?.into_iter().next()
            }
            _ => None,
        };
        let read_bytes = match first {
            Some(scan) => {
                let (read, of) = share(origin, uri, scan).await?;
                let bytes = u128::from(file_bytes) * u128::from(read) / u128::from(of.max(1));
                u64::try_from(bytes).unwrap_or(file_bytes).min(file_bytes)
            }
            None if format == Format::Folder && !options.file_samples => 0,
            None => sum(data, limits::HEADER_PROBE_BYTES),
        };
        let whole = if options.checksum { file_bytes } else { 0 };
        let read_bytes = read_bytes.saturating_add(sum(notes, u64::MAX)).saturating_add(whole);
        Ok(Self { files: data.len() as u64, file_bytes, read_bytes })
    }
}

/// Returns the bytes of files, of each at most this many.
fn sum(files: &[ObjectInfo], most: u64) -> u64 {
    files.iter().fold(0, |sum, file| sum.saturating_add(file.size_bytes.min(most)))
}

/// Scans the begin of a file. Returns how many bytes it read of how many. A damaged file counts as
/// read whole: the index says what is wrong.
async fn share(
    origin: &Origin,
    uri: &OriginUri,
    BegunScan { mut file, mut scan }: BegunScan,
) -> Result<(u64, u64), DatasetError> {
    let target = target(origin, uri, &mut file).await?;
    let (mut read, mut reads) = (0, 0);
    while let Some(range) = scan.wants() {
        let (bytes, _) = origin.read_header(&target, range.start, range.end - range.start).await?;
        (read, reads) = (read + bytes.len() as u64, reads + 1);
        if scan.take(&bytes).is_err() {
            return Ok((1, 1));
        }
        // A scan goes on from the begin to the end, after a footer.
        if read >= SAMPLE_BYTES || reads == SAMPLE_READS_MAX {
            return Ok((read, range.end));
        }
    }
    Ok((read, file.size_bytes))
}
