//! Configuration: [`Args`] holds the typed settings, [`Config`] the validated ones. No later code
//! validates again.
//!
//! Every setting can also come from the environment (`LARDER_...`); a flag has priority.
//! Credentials never come this way: the origin reads them from the places that its own tools use.

mod cluster;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use larder_base::{Member, parse_size, root_cause};
use larder_dataset::{OriginUri, WritePolicy};
use larder_membership::Timing;

pub use cluster::{ClusterArgs, ClusterConfig};

/// The cache node: keeps dataset shards in shared memory and serves them.
#[derive(Debug, Clone, Parser)]
#[command(name = "larder-node", version, about)]
pub struct Args {
    /// Memory for shards, such as 64GiB, or a share of the memory available now, such as 50%; the
    /// default is all that the cgroup allows, or half of the machine
    #[arg(long, env = "LARDER_MEMORY", value_name = "SIZE", value_parser = parse_memory)]
    pub memory: Option<MemorySetting>,

    /// Fill only objects under this prefix (repeat for more): s3://bucket[/prefix], gs://, az://,
    /// file://
    #[arg(
        long,
        env = "LARDER_ORIGIN",
        value_name = "URI",
        required_unless_present = "private",
        value_delimiter = ',',
        value_parser = OriginUri::parse
    )]
    pub origin: Vec<OriginUri>,

    /// Address for gRPC, /metrics and /healthz; port 0 takes any
    #[arg(long, env = "LARDER_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:7070", value_parser = parse_address)]
    pub listen: SocketAddr,

    /// Address for rows; the default is the port after --listen's
    #[arg(long, env = "LARDER_DATA_LISTEN", value_name = "HOST:PORT", value_parser = parse_address)]
    pub data_listen: Option<SocketAddr>,

    /// The data address told to clients, when it differs from the one this node listens on
    #[arg(long, env = "LARDER_DATA_ADVERTISE", value_name = "HOST:PORT")]
    pub data_advertise: Option<String>,

    /// Allow --listen beyond loopback although callers are not authenticated
    #[arg(long, env = "LARDER_INSECURE_LISTEN_BEYOND_LOOPBACK")]
    pub insecure_listen_beyond_loopback: bool,

    /// The unix socket for clients on this host
    #[arg(long, env = "LARDER_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Let members of this group use the socket (mode 0660 in a 0750 folder) and call over loopback
    #[arg(long, env = "LARDER_SOCKET_GROUP", value_name = "GROUP")]
    pub socket_group: Option<String>,

    /// Answer every user of this host over loopback, not only its own user and --socket-group
    #[arg(long, env = "LARDER_ANY_LOCAL_USER")]
    pub any_local_user: bool,

    /// Serve only this user's processes: a process on the socket may add prefixes to --origin, and
    /// control calls need the ticket that the socket gives out
    #[arg(long, conflicts_with_all = ["socket_group", "any_local_user", "member", "insecure_listen_beyond_loopback"])]
    pub private: bool,

    /// This node's name on the ring; must stay the same over restarts
    #[arg(long, env = "LARDER_NODE_ID", value_name = "NAME")]
    pub node_id: Option<String>,

    /// A member of the ring, this node among them (repeat): NAME=http://host:port[*WEIGHT]
    #[arg(long, env = "LARDER_MEMBER", value_name = "MEMBER", value_delimiter = ',', value_parser = cluster::member)]
    pub member: Vec<Member>,

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
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub exit_when_unused: Option<Duration>,

    /// A folder to remove when the node ends without an error, if it is empty, such as that of its
    /// socket
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
pub enum MemorySetting {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the memory available at the start.
    Share(u32),
}

/// The validated settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node's name on the ring.
    pub node_id: String,
    /// Other hosts can connect, without authentication.
    pub beyond_loopback: bool,
    /// The memory for shards, if given.
    pub(crate) memory: Option<MemorySetting>,
    /// The prefixes that may be filled from the start.
    pub(crate) origins: Vec<OriginUri>,
    /// The address for control.
    pub(crate) listen: SocketAddr,
    /// The address for rows.
    pub(crate) data_listen: SocketAddr,
    /// The data address for clients, if it differs from the one the node listens on.
    pub(crate) data_advertise: Option<String>,
    pub(crate) socket: SocketConfig,
    /// Every user of this host may call over loopback.
    pub(crate) any_local_user: bool,
    /// The name of this host.
    pub(crate) host: String,
    /// The ring's members as typed. Empty for a ring of this node alone: its port is known only
    /// once it listens.
    pub(crate) members: Vec<Member>,
    /// The node's cluster, if its membership can change.
    pub(crate) cluster: Option<ClusterConfig>,
    /// The node's share of the ring relative to the others; `None` sets it by its memory.
    pub(crate) weight: Option<u32>,
    /// The domain that fails together with the node beyond its host; empty if unknown.
    pub(crate) zone: String,
    /// How many members own a shard, if given.
    pub(crate) replicas: Option<u8>,
    /// The host by which other nodes and clients reach this one, if given.
    pub(crate) advertise: Option<String>,
    /// The durations that membership waits by.
    pub(crate) timing: Timing,
    /// The node serves only its owner's processes.
    pub(crate) private: bool,
    /// How long the socket must be without clients before the node stops.
    pub(crate) exit_when_unused: Option<Duration>,
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
        let listen = args.listen;
        let data_listen = match args.data_listen {
            Some(address) => address,
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
        WritePolicy::of_process().map_err(|why| ConfigError::new(WritePolicy::VARIABLE, why))?;
        let node_id = args.node_id.clone().unwrap_or_else(host_name);
        cluster::check_ring_share(&args.cluster)?;
        cluster::check_member(&args, &node_id)?;
        cluster::check_members(&args.member, &node_id, listen)?;
        Ok(Self {
            memory: args.memory,
            origins: args.origin,
            listen,
            data_listen,
            data_advertise: args.data_advertise,
            beyond_loopback,
            socket: SocketConfig {
                path: args.socket.unwrap_or_else(default_socket),
                group: args.socket_group,
            },
            any_local_user: args.any_local_user,
            node_id,
            host: host_name(),
            members: args.member,
            weight: args.cluster.weight,
            zone: args.cluster.zone.clone(),
            replicas: args.cluster.replicas,
            advertise: args.cluster.advertise.clone(),
            cluster: cluster::parse(args.cluster)?,
            timing: Timing::REAL.divided(args.divide_timing),
            private: args.private,
            exit_when_unused: args.exit_when_unused,
        })
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none() {
        return Err(
            "not HOST:PORT with a port of at most 65535; write it like 127.0.0.1:7070".to_owned()
        );
    }
    let found = text.to_socket_addrs().map_err(|why| {
        let why = root_cause(&why);
        format!("the host has no address ({why}); write an IP address instead")
    });
    found?.next().ok_or_else(|| "the host has no address".to_owned())
}

/// Returns the port after another one, and 0 ("any") after 0.
fn port_after(port: u16) -> Result<u16, ConfigError> {
    if port == 0 {
        return Ok(0);
    }
    let last = || ConfigError::new("--listen", "port 65535 has none after it: set --data-listen");
    port.checked_add(1).ok_or_else(last)
}

fn parse_memory(text: &str) -> Result<MemorySetting, String> {
    let Some(percent) = text.trim().strip_suffix('%') else {
        return parse_size(text).map(MemorySetting::Bytes).map_err(|why| why.to_string());
    };
    let share = percent.parse().ok().filter(|share| (1..=100).contains(share));
    share.map(MemorySetting::Share).ok_or_else(|| "no share such as 50%".to_owned())
}

fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| "node".to_owned())
}

fn default_socket() -> PathBuf {
    let run = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let run = run.map_or_else(|| PathBuf::from("/run"), PathBuf::from);
    run.join(larder_wire::data::DEFAULT_SOCKET)
}

/// Parses `60s`, `500ms`, `10m` or `2h`: whole numbers with a required unit.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    let time = milliseconds.zip(number).and_then(|(unit, number)| number.checked_mul(unit));
    time.map(Duration::from_millis)
        .ok_or_else(|| "not a time such as 500ms, 60s, 10m or 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn config(typed: &[&str]) -> Result<Config, String> {
        let args = ["larder-node", "--origin", "s3://bucket/data"].iter().chain(typed);
        let args = Args::try_parse_from(args).map_err(|why| why.to_string())?;
        Config::try_from(args).map_err(|why| why.to_string())
    }

    #[test]
    fn the_data_port_follows_the_control_port() {
        let config = config(&["--listen", "127.0.0.1:9000"]).expect("valid");
        assert_eq!(config.data_listen.port(), 9001);
        assert_eq!(port_after(0).expect("any"), 0);
        assert!(port_after(u16::MAX).is_err());
    }

    #[test]
    fn listening_beyond_loopback_needs_an_explicit_flag() {
        let refused = config(&["--listen", "0.0.0.0:7070"]).expect_err("refused");
        assert!(refused.to_string().contains("--insecure-listen-beyond-loopback"), "{refused}");
        assert!(config(&["--data-listen", "0.0.0.0:7071"]).is_err());
        let config = config(&["--listen", "0.0.0.0:7070", "--insecure-listen-beyond-loopback"]);
        assert!(config.expect("accepted").beyond_loopback);
    }

    #[test]
    fn shortened_waits_are_refused_beyond_loopback() {
        let shortened = ["--divide-timing", "5"];
        let timing = config(&shortened).expect("accepted").timing;
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
        let memory = |text| config(&["--memory", text]).map(|config| config.memory);
        assert_eq!(memory("8GiB").expect("a size"), Some(MemorySetting::Bytes(8 << 30)));
        assert_eq!(memory("50%").expect("a share"), Some(MemorySetting::Share(50)));
        for text in ["0%", "101%", "%", "half"] {
            assert!(memory(text).expect_err(text).contains("--memory"));
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
        assert!(config.private && config.origins.is_empty());
        assert!(typed(&["--socket-group", "staff"]).is_err());
        assert!(typed(&["--insecure-listen-beyond-loopback"]).is_err());
        assert!(Args::try_parse_from(["larder-node"]).is_err(), "others need a prefix");
    }

    #[test]
    fn a_ring_without_this_node_is_refused() {
        let typed = ["--node-id", "c", "--member", "a=http://h:1", "--member", "b=http://h:2*3"];
        assert!(config(&typed).expect_err("refused").to_string().contains("--node-id"));
    }

    #[test]
    fn odd_value_of_an_option_is_taken_or_refused_by_its_name() {
        const ODD: [&str; 22] = include!("../../tests/src/odd_values.in");
        let long = "x".repeat(100_000);
        let token = ["--token", "0123456789abcdef"];
        let in_cluster = [&["--state", "/no/such/folder"], &token[..]].concat();
        for argument in Args::command().get_arguments() {
            let Some(name) = argument.get_long() else { continue };
            let others = match name {
                "state" => &token[..],
                "token" | "token-file" => &in_cluster[..2],
                "member" | "private" | "listen" | "data-listen" => &[],
                name if name.starts_with("etcd") => &["--etcd", "http://127.0.0.1:1"],
                _ => &in_cluster,
            };
            for value in ODD.iter().chain([&long.as_str()]) {
                let typed = format!("--{name}={value}");
                if let Err(why) = config(&[others, &[&typed]].concat()) {
                    assert!(why.contains(&format!("--{name}")), "{typed:?}: {why}");
                }
            }
        }
    }

    #[test]
    fn durations_need_a_unit() {
        let cases = [("60s", 60_000), ("500ms", 500), (" 10m ", 600_000), ("2h", 7_200_000)];
        for (text, milliseconds) in cases {
            let parsed = parse_duration(text).expect(text);
            assert_eq!(parsed, Duration::from_millis(milliseconds), "{text}");
        }
        for text in ["", "60", "s", "-1s", "1.5s", "1d", "99999999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
            let error = config(&[&format!("--exit-when-unused={text}")]).expect_err(text);
            assert!(error.contains("--exit-when-unused"), "{error}");
        }
    }
}
