//! Configuration: [`Args`] holds the typed settings, [`Config`] the validated ones. No later code
//! validates again.
//!
//! Every setting can also come from the environment (`LARDER_...`); a flag has priority.
//! Credentials never come this way: the origin reads them from the places that its own tools use.

mod cluster;
mod duration;
mod member;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use larder_base::{Member, parse_size, root_cause};
use larder_dataset::OriginUri;
use larder_membership::Timing;

pub use cluster::{ClusterArgs, ClusterConfig, RingShare};

/// The cache node: keeps dataset shards in shared memory and serves them.
#[derive(Debug, Clone, Parser)]
#[command(name = "larder-node", version, about)]
pub struct Args {
    /// Memory for shards, such as 64GiB, or a share of the memory available now, such as 50%; the
    /// default is all that the cgroup allows, or half of the machine
    #[arg(long, env = "LARDER_MEMORY", value_name = "SIZE")]
    pub memory: Option<String>,

    /// Fill only objects under this prefix (repeat for more): s3://bucket[/prefix], gs://, az://,
    /// file://
    #[arg(
        long,
        env = "LARDER_ORIGIN",
        value_name = "URI",
        required_unless_present = "private",
        value_delimiter = ','
    )]
    pub origin: Vec<String>,

    /// Address for gRPC, /metrics and /healthz; port 0 takes any
    #[arg(long, env = "LARDER_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:7070")]
    pub listen: String,

    /// Address for rows; the default is the port after --listen's
    #[arg(long, env = "LARDER_DATA_LISTEN", value_name = "HOST:PORT")]
    pub data_listen: Option<String>,

    /// The data address told to clients, when it differs from the one this node listens on
    #[arg(long, env = "LARDER_DATA_ADVERTISE", value_name = "HOST:PORT")]
    pub data_advertise: Option<String>,

    /// Allow --listen beyond loopback although callers are not authenticated
    #[arg(long, env = "LARDER_INSECURE_LISTEN_BEYOND_LOOPBACK")]
    pub insecure_listen_beyond_loopback: bool,

    /// The unix socket for clients on this host
    #[arg(long, env = "LARDER_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Let members of this group use the socket (mode 0660 in a 0750 folder)
    #[arg(long, env = "LARDER_SOCKET_GROUP", value_name = "GROUP")]
    pub socket_group: Option<String>,

    /// Serve only this user's processes: a process on the socket may add prefixes to --origin, and
    /// control calls need the ticket that the socket gives out
    #[arg(long, conflicts_with_all = ["socket_group", "member", "insecure_listen_beyond_loopback"])]
    pub private: bool,

    /// This node's name on the ring; must stay the same over restarts
    #[arg(long, env = "LARDER_NODE_ID", value_name = "NAME")]
    pub node_id: Option<String>,

    /// A member of the ring, this node among them (repeat): NAME=http://host:port[*WEIGHT]
    #[arg(long, env = "LARDER_MEMBER", value_name = "MEMBER", value_delimiter = ',')]
    pub member: Vec<String>,

    /// The node's cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// Format of the line that says "listening": text or json
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub output: String,

    /// Stop when standard input closes: for a parent that must not leave nodes behind
    #[arg(long)]
    pub exit_with_stdin: bool,

    /// Stop when no client has been connected to the socket for so long, such as 60s
    #[arg(long, value_name = "TIME")]
    pub exit_when_unused: Option<String>,

    /// A file to remove when the node ends without an error, such as its log
    #[arg(long, value_name = "PATH")]
    pub remove_when_done: Option<PathBuf>,

    /// Go on in a session of its own, with no open files but the standard three, and no parent to
    /// wait for
    #[arg(long)]
    pub detach: bool,

    /// Set by --detach for the process that it starts.
    #[arg(long, hide = true)]
    pub detached: bool,

    /// For tests: divides every duration that membership waits by.
    #[arg(long, hide = true, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub divide_timing: u32,
}

/// The requested memory for shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the memory available at the start.
    Share(u32),
}

/// The validated settings.
#[derive(Debug, Clone)]
pub struct Config {
    memory: Option<Memory>,
    origins: Vec<OriginUri>,
    listen: SocketAddr,
    data_listen: SocketAddr,
    data_advertise: Option<String>,
    beyond_loopback: bool,
    socket: SocketConfig,
    node_id: String,
    host: String,
    members: Vec<Member>,
    cluster: Option<ClusterConfig>,
    ring_share: RingShare,
    replicas: Option<u8>,
    advertise: Option<String>,
    timing: Timing,
    private: bool,
    exit_when_unused: Option<Duration>,
}

/// The unix socket and its group.
#[derive(Debug, Clone)]
pub struct SocketConfig {
    /// Its path.
    pub path: PathBuf,
    /// The group that may use it besides the owner.
    pub group: Option<String>,
}

/// A setting that can't be used: its name, the reason, and a remedy.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {why}")]
pub struct ConfigError {
    setting: &'static str,
    why: String,
}

impl ConfigError {
    fn new(setting: &'static str, why: impl Into<String>) -> Self {
        Self { setting, why: why.into() }
    }
}

impl TryFrom<Args> for Config {
    type Error = ConfigError;

    fn try_from(args: Args) -> Result<Self, ConfigError> {
        let listen = parse_address("--listen", &args.listen)?;
        let data_listen = match &args.data_listen {
            Some(text) => parse_address("--data-listen", text)?,
            None => SocketAddr::new(listen.ip(), port_after(listen.port())?),
        };
        let beyond_loopback = !(listen.ip().is_loopback() && data_listen.ip().is_loopback());
        if beyond_loopback && !args.insecure_listen_beyond_loopback {
            return Err(ConfigError::new(
                "--listen",
                format!(
                    "{listen} (data {data_listen}) is reachable from other hosts, and callers are not \
                     authenticated; listen on 127.0.0.1, or accept that with --insecure-listen-beyond-loopback"
                ),
            ));
        }
        if beyond_loopback && args.divide_timing != 1 {
            return Err(ConfigError::new(
                "--divide-timing",
                "a node with shortened waits takes a slow network for dead members, so it must listen on loopback",
            ));
        }
        let node_id = args.node_id.clone().unwrap_or_else(host_name);
        let members = member::parse_all(&args.member, &node_id, listen)?;
        Ok(Self {
            memory: args.memory.as_deref().map(parse_memory).transpose()?,
            origins: parse_origins(&args.origin)?,
            listen,
            data_listen,
            data_advertise: args.data_advertise,
            beyond_loopback,
            socket: SocketConfig {
                path: args.socket.unwrap_or_else(default_socket),
                group: args.socket_group,
            },
            node_id,
            host: host_name(),
            members,
            ring_share: cluster::ring_share(&args.cluster)?,
            replicas: args.cluster.replicas,
            advertise: args.cluster.advertise.clone(),
            cluster: cluster::parse(args.cluster)?,
            timing: Timing::REAL.divided(args.divide_timing),
            private: args.private,
            exit_when_unused: args
                .exit_when_unused
                .map(|text| duration::parse_duration("--exit-when-unused", &text))
                .transpose()?,
        })
    }
}

impl Config {
    /// Returns `--memory`, if given.
    #[must_use]
    pub fn memory(&self) -> Option<Memory> {
        self.memory
    }

    /// Returns the prefixes that may be filled from the start.
    #[must_use]
    pub fn origins(&self) -> &[OriginUri] {
        &self.origins
    }

    /// Returns the address for control.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Returns the address for rows.
    #[must_use]
    pub fn data_listen(&self) -> SocketAddr {
        self.data_listen
    }

    /// Returns the data address for clients, if it differs from the one the node listens on.
    #[must_use]
    pub fn data_advertise(&self) -> Option<&str> {
        self.data_advertise.as_deref()
    }

    /// Returns true if other hosts can connect, without authentication.
    #[must_use]
    pub fn beyond_loopback(&self) -> bool {
        self.beyond_loopback
    }

    /// The durations that membership waits by.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// The unix socket.
    #[must_use]
    pub fn socket(&self) -> &SocketConfig {
        &self.socket
    }

    /// Returns this node's name on the ring.
    #[must_use]
    pub fn node_id(&self) -> &str {
        &self.node_id
    }

    /// Returns the name of this host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the node's cluster, if its membership can change.
    #[must_use]
    pub fn cluster(&self) -> Option<&ClusterConfig> {
        self.cluster.as_ref()
    }

    /// Returns the node's share of that cluster's ring.
    #[must_use]
    pub fn ring_share(&self) -> &RingShare {
        &self.ring_share
    }

    /// Returns how many members own a shard, if given.
    #[must_use]
    pub fn replicas(&self) -> Option<u8> {
        self.replicas
    }

    /// Returns the host by which other nodes and clients reach this one, if given.
    #[must_use]
    pub fn advertise(&self) -> Option<&str> {
        self.advertise.as_deref()
    }

    /// Returns true for a node that serves only its owner's processes.
    #[must_use]
    pub fn private(&self) -> bool {
        self.private
    }

    /// Returns how long the socket must be without clients before the node stops.
    #[must_use]
    pub fn exit_when_unused(&self) -> Option<Duration> {
        self.exit_when_unused
    }

    /// Returns the ring's members as typed. Empty for a ring of this node alone: its port is known
    /// only once it listens.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }
}

fn parse_address(setting: &'static str, text: &str) -> Result<SocketAddr, ConfigError> {
    use std::net::ToSocketAddrs;
    let wrong = |why: String| ConfigError::new(setting, why);
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none() {
        return Err(wrong(format!(
            "{text:?} is not HOST:PORT with a port of at most 65535; write it like 127.0.0.1:7070"
        )));
    }
    let found = text.to_socket_addrs();
    let mut found = found.map_err(|why| {
        let why = root_cause(&why);
        wrong(format!("{text:?}: the host has no address ({why}); write an IP address instead"))
    })?;
    found.next().ok_or_else(|| wrong(format!("{text:?}: the host has no address")))
}

/// Returns the port after another one, and 0 ("any") after 0.
fn port_after(port: u16) -> Result<u16, ConfigError> {
    if port == 0 {
        return Ok(0);
    }
    let last = || ConfigError::new("--listen", "port 65535 has none after it: set --data-listen");
    port.checked_add(1).ok_or_else(last)
}

fn parse_memory(text: &str) -> Result<Memory, ConfigError> {
    let Some(percent) = text.trim().strip_suffix('%') else {
        let size = parse_size(text).map(Memory::Bytes);
        return size.map_err(|why| ConfigError::new("--memory", why.to_string()));
    };
    let share = percent.parse().ok().filter(|share| (1..=100).contains(share));
    share
        .map(Memory::Share)
        .ok_or_else(|| ConfigError::new("--memory", format!("{text:?} is no share such as 50%")))
}

fn parse_origins(typed: &[String]) -> Result<Vec<OriginUri>, ConfigError> {
    typed
        .iter()
        .map(|text| OriginUri::parse(text).map_err(|e| ConfigError::new("--origin", e.to_string())))
        .collect()
}

fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| "node".to_owned())
}

fn default_socket() -> PathBuf {
    let run =
        std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| PathBuf::from("/run"), PathBuf::from);
    run.join("larder/larder.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(typed: &[&str]) -> Result<Config, ConfigError> {
        let args = ["larder-node", "--origin", "s3://bucket/data"].iter().chain(typed);
        Config::try_from(Args::try_parse_from(args).expect("clap takes it"))
    }

    #[test]
    fn the_data_port_follows_the_control_port() {
        let config = config(&["--listen", "127.0.0.1:9000"]).expect("valid");
        assert_eq!(config.data_listen().port(), 9001);
        assert_eq!(port_after(0).expect("any"), 0);
        assert!(port_after(u16::MAX).is_err());
    }

    #[test]
    fn listening_beyond_loopback_needs_an_explicit_flag() {
        let refused = config(&["--listen", "0.0.0.0:7070"]).expect_err("refused");
        assert!(refused.to_string().contains("--insecure-listen-beyond-loopback"), "{refused}");
        assert!(config(&["--data-listen", "0.0.0.0:7071"]).is_err());
        let config = config(&["--listen", "0.0.0.0:7070", "--insecure-listen-beyond-loopback"]);
        assert!(config.expect("accepted").beyond_loopback());
    }

    #[test]
    fn shortened_waits_are_refused_beyond_loopback() {
        let shortened = ["--divide-timing", "5"];
        let timing = config(&shortened).expect("accepted").timing();
        assert_eq!(timing.death_grace, Timing::REAL.death_grace / 5);
        let beyond = ["--listen", "0.0.0.0:7070", "--insecure-listen-beyond-loopback"];
        let refused = config(&[&shortened[..], &beyond].concat()).expect_err("refused");
        assert!(refused.to_string().contains("must listen on loopback"), "{refused}");
    }

    #[test]
    fn invalid_address_is_refused_with_an_example() {
        for text in ["localhost", "127.0.0.1:99999", "127.0.0.1:", ""] {
            let refused = config(&["--listen", text]).expect_err(text).to_string();
            assert!(refused.contains("127.0.0.1:7070"), "{refused}");
        }
    }

    #[test]
    fn memory_is_a_size_or_a_share() {
        let memory = |text| config(&["--memory", text]).map(|config| config.memory());
        assert_eq!(memory("8GiB").expect("a size"), Some(Memory::Bytes(8 << 30)));
        assert_eq!(memory("50%").expect("a share"), Some(Memory::Share(50)));
        for text in ["0%", "101%", "%", "half"] {
            assert!(memory(text).expect_err(text).to_string().starts_with("--memory"));
        }
    }

    #[test]
    fn private_node_needs_no_prefix_and_excludes_other_users() {
        let typed = |more: &[&'static str]| {
            let typed: Vec<&str> =
                ["larder-node", "--private"].iter().chain(more).copied().collect();
            Args::try_parse_from(typed)
        };
        let config = Config::try_from(typed(&[]).expect("clap takes it")).expect("valid");
        assert!(config.private() && config.origins().is_empty());
        assert!(typed(&["--socket-group", "staff"]).is_err());
        assert!(typed(&["--insecure-listen-beyond-loopback"]).is_err());
        assert!(Args::try_parse_from(["larder-node"]).is_err(), "others need a prefix");
    }

    #[test]
    fn a_ring_without_this_node_is_refused() {
        let typed = ["--node-id", "c", "--member", "a=http://h:1", "--member", "b=http://h:2*3"];
        assert!(config(&typed).expect_err("refused").to_string().contains("--node-id"));
    }
}
