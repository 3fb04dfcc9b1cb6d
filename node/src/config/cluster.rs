//! The settings of a node in a cluster with changing membership, as typed and as validated.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use larder_base::ring::{Member, Ring};
use larder_coordinator::{EtcdOptions, EtcdTls, JoinToken, Password};

use super::{Args, ConfigError};

/// The typed cluster settings.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ClusterArgs {
    /// Be in a cluster that keeps its record on one of its nodes, and keep this node's part of it
    /// in this folder; without --join this node founds a cluster there
    #[arg(long, env = "LARDER_STATE", value_name = "FOLDER", conflicts_with_all = ["private", "member", "etcd"])]
    pub state: Option<PathBuf>,

    /// A node of the cluster to join (repeat for more)
    #[arg(
        long,
        env = "LARDER_JOIN",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        value_parser = control_address,
        requires = "state"
    )]
    pub join: Vec<String>,

    /// If --state holds another cluster than that of --join, forget it and join
    #[arg(long, env = "LARDER_FORGET_CLUSTER", requires = "join")]
    pub forget_cluster: bool,

    /// The secret that all nodes of the cluster and its operators share, at least 16 bytes; better
    /// in --token-file. With --etcd it may be left out: then only this host's operators may change
    /// the cluster
    #[arg(long, env = "LARDER_TOKEN", value_name = "SECRET", hide_env_values = true)]
    pub token: Option<String>,

    /// A file that holds the token
    #[arg(long, env = "LARDER_TOKEN_FILE", value_name = "PATH", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,

    /// Be in a cluster that keeps its record in etcd (3.4 or later); an endpoint of it (repeat for
    /// more)
    #[arg(
        long,
        env = "LARDER_ETCD",
        value_name = "URL",
        value_delimiter = ',',
        conflicts_with_all = ["private", "member"]
    )]
    pub etcd: Vec<String>,

    /// This node's share of the shards relative to the others'; the default is its memory in GiB
    #[arg(long, env = "LARDER_WEIGHT", value_name = "NUMBER")]
    pub weight: Option<u32>,

    /// Members that own each shard, in a cluster that this node founds or a ring of --member: from
    /// 1, the default, to 8. While one of them is away its shards are read from the next instead of
    /// the origin
    #[arg(long, env = "LARDER_REPLICAS", value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub replicas: Option<u8>,

    /// The domain that fails together with this node beyond its host, such as an availability zone:
    /// replicas of a shard are kept in different ones
    #[arg(long, env = "LARDER_ZONE", value_name = "NAME", default_value = "")]
    pub zone: String,

    /// The host by which other nodes and clients reach this node, when it is not the one it listens
    /// on
    #[arg(long, env = "LARDER_ADVERTISE", value_name = "HOST")]
    pub advertise: Option<String>,

    /// The prefix of this cluster's keys in etcd
    #[arg(long, env = "LARDER_ETCD_PREFIX", value_name = "PREFIX", default_value = "/larder")]
    pub etcd_prefix: String,

    /// The user name of this cluster's nodes in etcd
    #[arg(long, env = "LARDER_ETCD_USER", value_name = "NAME", requires = "etcd_password_file")]
    pub etcd_user: Option<String>,

    /// A file that holds the password of --etcd-user
    #[arg(long, env = "LARDER_ETCD_PASSWORD_FILE", value_name = "PATH", requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,

    /// The certificate of the authority that certifies etcd's servers (PEM), for https
    #[arg(long, env = "LARDER_ETCD_CA", value_name = "PATH")]
    pub etcd_ca: Option<PathBuf>,

    /// This node's certificate (PEM), if etcd asks for one
    #[arg(long, env = "LARDER_ETCD_CERT", value_name = "PATH", requires_all = ["etcd_key", "etcd_ca"])]
    pub etcd_cert: Option<PathBuf>,

    /// The key of --etcd-cert (PEM)
    #[arg(long, env = "LARDER_ETCD_KEY", value_name = "PATH", requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
}

/// The cluster of a node.
#[derive(Debug, Clone)]
pub enum ClusterConfig {
    /// One of its nodes keeps the record.
    EmbeddedCoordinator {
        /// The folder of this node's part.
        state: PathBuf,
        /// The secret that all nodes share.
        token: JoinToken,
        /// Control addresses of nodes to ask, `http://host:port`.
        join: Vec<String>,
        /// Whether to join them even if the folder is of another cluster.
        forget: bool,
    },
    /// etcd keeps the record.
    Etcd {
        /// How to reach etcd.
        options: EtcdOptions,
        /// The token that operators show. With `None` only operators on this host may change the
        /// cluster.
        token: Option<JoinToken>,
    },
}

impl ClusterConfig {
    /// Returns the secret that all nodes share, if they have one.
    pub(crate) fn token(&self) -> Option<&JoinToken> {
        match self {
            Self::EmbeddedCoordinator { token, .. } => Some(token),
            Self::Etcd { token, .. } => token.as_ref(),
        }
    }
}

/// Refuses a share of the ring, or a zone, without a cluster.
pub(super) fn check_ring_share(typed: &ClusterArgs) -> Result<(), ConfigError> {
    let setting = match (typed.weight, typed.zone.as_str()) {
        (None, "") => return Ok(()),
        (Some(_), _) => "--weight",
        (None, _) => "--zone",
    };
    if typed.state.is_some() || !typed.etcd.is_empty() {
        return Ok(());
    }
    let why = "only a node of a cluster has one: give --state or --etcd too, or say it in --member";
    Err(ConfigError::new(setting, why))
}

/// Refuses names, weights and addresses that no ring takes.
pub(super) fn check_member(args: &Args, node_id: &str) -> Result<(), ConfigError> {
    let ClusterArgs { weight, zone, advertise, join, .. } = &args.cluster;
    let (id, control, host) = (node_id.to_owned(), "http://h:1".to_owned(), "h".to_owned());
    let me = Member { id, weight: 1, control, host, zone: String::new() };
    let at = |control: String| Member { control, ..me.clone() };
    let mut given = vec![
        ("--node-id", me.clone()),
        ("--weight", Member { weight: weight.unwrap_or(1), ..me.clone() }),
        ("--zone", Member { zone: zone.clone(), ..me.clone() }),
    ];
    given.extend(advertise.iter().map(|host| {
        ("--advertise", Member { host: host.clone(), ..at(format!("http://{host}:1")) })
    }));
    let data = args.data_advertise.iter().map(|address| format!("http://{address}"));
    given.extend(data.map(|address| ("--data-advertise", at(address))));
    given.extend(join.iter().map(|address| ("--join", at(address.clone()))));
    for (setting, member) in given {
        Ring::new(1, vec![member]).map_err(|why| ConfigError::new(setting, why.to_string()))?;
    }
    Ok(())
}

/// Reads secrets and certificates, and refuses settings that conflict. Returns `None` without a
/// cluster.
pub(super) fn parse(typed: ClusterArgs) -> Result<Option<ClusterConfig>, ConfigError> {
    let token = token(typed.token.as_deref(), typed.token_file.as_deref())?;
    if let Some(state) = typed.state {
        let token = token.ok_or_else(|| {
            let why = "a cluster has a secret that all its nodes share: give it in --token-file or LARDER_TOKEN";
            ConfigError::new("--state", why)
        })?;
        let (join, forget) = (typed.join, typed.forget_cluster);
        return Ok(Some(ClusterConfig::EmbeddedCoordinator { state, token, join, forget }));
    }
    if typed.etcd.is_empty() {
        return match token {
            None => Ok(None),
            Some(_) => Err(ConfigError::new(
                "--token",
                "it is a cluster's, and the node is in none: start it with --state or --etcd, or without a token",
            )),
        };
    }
    let user = match (typed.etcd_user, &typed.etcd_password_file) {
        (Some(name), Some(path)) => Some((name, password(path)?)),
        _ => None,
    };
    let tls = typed.etcd_ca.as_deref().map(|ca| {
        let identity = match (&typed.etcd_cert, &typed.etcd_key) {
            (Some(cert), Some(key)) => Some((read("--etcd-cert", cert)?, read("--etcd-key", key)?)),
            _ => None,
        };
        Ok(EtcdTls { ca: read("--etcd-ca", ca)?, identity })
    });
    typed.etcd.iter().try_for_each(|endpoint| check_no_secret(endpoint))?;
    let options = EtcdOptions {
        endpoints: typed.etcd,
        prefix: typed.etcd_prefix,
        user,
        tls: tls.transpose()?,
    };
    Ok(Some(ClusterConfig::Etcd { options, token }))
}

fn token(typed: Option<&str>, file: Option<&Path>) -> Result<Option<JoinToken>, ConfigError> {
    let read = match (typed, file) {
        (Some(text), _) => JoinToken::new(text).map_err(|why| ConfigError::new("--token", why)),
        (None, Some(path)) => {
            JoinToken::from_file(path).map_err(|why| ConfigError::new("--token-file", why))
        }
        (None, None) => return Ok(None),
    };
    read.map(Some)
}

/// Parses `host:port`, the form of all addresses here. A scheme is ignored.
fn control_address(text: &str) -> Result<String, String> {
    let address = text.trim().trim_start_matches("http://");
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return Err("not HOST:PORT; write it like node-a:7070".to_owned());
    }
    Ok(format!("http://{address}"))
}

/// Refuses user and password in an endpoint, because the cluster's status shows endpoints to every
/// caller.
fn check_no_secret(endpoint: &str) -> Result<(), ConfigError> {
    let authority = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        let why = "an endpoint is shown to every caller, so it must hold no user or password: write it without them, \
                   and give --etcd-user and --etcd-password-file";
        return Err(ConfigError::new("--etcd", why));
    }
    Ok(())
}

fn password(path: &Path) -> Result<Password, ConfigError> {
    let bytes = read("--etcd-password-file", path)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| ConfigError::new("--etcd-password-file", "it holds bytes that are no text"))?;
    Ok(Password(text.trim_end_matches(['\n', '\r']).to_owned()))
}

/// Most bytes of a file of secrets: a chain of certificates has a few KiB.
const SECRET_BYTES_MAX: u64 = 1 << 20;

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(SECRET_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|why| ConfigError::new(setting, format!("{}: {why}", path.display())))?;
    Ok(bytes)
}

/// Refuses a ring as a static list that leaves this node out.
pub(super) fn check_members(
    members: &[Member],
    node_id: &str,
    listen: SocketAddr,
) -> Result<(), ConfigError> {
    if members.is_empty() || members.iter().any(|member| member.id == node_id) {
        return Ok(());
    }
    let names: Vec<&str> = members.iter().map(|member| member.id.as_str()).collect();
    let why = format!(
        "the members {names:?} leave out this node: set --node-id to one of them, or add {node_id}=http://{listen}"
    );
    Err(ConfigError::new("--member", why))
}

/// Parses `NAME=http://host:port[*WEIGHT]`.
pub(super) fn member(text: &str) -> Result<Member, String> {
    let wrong = |why: &str| format!("it {why}: use NAME=http://host:port[*WEIGHT]");
    let (id, rest) = text.split_once('=').ok_or_else(|| wrong("has no '='"))?;
    let (control, weight) = match rest.split_once('*') {
        Some((control, weight)) => {
            (control, weight.parse().map_err(|_| wrong("has a weight that is no whole number"))?)
        }
        None => (rest, 1),
    };
    let address = control.strip_prefix("http://").ok_or_else(|| wrong("has no http:// address"))?;
    let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("has no port"))?;
    if id.is_empty() || host.is_empty() || port.parse::<u16>().is_err() || weight == 0 {
        return Err(wrong("has an empty name, host, port or weight"));
    }
    Ok(Member {
        id: id.to_owned(),
        weight,
        control: control.to_owned(),
        host: host.to_owned(),
        zone: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat() -> ClusterArgs {
        ClusterArgs {
            state: Some("/var/lib/larder".into()),
            token: Some("0123456789abcdef".to_owned()),
            ..ClusterArgs::default()
        }
    }

    #[test]
    fn node_is_in_no_cluster_by_default() {
        assert!(parse(ClusterArgs::default()).expect("valid").is_none());
    }

    #[test]
    fn embedded_mode_needs_a_token_and_addresses_with_ports() {
        assert!(matches!(parse(seat()), Ok(Some(ClusterConfig::EmbeddedCoordinator { .. }))));
        let untold = parse(ClusterArgs { token: None, ..seat() }).expect_err("no token");
        assert!(untold.to_string().contains("--token-file"), "{untold}");
        for (typed, url) in
            [("node-a:7070", "http://node-a:7070"), ("http://[::1]:7", "http://[::1]:7")]
        {
            assert_eq!(control_address(typed).expect(typed), url);
        }
        for wrong in ["node-a", "node-a:", ":7070", "node-a:99999"] {
            assert!(control_address(wrong).expect_err(wrong).contains("node-a:7070"));
        }
    }

    #[test]
    fn a_weight_without_a_cluster_is_refused() {
        let typed = ClusterArgs { weight: Some(3), ..seat() };
        assert!(check_ring_share(&typed).is_ok());
        let alone = ClusterArgs { weight: Some(3), ..ClusterArgs::default() };
        assert!(check_ring_share(&alone).expect_err("refused").to_string().contains("--weight"));
    }

    #[test]
    fn a_password_is_read_without_the_end_of_its_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), " se cret\n").expect("written");
        let typed = ClusterArgs {
            etcd: vec!["http://h:2379".to_owned()],
            etcd_user: Some("larder".to_owned()),
            etcd_password_file: Some(file.path().to_owned()),
            ..ClusterArgs::default()
        };
        let parsed = parse(typed).expect("valid");
        let Some(ClusterConfig::Etcd { options, token }) = parsed else { panic!("{parsed:?}") };
        assert_eq!(options.user.expect("a user").1.0, " se cret");
        assert!(token.is_none());
    }

    #[test]
    fn endpoint_with_a_password_is_refused_without_showing_it() {
        for endpoint in
            ["http://larder:se@cret@h:2379", "https://larder@h:2379/", "larder:secret@h"]
        {
            let typed = ClusterArgs { etcd: vec![endpoint.to_owned()], ..ClusterArgs::default() };
            let refused = parse(typed).expect_err(endpoint).to_string();
            assert!(refused.contains("--etcd-password-file"), "{refused}");
            assert!(!refused.contains("larder"), "{refused}");
        }
        let plain = vec!["http://h:2379/a@b".to_owned()];
        assert!(parse(ClusterArgs { etcd: plain, ..ClusterArgs::default() }).is_ok());
    }

    #[test]
    fn token_is_accepted_with_etcd_and_refused_without_a_cluster() {
        let token = Some("0123456789abcdef".to_owned());
        let alone = ClusterArgs { token, ..ClusterArgs::default() };
        let etcd = ClusterArgs { etcd: vec!["http://h:2379".to_owned()], ..alone.clone() };
        let parsed = parse(etcd).expect("valid").expect("a cluster");
        assert!(parsed.token().is_some());
        assert!(parse(alone).expect_err("in no cluster").to_string().contains("--etcd"));
    }
}
