//! The errors of laying out, filling, sealing, attaching and reading an extent.

use std::io;

use crate::ExtentId;

/// Why an extent could not be laid out, filled, sealed or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// More regions than a header may describe.
    #[error("{count} regions, the limit is {limit}")]
    TooManyRegions {
        /// Regions asked for.
        count: usize,
        /// The largest number of regions.
        limit: usize,
    },
    /// The numbers of a region contradict each other or overflow.
    #[error("region {region} cannot be: {reason}")]
    BadRegion {
        /// Index of the region.
        region: usize,
        /// The contradiction.
        reason: &'static str,
    },
    /// The extent would be larger than any extent may be.
    #[error("the extent passes the limit of {limit} bytes at region {region}")]
    TooLarge {
        /// Index of the region at which the limit was passed.
        region: usize,
        /// The largest number of bytes.
        limit: u64,
    },
    /// The rows (windows that overlap too often) would take far longer to hash than to write.
    #[error("the rows overlap so often that {limit} bytes would not suffice to hash them all")]
    TooMuchHashing {
        /// The largest number of bytes hashed for one extent.
        limit: u64,
    },
    /// The parts do not cover every region exactly once.
    #[error("the parts do not tile region {region}: expected one to start at byte {at}")]
    PartsDoNotTile {
        /// Index of the region.
        region: usize,
        /// First byte that no part covers, or that two parts cover.
        at: u64,
    },
    /// Sealing was asked for before every part was finished.
    #[error("cannot seal: {missing} parts are not finished")]
    PartsMissing {
        /// Parts that are empty or being written.
        missing: usize,
    },
    /// Sealing was asked for twice.
    #[error("the extent was sealed before, or sealing it failed")]
    AlreadySealed,
    /// A file offered as an extent can still be written to or cut short.
    #[error("the file is not sealed against {missing}: it may change under its readers")]
    NotSealed {
        /// The seals it lacks.
        missing: String,
    },
    /// The header of a file offered as an extent is not one.
    #[error("the file is not an extent: {reason}")]
    NotAnExtent {
        /// The mismatch.
        reason: &'static str,
    },
    /// An extent of a layout version this build does not know.
    #[error("extent layout version {found}, this build reads {known}: update the older side")]
    UnknownVersion {
        /// Version in the header.
        found: u32,
        /// The only version this build reads.
        known: u32,
    },
    /// The extent is intact, but has another id than the one asked for.
    #[error("extent {found}, where {expected} was expected")]
    WrongId {
        /// The id asked for.
        expected: ExtentId,
        /// The id in the header.
        found: ExtentId,
    },
    /// The kernel refused a call.
    #[error("{call} failed")]
    Os {
        /// The call, in words.
        call: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl ExtentError {
    /// Wraps the kernel's answer to `call`, for `map_err`.
    pub(crate) fn os<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Os { call, source: source.into() }
    }
}

/// A row does not have the checksum computed when it was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row} of region {region} does not have the checksum it was filled with")]
pub struct CorruptRow {
    /// Index of the region.
    pub region: usize,
    /// Index of the row (of [`Region::Blocks`](crate::Region::Blocks): of the block).
    pub row: u64,
}
