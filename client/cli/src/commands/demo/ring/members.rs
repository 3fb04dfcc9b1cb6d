//! The nodes of a ring whose members change, and what keeps the record of it.

use std::{fs::File, io::Read};

use larder_client::{Cluster, admin::Operator};

use super::{
    super::{http, nodes::Node, process::Child, signals::Interrupt, stage::Stage},
    etcd::Etcd,
};
use crate::{
    context::Context,
    error::{Exit, Failure},
};

/// What of a node's metrics are bytes of shards that came to it.
const BYTES_READ: [&str; 2] = ["larder_peer_read_bytes_total", "larder_origin_bytes_total"];

/// The nodes that run.
pub(super) struct Members<'a> {
    stage: &'a Stage,
    nodes: Vec<(String, Child)>,
    /// None if the first node keeps the record.
    etcd: Option<Etcd>,
    token: String,
}

impl<'a> Members<'a> {
    /// Nobody yet; etcd is started if there is one.
    pub(super) fn new(
        context: &Context,
        interrupt: &Interrupt,
        stage: &'a Stage,
    ) -> Result<Self, Failure> {
        let start = |program| Etcd::start(context, interrupt, &stage.programs, program);
        let etcd = Etcd::find()?.map(start).transpose()?;
        Ok(Self { stage, nodes: Vec::new(), etcd, token: token()? })
    }

    /// Starts a node, which then joins by itself.
    pub(super) fn add(&mut self, name: &str) -> Result<(), Failure> {
        let Stage { programs, origin, .. } = self.stage;
        let mut node = Node::new(programs, origin, name, 0);
        match &self.etcd {
            Some(etcd) => node.command.args(["--etcd", etcd.endpoint()]),
            None => {
                let first = self.nodes.first().map(|(_, child)| child.address()).transpose()?;
                let first = first.as_deref().map(|address| address.trim_start_matches("http://"));
                let state = programs.folder.join(format!("state-{name}"));
                node.command.arg("--state").arg(state);
                node.command.args(first.into_iter().flat_map(|first| ["--join", first]))
            }
        };
        node.command.env("LARDER_TOKEN", &self.token);
        self.nodes.push((name.to_owned(), node.start(programs)?));
        Ok(())
    }

    /// Stops a node.
    pub(super) fn stop(&mut self, name: &str) {
        self.nodes.retain(|(node, _)| node != name);
    }

    /// Who runs.
    pub(super) fn names(&self) -> Vec<&str> {
        self.nodes.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// What keeps the record: `etcd`, or `embedded` in the first node.
    pub(super) fn coordinator(&self) -> &'static str {
        if self.etcd.is_some() { "etcd" } else { "embedded" }
    }

    /// What whoever changes the cluster has to show.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Control addresses of all that run.
    pub(super) fn addresses(&self) -> Result<String, Failure> {
        let addresses = self.nodes.iter().map(|(_, child)| child.address());
        Ok(addresses.collect::<Result<Vec<_>, _>>()?.join(","))
    }

    /// Somebody who may change the cluster.
    pub(super) fn operator(&self) -> Result<Operator, Failure> {
        let cluster = Cluster::connect(&self.addresses()?)?;
        Ok(Operator::new(cluster, Some(&self.token), "larder demo".to_owned()))
    }

    /// Bytes of shards that the nodes which run read from each other or the origin since they
    /// started, by their metrics.
    pub(super) fn bytes_read(&self) -> Result<u64, Failure> {
        let mut sum = 0;
        for (name, child) in &self.nodes {
            let failed = |why: String| {
                Failure::new(Exit::Failed, format!("node {name} does not say what it read"))
                    .why(why)
            };
            let metrics = http::get(&format!("{}/metrics", child.address()?));
            let metrics = metrics.map_err(|error| failed(error.to_string()))?;
            for metric in BYTES_READ {
                let read = value(&metrics, metric, name);
                sum +=
                    read.ok_or_else(|| failed(format!("there is no {metric} in its metrics")))?;
            }
        }
        Ok(sum)
    }
}

impl Drop for Members<'_> {
    /// Who came last goes first: the others' record may be kept by the first.
    fn drop(&mut self) {
        while self.nodes.pop().is_some() {}
    }
}

/// The value of a node's counter in Prometheus' text.
fn value(metrics: &str, metric: &str, node: &str) -> Option<u64> {
    let labels = format!("{{node=\"{node}\"}} ");
    let of = |line: &str| line.strip_prefix(metric)?.strip_prefix(&labels)?.trim().parse().ok();
    metrics.lines().find_map(of)
}

/// A secret that nobody can guess.
fn token() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Failure::new(Exit::Failed, "no token could be made").why(error))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_among_a_nodes_metrics() {
        let metrics = "# HELP x\\nlarder_x_total{node=\"a\"} 12\\nlarder_x{node=\"a\"} 3\\n"
            .replace("\\n", "\n");
        assert_eq!(value(&metrics, "larder_x_total", "a"), Some(12));
        assert_eq!(value(&metrics, "larder_x", "a"), Some(3));
        assert_eq!(value(&metrics, "larder_x", "b"), None);
    }

    #[test]
    fn every_token_is_another() {
        let tokens = [token().unwrap(), token().unwrap()];
        assert!(tokens[0] != tokens[1] && tokens.iter().all(|token| token.len() == 32));
    }
}
