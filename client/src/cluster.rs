//! SIGNATURES FIRST: bodies follow.

/// The nodes of a cluster as this process sees them.
pub struct Cluster {}

impl Cluster {
    /// `addresses`: `http://host:port[,http://host:port]`, any nodes of the cluster.
    pub fn connect(addresses: &str) -> Result<Arc<Self>, Error>;
    /// Opens a dataset on the first node that answers (the node indexes it when need be).
    pub fn open_dataset(&self, name: &DatasetName) -> Result<OpenDataset, Error>;
    /// The manifest of an open snapshot, mapped from a node on this host where `local` allows and one is
    /// there, else fetched.
    pub fn manifest(&self, snapshot: SnapshotId, local: bool) -> Result<Manifest, Error>;
    /// Memory of all members that answer (Describe on each, in parallel).
    pub fn memory(&self) -> ClusterMemory;
    /// Ring order: id, control address, whether it is taken to be up.
    pub fn members(&self) -> Vec<MemberState>;
}

/// What a node said when it opened a dataset.
pub struct OpenDataset { pub snapshot: SnapshotId, pub samples: u64, pub shards: u32, pub bytes: u64, pub manifest_bytes: u64, pub indexed_now: bool }
/// Sum over the members that answered.
pub struct ClusterMemory { pub budget_bytes: u64, pub resident_bytes: u64, pub members: usize, pub answered: usize }
/// One member.
pub struct MemberState { pub id: String, pub control: String, pub up: bool }
