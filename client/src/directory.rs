//! The nodes of a cluster as this process sees them: the ring, the health of members, control
//! calls.
//!
//! Any node gives the ring, which has the control address of every member. Until an address answers
//! there is no ring, and the addresses are asked again in the background, ever more rarely. A
//! member that failed a read is marked down and passed over. When its time comes, the next use of
//! the cluster probes it in the background, and a member that answers is up again. No read waits
//! for a probe. Each dataset moves to a newer ring once it knows the exceptions to it
//! ([`OwnerDirectory`]).
//!
//! Thread rule: shared freely. Control calls block the caller, on the runtime of `runtime`.
//! Questions of the data path (owners, health) take no lock and never wait. A forked child makes
//! its own channels. Non-goals: rows (see `remote` and `local`), and taking part in the membership.

mod answers;
mod control;
mod health;
mod inspect;
mod of_host;
mod operate;
mod owners;
mod plans;
mod progress;
mod proximity;
mod refresh;
mod same_cluster;

use std::{
    fmt, iter,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use larder_base::{Advice, ErrorKind, Ring, SnapshotId, Ticket, limits};
use larder_dataset::{DatasetRef, Leaf, Manifest, OriginUri, WritePolicy};
use larder_wire::control::NodeDescription;
use tokio::time;

use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, local, process, progress::Reporter, runtime};
use control::Control;
pub(crate) use health::Health;
pub use inspect::{MemberAnswer, ShardCounts};
use of_host::OfHost;
pub use of_host::renew_credentials;
pub use operate::{NodeAnswers, Operator, PlannedChange};
pub(crate) use owners::{Directory, OwnerDirectory};
pub(crate) use progress::LOOK_INTERVAL;
use proximity::HostProximity;

/// Most nodes in `--cluster` of a client.
const CLUSTER_ADDRESSES_MAX: usize = 64;

/// The nodes of a cluster.
pub struct Cluster {
    control: Control,
    /// As the user gave them.
    addresses: Vec<String>,
    /// Absent until one of the addresses answers.
    view: ArcSwapOption<RingView>,
    /// The health of the addresses together, until one answers.
    introduction: Health,
    /// When the ring was last asked for, in milliseconds of [`process::uptime`].
    asked_at: AtomicU64,
    /// The greatest ring version that a node has reported.
    heard: AtomicU64,
    /// Rows come from the origin because no node answers.
    outage: AtomicBool,
    /// Present if this is the host's node.
    host: Option<OfHost>,
}

/// The members of one ring.
pub(crate) struct RingView {
    pub(crate) ring: Arc<Ring>,
    /// In the order of the ring's members.
    pub(crate) members: Box<[Arc<Member>]>,
    /// The control address of the node that gave the ring.
    told_by: String,
}

/// A node on the ring, with its observed health and location.
pub(crate) struct Member {
    pub(crate) id: String,
    /// `http://host:port`.
    pub(crate) control: String,
    pub(crate) health: Health,
    pub(crate) proximity: HostProximity,
}

/// The name of a dataset at the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetName {
    /// Prefix and tag.
    pub reference: DatasetRef,
    /// The place of the manifest, if it is not beside the data.
    pub manifest: Option<OriginUri>,
    /// Whether an index of it may write beside the data.
    pub write: WritePolicy,
}

impl DatasetName {
    /// The same dataset, pinned to one snapshot, because a tag may move while a job runs.
    pub(crate) fn pinned(&self, snapshot: SnapshotId) -> Self {
        self.tagged(&snapshot.to_string())
    }

    /// The dataset by another tag.
    pub(crate) fn tagged(&self, tag: &str) -> Self {
        let reference = DatasetRef::parse(&format!("{}@{tag}", self.reference.uri()));
        let reference = reference.expect("a tag that this library made");
        Self { reference, ..self.clone() }
    }
}

/// A node's answer after it opened a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDataset {
    /// The snapshot that the tag names now.
    pub snapshot: SnapshotId,
    /// Samples of the snapshot.
    pub samples: u64,
    /// Its shards.
    pub shards: u32,
    /// Bytes of all its tensors.
    pub bytes: u64,
    /// Bytes of its manifest.
    pub manifest_bytes: u64,
    /// The node indexed it for this call.
    pub indexed_now: bool,
    /// The place of its manifest, as the node reports it.
    pub manifest_uri: String,
    /// If it was indexed: the first files that were left out, each with the reason.
    pub left_out: Vec<String>,
    /// How many files were left out.
    pub left_out_count: u64,
    pub(crate) ticket: Ticket,
}

/// The memory of the members that answered, summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterMemory {
    /// Bytes that they may use for shards.
    pub budget_bytes: u64,
    /// Bytes of resident shards.
    pub resident_bytes: u64,
    /// Members of the ring.
    pub members: usize,
    /// Members that answered.
    pub answered: usize,
}

/// The state of a member, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberState {
    /// Its name in the ring.
    pub id: String,
    /// Its control address, `http://host:port`.
    pub control: String,
    /// Whether it counts as up.
    pub up: bool,
}

impl Cluster {
    /// A cluster with nodes at `addresses`: one or more `http://host:port`, separated by commas.
    /// Asks no node yet. The nodes need not be up, and are used once they answer.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid address.
    pub fn new(addresses: &str) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self::unknown(Control::new(), parse_addresses(addresses)?)))
    }

    /// As [`new`](Self::new), but a node must answer now.
    ///
    /// # Errors
    /// As [`new`](Self::new), `Unavailable` if no node answers, and `InvalidArgument` if the
    /// addresses name nodes of two clusters.
    pub fn connect(addresses: &str) -> Result<Arc<Self>, Error> {
        let cluster = Self::new(addresses)?;
        cluster.learn()?;
        Ok(cluster)
    }

    fn unknown(control: Control, addresses: Vec<String>) -> Self {
        let introduction = Health::default();
        introduction.fail(process::uptime());
        Self {
            control,
            addresses,
            view: ArcSwapOption::empty(),
            introduction,
            asked_at: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            outage: AtomicBool::new(false),
            host: None,
        }
    }

    /// Opens a dataset on a node. The node indexes a dataset without a manifest. All clients choose
    /// the same node while it is up, so that it is indexed once.
    ///
    /// # Errors
    /// Errors of the node, and `Unavailable` if no member answers.
    pub fn open_dataset(&self, name: &DatasetName) -> Result<OpenDataset, Error> {
        self.open_reporting(name, &Reporter::default())
    }

    /// As [`open_dataset`](Self::open_dataset), with reports of its progress.
    pub(crate) fn open_reporting(
        &self,
        name: &DatasetName,
        reporter: &Reporter<'_>,
    ) -> Result<OpenDataset, Error> {
        self.on_any(name, |member| {
            runtime::block_on(async {
                self.control.describe(&member.control).await?;
                let identity = self.identity();
                let opening = self.control.open_dataset(&member.control, name, identity);
                let reported =
                    self.control.report_opening(&member.control, name, reporter, opening);
                Box::pin(name.told_if_long(reported, reporter, || ())).await
            })?
        })
    }

    /// The manifest of an open dataset. If `local` allows it and a node is on this host, it is
    /// mapped from there, so that all processes share one copy. Otherwise it is fetched.
    ///
    /// # Errors
    /// Errors of the node, and `DataLoss` if the node sends another manifest.
    pub fn manifest(
        &self,
        name: &DatasetName,
        open: &OpenDataset,
        local: bool,
    ) -> Result<Manifest, Error> {
        let pinned = name.pinned(open.snapshot);
        self.on_any(name, |member| {
            let (node, open) = runtime::block_on(self.open_on(member, &pinned))??;
            if local && !node.socket_path.is_empty() {
                let path = node.socket_path.as_ref();
                match local::map_manifest(path, &node.node_id, open.snapshot) {
                    Ok(manifest) => return Ok(manifest),
                    Err(error) => tracing::debug!(%error, ?path, "the manifest was not mapped"),
                }
            }
            runtime::block_on(self.control.manifest(&member.control, &open))?
        })
    }

    /// Fetches a leaf of a snapshot's manifest from a node, or maps it from the node on this host.
    ///
    /// # Errors
    /// As [`manifest`](Self::manifest).
    pub(crate) fn leaf(
        &self,
        pinned: &DatasetName,
        manifest: &Manifest,
        leaf: u32,
        local: bool,
    ) -> Result<Leaf, Error> {
        self.on_any(pinned, |member| {
            let opening = async {
                time::timeout(limits::OPEN_NODE_TIMEOUT, self.open_on(member, pinned)).await
            };
            let (node, _) = runtime::block_on(opening)?.map_err(|_| {
                let what = format!("node {} opens the dataset slowly", member.control);
                Error::new(ErrorKind::Unavailable, what)
            })??;
            if local && !node.socket_path.is_empty() {
                let path = node.socket_path.as_ref();
                match local::map_leaf(path, &node.node_id, manifest, leaf) {
                    Ok(leaf) => return Ok(leaf),
                    Err(error) => tracing::debug!(%error, ?path, "the leaf was not mapped"),
                }
            }
            runtime::block_on(self.control.leaf(&member.control, manifest, leaf))?
        })
    }

    /// The memory of the cluster. Asks every member at once, and waits at most two seconds. Zero
    /// members if no node ever answered.
    pub fn memory(&self) -> ClusterMemory {
        let Ok(view) = self.learn() else {
            return ClusterMemory::default();
        };
        let asked = view.members.iter().map(|member| self.control.describe(&member.control));
        let Ok(answers) = runtime::block_on(join_all(asked)) else {
            return ClusterMemory::default();
        };
        let mut sum = ClusterMemory { members: answers.len(), ..ClusterMemory::default() };
        for node in answers.into_iter().flatten() {
            let memory = node.memory.unwrap_or_default();
            sum.answered += 1;
            sum.budget_bytes = sum.budget_bytes.saturating_add(memory.budget_bytes);
            sum.resident_bytes = sum.resident_bytes.saturating_add(memory.resident_bytes);
        }
        sum
    }

    /// The members in the order of the ring. Empty until a node has answered.
    pub fn members(&self) -> Vec<MemberState> {
        self.view().iter().flat_map(|view| &view.members).map(|member| member.state()).collect()
    }

    /// The current members, if a node ever answered.
    pub(crate) fn view(&self) -> Option<Arc<RingView>> {
        self.view.load_full()
    }

    /// Describes a member and opens a dataset on it, for a ticket to read a snapshot.
    pub(crate) async fn open_on(
        &self,
        member: &Member,
        name: &DatasetName,
    ) -> Result<(NodeDescription, OpenDataset), Error> {
        let node = self.control.describe(&member.control).await?;
        let open = self.control.open_dataset(&member.control, name, self.identity()).await?;
        Ok((node, open))
    }

    /// Calls members in turn, those that are up first, until the answer is no error that another
    /// member may mend. The order depends on the dataset only.
    fn on_any<T>(
        &self,
        name: &DatasetName,
        call: impl Fn(&Member) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let view = self.learn()?;
        let first =
            xxh3_64(name.reference.uri().to_string().as_bytes()) % view.members.len() as u64;
        let first = usize::try_from(first).expect("an index is smaller than a length");
        let mut order: Vec<_> =
            view.members[first..].iter().chain(&view.members[..first]).collect();
        order.sort_by_key(|member| !member.health.is_up());
        let mut failed = None;
        for member in order {
            match call(member) {
                // Damaged data is no fault of the node.
                Err(error) if error.kind() == ErrorKind::DataLoss => failed = Some(error),
                Err(error) if error.advice() == Advice::TryNextNode => {
                    member.health.fail(process::uptime());
                    failed = Some(error);
                }
                answer => return answer,
            }
        }
        let failed = failed.expect("a ring has members");
        match failed.kind() {
            ErrorKind::DataLoss => Err(failed),
            _ => Err(failed.context("no node of the cluster answers")),
        }
    }
}

impl Member {
    fn state(&self) -> MemberState {
        let (id, control) = (self.id.clone(), self.control.clone());
        MemberState { id, control, up: self.health.is_up() }
    }
}

impl RingView {
    /// Creates a view of a ring. Members known before keep their health and location.
    fn new(ring: Arc<Ring>, told_by: &str, known: &[Arc<Member>]) -> Self {
        let member = |member: &larder_base::Member| {
            let same = |old: &&Arc<Member>| old.id == member.id && old.control == member.control;
            known.iter().find(same).cloned().unwrap_or_else(|| {
                let (id, control) = (member.id.clone(), member.control.clone());
                let (health, proximity) = (Health::default(), HostProximity::default());
                Arc::new(Member { id, control, health, proximity })
            })
        };
        let members = ring.members().iter().map(member).collect();
        Self { ring, members, told_by: told_by.to_owned() }
    }

    /// Whether a ring is newer than this one, or is the same ring with another address for a member
    /// that is down.
    fn is_outdone_by(&self, ring: &Ring) -> bool {
        let moved = |member: &Arc<Member>| {
            let told = ring.member(&member.id);
            !member.health.is_up() && told.is_some_and(|told| told.control != member.control)
        };
        let (known, told) = (self.ring.version(), ring.version());
        let same = || self.ring.digest() == ring.digest();
        known < told || known == told && self.members.iter().any(moved) && same()
    }

    /// The control addresses to ask about this ring. The node that gave it comes first, as it
    /// surely uses it.
    fn informants(&self) -> impl Iterator<Item = &str> {
        let up = self.members.iter().filter(|member| member.health.is_up());
        let others = up.map(|member| &*member.control).filter(|&address| address != self.told_by);
        iter::once(&*self.told_by).chain(others)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("members", &self.members()).finish_non_exhaustive()
    }
}

fn parse_addresses(text: &str) -> Result<Vec<String>, Error> {
    let refused = |why: String| {
        Error::new(ErrorKind::InvalidArgument, format!("{text:?} does not name a cluster"))
            .because(why)
            .hint(
                "give --cluster or LARDER_CLUSTER the http://host:port of one node or, separated by \
                 commas, of several",
            )
    };
    let addresses: Vec<String> =
        text.split(',').map(|one| one.trim().trim_end_matches('/').to_owned()).collect();
    if addresses.len() > CLUSTER_ADDRESSES_MAX {
        let (count, max) = (addresses.len(), CLUSTER_ADDRESSES_MAX);
        return Err(refused(format!("it has {count} addresses, the limit is {max}")));
    }
    match addresses.iter().find(|address| !control::is_address(address)) {
        Some(address) => Err(refused(format!("{address:?} is not http://host:port"))),
        None => Ok(addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_addresses_are_parsed_and_malformed_ones_refused() {
        let addresses = parse_addresses("http://a:7070, http://[::1]:7070/").unwrap();
        assert_eq!(addresses, ["http://a:7070", "http://[::1]:7070"]);
        for text in ["", "a:7070", "http://a", "http://a:7070,,", "ftp://a:1", "http://a:7070/x"] {
            let error = parse_addresses(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
            assert!(error.advice_text().is_some());
        }
    }

    #[test]
    fn silent_cluster_error_names_every_address() {
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Cluster::connect(&format!("http://{unused}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(&unused.to_string()), "{error}");
    }

    #[test]
    fn a_pinned_name_is_that_of_the_snapshot() {
        let name = DatasetName {
            reference: DatasetRef::parse("s3://bucket/prefix@v3").unwrap(),
            manifest: None,
            write: WritePolicy::Auto,
        };
        let pinned = name.pinned(SnapshotId::from_bytes([0xab; 32]));
        assert_eq!(pinned.reference.to_string(), format!("s3://bucket/prefix@{}", "ab".repeat(32)));
    }
}
