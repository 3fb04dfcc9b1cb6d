//! Keeps the knowledge of a cluster up to date: its members, their health, and the messages when
//! all are gone or back.
//!
//! All work but [`Cluster::learn`] runs in the background, when it is due and the cluster is in
//! use. An unused cluster gets no calls.

use std::sync::{
    Arc,
    atomic::Ordering::{AcqRel, Relaxed},
};

use futures_util::{StreamExt, stream};
use larder_base::{ErrorKind, Ring, limits};

use super::{Cluster, Member, RingView, control::Control};
use crate::{Error, process, runtime};

/// The most members asked for a newer ring before a later try.
const REFRESH_MEMBERS_MAX: usize = 3;

/// Addresses asked for the ring side by side, so that a dead one delays few others.
const ADDRESSES_ASKED_AT_ONCE: usize = 8;

impl Cluster {
    /// The members. Asks the addresses now if none is known.
    ///
    /// # Errors
    /// `Unavailable` if no node answers, `InvalidArgument` if nodes of two clusters are named.
    pub(super) fn learn(&self) -> Result<Arc<RingView>, Error> {
        match self.view() {
            Some(view) => Ok(view),
            None => runtime::block_on(self.introduce())?,
        }
    }

    /// Starts due work in the background: a query of the ring, and probes of members that are down.
    /// Costs a clock reading if nothing is due.
    pub(crate) fn keep_up(self: &Arc<Self>) {
        let now = process::uptime();
        let Some(view) = self.view() else {
            if self.introduction.claim_probe(now) {
                self.in_background(async |cluster| cluster.meet().await);
            }
            return;
        };
        let due = view.members.iter().filter(|member| !member.health.is_up());
        for member in due.filter(|member| member.health.claim_probe(now)) {
            let member = Arc::clone(member);
            self.in_background(async move |cluster| match &cluster.host {
                Some(_) => cluster.attach_again().await,
                None => cluster.probe(&member).await,
            });
        }
        let (millis, asked_at) = (process::uptime_millis(), self.asked_at.load(Relaxed));
        let interval = limits::RING_REFRESH_INTERVAL.as_millis();
        if u128::from(millis.saturating_sub(asked_at)) >= interval
            && self.asked_at.compare_exchange(asked_at, millis, Relaxed, Relaxed).is_ok()
        {
            self.in_background(async |cluster| cluster.refresh().await);
        }
    }

    /// Warns, once until nodes are back, that rows come from the origin.
    pub(crate) fn report_outage(&self, what: impl std::fmt::Display, why: Option<&Error>) {
        if self.outage.swap(true, AcqRel) {
            return;
        }
        let why = why.map_or("all are down".to_owned(), ToString::to_string);
        match self.host() {
            Some(node) => {
                let (mut state, mut advice) = ("does not answer", "");
                if node.has_ended() {
                    state = "has ended";
                    advice = "; if it was killed for want of memory, set a smaller LARDER_MEMORY";
                }
                tracing::warn!(
                    why,
                    "the cache of this host (pid {}, log {}) {state}: until it serves again, {what} is read from \
                     the origin, which is slower{advice}",
                    node.pid(),
                    node.log().display()
                );
            }
            None => tracing::warn!(
                %what, why, "no node answers: it is read from the origin, which is slower"
            ),
        }
    }

    /// Notes that a node served rows, or that the node of this host answers again.
    pub(crate) fn report_service(&self) {
        if self.outage.load(Relaxed) && self.outage.swap(false, AcqRel) {
            match self.host() {
                Some(node) => {
                    tracing::warn!("the cache of this host serves again (pid {})", node.pid());
                }
                None => tracing::info!("nodes answer again: rows come from them"),
            }
        }
    }

    /// Fetches a newer ring from the member that has it, once and in the background.
    pub(crate) fn heard_of_ring(self: &Arc<Self>, version: u64, member: &Arc<Member>) {
        if self.heard.fetch_max(version, AcqRel) < version {
            let member = Arc::clone(member);
            self.in_background(async move |cluster| {
                if let Ok(ring) = cluster.control.ring(&member.control).await {
                    cluster.turn_to(ring, &member.control);
                }
            });
        }
    }

    fn in_background<F>(self: &Arc<Self>, work: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Work that can't start now will be due again.
        let _ = runtime::spawn(work(Arc::clone(self)));
    }

    async fn meet(&self) {
        match self.introduce().await {
            Ok(view) => tracing::info!(nodes = view.members.len(), "the cluster answers"),
            Err(error) if error.kind() == ErrorKind::InvalidArgument => tracing::warn!("{error}"),
            Err(error) => tracing::debug!(%error, "the cluster is still away"),
        }
    }

    /// Learns the ring from the first address that answers. Refuses addresses of two clusters.
    async fn introduce(&self) -> Result<Arc<RingView>, Error> {
        let (ring, told_by) = first_ring(&self.control, &self.addresses).await?;
        self.check_same(&ring, told_by).await?;
        let view = Arc::new(RingView::new(Arc::new(ring), told_by, &[]));
        // The first ring stays, because its members may be in use.
        let before = self.view.compare_and_swap(&None::<Arc<RingView>>, Some(Arc::clone(&view)));
        self.introduction.recover();
        self.asked_at.store(process::uptime_millis(), Relaxed);
        Ok(before.as_ref().map_or(view, Arc::clone))
    }

    async fn probe(&self, member: &Member) {
        match self.control.describe(&member.control).await {
            Ok(node) if !node.draining => {
                tracing::info!(node = %member.id, "a node answers again");
                member.health.recover();
            }
            Ok(_) => tracing::debug!(node = %member.id, "a node is draining"),
            Err(error) => tracing::debug!(node = %member.id, %error, "a node is still away"),
        }
    }

    /// Adopts a newer ring, if a member has one. If all members are gone, asks the addresses, which
    /// may now lead to other nodes.
    pub(crate) async fn refresh(&self) {
        let Some(view) = self.view() else { return };
        let up: Vec<_> = view.members.iter().filter(|member| member.health.is_up()).collect();
        if up.is_empty() {
            let found = first_ring(&self.control, &self.addresses).await.ok();
            let found = found.filter(|(ring, _)| ring.digest() != view.ring.digest());
            if let Some((other, told_by)) = found {
                tracing::info!(version = other.version(), "other nodes stand behind the addresses");
                let view = RingView::new(Arc::new(other), told_by, &view.members);
                self.view.store(Some(Arc::new(view)));
            }
            return;
        }
        for member in up.into_iter().take(REFRESH_MEMBERS_MAX) {
            let Ok(ring) = self.control.ring(&member.control).await else {
                continue;
            };
            return self.turn_to(ring, &member.control);
        }
    }

    /// Adopts a ring, unless the known one is as good.
    fn turn_to(&self, ring: Ring, told_by: &str) {
        let ring = Arc::new(ring);
        let before = self.view.rcu(|view| match view {
            Some(view) if view.is_outdone_by(&ring) => {
                Some(Arc::new(RingView::new(Arc::clone(&ring), told_by, &view.members)))
            }
            as_good => as_good.clone(),
        });
        if before.is_some_and(|view| view.is_outdone_by(&ring)) {
            tracing::info!(version = ring.version(), "the ring changed");
        }
    }
}

/// The ring, and the address that gave it.
///
/// # Errors
/// A node's refusal, if there was one: it says more than the silence of others.
async fn first_ring<'a>(
    control: &Control,
    addresses: &'a [String],
) -> Result<(Ring, &'a str), Error> {
    let ask =
        async |address: &'a String| Ok::<_, Error>((control.ring(address).await?, &**address));
    let asked: Vec<_> = addresses.iter().map(ask).collect();
    let mut answers = stream::iter(asked).buffer_unordered(ADDRESSES_ASKED_AT_ONCE);
    let (mut refused, mut reasons) = (None, Vec::new());
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(told) => return Ok(told),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => refused = Some(error),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    if let Some(refusal) = refused {
        return Err(refusal);
    }
    let hint = "check that larder-node runs there and that --cluster or LARDER_CLUSTER names its --listen address";
    let error = Error::new(ErrorKind::Unavailable, "no node of the cluster answers");
    Err(error.because(reasons.join("; ")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes by id and port.
    fn ring(version: u64, nodes: &[(&str, u16)]) -> Ring {
        let member = |&(id, port): &(&str, u16)| larder_base::Member {
            id: id.to_owned(),
            weight: 1,
            control: format!("http://127.0.0.1:{port}"),
            host: "here".to_owned(),
            zone: String::new(),
        };
        Ring::new(version, nodes.iter().map(member).collect()).unwrap()
    }

    fn ports(cluster: &Cluster) -> String {
        let ports = cluster
            .members()
            .into_iter()
            .map(|member| member.control.trim_start_matches("http://127.0.0.1:").to_owned());
        ports.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn adopts_newer_ring_and_new_address_of_a_failed_member() {
        let cluster = Cluster::unknown(Control::new(), vec![]);
        let first = RingView::new(Arc::new(ring(1, &[("a", 1), ("b", 2)])), "", &[]);
        cluster.view.store(Some(Arc::new(first)));
        let turn = |version, nodes: &[(&str, u16)]| {
            cluster.turn_to(ring(version, nodes), "");
            ports(&cluster)
        };
        assert_eq!(turn(2, &[("a", 1), ("b", 3)]), "1 3");
        assert_eq!(turn(1, &[("a", 1), ("b", 4)]), "1 3", "it is older");
        assert_eq!(turn(2, &[("a", 1), ("b", 4)]), "1 3", "nobody is missed at the old address");
        cluster.view().unwrap().members[1].health.fail(process::uptime());
        assert_eq!(turn(2, &[("a", 5), ("c", 4)]), "1 3", "these are other members");
        assert_eq!(turn(2, &[("a", 1), ("b", 4)]), "1 4");
        assert!(cluster.members().iter().all(|member| member.up));
    }
}
