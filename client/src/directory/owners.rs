//! The owners of one snapshot's shards, as far as this process knows them.
//!
//! The ring alone does not give them: a table for each snapshot and ring version lists the
//! exceptions. So a reader moves to a newer ring only together with its table, and uses the old
//! ring until then. If shards have several owners, it also waits to learn which owners are on this
//! host.
//!
//! ```text
//!                 ┌──────────────────────────────────────────┐
//! nothing ─▶ the ring alone ─▶ a ring with exceptions ─▶ a newer ring with exceptions ─▶ ...
//!                 ▲                      │
//!                 └──────────────────────┘ all its members are down, and a newer ring exists
//! ```
//!
//! A node that does not own a shard serves it too. A late reader costs moves and balance, never
//! rows. So only opening a dataset waits for the table. All other lookups run in the background,
//! one call at a time per process, and ever more rarely while no member answers.
//!
//! Thread rule: shared freely, without a lock. A forked child inherits the directory. Non-goals:
//! health (see `health`), planning.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool,
        Ordering::{AcqRel, Release},
    },
};

use arc_swap::ArcSwapOption;
use larder_base::{ErrorKind, Placement, SnapshotId};

use super::{Cluster, Health, Member, RingView};
use crate::{
    Error,
    process::{self, PerProcess},
    runtime,
};

/// The most members asked for exceptions before a later try.
const INFORMANTS_MAX: usize = 3;

/// The members of a ring, and the owners of one snapshot's shards.
pub(crate) struct Directory {
    view: Arc<RingView>,
    placement: Placement,
    /// A member has given the exceptions. Otherwise this is the ring alone, for now.
    is_settled: bool,
}

impl Directory {
    fn of_ring(view: Arc<RingView>) -> Self {
        let placement = Placement::of_ring(Arc::clone(&view.ring));
        Self { view, placement, is_settled: false }
    }

    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// In the order of the ring's members.
    pub(crate) fn members(&self) -> &[Arc<Member>] {
        &self.view.members
    }

    /// Whether it may be used until the exceptions to the newest ring are known.
    fn will_do(&self, newest: &Arc<RingView>) -> bool {
        Arc::ptr_eq(&self.view, newest) || self.members().iter().any(|member| member.health.is_up())
    }
}

/// The directory of one snapshot, kept up to date.
pub(crate) struct OwnerDirectory {
    snapshot: SnapshotId,
    /// The number of its shards.
    shards: u32,
    /// Absent until the ring is known.
    directory: ArcSwapOption<Directory>,
    /// The health of the members together, for questions about exceptions.
    answers: Health,
    /// A thread of this process is asking.
    asking: PerProcess<AtomicBool>,
}

impl OwnerDirectory {
    pub(crate) fn new(snapshot: SnapshotId, shards: u32) -> Arc<Self> {
        let (directory, answers, asking) =
            (ArcSwapOption::empty(), Health::default(), PerProcess::new());
        Arc::new(Self { snapshot, shards, directory, answers, asking })
    }

    /// The current directory, if a node ever answered. Learns missing parts of the newest ring in
    /// the background. Costs two atomic loads if nothing is missing.
    pub(crate) fn directory(self: &Arc<Self>, cluster: &Arc<Cluster>) -> Option<Arc<Directory>> {
        let (newest, current) = (cluster.view()?, self.directory.load_full());
        let current = match current {
            Some(current) if current.is_settled && Arc::ptr_eq(&current.view, &newest) => {
                return Some(current);
            }
            other => other,
        };
        self.learn_in_background(cluster);
        if let Some(current) = current.filter(|current| current.will_do(&newest)) {
            return Some(current);
        }
        let bare = Arc::new(Directory::of_ring(Arc::clone(&newest)));
        self.directory.rcu(|current| match current {
            Some(current) if current.will_do(&newest) => Arc::clone(current),
            _ => Arc::clone(&bare),
        });
        self.directory.load_full()
    }

    /// Asks for the exceptions to the newest ring, and moves to it.
    pub(crate) async fn learn(&self, cluster: &Cluster) {
        let Some(view) = cluster.view() else { return };
        match self.ask(cluster, &view).await {
            Ok(placement) => {
                self.answers.succeed();
                if placement.replicas() > 1 {
                    // Of several owners, the reader asks the one on this host.
                    cluster.locate_new(&view).await;
                }
                // If an even newer ring is known by now, that one is learned next. Moving twice
                // would cost more moves.
                if cluster.view().is_some_and(|newest| Arc::ptr_eq(&newest, &view)) {
                    let directory = Directory { view, placement, is_settled: true };
                    self.directory.store(Some(Arc::new(directory)));
                }
            }
            Err(error) => {
                self.answers.fail(process::uptime());
                let version = view.ring.version();
                tracing::debug!(%error, version, "the exceptions to a ring are not known yet");
                if error.kind() == ErrorKind::NotFound {
                    cluster.refresh().await;
                }
            }
        }
    }

    fn learn_in_background(self: &Arc<Self>, cluster: &Arc<Cluster>) {
        let asking = self.asking.get(|_| AtomicBool::new(false));
        if asking.swap(true, AcqRel) {
            return;
        }
        if !self.answers.is_up() && !self.answers.claim_probe(process::uptime()) {
            asking.store(false, Release);
            return;
        }
        let (owner_directory, cluster, asked) =
            (Arc::clone(self), Arc::clone(cluster), Arc::clone(&asking));
        let begun = runtime::spawn(async move {
            owner_directory.learn(&cluster).await;
            asked.store(false, Release);
        });
        if begun.is_err() {
            asking.store(false, Release);
        }
    }

    /// The placement on a ring, as its members report it. If they answer without exceptions, uses
    /// the ring alone: they may run an earlier version.
    async fn ask(&self, cluster: &Cluster, view: &RingView) -> Result<Placement, Error> {
        let (mut useless, mut silent) = (None, None);
        for address in view.informants().take(INFORMANTS_MAX) {
            let asked = cluster.control.placement(address, &view.ring, self.snapshot, self.shards);
            match asked.await {
                Ok(placement) => return Ok(placement),
                Err(error) if may_answer_later(error.kind()) => silent = Some(error),
                Err(error) => useless = Some(error),
            }
        }
        match (useless, silent) {
            (Some(error), _) => {
                if error.kind() != ErrorKind::VersionMismatch {
                    tracing::warn!(%error, snapshot = %self.snapshot, "shards are asked for by the ring alone");
                }
                Ok(Placement::of_ring(Arc::clone(&view.ring)))
            }
            (None, silent) => Err(silent.expect("the node that gave the ring is asked")),
        }
    }
}

/// Whether a node that failed this way may later give exceptions, or uses another ring.
fn may_answer_later(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::Unauthenticated
            | ErrorKind::ResourceExhausted
            | ErrorKind::Unavailable
            | ErrorKind::OriginUnavailable
    )
}

#[cfg(test)]
mod tests {
    use larder_base::Ring;

    use super::{super::control::Control, *};

    fn view(version: u64, id: &str) -> Arc<RingView> {
        let (control, host) = ("http://127.0.0.1:1".to_owned(), "here".to_owned());
        let told_by = control.clone();
        let zone = String::new();
        let member = larder_base::Member { id: id.to_owned(), weight: 1, control, host, zone };
        Arc::new(RingView::new(Arc::new(Ring::new(version, vec![member]).unwrap()), &told_by, &[]))
    }

    #[test]
    fn switches_to_newer_ring_at_once_when_all_members_are_down() {
        let cluster = Arc::new(Cluster::unknown(Control::new(), vec![]));
        let owner_directory = OwnerDirectory::new(SnapshotId::from_bytes([1; 32]), 12);
        let version = || Some(owner_directory.directory(&cluster)?.placement().ring().version());
        assert_eq!(version(), None);
        let (old, new) = (view(1, "a"), view(2, "b"));
        cluster.view.store(Some(Arc::clone(&old)));
        assert_eq!(version(), Some(1), "there is nothing else yet");
        cluster.view.store(Some(new));
        assert_eq!(version(), Some(1), "the exceptions to the newer one are not known");
        assert!(old.members[0].health.fail(process::uptime()));
        assert_eq!(version(), Some(2));
    }
}
