//! Datasets in an object store, indexed in place and read in place.
//!
//! A dataset is a prefix of an object store. [`index()`] reads the headers of the files under it
//! and writes one small *manifest* beside them. The manifest lists the samples' tensors, the
//! shards, and the place of each shard's bytes in the objects. [`open()`] finds that manifest by
//! its tag. Everything after that is arithmetic on it:
//!
//! * [`Manifest::locate`] turns a sample into a shard and a row.
//! * [`LeafFiles`] reads the leaf with the details of a shard.
//! * [`Manifest::fill_plan`] turns a shard into ranged reads. [`Scatter`] takes their bytes apart.
//! * [`Origin::read_exact_range`] performs one such read and accepts exactly those bytes.
//!
//! Thread rule: a [`Manifest`] is immutable, cheap to clone and shared freely. Access to the origin
//! is async and needs a tokio runtime with its time and I/O drivers.
//!
//! Non-goals: no cache, no retries of fills (their caller owns those), no conversion of data.

mod address;
mod checksums;
mod error;
mod home;
mod index;
mod leaves;
mod manifest;
mod open;
mod origin;
mod run_folder;
mod threads;
mod uri;
mod variables;

pub use address::{Addressed, NamedFiles, resolve};
pub use checksums::{RowChecksums, ShardChecksums, UnitPlan};
pub use error::DatasetError;
pub use home::{
    ManifestLocation, WritePolicy, cache_home, home_beside, home_of, is_key_tag, key_tag,
    warning_of_run_folder,
};
pub use index::{
    Bad, Format, IndexOptions, IndexProgress, Indexed, LeftOut, LeftOutGroup, ListedFiles, Missing,
    PlannedReads, TokenSpec, Verdict, WindowSpec, added_warning, columns_left_out, count_added,
    index, index_listed, index_warnings, left_out_by_reason, shard_checksum, verdicts,
};
pub use larder_formats::{Dtype, Inline, Logical, Rows, Spans, TimeUnit};
pub use leaves::LeafFiles;
pub use manifest::{
    BlockRead, BlocksRead, BuildError, ColumnSpec, Damaged, FillPlan, Get, GroupSpec, Key,
    KeyTable, Layout, Leaf, MakeError, Manifest, ManifestBuilder, ManifestError, Object,
    ObjectSpec, RegionPart, RegionPlan, RowLocator, RowOrigin, RowPlaces, RowRead, RowsRead,
    Scatter, Shard, Snapshot, Tensor, TensorSpec,
};
pub use open::{OpenBudget, OpenedManifest, find_with, open, open_in, open_with};
pub use origin::{
    FetchError, ObjectInfo, Origin, OriginError, PathAllowlist, ReadKeeper, install_crypto, target,
};
pub use run_folder::{WRITE_OF_OTHERS, make_private, open_private, run_folder};
pub use threads::check_threads;
pub use uri::{DatasetRef, OriginUri, Scheme, UriError};
pub use variables::Variables;
