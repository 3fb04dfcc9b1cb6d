//! The node of this host as a cluster of one. A process that uses the node keeps it running, and
//! starts it again if it ends early.
//!
//! A killed node loses its port and its tickets, and its successor has others. The first process
//! that attaches again starts the successor, so that all processes of the host share one node
//! again. Until then rows come from the origin.
//!
//! All datasets of a process share one cluster, and with it one lease and one control connection.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Release},
        },
    },
};

use arc_swap::ArcSwap;
use larder_dataset::OriginUri;
use tokio::task;

use super::{Cluster, RingView, control::Control};
use crate::{
    Error, ErrorKind, HostNode, HostOptions,
    process::{self, PerProcess, variables},
};

/// The most prefixes that are admitted again at the successor of a node, the last ones.
const PREFIXES_KEPT_MAX: usize = 1_024;

/// The clusters of nodes of this host that datasets of this process use, by the node's socket.
static SHARED: PerProcess<Mutex<HashMap<PathBuf, Weak<Cluster>>>> = PerProcess::new();

/// The node of this host, and the means to start it.
pub(super) struct OfHost {
    options: HostOptions,
    /// The prefixes that this process reads. Empty if it only inspects the node.
    prefixes: ArcSwap<Vec<String>>,
    node: ArcSwap<HostNode>,
    /// A thread of this process is attaching, which may take long.
    attaching: PerProcess<AtomicBool>,
}

impl Cluster {
    /// The cluster of this host's node, which is alone on its ring. Starts the node if it does not
    /// run, keeps it running while the cluster is used, and lets it read `prefixes`. Returns the
    /// cluster of another dataset of this process if its node answers.
    ///
    /// # Errors
    /// As [`HostNode::start_or_attach`], and `Unavailable` if the node has ended meanwhile.
    pub fn of_host(options: HostOptions, prefixes: Vec<String>) -> Result<Arc<Self>, Error> {
        let socket = HostNode::socket(&options)?;
        let shared = SHARED.get(|_| Mutex::default());
        let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&socket).and_then(Weak::upgrade);
        if let Some(known) = known
            && known.reads_too(&options, &prefixes)?
        {
            return Ok(known);
        }
        let cluster = Self::with_host_node(attach(&options, &prefixes)?, options, prefixes)?;
        let mut shared = lock();
        shared.retain(|_, cluster| cluster.strong_count() > 0);
        shared.insert(socket, Arc::downgrade(&cluster));
        Ok(cluster)
    }

    /// Lets the node read more prefixes. False if it has ended, or does not answer.
    fn reads_too(&self, options: &HostOptions, more: &[String]) -> Result<bool, Error> {
        let Some(host) = &self.host else { return Ok(false) };
        if !host.node.load().admit(options, &texts(more))? {
            return Ok(false);
        }
        host.prefixes.rcu(|known| {
            let mut all = known.to_vec();
            all.retain(|prefix| !more.contains(prefix));
            all.extend_from_slice(more);
            all.drain(..all.len().saturating_sub(PREFIXES_KEPT_MAX));
            all
        });
        Ok(true)
    }

    /// The cluster of this host's node, to inspect it. `None` if it does not run. Never starts a
    /// node.
    ///
    /// # Errors
    /// As [`HostNode::attach`].
    pub fn of_running_host(options: HostOptions) -> Result<Option<Arc<Self>>, Error> {
        let Some(node) = HostNode::attach(&options)? else { return Ok(None) };
        Self::with_host_node(node, options, Vec::new()).map(Some)
    }

    fn with_host_node(
        node: HostNode,
        options: HostOptions,
        prefixes: Vec<String>,
    ) -> Result<Arc<Self>, Error> {
        let control = Control::with_ticket(node.ticket());
        let addresses = vec![node.address().to_owned()];
        let log = node.log().display().to_string();
        let (node, attaching) = (ArcSwap::from_pointee(node), PerProcess::new());
        let prefixes = ArcSwap::from_pointee(prefixes);
        let host = Some(OfHost { options, prefixes, node, attaching });
        let cluster = Self { host, ..Self::unknown(control, addresses) };
        cluster.learn().map_err(|error| error.hint(format!("its log is {log}")))?;
        Ok(Arc::new(cluster))
    }

    /// The number by which the node of this host knows the variables of this process.
    pub(super) fn identity(&self) -> u32 {
        self.host.as_ref().map_or(0, |host| host.node.load().identity())
    }

    /// The node of this host, if this is its cluster.
    pub fn host(&self) -> Option<Arc<HostNode>> {
        self.host.as_ref().map(|host| host.node.load_full())
    }

    /// Adds a hint about credentials, if the origin refuses those of this host's node for `uri`.
    pub(crate) fn hint_at_credentials(&self, error: Error, uri: &OriginUri) -> Error {
        let uri = uri.to_string();
        let is_remote = self.host.is_some() && !uri.starts_with("file:");
        match error.kind() {
            ErrorKind::PermissionDenied if is_remote => error.hint(format!(
                "correct the AWS_*, GOOGLE_* or AZURE_* variables and open it again, the cache takes other keys at \
                 once; larder doctor {uri} says which rights are missing"
            )),
            _ => error,
        }
    }

    /// Attaches to the node of this host again, or to its successor.
    pub(super) async fn attach_again(self: Arc<Self>) {
        let reading = self.host.as_ref().filter(|host| !host.prefixes.load().is_empty());
        let Some(host) = reading else { return };
        let attaching = host.attaching.get(|_| AtomicBool::new(false));
        if attaching.swap(true, AcqRel) {
            return;
        }
        if let Err(error) = self.replace_node(host).await {
            tracing::debug!(%error, "the cache of this host is still away");
        }
        attaching.store(false, Release);
    }

    async fn replace_node(&self, host: &OfHost) -> Result<(), Error> {
        let (options, prefixes) = (host.options.clone(), host.prefixes.load_full());
        let attached = task::spawn_blocking(move || attach(&options, &prefixes)).await;
        let node =
            attached.unwrap_or_else(|death| std::panic::resume_unwind(death.into_panic()))?;
        let ring = self.control.meet(node.address(), node.ticket()).await?;
        let known = self.view();
        let known = known.as_deref().map_or(&[][..], |view| &view.members);
        let view = RingView::new(Arc::new(ring), node.address(), known);
        view.members.iter().for_each(|member| member.health.recover());
        host.node.store(Arc::new(node));
        self.asked_at.store(process::uptime_millis(), Release);
        self.view.store(Some(Arc::new(view)));
        self.report_service();
        Ok(())
    }
}

/// Hands the `AWS_*`, `GOOGLE_*` and `AZURE_*` variables of this process to the node of this host,
/// if they have changed since. So datasets that are open are read with the new keys, and the node
/// keeps its memory. Looks at most every two seconds.
///
/// Call it on a thread that sets variables, or while no other thread sets any. The batches and rows
/// of the Python package do.
pub fn renew_credentials() {
    if !variables::look_again() {
        return;
    }
    let shared = SHARED.get(|_| Mutex::default());
    let clusters: Vec<_> = {
        let shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.values().filter_map(Weak::upgrade).collect()
    };
    for host in clusters.iter().filter_map(|cluster| cluster.host.as_ref()) {
        // A node that has ended gets them from the process that starts its successor.
        if let Err(error) = host.node.load().admit(&host.options, &[]) {
            tracing::warn!("the cache of this host did not take the new variables: {error}");
        }
    }
}

fn attach(options: &HostOptions, prefixes: &[String]) -> Result<HostNode, Error> {
    HostNode::start_or_attach(options, &texts(prefixes))
}

fn texts(prefixes: &[String]) -> Vec<&str> {
    prefixes.iter().map(String::as_str).collect()
}
