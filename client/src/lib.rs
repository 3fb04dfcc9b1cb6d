//! The client library. It hands the rows of a dataset to a training process from the nearest
//! source, as single samples or as shuffled batches.
//!
//! ```no_run
//! use larder_client::Dataset;
//! # fn train(_: larder_client::BatchTensor<'_>) {}
//!
//! let dataset = Dataset::open("s3://bucket/imagenet", Some("http://127.0.0.1:7070"))?;
//! let mut loader = dataset.loader().batch_size(256).seed(0).build()?;
//! for epoch in 0..3 {
//!     for batch in loader.epoch(epoch)? {
//!         train(batch?.tensor("image"));
//!     }
//! }
//! # Ok::<(), larder_client::Error>(())
//! ```
//!
//! The address is that of a node. Without one, rows come from the bucket itself, or by
//! [`OpenOptions::host_node`] from the node of this host. The folder `examples` has programs.
//!
//! - [`Dataset`]: an opened snapshot, or a part of its samples. Reads single samples and makes
//!   loaders.
//! - [`Mixture`]: datasets mixed in fixed proportions. Makes loaders.
//! - [`Loader`]: the shuffled batches of an epoch, fetched ahead. [`sampler`] gives the order.
//! - [`Locality`]: the division of batches by which each rank mostly reads shards of its own host.
//! - [`Cluster`]: the nodes of a cluster, their health, and the control calls to them.
//! - [`host`]: the node that the processes of this host start and share.
//! - [`Fetcher`]: reads rows of one snapshot from mapped extents, from nodes, or from the origin.
//! - [`admin`]: indexing, listings and other functions for operators' tools.
//! - [`Error`]: a failure, its reason, and a hint.
//!
//! Thread rule: everything public is `Send + Sync` and may be used from several threads at once.
//! The data path uses blocking sockets on the caller's thread. Only control calls and reads from
//! the origin use an async runtime, on its own threads. After a `fork()` the child opens its own
//! connections at its first call, and never uses its parent's.
//!
//! Non-goals: writing data, and keeping data on disk.

mod deadline;
mod error;
mod process;
mod progress;

use process::runtime;

mod directory;
mod fetch;
mod local;
mod remote;

pub mod host;

mod dataset;
#[cfg_attr(
    not(any(test, feature = "cuda", feature = "testing")),
    expect(dead_code, reason = "without a driver no device opens")
)]
mod device;
mod loader;
mod memory;
pub use larder_decode as decode;
pub use larder_order as sampler;

pub use dataset::{Dataset, IndexedNow, Mixture, OpenOptions};
pub use deadline::CancelToken;
#[cfg(feature = "testing")]
pub use device::testing as device_testing;
pub use device::{
    CallerBlock, ConsumerStream, Device, DeviceFacts, DeviceSlice, DeviceWay, Pump, ReadyBlock,
};
pub use directory::{
    Cluster, ClusterMemory, DatasetName, MemberState, OpenDataset, renew_credentials,
};
pub use error::{
    Error,
    warnings::{Level, take_warnings},
};
pub use fetch::{FetchOptions, Fetcher, Hop, LongestWait, RowsView, RowsWait, Sources};
pub use host::{HostNode, HostOptions};
pub use larder_base::{Advice, ErrorKind, RowRef, SnapshotId, printable, printable_line};
pub use larder_dataset::{
    Dtype, Key, Logical, Manifest, Tensor, TimeUnit, WritePolicy, columns_left_out,
};
pub use loader::{
    Batch, BatchTensor, Decode, DeviceTensor, Epoch, Loader, LoaderBuilder, LoaderOptions,
    LoaderStats, Locality, OnDevice, OnHost, PreparedEpoch, RankHosts, Schedule, ScheduledBatch,
    ShuffleMode, SlowBatch, Take,
};
pub use memory::{CallerMemory, CopyStats, HostTensor, Memory};
pub use process::Owned;
pub use progress::Progress;

/// The functions for operators' tools beside the data path: indexing and reading datasets on their
/// origin, inspecting nodes, changing a cluster, and the memory of a host for extents.
///
/// Training code does not need them.
pub mod admin {
    pub use crate::directory::{MemberAnswer, NodeAnswers, Operator, PlannedChange, ShardCounts};
    pub use larder_base::{
        Bytes, SizeError, check_secret_mode, data_address,
        limits::{CONNECT_TIMEOUT, PLANNED_BYTES_MAX},
        parse_size,
    };
    pub use larder_base::{RegionRef, ShardId, SnapshotId};
    pub use larder_dataset::{
        Addressed, Bad, DatasetError, DatasetRef, Dtype, FetchError, FillPlan, Format,
        IndexOptions, Indexed, Layout, Leaf, LeafFiles, LeftOut, LeftOutGroup, ListedFiles,
        Manifest, ManifestLocation, Missing, OpenedManifest, Origin, OriginError, OriginUri,
        PlannedReads, RowLocator, Scheme, Shard, Snapshot, TokenSpec, UriError, Verdict,
        WindowSpec, added_warning, cache_home, check_threads, count_added, find_with, index,
        index_listed, index_warnings, is_key_tag, left_out_by_reason, open, open_with, resolve,
        shard_checksum, verdicts, warning_of_run_folder,
    };
    pub use larder_extent::{
        MemoryLimit, PageSize, available_memory, memory_figure,
        pages::{PageReport, probe as probe_pages},
    };
    pub use larder_wire::control::{
        AbortChange, ChangeEdit, ClusterChange, ClusterDataset, ClusterHistory, ClusterNode,
        ClusterStatus, CoordinatorKind, Counters, DatasetStatus, DrainNode, Explanation,
        Failure as FillFailure, Load, MemoryUse, MoveProgress, NodeDescription, NodeFigures,
        NodeState, NodeWeight, PastChange, PauseChange, PlanChangeRequest, PlanFigures, ReadJob,
        RemoveNodes, ResumeChange, SetRate, ShardState, ShardStatus, TakeOverResponse, UndrainNode,
        command_request::Command as ClusterCommand, explain_request::What as ExplainWhat,
    };

    pub use crate::{dataset::index_prefix, progress::Reporter};

    /// The most nodes that may own one shard.
    pub const COPIES_MAX: u8 = 8;
    const _: () = assert!(COPIES_MAX as usize == larder_base::limits::REPLICAS_MAX);
}
