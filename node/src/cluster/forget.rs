//! Compares the cluster of a state folder with the cluster that `--join` names.
//!
//! A folder remembers its cluster, so that a node returns to it. A node that once founded a cluster
//! by mistake would return to that one for ever, whatever `--join` names.

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use futures_util::future::join_all;
use larder_base::{Error, ErrorKind, limits};
use larder_coordinator::EmbeddedCoordinator;
use larder_membership::Record;
use larder_wire::control::GetClusterRequest;
use larder_wire::control::admin_client::AdminClient;
use tokio::time;
use tonic::transport::Endpoint;

use crate::on_thread;

/// Checks that the nodes at `join` are of the cluster in `state`. Nodes that do not answer, or know
/// no cluster yet, are ignored. With `forget` a folder of another cluster is emptied instead, but
/// not if some of `join` are of its cluster.
///
/// # Errors
/// `InvalidArgument` with the names of both clusters; as [`EmbeddedCoordinator::forget`].
pub(super) async fn check(state: &Path, join: &[String], forget: bool) -> Result<(), Error> {
    if join.is_empty() {
        return Ok(());
    }
    let folder = state.to_owned();
    let kept = on_thread(move || EmbeddedCoordinator::kept_record(&folder)).await?;
    let Some(own) = kept.and_then(|record| Record::decode(&record).ok()) else { return Ok(()) };
    let asked = join.iter().map(async |address| (address, cluster_of(address).await));
    let answers = join_all(asked).await;
    // An address list that names both clusters is a mistake, and no wish to forget one.
    let names_own = answers.iter().any(|(_, theirs)| *theirs == Some(own.cluster));
    let other = answers.into_iter().find_map(|(address, theirs)| {
        theirs.filter(|theirs| *theirs != own.cluster).map(|theirs| (address, theirs))
    });
    let Some((address, theirs)) = other else { return Ok(()) };
    let (own, theirs, folder) = (Name(&own.cluster), Name(&theirs), state.display());
    if !forget || names_own {
        let message = format!(
            "--state {folder} is of cluster {own}, and {address} is of cluster {theirs}: start this node without \
             --join to return to {own}, or with --forget-cluster to forget {own} and join {theirs}"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    tracing::warn!("{folder} forgets cluster {own}: this node joins cluster {theirs}");
    let folder = state.to_owned();
    on_thread(move || EmbeddedCoordinator::forget(&folder)).await
}

/// Asks a node for its cluster. `None` if it does not say.
async fn cluster_of(address: &str) -> Option<[u8; 16]> {
    let endpoint = Endpoint::from_shared(address.to_owned()).ok()?;
    let channel = endpoint.connect_timeout(limits::CONNECT_TIMEOUT).connect_lazy();
    let mut client =
        AdminClient::new(channel).max_decoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX);
    let asked = client.get_cluster(GetClusterRequest::default());
    let answer = time::timeout(limits::OWNER_SILENT_TIMEOUT, asked).await.ok()?.ok()?;
    let cluster: Bytes = answer.into_inner().cluster;
    cluster.as_ref().try_into().ok()
}

/// The name of a cluster in messages, as `larder ring status` prints it.
struct Name<'a>(&'a [u8; 16]);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
