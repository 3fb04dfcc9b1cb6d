//! The nodes of a cluster as this process sees them: the ring, who is up, and the control calls.
//!
//! Any node tells the ring; after that every member is known by its control address. As long as
//! none of the addresses answers there is no ring and no member: they are asked again in the
//! background, ever more rarely. A member that failed a read is marked down and passed over; once
//! its time has come the next use of it sends a probe in the background, and a member that answers
//! is up again. Nobody ever waits for a probe. Each dataset goes over to a newer ring when it knows
//! the exceptions to it ([`OwnerDirectory`]).
//!
//! Thread rule: shared freely. Control calls block the caller, on the runtime of `runtime`; what
//! the data path asks here (guides, health) takes no lock and waits for nothing. A forked child
//! makes its own channels. Non-goals: no rows (see `remote` and `local`), no membership of its own.

mod control;
mod health;
mod inspect;
mod of_host;
mod operate;
mod owners;
mod proximity;
mod refresh;

use std::{
    fmt, iter,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use larder_base::{Advice, ErrorKind, Ring, SnapshotId, Ticket, limits};
use larder_dataset::{DatasetRef, Manifest, OriginUri};
use larder_wire::control::NodeDescription;
use tokio::time;

use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, local, process, runtime};
use control::Control;
pub(crate) use health::Health;
pub use inspect::{Answer, ShardCounts};
use of_host::OfHost;
pub use operate::{Operator, PlannedChange, Seen};
pub(crate) use owners::{Directory, OwnerDirectory};
use proximity::HostProximity;

/// The nodes of a cluster.
pub struct Cluster {
    control: Control,
    /// As the user gave them.
    addresses: Vec<String>,
    /// Absent before one of the addresses answered.
    view: ArcSwapOption<View>,
    /// Of the addresses together, until one answers.
    introduction: Health,
    /// When the ring was last asked for, in milliseconds of [`process::uptime`].
    asked_at: AtomicU64,
    /// The greatest version of a ring that a node has told of.
    heard: AtomicU64,
    /// Whether rows come from the origin because no node gives them.
    outage: AtomicBool,
    /// Present if this is the node of the host.
    host: Option<OfHost>,
}

/// The members of one ring.
pub(crate) struct View {
    pub(crate) ring: Arc<Ring>,
    /// In the order of the ring's members.
    pub(crate) members: Box<[Arc<Member>]>,
    /// The control address of the node that told it.
    told_by: String,
}

/// A node as the ring knows it, with what was seen of it.
pub(crate) struct Member {
    pub(crate) id: String,
    /// `http://host:port`.
    pub(crate) control: String,
    pub(crate) health: Health,
    pub(crate) proximity: HostProximity,
}

/// Under which name nodes know a dataset: what they are asked to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetName {
    /// Prefix and tag.
    pub reference: DatasetRef,
    /// Where the manifest lies when it is not beside the data.
    pub manifest: Option<OriginUri>,
}

impl DatasetName {
    /// The end of its opening. One that takes long is warned of: nobody sees what is done.
    pub(crate) async fn told_if_long<T>(&self, opening: impl Future<Output = T>) -> T {
        let mut opening = pin!(opening);
        let soon = time::timeout(limits::OPENING_TOLD_AFTER, opening.as_mut()).await;
        match soon {
            Ok(opened) => opened,
            Err(_) => {
                let uri = self.reference.uri();
                tracing::warn!(
                    "{uri} is still being opened: one that nobody has indexed yet is indexed first, which reads \
                     the header of every object; to see how far that is, index it beforehand"
                );
                opening.await
            }
        }
    }

    /// The same dataset, pinned to one snapshot: a tag may be moved while a job runs.
    pub(crate) fn pinned(&self, snapshot: SnapshotId) -> Self {
        let reference = DatasetRef::parse(&format!("{}@{snapshot}", self.reference.uri()));
        let reference = reference.expect("32 hex digits are a tag");
        Self { reference, manifest: self.manifest.clone() }
    }
}

/// What a node said when it opened a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDataset {
    /// What the tag names now.
    pub snapshot: SnapshotId,
    /// Samples of the snapshot.
    pub samples: u64,
    /// Its shards.
    pub shards: u32,
    /// Bytes of all its tensors.
    pub bytes: u64,
    /// Length of its manifest.
    pub manifest_bytes: u64,
    /// Whether nobody had indexed it before.
    pub indexed_now: bool,
    /// Where its manifest lies, as the node says.
    pub manifest_uri: String,
    /// If it was indexed: the first of what was left out, each with the reason.
    pub left_out: Vec<String>,
    /// How much was left out.
    pub left_out_count: u64,
    pub(crate) ticket: Ticket,
}

/// Memory of the members that answered, summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterMemory {
    /// What they may use for shards.
    pub budget_bytes: u64,
    /// What is resident.
    pub resident_bytes: u64,
    /// Members of the ring.
    pub members: usize,
    /// Members that answered.
    pub answered: usize,
}

/// One member, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberState {
    /// Its name in the ring.
    pub id: String,
    /// Its control address, `http://host:port`.
    pub control: String,
    /// Whether it is taken to be up.
    pub up: bool,
}

impl Cluster {
    /// The cluster that has nodes at `addresses`: `http://host:port`, several separated by commas,
    /// any nodes of it. None is asked yet, and none needs to be up: they are used from when they
    /// answer.
    ///
    /// # Errors
    /// `InvalidArgument` for what is not an address.
    pub fn new(addresses: &str) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self::unknown(Control::new(), parse_addresses(addresses)?)))
    }

    /// The same, which has to answer now.
    ///
    /// # Errors
    /// As [`new`](Self::new); `Unavailable` when no node answers.
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

    /// Opens a dataset on a node, which indexes it first when nobody has: on the same node for all
    /// clients while that is up, so that it is indexed once.
    ///
    /// # Errors
    /// The node's; `Unavailable` when no member answers.
    pub fn open_dataset(&self, name: &DatasetName) -> Result<OpenDataset, Error> {
        self.on_any(name, |member| {
            runtime::block_on(async {
                self.control.describe(&member.control).await?;
                name.told_if_long(self.control.open_dataset(&member.control, name)).await
            })?
        })
    }

    /// The manifest of a dataset that was opened: mapped from a node on this host if `local` allows
    /// and one is there, so that all processes share one copy; else fetched.
    ///
    /// # Errors
    /// The node's; `DataLoss` when what came is not that manifest.
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

    /// The memory of the cluster: every member is asked at once, and none is waited for longer than
    /// two seconds. Without members if none is known, as no node ever answered.
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

    /// The members in the order of the ring; none before a node answered.
    pub fn members(&self) -> Vec<MemberState> {
        self.view().iter().flat_map(|view| &view.members).map(|member| member.state()).collect()
    }

    /// The members now, if any node ever said who they are.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.view.load_full()
    }

    /// Where a member's data plane and socket are, and the right to read a snapshot from it.
    pub(crate) async fn open_on(
        &self,
        member: &Member,
        name: &DatasetName,
    ) -> Result<(NodeDescription, OpenDataset), Error> {
        let node = self.control.describe(&member.control).await?;
        let open = self.control.open_dataset(&member.control, name).await?;
        Ok((node, open))
    }

    /// Calls members in an order that depends on the dataset only, those that are up first, until
    /// one does not fail in a way that the next may mend.
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
                Err(error) if error.advice() == Advice::TryNextNode => {
                    member.health.fail(process::uptime());
                    failed = Some(error);
                }
                answer => return answer,
            }
        }
        Err(failed.expect("a ring has members").context("no node of the cluster answers"))
    }
}

impl Member {
    fn state(&self) -> MemberState {
        let (id, control) = (self.id.clone(), self.control.clone());
        MemberState { id, control, up: self.health.is_up() }
    }
}

impl View {
    /// The members of a ring that a node told; those that were known before keep what was seen of
    /// them.
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

    /// Whether a ring is newer than this one; or is the same, and has another address for a member
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

    /// The control addresses of those to ask about this ring: who told it surely goes by it.
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
            .hint("give http://host:port of one node or, separated by commas, of several")
    };
    let addresses: Vec<String> =
        text.split(',').map(|one| one.trim().trim_end_matches('/').to_owned()).collect();
    if addresses.len() > limits::CLUSTER_ADDRESSES_MAX {
        let (count, max) = (addresses.len(), limits::CLUSTER_ADDRESSES_MAX);
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
        };
        let pinned = name.pinned(SnapshotId::from_bytes([0xab; 16]));
        assert_eq!(pinned.reference.to_string(), format!("s3://bucket/prefix@{}", "ab".repeat(16)));
    }
}
