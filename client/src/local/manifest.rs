//! Maps a manifest, or a leaf of it, from the node on this host.

use std::{os::unix::net::UnixStream, path::Path, sync::Arc};

use larder_base::{ErrorKind, SnapshotId};
use larder_dataset::{Leaf, Manifest};
use larder_extent::{Attached, ExtentId};
use larder_wire::data::{AttachManifest, Kind};

use super::session::{NoSession, Session};
use crate::{Error, remote::Failure};

/// The mapped bytes of a manifest or a leaf. The connection keeps the dataset open on the node.
struct Mapped {
    extent: Attached,
    _lease: Option<UnixStream>,
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
    let mut session = connect(path, node_id)?;
    let (wanted, id) = (AttachManifest { snapshot, leaf: None }, snapshot.first_half());
    let extent = attach(&mut session, wanted, ExtentId::from_bytes(id));
    let extent = extent.map_err(|failure| failure.to_error(node_id))?;
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
    let mapped = Arc::new(Mapped { extent, _lease: Some(lease) });
    let manifest = Manifest::over(mapped).map_err(|error| damaged().with_source(error))?;
    if manifest.snapshot() == snapshot { Ok(manifest) } else { Err(damaged()) }
}

/// Maps a leaf of a manifest, as [`map_manifest`]. The node may evict it; the map stays valid.
///
/// # Errors
/// The reason of the failure. The caller can fetch the leaf instead.
pub(crate) fn map_leaf(
    path: &Path,
    node_id: &str,
    manifest: &Manifest,
    leaf: u32,
) -> Result<Leaf, Error> {
    let mut session = connect(path, node_id)?;
    let wanted = AttachManifest { snapshot: manifest.snapshot(), leaf: Some(leaf) };
    let sha256 = manifest.leaf_sha256(leaf);
    let id = ExtentId::from_bytes(*sha256.first_chunk().expect("a SHA-256 has 32 bytes"));
    let extent = attach(&mut session, wanted, id).map_err(|failure| failure.to_error(node_id))?;
    let damaged = || {
        let what = format!("node {node_id} handed out what is not leaf {leaf} of a manifest");
        Error::new(ErrorKind::DataLoss, what)
    };
    if extent.layout().region_count() != 1 {
        return Err(damaged());
    }
    let mapped = Arc::new(Mapped { extent, _lease: None });
    Leaf::over(manifest, leaf, mapped).map_err(|error| damaged().with_source(error))
}

fn connect(path: &Path, node_id: &str) -> Result<Session, Error> {
    Session::connect(path, node_id).map_err(|no| match no {
        NoSession::OtherNode(found) => {
            let what = format!("the socket {} is that of node {found}", path.display());
            Error::new(ErrorKind::NotFound, what)
        }
        NoSession::Failed(failure) => failure.to_error(node_id),
    })
}

fn attach(
    session: &mut Session,
    wanted: AttachManifest,
    id: ExtentId,
) -> Result<Attached, Failure> {
    let mut frame = Vec::new();
    wanted.encode(1, &mut frame);
    session.call(1, &frame, Kind::Attached, "ATTACHED")?;
    let attached = Attached::shared(session.take_fd()?, id);
    attached.map_err(|error| Failure::Broken(error.to_string()))
}
