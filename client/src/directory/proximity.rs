//! Finds the members on the host of this process, by their sockets.
//!
//! A member's host name proves nothing: the record may hold another address or name, containers of
//! one host have their own names, and two hosts may share a name. A socket that accepts a
//! connection is on this host. It is the member's if it reports the id of the node's current start,
//! the same as at the control address. A node of another host may listen at the same path. Only a
//! node that answers on such a socket can share its memory.
//!
//! Thread rule: atomics only. Blocks only calls that open a dataset or ask for locations.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{
            AtomicU8,
            Ordering::{Acquire, Release},
        },
    },
};

use futures_util::future::join_all;
use larder_base::BootId;
use tokio::task;

use super::{Cluster, Member, RingView};
use crate::{local, runtime};

/// The location of a member.
#[derive(Debug, Default)]
pub(crate) struct HostProximity(AtomicU8);

const UNKNOWN: u8 = 0;
const ELSEWHERE: u8 = 1;
const HERE: u8 = 2;

impl HostProximity {
    /// Whether the member is on this host, as far as known.
    pub(crate) fn is_here(&self) -> bool {
        self.0.load(Acquire) == HERE
    }

    fn is_known(&self) -> bool {
        self.0.load(Acquire) != UNKNOWN
    }

    fn learn(&self, is_here: bool) {
        self.0.store(if is_here { HERE } else { ELSEWHERE }, Release);
    }
}

impl Cluster {
    /// The ids of the members on this host, in the order of the ring. Empty while no node answers.
    pub fn nodes_here(&self) -> Vec<String> {
        let Ok(view) = self.learn() else { return Vec::new() };
        // A node may have started since the last look.
        let _ = runtime::block_on(self.locate(&view, |proximity| !proximity.is_here()));
        let here = view.members.iter().filter(|member| member.proximity.is_here());
        here.map(|member| member.id.clone()).collect()
    }

    /// Locates members with unknown location. A member that does not answer stays unknown.
    pub(super) async fn locate_new(&self, view: &RingView) {
        self.locate(view, |proximity| !proximity.is_known()).await;
    }

    /// Asks members for their socket paths, all at once, and tries these.
    async fn locate(&self, view: &RingView, wanted: impl Fn(&HostProximity) -> bool) {
        let members = view.members.iter();
        let members = members.filter(|member| member.health.is_up() && wanted(&member.proximity));
        let ask = async |member: &Arc<Member>| {
            let node = self.control.describe(&member.control).await.ok()?;
            Some((Arc::clone(member), PathBuf::from(node.socket_path), node.boot_id))
        };
        let told: Vec<_> = join_all(members.map(ask)).await.into_iter().flatten().collect();
        let paths: HashSet<PathBuf> = told.iter().map(|(_, path, _)| path.clone()).collect();
        if paths.is_empty() {
            return;
        }
        let answers = task::spawn_blocking(move || answers(paths)).await.unwrap_or_default();
        for (member, path, boot) in told {
            let answer = answers.get(&path);
            member.proximity.learn(answer.is_some_and(|(node, found)| {
                *node == member.id && found.as_bytes().as_slice() == &*boot
            }));
        }
    }
}

/// The nodes that answer at these paths. Hosts with the same setup share a path.
fn answers(paths: HashSet<PathBuf>) -> HashMap<PathBuf, (String, BootId)> {
    let ask = |path: PathBuf| {
        let answer = local::who_answers(&path);
        let answer = answer.inspect_err(|failure| tracing::trace!(?path, ?failure, "no node here"));
        Some((path, answer.ok()?))
    };
    paths.into_iter().filter(|path| path.exists()).filter_map(ask).collect()
}
