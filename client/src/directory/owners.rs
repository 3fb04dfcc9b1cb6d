//! Whom to ask for which shard of one snapshot, as far as this process has learned it.
//!
//! The ring alone does not say it: some shards have other owners than its walk names, by a table
//! for each snapshot and version of the ring. So a reader goes over to a newer ring only together
//! with the table that belongs to it, and goes by what it had until then; where shards have several
//! owners, once it is known which of them are on this host.
//!
//! ```text
//!                         ┌───────────────────────────────────────────────────┐
//!   nothing ─▶ the ring alone, for now ─▶ a ring with its exceptions ─▶ those of a newer ring ─▶ ...
//!                         ▲                         │
//!                         └─────────────────────────┘ nobody on it is up, and there is a newer one
//! ```
//!
//! A shard that is asked for elsewhere than at its owner is served all the same: who learns late
//! costs moves and balance, never rows. Hence nobody waits here but who opens a dataset: everything
//! else is asked in the background, one call at a time in each process, ever more rarely while none
//! is answered.
//!
//! Thread rule: shared freely, without a lock. What was learned is inherited by a forked child.
//! Non-goals: who is up (see `health`), planning.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool,
        Ordering::{AcqRel, Release},
    },
};

use arc_swap::ArcSwapOption;
use larder_base::{ErrorKind, Placement, SnapshotId};

use super::{Cluster, Health, Member, View};
use crate::{
    Error,
    process::{self, PerProcess},
    runtime,
};

/// Members asked for exceptions before that is put off.
const INFORMANTS_MAX: usize = 3;

/// The members of a ring, and which of them own the shards of one snapshot.
pub(crate) struct Directory {
    view: Arc<View>,
    placement: Placement,
    /// Whether a member said which exceptions there are. Else it is the ring alone, for now.
    is_settled: bool,
}

impl Directory {
    fn of_ring(view: Arc<View>) -> Self {
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

    /// Whether it may be gone by until the exceptions to the newest ring are known.
    fn will_do(&self, newest: &Arc<View>) -> bool {
        Arc::ptr_eq(&self.view, newest) || self.members().iter().any(|member| member.health.is_up())
    }
}

/// The directory of one snapshot, kept true.
pub(crate) struct OwnerDirectory {
    snapshot: SnapshotId,
    /// How many it has.
    shards: u32,
    /// Absent before the ring is known.
    directory: ArcSwapOption<Directory>,
    /// Of the members together, when asked for exceptions.
    answers: Health,
    /// Whether somebody in this process is asking.
    asking: PerProcess<AtomicBool>,
}

impl OwnerDirectory {
    pub(crate) fn new(snapshot: SnapshotId, shards: u32) -> Arc<Self> {
        let (directory, answers, asking) =
            (ArcSwapOption::empty(), Health::default(), PerProcess::new());
        Arc::new(Self { snapshot, shards, directory, answers, asking })
    }

    /// Whom to ask now, if any node ever said who is there. What is missing of the newest is
    /// learned in the background. Costs two loads when nothing is.
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

    /// Asks for the exceptions to the newest ring, and goes over to it.
    pub(crate) async fn learn(&self, cluster: &Cluster) {
        let Some(view) = cluster.view() else { return };
        match self.ask(cluster, &view).await {
            Ok(placement) => {
                self.answers.succeed();
                if placement.replicas() > 1 {
                    // Of several owners the one on this host is asked.
                    cluster.locate_new(&view).await;
                }
                // If there is a newer ring by now that is learned next: to go over twice moves
                // more.
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

    /// The placement on a ring, as its members say. Where they answer, but with nothing of use, the
    /// ring alone has to do: they may be of an earlier version, which knows no exceptions.
    async fn ask(&self, cluster: &Cluster, view: &View) -> Result<Placement, Error> {
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
            (None, silent) => Err(silent.expect("who told the ring is asked at least")),
        }
    }
}

/// Whether a node that failed a call so may yet tell of exceptions, or goes by another ring.
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

    fn view(version: u64, id: &str) -> Arc<View> {
        let (control, host) = ("http://127.0.0.1:1".to_owned(), "here".to_owned());
        let told_by = control.clone();
        let zone = String::new();
        let member = larder_base::Member { id: id.to_owned(), weight: 1, control, host, zone };
        Arc::new(View::new(Arc::new(Ring::new(version, vec![member]).unwrap()), &told_by, &[]))
    }

    #[test]
    fn switches_to_newer_ring_at_once_when_all_members_are_down() {
        let cluster = Arc::new(Cluster::unknown(Control::new(), vec![]));
        let owner_directory = OwnerDirectory::new(SnapshotId::from_bytes([1; 16]), 12);
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
