//! Refuses addresses that name nodes of two clusters: each call would reach one of them by chance.
//!
//! An address that the ring names belongs to its cluster. Other addresses are asked, all at once. An
//! address that does not answer is ignored.

use std::{fmt, iter, sync::Arc};

use bytes::Bytes;
use futures_util::future::join_all;
use larder_base::{ErrorKind, Ring, limits};
use larder_wire::control::GetClusterRequest;

use super::{Cluster, answers::within, control::Control};
use crate::Error;

/// Bytes of a cluster's name in messages.
const NAME_BYTES: usize = 4;

/// The cluster that a node belongs to.
enum Membership {
    /// A cluster with a record, by its permanent name.
    Recorded(Bytes),
    /// A fixed list of members, or a node alone.
    Fixed(Arc<Ring>),
}

impl Cluster {
    /// Checks that all addresses name nodes of one cluster, where `told_by` has this ring.
    ///
    /// # Errors
    /// `InvalidArgument`, with an address of each of two clusters.
    pub(super) async fn check_same(&self, ring: &Ring, told_by: &str) -> Result<(), Error> {
        let is_member = |address: &str| ring.members().iter().any(|node| node.control == address);
        let others = self.addresses.iter().map(String::as_str);
        let others: Vec<&str> =
            others.filter(|&address| address != told_by && !is_member(address)).collect();
        if others.is_empty() {
            return Ok(());
        }
        let ask = async |address| Some((address, self.control.membership(address).await?));
        let asked = iter::once(told_by).chain(others).map(ask);
        let known: Vec<_> =
            join_all(asked.collect::<Vec<_>>()).await.into_iter().flatten().collect();
        let Some(((first, ours), rest)) = known.split_first() else { return Ok(()) };
        match rest.iter().find(|(_, theirs)| !theirs.is_same(ours)) {
            Some((other, theirs)) => Err(Error::new(
                ErrorKind::InvalidArgument,
                "the addresses name nodes of two clusters",
            )
            .because(format!("{first} is of {ours}, {other} is of {theirs}"))
            .hint("name nodes of one cluster in --cluster or LARDER_CLUSTER")),
            None => Ok(()),
        }
    }
}

impl Control {
    /// The cluster of the node at `address`. `None` if the node does not say.
    async fn membership(&self, address: &str) -> Option<Membership> {
        let mut client = self.operator(address, None).ok()?;
        let call = client.get_cluster(GetClusterRequest { brief: true });
        match within(address, limits::OWNER_SILENT_TIMEOUT, call).await {
            // A node that joins has no name of its cluster yet.
            Ok(status) if status.cluster.is_empty() => None,
            Ok(status) => Some(Membership::Recorded(status.cluster)),
            // The ring of the node is a list in its configuration.
            Err(error) if error.kind() == ErrorKind::DataChanged => {
                self.ring(address).await.ok().map(|ring| Membership::Fixed(Arc::new(ring)))
            }
            Err(_) => None,
        }
    }
}

impl Membership {
    /// Fixed lists count as the same if they share a member: nodes may get a new list one after the
    /// other.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Recorded(one), Self::Recorded(other)) => one == other,
            (Self::Fixed(one), Self::Fixed(other)) => {
                let shared = |member: &larder_base::Member| {
                    other.members().iter().any(|node| node.control == member.control)
                };
                one.members().iter().any(shared)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded(name) => {
                write!(f, "cluster {:x}", name.slice(..name.len().min(NAME_BYTES)))
            }
            Self::Fixed(ring) => {
                let members = ring.members().iter().map(|node| &*node.id).collect::<Vec<_>>();
                write!(f, "the fixed ring of {}", members.join(", "))
            }
        }
    }
}
