//! Puts a ring into use, with its exceptions and the placements before it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use larder_base::{Ring, placement::Exceptions};
use larder_coordinator::Coordinator;
use larder_membership::{
    BlobId,
    agent::{Event, RingOf},
    plan::Tables,
};
use tokio::sync::watch;
use tokio::time;

use super::Report;
use crate::cluster::Placements;
use crate::shared::Shared;

/// Time before a failed installation is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A ring to install, and the one before it.
type Wanted = Option<(RingOf, Option<RingOf>)>;

/// Installs the latest ring. A newer one ends an installation under way.
pub(super) struct Installer(watch::Sender<Wanted>);

impl Installer {
    /// Starts the task. Call it inside a runtime.
    pub(super) fn start(
        shared: &Shared,
        coordinator: &Arc<dyn Coordinator>,
        report: Report,
    ) -> Self {
        let (wanted, wishes) = watch::channel(None);
        let (coordinator, in_use) = (Arc::clone(coordinator), Arc::clone(&shared.placements));
        let replicas_asked = shared.config.replicas;
        tokio::spawn(Fitter { coordinator, in_use, wishes, report, replicas_asked }.run());
        Self(wanted)
    }

    /// Installs this ring once its exceptions are here.
    pub(super) fn install(&self, ring: RingOf, previous: Option<RingOf>) {
        self.0.send_replace(Some((ring, previous)));
    }
}

struct Fitter {
    coordinator: Arc<dyn Coordinator>,
    in_use: Arc<ArcSwap<Placements>>,
    wishes: watch::Receiver<Wanted>,
    report: Report,
    /// The number of copies in the configuration, which counts only when a cluster is founded.
    replicas_asked: Option<u8>,
}

impl Fitter {
    async fn run(mut self) {
        while self.wishes.changed().await.is_ok() {
            let Some((ring, previous)) = self.wishes.borrow_and_update().clone() else { continue };
            let version = ring.version;
            self.tell_replicas(ring.scheme.replicas);
            tokio::select! {
                () = self.fit(ring, previous) => {
                    if self.report.send(Event::Installed(version)).await.is_err() {
                        return;
                    }
                }
                // A newer ring replaces this one.
                _ = wishes_more(self.wishes.clone()) => {}
            }
        }
    }

    /// Warns once if the cluster keeps another number of copies.
    fn tell_replicas(&mut self, replicas: u8) {
        if let Some(asked) = self.replicas_asked.take().filter(|asked| *asked != replicas) {
            tracing::warn!(
                "--replicas {asked} counts where a cluster is founded, and this one keeps {replicas} of each shard: \
                 larder ring plan --replicas {asked} changes that"
            );
        }
    }

    /// Retries once a second until the ring is in use, or a newer one comes.
    async fn fit(&self, ring: RingOf, previous: Option<RingOf>) {
        loop {
            match self.assemble(&ring, previous.as_ref()).await {
                Ok(placements) => {
                    let (version, members) = (ring.version, ring.members.len());
                    tracing::info!(version, members, "this node uses another ring");
                    self.in_use.store(Arc::new(placements));
                    return;
                }
                Err(why) => {
                    tracing::warn!("ring {} can't be used yet: {why}", ring.version);
                    time::sleep(TRY_AGAIN).await;
                }
            }
        }
    }

    async fn assemble(&self, of: &RingOf, previous: Option<&RingOf>) -> Result<Placements, String> {
        let previous = match previous {
            Some(previous) => self.before(previous).await,
            None => None,
        };
        self.placements(of, previous).await
    }

    /// Returns the placements before the ring, which are most often those in use. If they can't be
    /// assembled, the ring is installed without them. Asking the previous owners only saves reads
    /// of the origin.
    async fn before(&self, of: &RingOf) -> Option<Arc<Placements>> {
        let in_use = self.in_use.load();
        if in_use.ring().version() == of.version {
            return Some(Arc::new(in_use.alone()));
        }
        if let Some(known) = in_use.previous().filter(|known| known.ring().version() == of.version)
        {
            return Some(Arc::clone(known));
        }
        drop(in_use);
        let placements = self.placements(of, None).await;
        placements.inspect_err(|why| tracing::debug!("the ring before: {why}")).ok().map(Arc::new)
    }

    async fn placements(
        &self,
        of: &RingOf,
        previous: Option<Arc<Placements>>,
    ) -> Result<Placements, String> {
        let ring = Ring::with_scheme(of.version, of.members.clone(), of.scheme);
        let ring = Arc::new(ring.map_err(|why| why.to_string())?);
        let tables = match of.placement {
            Some(blob) => self.tables(blob).await?,
            None => Vec::new(),
        };
        Placements::new(ring, tables, previous).map_err(|why| why.to_string())
    }

    async fn tables(&self, blob: BlobId) -> Result<Vec<Exceptions>, String> {
        let bytes = self.coordinator.blob(blob).await.map_err(|why| why.to_string())?;
        let bytes = bytes.ok_or("the coordinator does not have the exceptions to it")?;
        let tables = Tables::decode(&bytes).map_err(|why| why.to_string())?;
        Ok(tables.iter().cloned().collect())
    }
}

async fn wishes_more(mut wishes: watch::Receiver<Wanted>) {
    if wishes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
