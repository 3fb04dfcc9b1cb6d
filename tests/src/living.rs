//! Clusters with changing membership: real nodes that agree through one of them, or through a real
//! etcd.

use std::collections::BTreeMap;
use std::path::Path;

use larder_base::Ring;
use larder_membership::Timing;
use larder_wire::control::{
    GetRingRequest, ListShardsRequest, ShardState, ShardStatus, node_client::NodeClient,
};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

use crate::etcd::Etcd;
use crate::netns::Network;
use crate::ports::free_ports;
use crate::{NodeOptions, NodeProcess, is_left_to_full, repeats, until};

/// What all nodes of a cluster under test share.
pub const TOKEN: &str = "a secret of this test";

/// Tests on loopback divide the durations of membership by this; at full scale in `make test-full`.
const TIMING_DIVISOR: usize = 5;

/// The durations of membership in clusters on loopback.
#[must_use]
pub fn timing() -> Timing {
    Timing::REAL.divided(timing_divisor())
}

fn timing_divisor() -> u32 {
    u32::try_from(repeats(TIMING_DIVISOR, 1)).expect("small")
}

/// The keeper of the cluster's record.
pub enum Keeper {
    /// The first node.
    FirstNode,
    /// A real etcd.
    Etcd(Etcd),
}

impl Keeper {
    /// A real etcd in `make test-full`; elsewhere none, with a message. Other tests cover etcd
    /// there: its contract suite, and one scenario of real nodes.
    #[must_use]
    pub fn etcd_in_full() -> Option<Self> {
        (!is_left_to_full("this scenario on etcd")).then(|| Self::Etcd(Etcd::start()))
    }
}

/// The places of shards.
#[derive(Debug, Default)]
pub struct ShardCopies {
    /// How many shards each node has.
    pub by_node: Vec<usize>,
    /// How many of its shards each node owns, by its own ring.
    pub owned_by_node: Vec<usize>,
    /// On how many nodes each shard is.
    pub by_shard: BTreeMap<Vec<u8>, usize>,
    /// How many of these nodes own each shard that they hold, by their own ring.
    pub by_owner: BTreeMap<Vec<u8>, usize>,
}

/// A cluster of nodes `a`, `b`, ... on loopback over one origin.
pub struct LivingCluster {
    /// The keeper of its record.
    pub keeper: Keeper,
    /// How each node was started; to start it again.
    pub options: Vec<NodeOptions>,
    /// The processes, in the same order.
    pub nodes: Vec<NodeProcess>,
    /// The network they are in, if it is one of the test's own.
    pub network: Option<Network>,
    origin: String,
    env: Vec<(String, String)>,
    memory: String,
    /// The nodes divide the durations of membership by this.
    timing_divisor: u32,
    home: TempDir,
}

impl LivingCluster {
    /// Starts `count` nodes one after the other and waits until all are in the ring.
    #[must_use]
    pub fn start(keeper: Keeper, count: usize, origin: &str, env: &[(String, String)]) -> Self {
        Self::start_in(None, keeper, count, origin, env)
    }

    /// The same with each node on a host of its own.
    #[must_use]
    pub fn start_in(
        network: Option<Network>,
        keeper: Keeper,
        count: usize,
        origin: &str,
        env: &[(String, String)],
    ) -> Self {
        Self::assemble(network, keeper, timing_divisor(), (origin, env, "256MiB")).of(count)
    }

    /// The same on loopback, with nodes of this much memory.
    #[must_use]
    pub fn start_with_memory(
        keeper: Keeper,
        count: usize,
        origin: &str,
        env: &[(String, String)],
        memory: &str,
    ) -> Self {
        Self::assemble(None, keeper, timing_divisor(), (origin, env, memory)).of(count)
    }

    /// The same with the durations of membership that users have.
    #[must_use]
    pub fn start_unhurried(
        keeper: Keeper,
        count: usize,
        origin: &str,
        env: &[(String, String)],
        memory: &str,
    ) -> Self {
        Self::assemble(None, keeper, 1, (origin, env, memory)).of(count)
    }

    /// No nodes yet.
    fn assemble(
        network: Option<Network>,
        keeper: Keeper,
        timing_divisor: u32,
        (origin, env, memory): (&str, &[(String, String)], &str),
    ) -> Self {
        Self {
            network,
            keeper,
            timing_divisor,
            options: Vec::new(),
            nodes: Vec::new(),
            origin: origin.to_owned(),
            env: env.to_vec(),
            memory: memory.to_owned(),
            home: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    /// With this many nodes, all in the ring.
    fn of(mut self, count: usize) -> Self {
        (0..count).for_each(|_| self.add());
        self.until_ring(&(0..count).collect::<Vec<_>>());
        self
    }

    /// Starts one more node, which wants to join.
    pub fn add(&mut self) {
        let name = char::from(b'a' + u8::try_from(self.nodes.len()).expect("few nodes"));
        let mut options = NodeOptions::new(&name.to_string(), &self.origin);
        options.port = free_ports(1)[0];
        if let Some(network) = &mut self.network {
            (options.host, options.wrapper) = network.add_host();
        }
        options.memory.clone_from(&self.memory);
        options.env.clone_from(&self.env);
        options.env.push(("LARDER_TOKEN".to_owned(), TOKEN.to_owned()));
        options.args = self.takes_part(self.home.path(), &options.node_id);
        if self.network.is_none() {
            let divisor = self.timing_divisor.to_string();
            options.args.extend(["--divide-timing".to_owned(), divisor]);
        }
        self.nodes.push(NodeProcess::start(&options));
        self.options.push(options);
    }

    fn takes_part(&self, home: &Path, name: &str) -> Vec<String> {
        match &self.keeper {
            Keeper::Etcd(etcd) => vec!["--etcd".to_owned(), etcd.endpoint()],
            Keeper::FirstNode => {
                let state = ["--state".to_owned(), home.join(name).display().to_string()];
                let first = self.nodes.first().map(NodeProcess::address);
                let join = first.map(|it| it.trim_start_matches("http://").to_owned());
                state
                    .into_iter()
                    .chain(join.into_iter().flat_map(|to| ["--join".to_owned(), to]))
                    .collect()
            }
        }
    }

    /// Starts node `index` again after it ended, at the same address.
    pub fn restart(&mut self, index: usize) {
        self.nodes[index] = NodeProcess::start(&self.options[index]);
    }

    /// All control addresses, for `--cluster`.
    #[must_use]
    pub fn address(&self) -> String {
        self.nodes.iter().map(NodeProcess::address).collect::<Vec<_>>().join(",")
    }

    /// Waits until these nodes all go by one ring of just them. Returns its version.
    pub fn until_ring(&self, members: &[usize]) -> u64 {
        let names: Vec<&str> = members.iter().map(|&n| self.options[n].node_id.as_str()).collect();
        self.until_ring_of(members, &names)
    }

    /// Waits until these nodes all go by one ring of the members with these names. Returns its
    /// version.
    pub fn until_ring_of(&self, nodes: &[usize], names: &[&str]) -> u64 {
        let mut version = 0;
        until(&format!("{names:?} are the ring"), || {
            let mut rings = nodes.iter().map(|&node| ring(&self.nodes[node]));
            let Some(first) = rings.next().flatten() else { return false };
            version = first.version();
            let alike = |ring: Option<Ring>| ring.is_some_and(|ring| ring.version() == version);
            first.members().iter().map(|member| member.id.as_str()).eq(names.iter().copied())
                && rings.all(alike)
        });
        version
    }

    /// Waits until each of so many shards is resident on its owner, one of these nodes. A node that
    /// stood in for a slow owner may keep a copy while memory is free. Returns how many each owns.
    pub fn until_owners_hold(&self, members: &[usize], shards: usize) -> Vec<usize> {
        let mut counts = Vec::new();
        until(&format!("each of {shards} shards is held by its owner"), || {
            let copies = self.copies(members);
            counts = copies.owned_by_node;
            let owned = copies.by_owner;
            owned.len() == shards && owned.values().all(|&count| count == 1)
        });
        counts
    }

    /// How many shards each of these nodes has, and on how many of them each shard is resident.
    #[must_use]
    pub fn copies(&self, members: &[usize]) -> ShardCopies {
        let mut copies = ShardCopies::default();
        for &node in members {
            let held = resident(&self.nodes[node]);
            copies.by_node.push(held.len());
            copies.owned_by_node.push(held.iter().filter(|shard| !shard.is_extra).count());
            for HeldShard { id, is_extra } in held {
                if !is_extra {
                    *copies.by_owner.entry(id.clone()).or_default() += 1;
                }
                *copies.by_shard.entry(id).or_default() += 1;
            }
        }
        copies
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

async fn connect(node: &NodeProcess) -> Option<NodeClient<Channel>> {
    let channel = Endpoint::new(node.address()).expect("an address").connect().await;
    channel.ok().map(NodeClient::new)
}

/// The ring that a node goes by; none when it does not answer.
#[must_use]
pub fn ring(node: &NodeProcess) -> Option<Ring> {
    block_on(async {
        let answer = connect(node).await?.get_ring(GetRingRequest {}).await.ok()?;
        Ring::try_from(answer.into_inner()).ok()
    })
}

/// A shard that a node holds.
#[derive(Debug)]
pub struct HeldShard {
    /// Its id.
    pub id: Vec<u8>,
    /// Whether the node is none of its owners.
    pub is_extra: bool,
}

/// The shards that a node holds.
///
/// # Panics
/// When it does not answer.
#[must_use]
pub fn resident(node: &NodeProcess) -> Vec<HeldShard> {
    let request = ListShardsRequest {
        state: ShardState::Resident.into(),
        page_size: 4096,
        ..Default::default()
    };
    block_on(async {
        let mut client = connect(node).await.expect("the node listens");
        let answer = client.list_shards(request).await.expect("the node answers").into_inner();
        let held =
            |shard: ShardStatus| HeldShard { id: shard.shard_id.to_vec(), is_extra: shard.extra };
        answer.shards.into_iter().map(held).collect()
    })
}
