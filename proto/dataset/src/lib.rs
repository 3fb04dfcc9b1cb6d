//! core
mod dtype;
mod error;
mod id;
pub mod limits;
mod manifest;
mod origin;
mod uri;
pub use dtype::Dtype;
pub use error::DatasetError;
pub use id::{IdError, ShardId, SnapshotId};
pub use manifest::{
    BuildError, FillPlan, GroupSpec, Manifest, ManifestBuilder, ManifestError, Object, ObjectSpec,
    PartRead, RegionPlan, RowLocator, Shard, Tensor, TensorSpec,
};
pub use origin::{FetchError, ObjectInfo, Origin, OriginError, install_crypto};
pub use uri::{DatasetRef, OriginUri, Scheme, UriError};
