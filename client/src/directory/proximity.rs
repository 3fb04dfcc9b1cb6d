//! Which members are on the host of this process: those whose socket answers here.
//!
//! What a member calls its host says nothing sure about that. A list of members names addresses, a
//! node behind another address is known by that, containers of one host have names of their own,
//! and the same name may be given twice. A socket that can be connected to is on this host, and the
//! id of the node's present start, which it tells there as by its control address, proves that it
//! is this member's and not that of a node elsewhere with the same path. It is also just what
//! matters: whoever answers there lends its memory.
//!
//! Thread rule: atomics only. Asking blocks nobody but who opens a dataset or wants to know.

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

use super::{Cluster, Member, View};
use crate::{local, runtime};

/// Where a member was found to be.
#[derive(Debug, Default)]
pub(crate) struct HostProximity(AtomicU8);

const UNKNOWN: u8 = 0;
const ELSEWHERE: u8 = 1;
const HERE: u8 = 2;

impl HostProximity {
    /// Whether the member is on this host, as far as is known.
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
    /// The members on the host of this process, by id in the order of the ring; none while no node
    /// answers.
    pub fn nodes_here(&self) -> Vec<String> {
        let Ok(view) = self.learn() else { return Vec::new() };
        // A node may have been started since it was looked for.
        let _ = runtime::block_on(self.locate(&view, |proximity| !proximity.is_here()));
        let here = view.members.iter().filter(|member| member.proximity.is_here());
        here.map(|member| member.id.clone()).collect()
    }

    /// Finds out where those members are of which it is not known. One that does not answer stays
    /// so.
    pub(super) async fn locate_new(&self, view: &View) {
        self.locate(view, |proximity| !proximity.is_known()).await;
    }

    /// Asks members where their sockets are, all at once, and tries those.
    async fn locate(&self, view: &View, wanted: impl Fn(&HostProximity) -> bool) {
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

/// The nodes that answer at these paths: on hosts set up alike all say the same one.
fn answers(paths: HashSet<PathBuf>) -> HashMap<PathBuf, (String, BootId)> {
    let ask = |path: PathBuf| {
        let answer = local::who_answers(&path);
        let answer = answer.inspect_err(|failure| tracing::trace!(?path, ?failure, "no node here"));
        Some((path, answer.ok()?))
    };
    paths.into_iter().filter(|path| path.exists()).filter_map(ask).collect()
}
