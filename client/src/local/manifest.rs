//! Maps a manifest from the node on this host.

use std::{os::unix::net::UnixStream, path::Path, sync::Arc};

use larder_base::{ErrorKind, SnapshotId};
use larder_dataset::Manifest;
use larder_extent::{Attached, ExtentId};
use larder_wire::data::{AttachManifest, Kind};

use super::session::{NoSession, Session};
use crate::{Error, remote::Failure};

/// The mapped bytes of a manifest. The connection is their lease.
struct Mapped {
    extent: Attached,
    _lease: UnixStream,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.extent.region(0)
    }
}

/// Maps the manifest of a snapshot that the node `node_id` has open, if this node listens at
/// `path`. All processes of the host then share one copy. The map lives as long as the manifest.
///
/// # Errors
/// The reason of the failure. The caller can fetch the manifest instead.
pub(crate) fn map_manifest(
    path: &Path,
    node_id: &str,
    snapshot: SnapshotId,
) -> Result<Manifest, Error> {
    let mut session = Session::connect(path, node_id).map_err(|no| match no {
        NoSession::OtherNode(found) => {
            let what = format!("the socket {} is that of node {found}", path.display());
            Error::new(ErrorKind::NotFound, what)
        }
        NoSession::Failed(failure) => failure.to_error(node_id),
    })?;
    let extent = attach(&mut session, snapshot).map_err(|failure| failure.to_error(node_id))?;
    let damaged = || {
        Error::new(
            ErrorKind::DataLoss,
            format!("node {node_id} handed out what is not the manifest of {snapshot}"),
        )
    };
    if extent.layout().region_count() != 1 {
        return Err(damaged());
    }
    let lease = session.stream().try_clone();
    let lease = lease.map_err(|error| Failure::from_io(&error).to_error(node_id))?;
    let mapped = Arc::new(Mapped { extent, _lease: lease });
    let manifest = Manifest::over(mapped).map_err(|error| damaged().with_source(error))?;
    if manifest.snapshot() == snapshot { Ok(manifest) } else { Err(damaged()) }
}

fn attach(session: &mut Session, snapshot: SnapshotId) -> Result<Attached, Failure> {
    let mut frame = Vec::new();
    AttachManifest { snapshot }.encode(1, &mut frame);
    session.call(&frame, Kind::Attached, "ATTACHED")?;
    let id = ExtentId::from_bytes(snapshot.first_half());
    let attached = Attached::shared(session.take_fd()?, id);
    attached.map_err(|error| Failure::Broken(error.to_string()))
}
